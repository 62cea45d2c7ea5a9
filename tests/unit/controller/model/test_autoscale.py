"""Which segments are replaced by which ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.model import streams
from sarit.controller.model.autoscale import Plan, plan, segments_to_measure
from sarit.controller.model.epochs import SegmentRange, first_epoch
from sarit.controller.model.records import State, StreamRecord
from sarit.core.keyspace import KeyRange
from sarit.core.metering import Rates, ScalingTimes
from sarit.core.policies import ScaleType, ScalingPolicy, StreamConfig
from tests.unit.controller.model.histories import histories

TIMES = ScalingTimes()
OLD = 100_000.0


def taking(events, age=OLD):
    return Rates((events,) * 4, (events * 1024.0,) * 4, age)


def record(segments=4, least=1, factor=4, scale_type=ScaleType.EVENTS_PER_SECOND, target=100, state=State.ACTIVE):
    config = StreamConfig(ScalingPolicy(scale_type, target, factor, least))
    return StreamRecord(state, config, 0, 0, (first_epoch(segments, 0, 0),))


@pytest.mark.parametrize("scale_type", [ScaleType.EVENTS_PER_SECOND, ScaleType.KILOBYTES_PER_SECOND])
@pytest.mark.parametrize(
    ("rate", "factor", "parts"), [(101, 4, 2), (200, 4, 2), (201, 4, 3), (350, 4, 4), (9999, 4, 4), (9999, 1, 2)]
)
def test_a_hot_segment_is_split_until_each_part_is_below_the_target(scale_type, rate, factor, parts):
    got = plan(record(2, factor=factor, scale_type=scale_type), 1, {0: taking(0), 1: taking(rate)}, TIMES)
    assert got == Plan((1,), tuple(KeyRange(0.5, 1.0).split_evenly(parts)))


def test_the_stream_keeps_within_its_bound_and_keys_cannot_be_cut():
    many = record(9_999)
    assert len(plan(many, 5, {5: taking(9999)}, TIMES).ranges) == 2
    assert plan(record(10_000), 5, {5: taking(9999)}, TIMES) is None
    narrow = (
        SegmentRange(0.0, 0.5, 0), SegmentRange(0.5, 0.5000000000000001, 1), SegmentRange(0.5000000000000001, 1.0, 2),
    )  # fmt: skip
    epoch = first_epoch(3, 0, 0)
    thin = StreamRecord(State.ACTIVE, many.config, 0, 0, (type(epoch)(0, narrow, 0),))
    assert plan(thin, 1, {1: taking(9999)}, TIMES) is None


def test_cold_neighbours_become_one():
    cold, warm = taking(10), taking(60)
    four = record(4)
    assert plan(four, 1, {0: cold, 1: cold, 2: cold}, TIMES) == Plan((0, 1, 2), (KeyRange(0.0, 0.75),))
    assert plan(four, 1, {0: warm, 1: cold, 2: cold}, TIMES) == Plan((1, 2), (KeyRange(0.25, 0.75),))
    assert plan(four, 0, {0: cold, 1: cold}, TIMES) == Plan((0, 1), (KeyRange(0.0, 0.5),))
    assert plan(four, 1, {0: warm, 1: cold, 2: warm}, TIMES) is None
    assert plan(record(1), 0, {0: cold}, TIMES) is None


def test_a_merge_that_would_be_split_again_is_none():
    a_little, more = taking(30), taking(45)
    assert plan(record(4), 1, {0: more, 1: more, 2: a_little}, TIMES) == Plan((1, 2), (KeyRange(0.25, 0.75),))
    assert plan(record(4), 1, {0: more, 1: more, 2: taking(49)}, TIMES) == Plan((0, 1), (KeyRange(0.0, 0.5),))


def test_the_minimum_of_segments_is_kept():
    cold = {0: taking(1), 1: taking(1), 2: taking(2)}
    assert plan(record(4, least=4), 1, cold, TIMES) is None
    assert plan(record(4, least=3), 1, cold, TIMES) == Plan((0, 1), (KeyRange(0.0, 0.5),))
    assert plan(record(4, least=2), 1, cold, TIMES) == Plan((0, 1, 2), (KeyRange(0.0, 0.75),))


def test_segments_to_measure_are_the_segment_and_its_neighbours():
    assert [s.segment for s in segments_to_measure(record(4), 0)] == [0, 1]
    assert [s.segment for s in segments_to_measure(record(4), 2)] == [1, 2, 3]
    assert segments_to_measure(record(4), 77) == ()
    assert segments_to_measure(record(4, scale_type=ScaleType.FIXED), 0) == ()
    assert segments_to_measure(record(4, state=State.SEALING), 0) == ()
    assert plan(record(4, scale_type=ScaleType.FIXED), 0, {0: taking(9999)}, TIMES) is None
    assert plan(record(4, state=State.SEALED), 0, {0: taking(9999)}, TIMES) is None


def test_a_young_segment_is_left_alone_by_its_neighbours_too():
    assert plan(record(2), 0, {0: taking(1), 1: taking(1, age=100)}, TIMES) is None
    assert plan(record(2), 0, {0: taking(9999, age=100), 1: taking(1)}, TIMES) is None


@given(histories(4), st.data())
def test_every_plan_can_be_carried_out_and_leaves_a_tiled_key_space(epochs, data):
    rates = st.builds(taking, st.sampled_from([0.0, 20.0, 45.0, 80.0, 150.0, 900.0]), st.sampled_from([10.0, OLD]))
    least = data.draw(st.integers(1, 4))
    config = StreamConfig(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, data.draw(st.integers(1, 5)), least))
    stream = StreamRecord(State.ACTIVE, config, 0, 0, epochs)
    segment = data.draw(st.sampled_from(sorted(stream.current.ids)))
    known = {s.segment: data.draw(rates) for s in segments_to_measure(stream, segment)}
    got = plan(stream, segment, known, TIMES)
    if got is None:
        return
    assert segment in got.replaced
    scaled = streams.scale(stream, got.replaced, got.ranges, 1)
    after = scaled.work.epochs[0] if scaled.work.epochs else scaled.current
    if len(got.ranges) == 1:
        assert sum(known[s].events[0] for s in got.replaced) < 100
        assert len(after.segments) >= min(least, len(stream.current.segments))
    else:
        assert len(got.ranges) <= max(2, config.scaling.scale_factor)
