"""The effects of single updates on a group's state, as scripts (client_behaviour.md par. 6)."""

import pytest

from sarit.client.groups.checkpoints import MAX_CLEARED_CHECKPOINTS
from sarit.client.groups.state import (
    AcquireSegment,
    AddReader,
    CheckpointReader,
    ClearCheckpointsBefore,
    CreateCheckpoint,
    GroupState,
    Init,
    ReleaseSegment,
    RemoveOutstandingCheckpoints,
    RemoveReader,
    SegmentCompleted,
    UpdateDistance,
    apply,
    removal,
)
from sarit.client.groups.values import UNBOUNDED, GroupConfig, GroupSegment
from sarit.core.errors import Conflict
from sarit.core.names import SegmentId, StreamName

STREAM, OTHER = StreamName("s", "t"), StreamName("s", "u")


def segment(number: int, epoch: int = 0, stream: StreamName = STREAM) -> GroupSegment:
    return GroupSegment(stream, SegmentId(epoch, number))


LEFT, RIGHT, MERGED = segment(0), segment(1), segment(2, 1)
BOTH = frozenset((LEFT, RIGHT))


def after(*updates, start=(LEFT, RIGHT), state=None) -> GroupState:
    state = state or apply(None, Init(GroupConfig({STREAM: None}, {STREAM: None}), dict.fromkeys(start, 0), {}))
    for update in updates:
        state = apply(state, update)
        state.check()
    return state


SHARED = (
    AddReader("a"),
    AddReader("b"),
    AcquireSegment("a", LEFT),
    AcquireSegment("b", RIGHT),
)


def test_merged_segment_begins_after_both_predecessors():
    half = after(*SHARED, SegmentCompleted("a", LEFT, {MERGED: BOTH}))
    assert half.future == {MERGED: {RIGHT}}
    assert half.unassigned == {}
    whole = apply(half, SegmentCompleted("b", RIGHT, {MERGED: BOTH}))
    assert (whole.future, whole.unassigned, whole.last_read) == ({}, {MERGED: 0}, {MERGED: 0})
    ended = apply(apply(whole, AcquireSegment("a", MERGED)), SegmentCompleted("a", MERGED, {}))
    assert ended.at_end


def test_segments_of_one_number_in_two_streams_are_distinct():
    theirs = segment(0, stream=OTHER)
    state = after(
        *SHARED,
        SegmentCompleted("b", RIGHT, {MERGED: BOTH}),
        AcquireSegment("b", theirs),
        SegmentCompleted("b", theirs, {}),
        start=(LEFT, RIGHT, theirs),
    )
    assert state.future == {MERGED: {LEFT}}
    taken = apply(state, AcquireSegment("b", MERGED))  # as a Java reader does, to which it is unassigned
    assert taken.assigned["b"] == {MERGED: 0}
    assert apply(taken, SegmentCompleted("a", LEFT, {MERGED: BOTH})).unassigned == {}


def test_lost_reader_resumes_at_checkpoint_or_given_position():
    state = after(*SHARED, CreateCheckpoint("c"), CheckpointReader("c", "a", {LEFT: 10}))
    state = apply(state, UpdateDistance("a", 5, {LEFT: 15}))
    assert apply(state, RemoveReader("a", {})).unassigned == {LEFT: 10}
    assert apply(state, RemoveReader("a", {LEFT: 12, RIGHT: 99})).unassigned == {LEFT: 12}
    assert apply(state, RemoveReader("nobody", {LEFT: 1})) == state


def test_silent_checkpoint_does_not_move_the_resume_offset():
    state = after(*SHARED, CreateCheckpoint("c_SILENT_"), CheckpointReader("c_SILENT_", "a", {LEFT: 10}))
    assert apply(state, RemoveReader("a", {})).unassigned == {LEFT: 0}
    done = apply(state, CheckpointReader("c_SILENT_", "b", {RIGHT: 7}))
    assert done.checkpoints.completed("c_SILENT_") == {LEFT: 10, RIGHT: 7}
    assert done.checkpoints.last is None


def test_checkpoint_completes_with_its_last_reader_passed_or_lost():
    state = after(*SHARED, ReleaseSegment("a", LEFT, 4), CreateCheckpoint("c"), AddReader("late"))
    assert state.checkpoints.next_for("late") is None
    state = apply(state, CheckpointReader("c", "b", {RIGHT: 7}))
    assert state.checkpoints.completed("c") is None
    with pytest.raises(Conflict):
        apply(state, CheckpointReader("c", "b", {RIGHT: 8}))
    state = apply(state, RemoveReader("a", {}))
    assert state.checkpoints.completed("c") == state.checkpoints.last == {LEFT: 4, RIGHT: 7}
    assert not state.checkpoints.published


