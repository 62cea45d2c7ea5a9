from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.spark.source.position import (
    Offset,
    SegmentState,
    StreamPosition,
    advance,
    after,
    finished,
    from_json,
    split_budget,
    to_json,
)

ROOT = SegmentId(0, 0)
OTHER = SegmentId(0, 1)
LEFT, RIGHT = SegmentId(1, 2), SegmentId(1, 3)
MERGED = SegmentId(2, 4)


def test_offset_round_trips_through_json() -> None:
    one, other = StreamName("a", "b"), StreamName("a", "c")
    position = {SegmentId(3, 7): 123_456_789_012, ROOT: 0}
    offset = Offset(
        {other: StreamPosition({ROOT: 5}, frozenset({ROOT})), one: StreamPosition(position)}, {other: {ROOT: 1}}, True
    )
    written = json.dumps(to_json(offset))
    stored = json.loads(written)
    assert stored == {
        "version": 2,
        "streams": {"a/b": {"0.#epoch.0": 0, "7.#epoch.3": 123_456_789_012}, "a/c": {"0.#epoch.0": 5}},
        "ended": {"a/c": ["0.#epoch.0"]},
        "entered": {"a/c": {"0.#epoch.0": 1}},
        "initial": True,
    }
    assert from_json(stored) == offset
    # Spark compares offsets as text.
    assert json.dumps(to_json(from_json(stored))) == written


@pytest.mark.parametrize("offset", [{"version": 9}, {"version": 1, "stream": "a/b", "segments": {}}, {}])
def test_offset_of_another_version_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="this Sarit knows 2: use another checkpointLocation"):
        from_json(offset)


def test_segments_of_later_epochs_are_after_a_tail() -> None:
    assert after({OTHER, LEFT, RIGHT, MERGED}, {OTHER: 5, LEFT: 0, RIGHT: 0}) == {MERGED}


def test_only_sealed_segments_at_their_end_are_finished() -> None:
    position = {ROOT: 10, OTHER: 10, LEFT: 9}
    states = {ROOT: SegmentState(0, 10, True), OTHER: SegmentState(0, 10, False), LEFT: SegmentState(0, 10, True)}
    assert finished(position, states) == {ROOT}


def test_split_is_followed() -> None:
    successors = {ROOT: {LEFT: frozenset({ROOT}), RIGHT: frozenset({ROOT})}}
    assert advance({ROOT: 10, OTHER: 5}, {ROOT}, successors) == {LEFT: 0, RIGHT: 0, OTHER: 5}


def test_merge_waits_for_all_its_predecessors() -> None:
    both = frozenset({LEFT, RIGHT})
    successors = {LEFT: {MERGED: both}, RIGHT: {MERGED: both}}
    assert advance({LEFT: 4, RIGHT: 2}, {LEFT}, successors) == {LEFT: 4, RIGHT: 2}
    assert advance({LEFT: 4, RIGHT: 6}, {LEFT, RIGHT}, successors) == {MERGED: 0}


def test_segments_tied_by_scaling_are_replaced_together() -> None:
    # ROOT and OTHER became LEFT (of ROOT) and RIGHT (of both).  Were LEFT let in before OTHER is finished, it could be
    # finished and replaced while ROOT still waits, and would enter again with ROOT's leaving.
    successors = {ROOT: {LEFT: frozenset({ROOT}), RIGHT: frozenset({ROOT, OTHER})}}
    assert advance({ROOT: 10, OTHER: 5}, {ROOT}, successors) == {ROOT: 10, OTHER: 5}
    successors[OTHER] = {RIGHT: frozenset({ROOT, OTHER})}
    assert advance({ROOT: 10, OTHER: 5}, {ROOT, OTHER}, successors) == {LEFT: 0, RIGHT: 0}


def test_end_of_a_sealed_stream_stays_in_the_position() -> None:
    assert advance({ROOT: 10}, {ROOT}, {ROOT: {}}) == {ROOT: 10}


@given(
    st.dictionaries(st.builds(SegmentId, st.integers(0, 3), st.integers(0, 9)), st.integers(0, 10**12), max_size=12),
    st.integers(1, 10**7),
)
def test_allowances_add_up_and_no_segment_starves(backlog: dict[SegmentId, int], budget: int) -> None:
    allowances = split_budget(backlog, budget)
    waiting = [segment for segment, size in backlog.items() if size]
    assert sum(allowances.values()) == (budget if waiting else 0)
    assert set(allowances) == set(waiting)
    assert all(allowance >= 0 for allowance in allowances.values())
    if budget >= len(waiting):
        assert all(allowance >= 1 for allowance in allowances.values())
