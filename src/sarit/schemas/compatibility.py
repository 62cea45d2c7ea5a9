"""Levels of compatibility: which versions of a schema a new one is compared with, and in which direction.

Backward: readers with the new schema read what was written with an old one.  Forward: readers with an old schema read
what is written with the new one.  The formats say whether one schema reads another; this is the same for all.  Pure.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from sarit.schemas.limits import MAX_INCOMPATIBILITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Schema = TypeVar("Schema")


class Level(Enum):
    """A level of compatibility, by its name in registries."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class _Checks(NamedTuple):
    """Directions to compare in, and whether with all versions or with the latest alone.  Internal."""

    backward: bool
    forward: bool
    every: bool


_CHECKS: Final[Mapping[Level, _Checks]] = {
    Level.NONE: _Checks(backward=False, forward=False, every=False),
    Level.BACKWARD: _Checks(backward=True, forward=False, every=False),
    Level.BACKWARD_TRANSITIVE: _Checks(backward=True, forward=False, every=True),
    Level.FORWARD: _Checks(backward=False, forward=True, every=False),
    Level.FORWARD_TRANSITIVE: _Checks(backward=False, forward=True, every=True),
    Level.FULL: _Checks(backward=True, forward=True, every=False),
    Level.FULL_TRANSITIVE: _Checks(backward=True, forward=True, every=True),
}


def refusals(
    level: Level,
    new: Schema,
    history: Sequence[tuple[int, Schema]],
    incompatibilities: Callable[[Schema, Schema], list[str]],
) -> list[str]:
    """Return why a level does not allow a new schema after others: a sentence each; none if it does.

    `history`: version and schema, oldest first.  `incompatibilities`: of the schema of a reader and that of a writer.
    The latest versions are compared first, and none after `MAX_INCOMPATIBILITIES` sentences."""
    checks = _CHECKS[level]
    found: list[str] = []
    for version, old in reversed(history if checks.every else history[-1:]):
        if checks.backward:
            found += [f"the new schema does not read version {version}: {why}" for why in incompatibilities(new, old)]
        if checks.forward:
            found += [f"version {version} does not read the new schema: {why}" for why in incompatibilities(old, new)]
        if len(found) >= MAX_INCOMPATIBILITIES:
            break
    return found[:MAX_INCOMPATIBILITIES]
