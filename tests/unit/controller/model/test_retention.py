"""Where retention truncates a stream: examples, and the guarantees for arbitrary cuts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.model import retention
from sarit.controller.model.cuts import bytes_between, follows, is_cut, lower_bound
from sarit.controller.model.epochs import first_epoch, known_segments
from sarit.controller.model.records import CutRecord
from sarit.controller.model.retention import Released
from sarit.core.policies import RetentionPolicy, RetentionType
from tests.unit.controller.model.histories import histories

ONE = (first_epoch(1, 0, 0),)
NOW = 100_000


def cuts(*pairs):
    """(age in ms, bytes from the beginning) of a stream of one segment."""
    return [CutRecord(NOW - age, size, {0: size}) for age, size in pairs]


TAKEN = cuts((9000, 10), (6000, 40), (3000, 70), (1000, 90))
TAIL = CutRecord(NOW, 100, {0: 100})


def begin(policy, released=None, taken=TAKEN, tail=TAIL):
    freed = None if released is None else Released({0: released}, released)
    got = retention.truncation(policy, tail, taken, freed, ONE)
    return None if got is None else got[0]


def by_time(limit, maximum=0):
    return RetentionPolicy(RetentionType.TIME, limit, maximum)


def by_size(limit, maximum=0):
    return RetentionPolicy(RetentionType.SIZE, limit, maximum)


def test_the_minimum_is_kept():
    assert begin(by_time(3000)) == 70
    assert begin(by_time(3001)) == 40
    assert begin(by_time(9001)) is None
    assert begin(by_size(30)) == 70
    assert begin(by_size(31)) == 40
    assert begin(by_size(91)) is None
    assert begin(RetentionPolicy()) is None


def test_readers_hold_back_what_they_have_not_released():
    assert begin(by_time(3000), 55) == 55
    assert begin(by_time(3000), 95) == 70
    assert begin(by_size(30), 0) == 0
    assert begin(by_size(30), 69) == 69


MAX = (1 << 63) - 1
# Minimum, maximum, and what is released -> where the stream begins then.  Recorded are 10, 40, 70 and 90 of 100.
BY_SIZE = [
    (30, 0, 0, 0),  # as much as the minimum is left, and no maximum is reached: what was released
    (30, 0, 55, 55),
    (30, MAX, 70, 70),
    (30, 0, 71, 70),  # less is left: the last recorded cut that leaves enough
    (30, 0, 100, 70),
    (30, MAX, 1000, 70),
    (91, 0, 5, 5),  # no recorded cut leaves enough
    (91, 0, 10, None),
    (91, 95, 2, 2),
    (30, 50, 51, 51),
    (30, 50, 50, 70),  # the maximum is left: the first recorded cut within it
    (30, 50, 0, 70),
    (10, 50, 0, 70),
    (10, 100, 5, 5),
    (10, 100, 0, 10),
    (30, 60, 40, 40),
    (30, 60, 39, 40),
    (31, 45, 0, 40),  # no recorded cut lies between minimum and maximum: the last that leaves enough
    (31, 45, 40, 40),
    (31, 45, 41, 41),
]
# The same cuts are 9, 6, 3 and 1 s old.
BY_TIME = [
    (3000, 0, 0, 0),
    (3000, 0, 55, 55),
    (3000, MAX, 70, 70),
    (3000, 0, 71, 70),
    (3000, 0, 100, 70),
    (9001, 0, 5, None),  # no recorded cut is old enough, so nobody knows how old the released one is
    (9001, 9500, 5, None),
    (1000, 6500, 55, 55),
    (1000, 6500, 20, 20),  # after the last cut above the maximum
    (1000, 6500, 10, 10),
    (1000, 6500, 9, 40),  # before it: the first recorded cut within the maximum
    (1000, 9000, 0, 10),
    (1000, 9001, 0, 0),
    (5000, 5500, 0, 40),
    (5000, 5500, 20, 40),
    (5000, 5500, 45, 40),
]


@pytest.mark.parametrize(("least", "most", "released", "head"), BY_SIZE)
def test_head_by_size_with_subscribers(least, most, released, head):
    assert begin(by_size(least, most), released) == head


@pytest.mark.parametrize(("least", "most", "released", "head"), BY_TIME)
def test_head_by_time_with_subscribers(least, most, released, head):
    assert begin(by_time(least, most), released) == head


@pytest.mark.parametrize("taken", [[], [CutRecord(NOW - 9000, 0, {0: 0})]])
def test_two_events_between_two_evaluations_are_released_one_by_one(taken):
    tail = CutRecord(NOW, 34, {0: 34})
    assert begin(by_size(10, MAX), 0, taken, tail) == 0
    assert begin(by_size(10, MAX), 17, taken, tail) == 17
    assert begin(by_size(10, MAX), 34, taken, tail) == (0 if taken else None)


@given(
    st.lists(st.integers(0, 40), unique=True, max_size=6).map(sorted),
    st.integers(0, 45),
    st.integers(1, 30),
    st.none() | st.integers(0, 30),
    st.sampled_from([RetentionType.TIME, RetentionType.SIZE]),
)
def test_head_is_pravegas_where_no_cuts_overlap(places, released, least, more, kind):
    """One segment with a byte a millisecond; Pravega's rules, with a place as a number."""
    tail = CutRecord(40, 40, {0: 40})
    taken = [CutRecord(place, place, {0: place}) for place in places]
    most = MAX if more is None else least + more
    enough = [place for place in places if 40 - place >= least]
    within = [place for place in enough if 40 - place <= most]
    forced = within[0] if within else enough[-1] if enough else None
    over = [place for place in places if 40 - place >= most]
    if kind is RetentionType.TIME:
        wanted = min(enough[-1], released) if enough else None
        if over and released < over[-1]:
            wanted = forced
    elif 40 - released < least:
        wanted = enough[-1] if enough else None
    else:
        wanted = released if 40 - released < most or forced is None else max(released, forced)
    assert begin(RetentionPolicy(kind, least, most), released, taken, tail) == wanted


