"""Stream cuts against a plain model: at each point of the key space, the segments that served it, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.model.cuts import (
    bytes_between,
    follows,
    is_cut,
    lower_bound,
    segments_after,
    segments_before,
    segments_between,
    to_measure,
    upper_bound,
)
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


@given(two_cuts())
def test_a_lower_bound_is_a_cut_behind_none_of_them_anywhere(drawn):
    epochs, one, other = drawn
    known = known_segments(epochs)
    bound = lower_bound(epochs, [one, other])
    assert is_cut(known, bound)
    for chain in chains(epochs).values():
        assert place(chain, bound) <= min(place(chain, one), place(chain, other))
    assert lower_bound(epochs, [one]) == one
    assert lower_bound(epochs, [one, one]) == one


@given(two_cuts(), st.data())
def test_an_upper_bound_is_a_cut_behind_all_of_them_everywhere(drawn, data):
    epochs, one, other = drawn
    known = known_segments(epochs)
    part = {s: other[s] for s in data.draw(st.lists(st.sampled_from(sorted(other)), unique=True))}
    bound = upper_bound(epochs, [one, part])
    assert is_cut(known, bound)
    for chain in chains(epochs).values():
        stands = [cut for cut in (one, part) if any(s in cut for s in chain)]
        assert place(chain, bound) >= max(place(chain, cut) for cut in stands)
    assert upper_bound(epochs, [one]) == one
    if follows(known, one, other):
        assert upper_bound(epochs, [one, other]) == other


def test_what_a_position_leaves_out_is_filled_from_the_latest_epoch():
    epochs = [first_epoch(2, 0, 0)]
    epochs.append(next_epoch(epochs[0], [1], KeyRange(0.5, 1.0).split_evenly(2), 0))
    assert upper_bound(epochs, [{NEW: 7}]) == {0: 0, NEW: 7, NEW + 1: 0}
    assert upper_bound(epochs, [{0: 3}, {0: 2}]) == {0: 3, 1: 0}
    assert lower_bound(epochs, [{0: 3, 1: 9}, {0: 2, NEW: 0, NEW + 1: 5}]) == {0: 2, 1: 9}


@given(two_cuts())
def test_bytes_between_two_cuts(drawn):
    epochs, one, other = drawn
    known = known_segments(epochs)
    lengths = {segment: 10 + segment % 7 for segment in known}
    if not follows(known, one, other):
        return
    size = bytes_between(known, one, other, {s: lengths[s] for s in to_measure(known, one, other)})
    assert size >= 0
    assert bytes_between(known, one, one, {}) == 0
    whole = [epoch for epoch in epochs if set(other) <= epoch.ids or set(one) <= epoch.ids]
    if len(whole) == 2:  # each is a cut of one epoch: every byte before it, in any segment, counts once

        def before(cut):
            return sum(lengths[s] for s in segments_before(known, cut)) + sum(cut.values())

        assert size == before(other) - before(one)
