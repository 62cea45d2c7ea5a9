"""Levels and policies of compatibility: which versions a new schema is compared with, and in which direction.

Backward: readers with the new schema read what was written with an old one.  Forward: readers with an old schema read
what is written with the new one.  The formats say whether one schema reads another; this is the same for all.

Confluent's registry knows seven levels, Pravega's nine policies.  Each level is a policy.  Of the policies, DenyAll and
some advanced ones are no level: where only a level can be shown, `level_of` gives the nearest stricter one.

One policy means less here than in Pravega's server.  If an advanced policy compares with the latest version in one
direction and with more in the other, that server compares with all of them in both directions; here each direction has
its own versions, as its documentation says.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_INCOMPATIBILITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Schema = TypeVar("Schema")


class Level(Enum):
    """A level of compatibility, by its name in Confluent's registry."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class PolicyName(Enum):
    """A policy of compatibility, by its name in Pravega's registry."""

    ALLOW_ANY = "AllowAny"
    DENY_ALL = "DenyAll"
    BACKWARD = "Backward"
    BACKWARD_TRANSITIVE = "BackwardTransitive"
    FORWARD = "Forward"
    FORWARD_TRANSITIVE = "ForwardTransitive"
    FULL = "Full"
    FULL_TRANSITIVE = "FullTransitive"
    ADVANCED = "Advanced"


class Span(Enum):
    """The versions to compare with in one direction: the latest alone, or every one."""

    LATEST = "latest"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class Till:
    """The versions to compare with in one direction: those from version number `version` on."""

    version: int


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of compatibility.  `backward` and `forward`: the versions to compare with, of an advanced policy only;
    None: that direction is not compared.

    Raises Invalid for an advanced policy without a direction, and for another policy with one."""

    name: PolicyName
    backward: Span | Till | None = None
    forward: Span | Till | None = None

    def __post_init__(self) -> None:
        given = self.backward is not None or self.forward is not None
        if self.name is PolicyName.ADVANCED and not given:
            raise Invalid("the policy Advanced needs a backward or a forward policy")
        if self.name is not PolicyName.ADVANCED and given:
            raise Invalid(f"the policy {self.name.value} takes no backward and no forward policy: use Advanced")

    @property
    def spans(self) -> tuple[Span | Till | None, Span | Till | None]:
        """The versions to compare with, backward and forward.  Not of DenyAll, which compares nothing."""
        return _SPANS.get(self.name, (self.backward, self.forward))


_SPANS: Final[Mapping[PolicyName, tuple[Span | None, Span | None]]] = {
    PolicyName.ALLOW_ANY: (None, None),
    PolicyName.BACKWARD: (Span.LATEST, None),
    PolicyName.BACKWARD_TRANSITIVE: (Span.EVERY, None),
    PolicyName.FORWARD: (None, Span.LATEST),
    PolicyName.FORWARD_TRANSITIVE: (None, Span.EVERY),
    PolicyName.FULL: (Span.LATEST, Span.LATEST),
    PolicyName.FULL_TRANSITIVE: (Span.EVERY, Span.EVERY),
}
_POLICIES: Final[Mapping[Level, Policy]] = {
    Level.NONE: Policy(PolicyName.ALLOW_ANY),
    Level.BACKWARD: Policy(PolicyName.BACKWARD),
    Level.BACKWARD_TRANSITIVE: Policy(PolicyName.BACKWARD_TRANSITIVE),
    Level.FORWARD: Policy(PolicyName.FORWARD),
    Level.FORWARD_TRANSITIVE: Policy(PolicyName.FORWARD_TRANSITIVE),
    Level.FULL: Policy(PolicyName.FULL),
    Level.FULL_TRANSITIVE: Policy(PolicyName.FULL_TRANSITIVE),
}
_LEVELS: Final = {policy.spans: level for level, policy in _POLICIES.items()}


def policy_of(level: Level) -> Policy:
    """Return the policy that means the same as a level."""
    return _POLICIES[level]


def is_level(policy: Policy) -> bool:
    """Return whether a level means the same as a policy."""
    return policy.name is not PolicyName.DENY_ALL and policy.spans in _LEVELS


def level_of(policy: Policy) -> Level:
    """Return the level that means the same as a policy, or else the nearest one that allows less.

    For DenyAll, that is FULL_TRANSITIVE although it allows more: the caller adds that nothing may be registered."""
    if policy.name is PolicyName.DENY_ALL:
        return Level.FULL_TRANSITIVE
    backward, forward = (Span.EVERY if isinstance(one, Till) else one for one in policy.spans)
    return _LEVELS.get((backward, forward), Level.FULL_TRANSITIVE)


def refusals(
    policy: Policy | Level,
    new: Schema,
    history: Sequence[tuple[int, Schema]],
    incompatibilities: Callable[[Schema, Schema], list[str]],
) -> list[str]:
    """Return why a policy does not allow a new schema after others: a sentence each; none if it does.

    `history`: version and schema, oldest first.  `incompatibilities`: of the schema of a reader and that of a writer.
    The latest versions are compared first, and none after `MAX_INCOMPATIBILITIES` sentences.  As in Pravega's server,
    DenyAll allows the first schema."""
    policy = _POLICIES[policy] if isinstance(policy, Level) else policy
    if policy.name is PolicyName.DENY_ALL:
        return ["the policy DenyAll allows no schema after the first"] if history else []
    oldest_read, oldest_reader = (_oldest(span, history) for span in policy.spans)
    found: list[str] = []
    for version, old in reversed(history):
        if oldest_read is not None and version >= oldest_read:
            found += [f"the new schema does not read version {version}: {why}" for why in incompatibilities(new, old)]
        if oldest_reader is not None and version >= oldest_reader:
            found += [f"version {version} does not read the new schema: {why}" for why in incompatibilities(old, new)]
        if len(found) >= MAX_INCOMPATIBILITIES:
            break
    return found[:MAX_INCOMPATIBILITIES]


def _oldest(span: Span | Till | None, history: Sequence[tuple[int, object]]) -> int | None:
    """Return the oldest version that a span has of a history; None for no version."""
    if span is None or not history:
        return None
    if isinstance(span, Till):
        return span.version
    return history[-1][0] if span is Span.LATEST else history[0][0]


__all__ = ["Level", "Policy", "PolicyName", "Span", "Till", "is_level", "level_of", "policy_of", "refusals"]