def test_cuts_that_overlap():
    """A reader is far ahead in one of two segments, and far behind in the other."""
    epochs = (first_epoch(2, 0, 0),)
    tail = CutRecord(NOW, 200, {0: 100, 1: 100})
    taken = [CutRecord(NOW - age, 2 * at, {0: at, 1: at}) for age, at in ((9000, 10), (6000, 40), (3000, 70))]

    def head(policy, ahead, behind):
        return retention.truncation(policy, tail, taken, Released({0: ahead, 1: behind}, ahead + behind), epochs)

    assert head(by_time(3000), 90, 5) == {0: 70, 1: 5}
    assert head(by_time(3000, 6500), 90, 5) == {0: 10, 1: 10}  # what is surely over the maximum, and no more
    assert head(by_time(3000, 6500), 9, 5) == {0: 40, 1: 40}
    assert head(by_size(60), 90, 5) == {0: 90, 1: 5}  # 105 bytes are left
    assert head(by_size(60), 99, 69) == {0: 70, 1: 69}  # 32
    assert head(by_size(60, 100), 90, 5) == {0: 70, 1: 70}


def test_recorded_cut_next_to_a_released_one():
    known = known_segments(ONE)
    recorded = [*TAKEN, TAIL]
    near = {at: retention.nearest_at_or_after({0: at}, recorded, known).size for at in (0, 10, 11, 90, 91, 100, 101)}
    assert near == {0: 10, 10: 10, 11: 40, 90: 90, 91: 100, 100: 100, 101: 100}


def test_what_all_subscribers_have_released():
    head = {0: 3}
    assert retention.released_by_all(head, [], ONE) is None
    assert retention.released_by_all(head, [{0: 50}, {0: 7}], ONE) == {0: 7}
    assert retention.released_by_all(head, [{0: 50}, {}], ONE) == {0: 3}