def test_checkpoint_without_readers_completes_at_once():
    assert after(CreateCheckpoint("c")).checkpoints.completed("c") == {LEFT: 0, RIGHT: 0}


def test_checkpoints_are_passed_in_order_and_cleared():
    state = after(*SHARED, CreateCheckpoint("one"), CreateCheckpoint("two"), CreateCheckpoint("one"))
    assert state.checkpoints.names == ("one", "two")
    assert state.checkpoints.next_for("a") == "one"
    assert apply(state, ClearCheckpointsBefore("two")).checkpoints.next_for("a") == "two"
    assert apply(state, ClearCheckpointsBefore("three")) == state
    assert apply(state, RemoveOutstandingCheckpoints()).checkpoints.names == ()


def test_copy_retains_positions_of_cleared_completed_checkpoints():
    state = after(*SHARED, CreateCheckpoint("mine"), CheckpointReader("mine", "a", {LEFT: 3}))
    cleared_early = after(CreateCheckpoint("auto"), ClearCheckpointsBefore("auto"), state=state)
    assert cleared_early.checkpoints.completed("mine") is None, "not all had passed it"
    state = apply(state, CheckpointReader("mine", "b", {RIGHT: 4}))
    state = after(CreateCheckpoint("auto"), ClearCheckpointsBefore("auto"), state=state)
    assert state.checkpoints.names == ("auto",)
    assert state.checkpoints.completed("mine") == {LEFT: 3, RIGHT: 4}
    assert apply(state, CreateCheckpoint("mine")).checkpoints.completed("mine") is None, "another one of that name"
    for number in range(2 * MAX_CLEARED_CHECKPOINTS):
        name = f"auto {number}"
        passed = [CheckpointReader(name, reader, {}) for reader in "ab"]
        state = after(CreateCheckpoint(name), *passed, ClearCheckpointsBefore(name), state=state)
    assert state.checkpoints.completed("mine") is None
    assert len(state.checkpoints.cleared) == MAX_CLEARED_CHECKPOINTS


@pytest.mark.parametrize(
    "wrong",
    [
        AddReader("a"),
        AcquireSegment("a", RIGHT),
        AcquireSegment("nobody", LEFT),
        ReleaseSegment("a", RIGHT, 0),
        SegmentCompleted("b", LEFT, {}),
    ],
)
def test_updates_that_do_not_fit_the_state_raise_conflict(wrong):
    with pytest.raises(Conflict):
        after(*SHARED, wrong)


def test_distances_feed_loads():
    state = after(*SHARED)
    assert state.distances == {"a": UNBOUNDED, "b": UNBOUNDED}
    state = apply(state, UpdateDistance("a", 5, {LEFT: 3, MERGED: 1}))
    assert (state.distances["a"], state.last_read, state.heartbeats) == (30_000, {LEFT: 3, RIGHT: 0}, {"a": 1})
    assert apply(state, UpdateDistance("gone", 5)).distances == state.distances


def test_removal_of_a_reader_never_goes_below_what_the_group_knows():
    # RIGHT went from `a` to `b` and came back further on; what `a` stored last is older.
    state = after(*SHARED, ReleaseSegment("b", RIGHT, 30), AcquireSegment("a", RIGHT))
    stored = {LEFT: 5, RIGHT: 10}
    lost = removal(state, "a", stored)
    assert lost == RemoveReader("a", {LEFT: 5, RIGHT: 30})
    assert apply(state, lost).unassigned == {LEFT: 5, RIGHT: 30}
    assert apply(state, removal(state, "a", stored, rewind=True)).unassigned == stored


def test_removal_of_a_reader_keeps_only_offsets_of_its_segments():
    state = after(*SHARED)
    assert removal(state, "a", {LEFT: 5, RIGHT: 9}) == RemoveReader("a", {LEFT: 5})
    assert removal(state, "a", {}) == RemoveReader("a", {})
    assert removal(state, "nobody", {LEFT: 5}) == RemoveReader("nobody", {})


def test_end_of_a_deleted_segment_is_later_than_any_offset():
    state = after(*SHARED)
    ended = after(removal(state, "a", {LEFT: -1}), AcquireSegment("b", LEFT), state=state)
    assert ended.assigned["b"][LEFT] == -1
    assert removal(ended, "b", {LEFT: 7}).owned[LEFT] == -1
