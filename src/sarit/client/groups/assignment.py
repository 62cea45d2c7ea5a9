"""Which segments a reader acquires and releases, and after which delay (pure; client_behaviour.md par. 6).

The rules are those of Pravega's `ReaderGroupStateManager`, so that a group of readers of both kinds becomes stable.  A
reader's *load* is the number of its segments, weighted by its lag.  The smaller the load, the shorter the delay before
the reader acquires unassigned segments; the larger, the shorter the delay before it releases some.  A reader releases
only while its load exceeds the smallest one by more than one segment, and by more than the segments that are
unassigned already.  So no reader acquires what was just released from it, and in a stable group no segment moves.

Java's readers evaluate this every few seconds, ours whenever the state changes.  Our delay unit is therefore shorter,
and the delay over all readers is bounded.  Java's readers release one segment per checkpoint, ours as many as the rule
allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.client.groups.values import UNBOUNDED
from sarit.client.limits import (
    ASSUMED_READER_LAG_MS,
    GROUP_DELAY_UNIT_SECONDS,
    JAVA_GROUP_DELAY_UNIT_SECONDS,
    MAX_GROUP_DELAY_SECONDS,
)
from sarit.core.keyspace import hash_key

if TYPE_CHECKING:
    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import GroupSegment

MAX_READERS_WAITED_FOR: Final = 5
LOAD_TOLERANCE: Final = 0.01  # a smaller difference of loads comes from when the readers reported


def loads(state: GroupState) -> dict[str, float]:
    """Return the load of each reader that is online."""
    lags = {
        reader: ASSUMED_READER_LAG_MS if (lag := state.distances.get(reader, UNBOUNDED)) == UNBOUNDED else lag
        for reader in state.assigned
    }
    # Ignore the lags of readers without segments, which say nothing.  So a load is at most the number of segments, and
    # that of the slowest reader is exactly their number.
    most = max((lags[reader] for reader, owned in state.assigned.items() if owned), default=ASSUMED_READER_LAG_MS)
    return {reader: len(owned) * lags[reader] / most for reader, owned in state.assigned.items()}


def rank(state: GroupState, reader: str) -> int:
    """Return the index of a reader in the order of loads, the largest first."""
    by_reader = loads(state)
    # Readers of equal load are sorted by name, so that every process finds the same order.
    return sorted(by_reader, key=lambda other: (-by_reader[other], other)).index(reader)


def acquire_delay_seconds(state: GroupState, reader: str) -> float:
    """Return how long segments stay unassigned before a reader acquires some: the shortest for the smallest load.

    A reader that is alone does not wait.  A reader with more segments than another waits until the other, even if it is
    a Java reader, has had time to acquire them."""
    if len(state.assigned) == 1:
        return 0.0
    delay = _unit_seconds(state) * (len(state.assigned) - rank(state, reader))
    least = min(map(len, state.assigned.values()))
    if len(state.assigned[reader]) <= least:
        return delay
    java_delay = min(len(state.assigned), MAX_READERS_WAITED_FOR) * JAVA_GROUP_DELAY_UNIT_SECONDS
    return delay + state.config.refresh_ms / 1000 + java_delay


def release_delay_seconds(state: GroupState, reader: str) -> float:
    """Return how long a reader waits before it releases segments: the shortest for the largest load."""
    return _unit_seconds(state) * (1 + rank(state, reader))


def _unit_seconds(state: GroupState) -> float:
    # The last reader waits one unit for each reader, so dividing by their number bounds the longest delay.
    return min(GROUP_DELAY_UNIT_SECONDS, MAX_GROUP_DELAY_SECONDS / max(len(state.assigned), 1))


def to_acquire(state: GroupState, reader: str) -> list[GroupSegment]:
    """Return the unassigned segments that a reader should acquire now: up to its fair part, at least one."""
    free = len(state.unassigned)
    if not free:
        return []
    readers = len(state.assigned)
    fair = (2 * state.segment_count + readers) // (2 * readers)  # rounded, a half up
    # Take at least one: a segment must not stay unassigned because every reader has its fair part.
    count = max(free // readers, min(free, fair - len(state.assigned[reader])), 1)
    return list(state.unassigned)[:count]


def to_release(state: GroupState, reader: str) -> list[GroupSegment]:
    """Return the segments that a reader should release now."""
    owned = sorted(state.assigned.get(reader, ()), key=lambda segment: _tie_breaker(reader, segment), reverse=True)
    by_reader = loads(state)
    if len(owned) < 2 or len(by_reader) < 2:
        return []
    each = by_reader.pop(reader) / len(owned)
    # All segments that are unassigned, and those released here, may go to the reader of the smallest load.
    smallest, free = min(by_reader.values()), len(state.unassigned)
    count = 0
    while len(owned) - count >= 2 and each * (len(owned) - count) > smallest + max(1, free + count) + LOAD_TOLERANCE:
        count += 1
    return owned[:count]


def _tie_breaker(reader: str, segment: GroupSegment) -> float:
    """Return a pseudo-random order of segments that differs from reader to reader."""
    return hash_key(f"{reader} {segment}")
