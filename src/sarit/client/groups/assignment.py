"""Who takes how many segments, who gives some away, and when (pure; client_behaviour.md par. 6).

The rules are those of Pravega's `ReaderGroupStateManager`, so that readers of both kinds come to rest together.  A
reader's *size* is the number of its segments, weighted by how far behind it is.  The smaller a reader, the sooner it
looks for segments to take; the larger, the sooner it gives some away, and only when it has more than one segment more
than the smallest one, and more than are free already.  So nobody takes what was just given away, and at rest nothing
moves.

Java's readers look once in some seconds, ours when the state changes; so our unit of time is shorter, and its sum over
all readers has a bound.  Java's give one segment away at a checkpoint, ours as many as the rule allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.client.groups.values import UNBOUNDED
from sarit.core.keyspace import hash_key
from sarit.core.limits import (
    ASSUMED_READER_LAG_MS,
    GROUP_DELAY_UNIT_SECONDS,
    JAVA_GROUP_DELAY_UNIT_SECONDS,
    MAX_GROUP_DELAY_SECONDS,
)

if TYPE_CHECKING:
    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import GroupSegment

MAX_READERS_WAITED_FOR: Final = 5
LOAD_TOLERANCE: Final = 0.01  # sizes that differ by less differ only in when somebody said how far it is


def loads(state: GroupState) -> dict[str, float]:
    """The size of each reader online."""
    lags = {
        reader: ASSUMED_READER_LAG_MS if (lag := state.distances.get(reader, UNBOUNDED)) == UNBOUNDED else lag
        for reader in state.assigned
    }
    most = max((lags[reader] for reader, owned in state.assigned.items() if owned), default=ASSUMED_READER_LAG_MS)
    return {reader: len(owned) * lags[reader] / most for reader, owned in state.assigned.items()}


def rank(state: GroupState, reader: str) -> int:
    """The place of a reader among all, the largest first."""
    held = loads(state)
    return sorted(held, key=lambda other: (-held[other], other)).index(reader)


def acquire_delay_seconds(state: GroupState, reader: str) -> float:
    """How long segments are free before a reader takes some: the smallest one the shortest.

    Who has more than another leaves them to that one until a reader that looks seldom has had the time to look."""
    pause = _unit_seconds(state) * (len(state.assigned) - rank(state, reader))
    least = min(map(len, state.assigned.values()))
    if len(state.assigned[reader]) <= least:
        return pause
    return (
        pause
        + state.config.refresh_ms / 1000
        + min(len(state.assigned), MAX_READERS_WAITED_FOR) * JAVA_GROUP_DELAY_UNIT_SECONDS
    )


def release_delay_seconds(state: GroupState, reader: str) -> float:
    """How long a reader waits before it gives any away: the largest one the shortest."""
    return _unit_seconds(state) * (1 + rank(state, reader))


def _unit_seconds(state: GroupState) -> float:
    return min(GROUP_DELAY_UNIT_SECONDS, MAX_GROUP_DELAY_SECONDS / max(len(state.assigned), 1))


def to_acquire(state: GroupState, reader: str) -> list[GroupSegment]:
    """The unassigned segments that a reader should take now: its fair share, one at the least if there is one."""
    free = len(state.unassigned)
    if not free:
        return []
    readers = len(state.assigned)
    fair = (2 * state.segment_count + readers) // (2 * readers)  # rounded, a half up
    count = max(free // readers, min(free, fair - len(state.assigned[reader])), 1)
    return list(state.unassigned)[:count]


def to_release(state: GroupState, reader: str) -> list[GroupSegment]:
    """The segments that a reader should give away now."""
    owned = sorted(state.assigned.get(reader, ()), key=lambda segment: _tie_breaker(reader, segment), reverse=True)
    held = loads(state)
    if len(owned) < 2 or len(held) < 2:
        return []
    each = held.pop(reader) / len(owned)
    smallest, free = min(held.values()), len(state.unassigned)
    count = 0
    while len(owned) - count >= 2 and each * (len(owned) - count) > smallest + max(1, free + count) + LOAD_TOLERANCE:
        count += 1
    return owned[:count]


def _tie_breaker(reader: str, segment: GroupSegment) -> float:
    """Some order of segments, another for each reader."""
    return hash_key(f"{reader} {segment}")
