"""Epochs as scaling events."""

from __future__ import annotations

from sarit.controller.model.epochs import even_replacement, first_epoch, next_epoch
from sarit.controller.model.scaling_events import scaling_events
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId

FIRST = first_epoch(2, 0, 100)
# The upper half is split, the lower one stays; then all are merged.
SPLIT = next_epoch(FIRST, [SegmentId(0, 1).packed], [KeyRange(0.5, 0.75), KeyRange(0.75, 1.0)], 200)
MERGED = even_replacement(SPLIT, 1, 300)
EPOCHS = (FIRST, SPLIT, MERGED)


def summary(from_ms: int, to_ms: int, epochs=EPOCHS) -> list[tuple[int, int, int, int]]:
    found = scaling_events(epochs, from_ms, to_ms)
    return [(event.time_ms, len(event.segments), event.splits, event.merges) for event in found]


def test_splits_and_merges_are_counted_against_the_epoch_before() -> None:
    assert summary(0, 1000) == [(100, 2, 0, 0), (200, 3, 1, 0), (300, 1, 0, 1)]


def test_the_epoch_in_force_at_the_first_time_comes_first_and_without_counts() -> None:
    assert summary(250, 1000) == [(200, 3, 0, 0), (300, 1, 0, 1)]
    assert summary(200, 299) == [(100, 2, 0, 0), (200, 3, 1, 0)]
    assert summary(400, 500) == [(300, 1, 0, 0)]
    assert summary(0, 99) == []


def test_segments_that_stay_keep_the_time_of_their_creation() -> None:
    second = scaling_events(EPOCHS, 0, 1000)[1]
    assert [start for _, start in second.segments] == [100, 200, 200]
    # The epoch that made it is not known any more.
    assert [start for _, start in scaling_events((SPLIT, MERGED), 0, 1000)[0].segments] == [200, 200, 200]
