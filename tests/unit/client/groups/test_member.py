"""A reader's part in its group: the table of rounds, the decision about checkpoints, and the timers (all pure)."""

import pytest

from sarit.client.groups.checkpoints import SILENT
from sarit.client.groups.member import ROUNDS, Next, Step, Timers, next_checkpoint
from sarit.client.groups.state import (
    AcquireSegment,
    AddReader,
    CheckpointReader,
    CreateCheckpoint,
    Init,
    apply,
)
from sarit.client.groups.values import GroupConfig, GroupSegment
from sarit.client.limits import GROUP_EARLY_CHECKPOINT_SECONDS
from sarit.core.names import SegmentId, StreamName

STREAM = StreamName("s", "t")
SEGMENTS = [GroupSegment(STREAM, SegmentId(0, number)) for number in range(4)]


def group(*updates, checkpoint_ms: int = 10_000):
    state = apply(None, Init(GroupConfig({STREAM: None}, {}, checkpoint_ms), dict.fromkeys(SEGMENTS, 0), {}))
    for update in (AddReader("a"), AddReader("b"), *updates):
        state = apply(state, update)
    return state


def acquired_by_a(count: int):
    return [AcquireSegment("a", segment) for segment in SEGMENTS[:count]]


def test_segments_change_hands_after_a_checkpoint_only_while_checkpoints_are_automatic() -> None:
    moving = {Step.COMPLETE, Step.RELEASE}
    for (handed_out, automatic), steps in ROUNDS.items():
        assert (Step.PASS in steps) == (Step.PUBLISH in steps) == handed_out
        assert moving <= set(steps) if handed_out or not automatic else not moving & set(steps)
        if handed_out:
            assert steps[0] is Step.PASS, "what was consumed is recorded before anything moves"
        assert steps[-2:] == (Step.CHECKPOINT, Step.ACQUIRE)


def test_pending_checkpoint_is_handed_out_before_another_begins() -> None:
    state = group(CreateCheckpoint("c"))
    assert next_checkpoint(state, "a", automatic_due=True) == (Next.HAND_OUT, "c")
    passed = apply(state, CheckpointReader("c", "a", {}))
    assert next_checkpoint(passed, "a", automatic_due=False) == (Next.NOTHING, "")
    assert next_checkpoint(passed, "b", automatic_due=False) == (Next.HAND_OUT, "c")


def test_silent_checkpoint_is_passed_without_being_handed_out() -> None:
    name = f"x{SILENT}"
    assert next_checkpoint(group(CreateCheckpoint(name)), "a", automatic_due=False) == (Next.PASS_SILENTLY, name)


def test_automatic_checkpoint_is_due_after_its_interval_and_early_at_the_end_of_a_segment() -> None:
    state = group()
    timers = Timers("a", state, 100.0)
    assert not timers.checkpoint_due(state, 109.9, any_ended=False)
    assert timers.checkpoint_due(state, 110.0, any_ended=False)
    assert not timers.checkpoint_due(state, 100.0, any_ended=True)
    assert timers.checkpoint_due(state, 100.0 + GROUP_EARLY_CHECKPOINT_SECONDS, any_ended=True)
    timers.checkpoint_written(state, 110.0)
    assert not timers.checkpoint_due(state, 119.9, any_ended=False)


@pytest.mark.parametrize("checkpoint_ms", [0, 10_000])
def test_no_automatic_checkpoint_while_one_is_pending_or_they_are_off(checkpoint_ms) -> None:
    state = group(CreateCheckpoint("c"), checkpoint_ms=checkpoint_ms)
    assert not Timers("a", state, 0.0).checkpoint_due(state, 1000.0, any_ended=True)
    off = group(checkpoint_ms=0)
    assert not Timers("a", off, 0.0).checkpoint_due(off, 1000.0, any_ended=True)


def test_release_delay_is_not_restarted_by_evaluating_it_again() -> None:
    state = group(*acquired_by_a(4))
    timers = Timers("a", state, 0.0)
    assert not timers.release_due(state, 50.0)
    assert timers.release_due(state, 51.5), "the delay began with the first evaluation"
    timers.released()
    assert not timers.release_due(state, 51.5)


def test_acquire_delay_begins_when_segments_become_unassigned() -> None:
    full, free = group(*acquired_by_a(4)), group(*acquired_by_a(2))
    timers = Timers("b", full, 0.0)
    assert not timers.acquire_due(full, 50.0)
    assert not timers.acquire_due(free, 50.0)
    assert timers.acquire_due(free, 52.0)
    assert not timers.acquire_due(full, 53.0)
    assert not timers.acquire_due(free, 54.0), "nothing was unassigned in between: the delay begins again"


def test_next_round_is_due_at_the_earliest_of_its_causes() -> None:
    state = group(*acquired_by_a(2))
    timers = Timers("a", state, 0.0)
    assert timers.next_round_at(state, 0.0, any_ended=True) == GROUP_EARLY_CHECKPOINT_SECONDS
    quiet = group(*acquired_by_a(2), AcquireSegment("b", SEGMENTS[2]), AcquireSegment("b", SEGMENTS[3]))
    assert Timers("a", quiet, 0.0).next_round_at(quiet, 0.0, any_ended=False) == quiet.config.refresh_ms / 1000
