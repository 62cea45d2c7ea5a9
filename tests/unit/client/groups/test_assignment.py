"""Which segments readers acquire and release: assignments become even and stable, then no segment moves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.client.groups import assignment
from sarit.client.groups.state import (
    AcquireSegment,
    AddReader,
    Init,
    ReleaseSegment,
    RemoveReader,
    UpdateDistance,
    apply,
)
from sarit.client.groups.values import UNBOUNDED, GroupConfig, GroupSegment
from sarit.core.names import SegmentId, StreamName
from tests.limits import examples

STREAM = StreamName("s", "t")


def group(segments: int, readers: int):
    start = {GroupSegment(STREAM, SegmentId(0, number)): 0 for number in range(segments)}
    state = apply(None, Init(GroupConfig({STREAM: None}, {STREAM: None}), start, {}))
    for number in range(readers):
        state = apply(state, AddReader(f"r{number}"))
    return state


def acquire(state, reader):
    for segment in assignment.to_acquire(state, reader):
        state = apply(state, AcquireSegment(reader, segment))
    return apply(state, UpdateDistance(reader, 0))


def release(state, reader):
    for segment in assignment.to_release(state, reader):
        state = apply(state, ReleaseSegment(reader, segment, 0))
    return state


def consumed(state, turns: int = 40):
    """Each reader does what is due, the one with the shortest delay first, until nothing moves.  Returns the number of
    moves."""
    moved = 0
    for _ in range(turns):
        before = state.assigned
        for reader in sorted(state.readers, key=lambda r: assignment.release_delay_seconds(state, r)):
            state = release(state, reader)
        while state.unassigned:
            reader = min(state.readers, key=lambda r: assignment.acquire_delay_seconds(state, r))
            state = acquire(state, reader)
        moved += sum(len(set(state.assigned[r]) - set(before[r])) for r in state.readers)
        if {r: set(o) for r, o in before.items()} == {r: set(o) for r, o in state.assigned.items()}:
            return state, moved
    raise AssertionError(f"segments keep moving: {segment_counts(state)}")


def segment_counts(state) -> list[int]:
    return sorted(map(len, state.assigned.values()))


@given(st.integers(1, 40), st.integers(1, 12), st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_assignment_becomes_stable_and_even(segments, readers, random):
    state, _ = consumed(group(segments, readers))
    assert segment_counts(state)[-1] - segment_counts(state)[0] <= 1
    for number in range(4):
        if len(state.readers) > 1 and random.random() < 0.5:
            lost = random.choice(state.readers)
            owned = len(state.assigned[lost])
            state, moved = consumed(apply(state, RemoveReader(lost, {})))
            assert moved <= owned + 2 * len(state.readers), "more moved than was lost"
        else:
            state, _ = consumed(apply(state, AddReader(f"new{number}")))
        assert segment_counts(state)[-1] - segment_counts(state)[0] <= 1
        assert sum(segment_counts(state)) == segments


def test_new_reader_acquires_its_half_in_one_round():
    state, _ = consumed(group(16, 1))
    state = apply(state, AddReader("new"))
    assert len(assignment.to_release(state, "r0")) == 8
    state = release(state, "r0")
    assert assignment.to_release(state, "r0") == []
    assert len(assignment.to_acquire(state, "new")) == 8


def test_difference_of_one_segment_moves_nothing():
    state, _ = consumed(group(3, 2))
    assert segment_counts(state) == [1, 2]
    assert not any(assignment.to_release(state, reader) for reader in state.readers)
    # Nor when readers reported at different moments (Java's readers report the time of day).
    for number, reader in enumerate(state.readers):
        state = apply(state, UpdateDistance(reader, 1_700_000_000_000 + 5_000 * number))
    assert not any(assignment.to_release(state, reader) for reader in state.readers)


def test_smallest_load_acquires_first_and_larger_ones_wait():
    state = group(6, 3)
    for reader, count in (("r0", 3), ("r1", 1)):
        for segment in list(state.unassigned)[:count]:
            state = apply(state, AcquireSegment(reader, segment))
        state = apply(state, UpdateDistance(reader, 0))
    pauses = [assignment.acquire_delay_seconds(state, reader) for reader in ("r2", "r1", "r0")]
    assert pauses[0] == pytest.approx(0.1)
    assert pauses == sorted(pauses)
    assert pauses[1] > 3  # a reader that evaluates every 3 s comes first


def test_reader_that_is_alone_acquires_at_once():
    assert assignment.acquire_delay_seconds(group(6, 1), "r0") == 0
    assert assignment.acquire_delay_seconds(group(6, 2), "r0") > 0


def test_delays_are_bounded_for_any_number_of_readers():
    state = group(1, 1000)
    assert max(assignment.acquire_delay_seconds(state, reader) for reader in state.readers[:3]) <= 1
    assert all(assignment.loads(state)[reader] == 0 for reader in state.readers)
    assert state.distances["r0"] == UNBOUNDED


def test_nothing_is_acquired_or_released_without_need():
    state, _ = consumed(group(4, 1))
    assert assignment.to_acquire(state, "r0") == []
    assert assignment.to_release(state, "r0") == []
