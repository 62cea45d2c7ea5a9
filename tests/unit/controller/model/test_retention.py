"""Where retention truncates a stream: examples, and the guarantees for arbitrary cuts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sarit.controller.model import retention
from sarit.controller.model.cuts import follows, is_cut
from sarit.controller.model.epochs import first_epoch, known_segments
from sarit.controller.model.records import CutRecord
from sarit.core.policies import RetentionPolicy, RetentionType
from tests.unit.controller.model.histories import histories

ONE = (first_epoch(1, 0, 0),)
NOW = 100_000


def cuts(*pairs):
    """(age in ms, bytes from the beginning) of a stream of one segment."""
    return [CutRecord(NOW - age, size, {0: size}) for age, size in pairs]


TAKEN = cuts((9000, 10), (6000, 40), (3000, 70), (1000, 90))
TAIL = CutRecord(NOW, 100, {0: 100})


def begin(policy, released=None):
    got = retention.truncation(policy, TAIL, TAKEN, None if released is None else {0: released}, ONE)
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


def test_the_maximum_goes_before_readers():
    assert begin(by_time(1000, 6500), 0) == 40
    assert begin(by_time(1000, 6500), 55) == 55
    assert begin(by_time(1000, 9000), 0) == 0
    assert begin(by_size(10, 50), 0) == 70
    assert begin(by_size(10, 100), 5) == 5
    assert begin(by_size(10, (1 << 63) - 1), 5) == 5


def test_the_minimum_goes_before_the_maximum():
    assert begin(by_time(5000, 5500), 0) == 40  # no cut lies between: the latest that leaves enough


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
    """A stream that scales, cuts of its epochs over time, and positions of its readers."""
    epochs = draw(histories(5))
    taken, time, size, offset = [], 0, 0, 0
    for epoch in epochs:
        for _ in range(draw(st.integers(0, 3))):
            time, size, offset = time + draw(st.integers(1, 50)), size + draw(st.integers(0, 50)), offset + 1
            taken.append(CutRecord(time, size, dict.fromkeys(epoch.ids, offset)))
    tail = CutRecord(time + 5, size + 5, dict.fromkeys(epochs[-1].ids, 99))
    released = draw(st.none() | st.sampled_from([cut.cut for cut in [*taken, tail]]))
    return epochs, taken, tail, released


@given(histories_of_cuts(), st.sampled_from([RetentionType.TIME, RetentionType.SIZE]), st.integers(0, 150), st.data())
def test_the_promises_hold_for_any_cuts(drawn, kind, limit, data):
    epochs, taken, tail, released = drawn
    maximum = data.draw(st.just(0) | st.integers(limit, 300))
    got = retention.truncation(RetentionPolicy(kind, limit, maximum), tail, taken, released, epochs)
    if got is None:
        return
    known = known_segments(epochs)
    assert is_cut(known, got)

    def retained(cut):
        return tail.time_ms - cut.time_ms if kind is RetentionType.TIME else tail.size - cut.size

    too_late = [cut for cut in taken if retained(cut) < limit]
    for cut in too_late:  # the minimum is retained: such a cut is at or after the new beginning
        assert follows(known, got, cut.cut)
    over = [cut for cut in taken if maximum and retained(cut) > maximum]
    if over:
        assert follows(known, over[-1].cut, got)
    if released is not None and not over:
        assert follows(known, got, released)
