"""Policies of compatibility in the registry: what one means for each version, and its form in a row.  Pure."""

from __future__ import annotations

from typing import Any, Final

from sarit.core.errors import Invalid
from sarit.registry.values import Mode, Settings
from sarit.schemas.compatibility import Level, Policy, PolicyName, Span, Till, policy_of
from sarit.schemas.definitions import Kind

DEFAULT_POLICY: Final = policy_of(Level.BACKWARD)
DEFAULT_MODE: Final = Mode.READWRITE
READING_LATEST: Final = Policy(PolicyName.ADVANCED, Span.LATEST)
_WITHOUT_COMPARISON: Final = (PolicyName.ALLOW_ANY, PolicyName.DENY_ALL)


def in_force(levels: list[Settings]) -> Settings:
    """Return the settings in force from those of each level, the group's own first and the installation's last."""
    policy = next((one.policy for one in levels if one.policy is not None), DEFAULT_POLICY)
    mode = next((one.mode for one in levels if one.mode is not None), DEFAULT_MODE)
    if any(one.mode is Mode.READONLY_OVERRIDE for one in levels):
        mode = Mode.READONLY_OVERRIDE
    return Settings(policy, mode)


def for_version(policy: Policy, number: int, *, newest: bool) -> Policy | None:
    """Return the policy by which a new schema is compared with one version alone; None: it is not compared with it.

    `newest`: the version is the latest one.  Not for DenyAll, which compares nothing."""

    def reaches(span: Span | Till | None) -> Span | None:
        if isinstance(span, Till):
            return Span.EVERY if number >= span.version else None
        return Span.EVERY if span is Span.EVERY or (span is Span.LATEST and newest) else None

    backward, forward = map(reaches, policy.spans)
    return None if backward is None and forward is None else Policy(PolicyName.ADVANCED, backward, forward)


def for_reading(policy: Policy) -> Policy | None:
    """Return which versions a reader must be able to read under a policy (Pravega's canRead); None: any may fail.

    Where writers may use a newer schema than readers, and where no more are allowed, that is the latest one."""
    if policy.name is PolicyName.ALLOW_ANY:
        return None
    if policy.name is PolicyName.DENY_ALL:
        return READING_LATEST
    return Policy(PolicyName.ADVANCED, policy.spans[0] or Span.LATEST)


def check_policy(policy: Policy, kind: Kind | None) -> Policy:
    """Return a policy that a group of this kind may have.  Raises Invalid: opaque schemas cannot be compared."""
    if kind is Kind.OPAQUE and policy.name not in _WITHOUT_COMPARISON:
        raise Invalid(f"opaque schemas cannot be compared, as {policy.name.value} does: use AllowAny or DenyAll")
    return policy


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """Return the form of a policy in a row."""
    return {"name": policy.name.value, "backward": _span(policy.backward), "forward": _span(policy.forward)}


def policy_from_json(given: dict[str, Any]) -> Policy:
    """Return the policy of a row.  Raises KeyError, TypeError, ValueError for another form."""
    return Policy(PolicyName(given["name"]), _parse_span(given["backward"]), _parse_span(given["forward"]))


def _span(span: Span | Till | None) -> str | int | None:
    return span.version if isinstance(span, Till) else None if span is None else span.value


def _parse_span(given: str | int | None) -> Span | Till | None:
    return None if given is None else Till(given) if isinstance(given, int) else Span(given)