def test_cuts_are_taken_when_something_came():
    last = TAKEN[-1]
    assert retention.is_due(by_time(1), None, TAIL)
    assert retention.is_due(by_time(1), last, TAIL)
    assert not retention.is_due(by_time(1), last, CutRecord(NOW, last.size, last.cut))
    assert retention.is_due(by_size(1000), last, TAIL)
    assert not retention.is_due(by_size(1001), last, TAIL)


def test_interval_of_evaluations_grows_with_the_limit():
    times = retention.RetentionTimes(60, 1800)
    assert times.wait(by_size(1)) == 60
    assert times.wait(by_time(1000)) == 60
    assert times.wait(by_time(24 * 3600 * 1000)) == 864
    assert times.wait(by_time(365 * 24 * 3600 * 1000)) == 1800


def test_there_are_never_too_many_cuts():
    many = [CutRecord(n, n, {0: n}) for n in range(retention.MAX_CUTS + 1)]
    assert retention.surplus(many[:-1]) == []
    given_up = retention.surplus(many)
    assert len(given_up) == retention.MAX_CUTS // 4
    assert many[0] not in given_up
    assert all(cut not in given_up for cut in many[retention.MAX_CUTS // 2 :])


@st.composite
def histories_of_cuts(draw):
    """A stream that scales, cuts of its epochs over time, and what its readers have released of it."""
    epochs = draw(histories(5))
    known, lengths, taken, time = known_segments(epochs), {}, [], 0

    def size(cut):
        start = dict.fromkeys(epochs[0].ids, 0)
        return bytes_between(known, start, cut, lengths)

    for epoch in epochs:
        for _ in range(draw(st.integers(0, 3))):
            time += draw(st.integers(1, 50))
            lengths |= {s: lengths.get(s, 0) + draw(st.integers(0, 20)) for s in epoch.ids}
            cut = {s: lengths[s] for s in epoch.ids}
            taken.append(CutRecord(time, size(cut), cut))
    end = {s: lengths.get(s, 0) for s in epochs[-1].ids}
    tail = CutRecord(time + 5, size(end), end)
    bounds = draw(st.lists(st.sampled_from([cut.cut for cut in [*taken, tail]]), max_size=2))
    # Each has read some segments further than others.
    behind = [{s: draw(st.integers(0, offset)) for s, offset in bound.items()} for bound in bounds]
    released = lower_bound(epochs, behind) if behind else None
    return epochs, size, taken, tail, None if released is None else Released(released, size(released))


@given(histories_of_cuts(), st.sampled_from([RetentionType.TIME, RetentionType.SIZE]), st.integers(0, 150), st.data())
def test_the_promises_hold_for_any_cuts(drawn, kind, limit, data):
    epochs, size, taken, tail, released = drawn
    maximum = data.draw(st.just(0) | st.integers(limit, 300))
    got = retention.truncation(RetentionPolicy(kind, limit, maximum), tail, taken, released, epochs)
    known = known_segments(epochs)
    by_time = kind is RetentionType.TIME

    def retained(cut):
        return tail.time_ms - cut.time_ms if by_time else tail.size - cut.size

    left = tail.size - released.size if released is not None else -1
    if not by_time and left >= limit and not (maximum and left >= maximum):
        assert got == released.cut
        return
    if got is None:
        assert not any(retained(cut) >= limit for cut in taken)
        return
    assert is_cut(known, got)
    over = [cut for cut in taken if maximum and retained(cut) >= maximum]
    if by_time:
        for cut in taken:  # the minimum is retained: a cut too late for it is at or after the new beginning
            assert retained(cut) >= limit or follows(known, got, cut.cut)
        assert not over or follows(known, over[-1].cut, got)
    else:
        assert tail.size - size(got) >= limit
    forced = over if by_time else maximum and left >= maximum
    if released is not None and not forced:
        assert follows(known, got, released.cut)
