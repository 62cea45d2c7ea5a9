"""Watermarks: each kind of violation is found."""

from __future__ import annotations

import pytest

from checkers.watermarks import Mark, WatermarkHistory, check


def history(*marks: Mark, time_out: float = 100.0) -> WatermarkHistory:
    """Writers 1 and 2 note 0, 10, 20 ... at seconds 0, 1, 2 ...; their event of that time is at ten times the second
    in segment 1 and 2, which follow segment 0."""
    made = WatermarkHistory(time_out)
    for segment in (1, 2):
        made.graph.follows(segment, [0])
        for second in range(10):
            made.noted(segment, second * 10, float(second), second + 0.1)
            made.events[segment, second * 10] = (segment, second * 10)
    made.marks.extend(marks)
    return made


def kinds(made: WatermarkHistory) -> list[str]:
    return [violation.kind for violation in check(made)]


def mark(lower: int, seen: float, cut: dict[int, int] | None = None, upper: int = 1000) -> Mark:
    return Mark(lower, upper, {1: lower, 2: lower} if cut is None else cut, seen)


def test_correct_watermarks_pass() -> None:
    assert not kinds(history(mark(10, 1.2), mark(30, 3.0), mark(50, 8.0)))
    assert not kinds(WatermarkHistory())


@pytest.mark.parametrize(
    "marks",
    [
        (mark(30, 4.0), mark(20, 5.0)),
        (mark(30, 4.0), mark(30, 5.0)),
        (mark(30, 4.0, upper=29),),
        (mark(10, 4.0, {1: 40, 2: 40}), mark(20, 5.0, {1: 39, 2: 50})),
        (mark(0, 4.0, {1: 0, 2: 0}), mark(1, 5.0, {0: 1000})),
    ],
)
def test_watermark_that_goes_back_is_found(marks) -> None:
    assert "watermark-fell" in kinds(history(*[mark(-1, 0.5, {1: 0, 2: 0}), *marks]))


def test_time_not_noted_by_writer_is_found() -> None:
    assert kinds(history(mark(30, 2.9))) == ["watermark-ahead"] * 2
    made = history(mark(30, 4.0))
    del made.notes[2][2:]
    assert kinds(made) == ["watermark-ahead"]


def test_timed_out_or_left_writer_does_not_count() -> None:
    made = history(mark(30, 4.0), time_out=1.5)
    del made.notes[2][2:]
    assert not kinds(made)
    made = history(mark(30, 4.0))
    del made.notes[2][2:]
    made.leaves(2, 3.5)
    assert not kinds(made)


def test_writer_that_timed_out_once_does_not_count() -> None:
    made = history(mark(30, 9.5), time_out=2.5)
    made.notes[2] = [note for note in made.notes[2] if not 2 < note.begun < 9]
    made.events[2, 35] = (2, 25)
    assert not made.counts(2, 9.5)
    assert made.counts(1, 9.5)
    assert not kinds(made)


def test_event_after_cut_is_found() -> None:
    assert kinds(history(mark(30, 4.0, {1: 30, 2: 20}))) == ["watermark-cut"]
    assert kinds(history(mark(30, 4.0, {0: 1000}))) == ["watermark-cut"]
    made = history(mark(30, 4.0))
    made.events[2, 500] = (2, 29)
    assert kinds(made) == ["watermark-cut"]
    made.events[2, 500] = (2, 30)
    assert not kinds(made)


def test_late_event_is_found() -> None:
    made = history()
    made.got(7, 1, 10, 2.0)
    made.reported(7, 20, 2.0)
    made.got(7, 2, 20, 3.0)
    assert not kinds(made)
    made.got(7, 2, 19, 3.0)
    assert kinds(made) == ["late-event"]


def test_readers_are_checked_separately() -> None:
    made = history()
    made.reported(7, 20, 2.0)
    made.got(8, 2, 19, 3.0)
    assert not kinds(made)
