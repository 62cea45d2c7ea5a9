"""Stream cuts against a plain model: at each point of the key space, the segments that served it, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.model.cuts import follows, is_cut, segments_after, segments_before, segments_between
from sarit.controller.model.epochs import first_epoch, known_segments, next_epoch
from sarit.core.keyspace import KeyRange
from tests.unit.controller.model.histories import histories

NEW = (1 << 32) + 2


def chains(epochs):
    """For each elementary interval of the key space, its segments in order."""
    bounds = sorted({s.low for epoch in epochs for s in epoch.segments})
    out = {}
    for low in bounds:
        chain = [next(s.segment for s in epoch.segments if s.low <= low < s.high) for epoch in epochs]
        out[low] = list(dict.fromkeys(chain))
    return out


def draw_cut(draw, epochs):
    """Any segments that cover the key space once: after each there is always one that begins where it ends."""
    cut, at = {}, 0.0
    while at < 1.0:
        candidates = sorted({s for epoch in epochs for s in epoch.segments if s.low == at})
        chosen = draw(st.sampled_from(candidates))
        cut[chosen.segment] = draw(st.integers(0, 2))
        at = chosen.high
    return cut


@st.composite
def two_cuts(draw):
    epochs = draw(histories(5))
    return epochs, draw_cut(draw, epochs), draw_cut(draw, epochs)


def place(chain, cut):
    """How far along its chain a point is: the segment, and the offset in it."""
    (segment,) = [s for s in chain if s in cut]
    return chain.index(segment), cut[segment]


@given(two_cuts())
def test_one_cut_follows_another_where_it_is_behind_it_at_every_point(drawn):
    epochs, earlier, later = drawn
    known = known_segments(epochs)
    assert is_cut(known, earlier)
    expected = all(place(chain, later) >= place(chain, earlier) for chain in chains(epochs).values())
    assert follows(known, earlier, later) == expected


@given(two_cuts())
def test_before_between_and_after(drawn):
    epochs, start, end = drawn
    known = known_segments(epochs)
    served = {segment: [chain for chain in chains(epochs).values() if segment in chain] for segment in known}

    def wholly(segment, cut, sign):
        return all(sign * (place(chain, cut)[0] - chain.index(segment)) > 0 for chain in served[segment])

    before = [s for s in sorted(known) if wholly(s, start, 1)]
    after = [s for s in sorted(known) if wholly(s, end, -1)]
    assert segments_before(known, start) == before
    assert segments_after(known, end) == after
    assert segments_between(known, start, end) == [s for s in sorted(known) if s not in before and s not in after]


def test_a_cut_covers_everything_once():
    epochs = [first_epoch(2, 0, 0)]
    epochs.append(next_epoch(epochs[0], [1], KeyRange(0.5, 1.0).split_evenly(2), 0))
    known = known_segments(epochs)
    assert is_cut(known, {0: 5, 1: 0})
    assert is_cut(known, {0: 5, NEW: 0, NEW + 1: 9})
    assert not is_cut(known, {0: 5, NEW: 0})
    assert not is_cut(known, {0: 5, 1: 0, NEW: 0})
    assert not is_cut(known, {0: 5, 1: -1})
    assert not is_cut(known, {0: 5, 77: 1})
    assert not is_cut(known, {})


def test_positions_of_a_part_compare_too():
    epochs = [first_epoch(2, 0, 0)]
    epochs.append(next_epoch(epochs[0], [1], KeyRange(0.5, 1.0).split_evenly(2), 0))
    known = known_segments(epochs)
    assert follows(known, {1: 50}, {NEW: 0})
    assert follows(known, {1: 50}, {0: 0})
    assert not follows(known, {NEW: 0}, {1: 50})
    assert not follows(known, {0: 7}, {0: 6})
