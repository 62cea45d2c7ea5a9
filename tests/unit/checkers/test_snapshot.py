"""States of one moment: each way in which a backup can be of two, or of another one, is found."""

from __future__ import annotations

from math import inf

from checkers import log as log_checker
from checkers import table as table_checker
from checkers.log import LogHistory
from checkers.snapshot import Moment, log_as_of, places_of_all, table_as_of
from checkers.table import ANY, Read, TableHistory, Update

SCAN = 9
LENGTH = 10
BEGUN, ENDED = 10.0, 20.0
LATER = 50.0


def written(*events: tuple[int, int, float, float]) -> LogHistory:
    """Of (writer, number, sent at, acknowledged at); writer N writes to segment N."""
    history = LogHistory()
    for writer, number, sent, acked in events:
        history.sent(writer, number, writer, LENGTH, sent)
        if acked < inf:
            history.acked(writer, number, writer, number * LENGTH, acked)
    return history


def show(history: LogHistory, lengths: dict[int, int], starts: dict[int, int] | None = None) -> LogHistory:
    """The state with so many events of each writer, some of them truncated."""
    shown = log_as_of(history, BEGUN, ENDED)
    for writer, count in lengths.items():
        start = (starts or {}).get(writer, 0)
        shown.info(writer, start * LENGTH, count * LENGTH, LATER, LATER)
        for number in range(start + 1, count + 1):
            place = writer, (number - 1) * LENGTH
            shown.read(SCAN, place, (writer, number, LENGTH), fresh=False, begun=LATER, ended=LATER)
        shown.scanned(SCAN, writer, start * LENGTH, count * LENGTH)
    return shown


def kinds(history: LogHistory, lengths: dict[int, int], starts: dict[int, int] | None = None) -> set[str]:
    shown, moment = show(history, lengths, starts), Moment()
    moment.log(history, shown, "it")
    return {violation.kind for violation in (*log_checker.check(shown), *moment.check())}


def test_state_of_a_moment_passes() -> None:
    history = written((1, 1, 1, 2), (1, 2, 9, 12), (1, 3, 13, 17), (2, 1, 11, 15), (2, 2, 30, 31))
    assert not kinds(history, {1: 2, 2: 0}), "before 13"
    assert not kinds(history, {1: 1, 2: 0}), "before 12"
    assert not kinds(history, {1: 3, 2: 1}), "after 17"


def test_event_acknowledged_before_is_missed() -> None:
    assert "lost" in kinds(written((1, 1, 1, 2), (1, 2, 3, 4)), {1: 1})


def test_event_read_before_is_missed() -> None:
    history = written((1, 1, 1, inf))
    history.read(3, (1, 0), (1, 1, LENGTH), fresh=True, begun=2, ended=3)
    assert "vanished" in kinds(history, {1: 0})
    history = written((1, 1, 1, inf))
    history.read(3, (1, 0), (1, 1, LENGTH), fresh=True, begun=ENDED, ended=ENDED + 1)
    assert not kinds(history, {1: 0})


def test_event_sent_after_the_end_is_a_phantom() -> None:
    assert "phantom" in kinds(written((1, 1, 21, 22)), {1: 1})


def test_event_without_what_was_acknowledged_before_it_is_of_two_moments() -> None:
    history = written((1, 1, 11, 12), (2, 1, 13, 14))
    assert kinds(history, {1: 0, 2: 1}) == {"two-moments"}
    assert not kinds(history, {1: 1, 2: 0})


def test_truncated_events_are_not_missed() -> None:
    history = written((1, 1, 1, 2), (1, 2, 11, 12), (2, 1, 13, 14))
    history.truncated(1, LENGTH, 12.5, 12.6)
    assert not kinds(history, {1: 2, 2: 1}, {1: 1})
    history.truncated(1, 2 * LENGTH, 12.7, 12.8)
    assert not kinds(history, {1: 2, 2: 1}, {1: 2})


def test_truncation_before_must_show() -> None:
    history = written((1, 1, 1, 2), (1, 2, 3, 4))
    history.truncated(1, LENGTH, 5, 6)
    assert "start" in kinds(history, {1: 2})


def test_event_at_another_place_than_ever_read_is_found() -> None:
    history = written((1, 1, 1, 2), (1, 2, 3, 12))
    history.read(3, (1, 30), (1, 2, LENGTH), fresh=True, begun=LATER, ended=LATER)
    found = log_checker.check(places_of_all(history, show(history, {1: 2})))
    assert {violation.kind for violation in found} == {"duplicate"}


def put(key: bytes, value: bytes, version: int | None, begun: float, ended: float) -> Update:
    return Update(key, value, ANY, version, begun, ended)


def table_kinds(history: TableHistory, **shown: tuple[int, bytes]) -> set[str]:
    state, moment = table_as_of(history, BEGUN, ENDED), Moment()
    rows = {key.encode(): found for key, found in shown.items()}
    state.reads.extend(Read(key, value, version, LATER, LATER) for key, (version, value) in rows.items())
    moment.table(history, rows)
    return {violation.kind for violation in (*table_checker.check(state), *moment.check())}


def test_commit_under_way_at_the_moment_may_be_completed_at_another_place() -> None:
    """A plain event came before it then; the node that serves the state knows only the commit."""

    def found(acked: float, transactions: tuple[int, ...]) -> set[str]:
        history = LogHistory()
        history.sent(1, 1, 7, LENGTH, 9)  # the commit of a transaction is asked for
        history.sent(2, 1, 7, LENGTH, 15)
        history.acked(1, 1, -1, -1, acked)
        history.read(3, (7, 0), (2, 1, LENGTH), fresh=True, begun=30, ended=30)
        history.read(3, (7, LENGTH), (1, 1, LENGTH), fresh=False, begun=30, ended=30)
        shown = log_as_of(history, BEGUN, ENDED)
        shown.read(SCAN, (7, 0), (1, 1, LENGTH), fresh=False, begun=LATER, ended=LATER)
        return {violation.kind for violation in log_checker.check(places_of_all(history, shown, transactions))}

    assert not found(31, (1,))
    assert found(31, ()) == {"inconsistent", "duplicate"}
    assert found(BEGUN - 0.5, (1,)) == {"inconsistent", "duplicate"}, "it was committed before"


def test_commit_that_is_left_out_is_no_hole_in_the_way_of_its_reader() -> None:
    history = LogHistory()
    for writer, number in ((1, 1), (2, 1), (2, 2)):
        history.sent(writer, number, 7, LENGTH, 9)
    shown = log_as_of(history, BEGUN, ENDED)
    for place, event in enumerate(((2, 1, LENGTH), (1, 1, LENGTH), (2, 2, LENGTH))):
        shown.read(SCAN, (7, place * LENGTH), event, fresh=not place, begun=LATER, ended=LATER)
    assert not log_checker.check(places_of_all(history, shown, (1,)))


def test_table_of_a_moment() -> None:
    history = TableHistory(
        [put(b"a", b"1", 1, 1, 2), put(b"a", b"2", 2, 11, 12), put(b"b", b"3", 3, 13, 14), put(b"b", b"4", 4, 21, 22)]
    )
    assert not table_kinds(history, a=(1, b"1"), b=(-1, b""))
    assert not table_kinds(history, a=(2, b"2"), b=(3, b"3"))
    assert table_kinds(history, a=(-1, b""), b=(-1, b"")) == {"stale"}
    assert table_kinds(history, a=(1, b"1"), b=(3, b"3")) == {"two-moments"}
    assert table_kinds(history, a=(2, b"2"), b=(4, b"4")) == {"phantom"}
