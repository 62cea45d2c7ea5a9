"""Located offsets: each way to answer wrongly is found."""

from __future__ import annotations

from checkers.boundaries import Located, check
from checkers.log import LogHistory

SCAN = 9


def kinds(target: int, answer: int, *, end: int = 40, reach: int = 10, start: int = 0, reader: int = SCAN) -> set[str]:
    """For a segment with events at 0, 10, 15 and 30, whose last one ends at 40."""
    history = LogHistory()
    for number, (offset, length) in enumerate(((0, 10), (10, 5), (15, 15), (30, 10)), 1):
        if offset >= start:
            history.read(reader, (0, offset), (1, number, length), fresh=False, begun=1.0, ended=2.0)
    history.scanned(SCAN, 0, start, 40)
    return {violation.kind for violation in check(history, [Located(0, target, answer, end, reach)])}


def test_boundaries_at_or_after_the_target_pass() -> None:
    for target, answer in ((0, 0), (1, 10), (10, 10), (16, 30), (31, 40), (40, 40)):
        assert not kinds(target, answer, reach=15)


def test_an_offset_within_an_event_is_found() -> None:
    assert kinds(12, 14) == {"located-inside"}
    assert kinds(39, 39) == {"located-inside"}


def test_an_answer_below_its_target_is_found() -> None:
    assert kinds(12, 10) == {"located-below"}
    assert not kinds(45, 40), "beyond the end, the end is the answer"


def test_an_answer_that_is_too_far_is_found() -> None:
    assert kinds(1, 30, reach=20) == {"located-far"}
    assert not kinds(1, 30, reach=29)


def test_an_answer_in_truncated_bytes_is_not_judged() -> None:
    assert not kinds(12, 14, start=15)
    assert kinds(16, 17, start=15) == {"located-inside"}


def test_only_scans_judge() -> None:
    assert kinds(12, 15, reader=1) == {"located-inside"}, "the scan has no events"
