"""Each violation is injected once into a correct run, and found."""

from __future__ import annotations

import numpy as np
import pytest

from tests.scale import records
from tests.scale.judge import Life, Written, judge
from tests.scale.records import KEYS, SideFile, events_of, parse, record, recovered, said, together

COUNT = 10 * KEYS


def history():
    """Two lives of one writer, one after the other, in segment 1 and then 2."""
    lives = np.repeat(np.array([1, 2], np.int64), COUNT)
    numbers = np.tile(np.arange(COUNT, dtype=np.int64), 2)
    segments = np.where(lives == 1, 1, 2)
    written = Written(
        {1: Life(0, COUNT + KEYS, COUNT - 3), 2: Life(0, COUNT, COUNT)}, {2: [1]}, [[(0.0, 0.5), (0.5, 1.0)]]
    )
    return written, lives, numbers, segments


def kinds(written, *columns) -> set[str]:
    return {violation.kind for violation in judge(written, 0, columns)}


def without(columns, *rows):
    return [np.delete(column, list(rows)) for column in columns]


def test_correct_run_passes() -> None:
    written, *columns = history()
    assert kinds(written, *columns) == set()


def test_unacknowledged_events_may_be_missing() -> None:
    written, *columns = history()
    assert kinds(written, *without(columns, COUNT - 1, COUNT - 2, COUNT - 3)) == set()


def test_missing_last_acknowledged_event_of_key_is_lost() -> None:
    written, *columns = history()
    assert kinds(written, *without(columns, COUNT - 4, COUNT - 1)) == {"lost"}


def test_missing_event_in_the_middle_is_found() -> None:
    written, *columns = history()
    assert "key-gap" in kinds(written, *without(columns, 100))


@pytest.mark.parametrize("distance", [1, KEYS])
def test_event_read_twice_is_found(distance: int) -> None:
    written, *columns = history()
    twice = [np.insert(column, 200 + distance, column[200]) for column in columns]
    assert kinds(written, *twice) == {"key-order"}


def test_events_of_key_out_of_order_are_found() -> None:
    written, *columns = history()
    columns[1][[70, 70 + KEYS]] = columns[1][[70 + KEYS, 70]]
    assert "key-order" in kinds(written, *columns)


def test_events_nobody_wrote_are_phantoms() -> None:
    written, *columns = history()
    columns[0][5] = 7
    assert kinds(written, *columns) == {"phantom"}
    written, *columns = history()
    written.lives[2].delivered = COUNT - 1
    assert kinds(written, *columns) == {"phantom"}


def test_later_life_read_before_earlier_one_is_found() -> None:
    written, *columns = history()
    swapped = [np.roll(column, COUNT) for column in columns]
    assert kinds(written, *swapped) == {"life-order", "early"}


def test_overlapping_ranges_are_found() -> None:
    written, *columns = history()
    written.active.append([(0.0, 0.6), (0.5, 1.0)])
    assert kinds(written, *columns) == {"untiled"}


def test_events_are_parsed_as_made() -> None:
    lives, numbers, whole = parse(events_of(300, 40, 1000))
    assert whole.all()
    assert set(lives.tolist()) == {300}
    assert numbers.tolist() == list(range(40, 1040))
    damaged = events_of(300, 40, 10)
    damaged[3, 60] ^= 1
    assert parse(damaged)[2].tolist() == [True] * 3 + [False] + [True] * 6


def test_partial_record_at_the_end_is_dropped(tmp_path) -> None:
    path, some = tmp_path / "results", np.arange(5, dtype=np.int64)
    first, second = record(some, some + 1, some + 2, "there"), record(some, some, some, "further")
    for cut in (0, 1, 20, len(second) - 1):
        path.write_bytes(first + second[:cut])
        found = recovered(path)
        assert found.position == "there"
        assert [column.tolist() for column in found.columns()] == [(some + n).tolist() for n in range(3)]
        assert path.stat().st_size == len(first)
    path.write_bytes(first + second)
    assert recovered(path).position == "further"


def test_last_report_of_writer_counts(tmp_path) -> None:
    assert said(tmp_path / "none") == (0, 0)
    side = SideFile(tmp_path / "side")
    side.handing(100)
    side.acknowledged(60)
    side.handing(200)
    side.acknowledged(50)
    assert said(tmp_path / "side") == (200, 60)
    with (tmp_path / "side").open("ab") as file:
        file.write(b"half")
    assert said(tmp_path / "side") == (200, 60)
    assert records.GROUP % KEYS == 0


def members(tmp_path, *pieces):
    """Results of two members; a piece is (member, segment, its first row, its rows), each row a key's next event."""
    for member, segment, first, count in pieces:
        numbers = np.arange(first, first + count, dtype=np.int64)
        lives, segments = np.full(count, 1, np.int64), np.full(count, segment, np.int64)
        with (tmp_path / f"member-{member}").open("ab") as file:
            file.write(record(lives, numbers, segments, f"{first * 108}:00"))
    return together([recovered(tmp_path / f"member-{member}") for member in range(2)]).columns()


def test_members_of_group_read_everything_together(tmp_path) -> None:
    written, *_ = history()
    del written.lives[2]
    half = COUNT // 2
    columns = members(tmp_path, (0, 1, half, half), (1, 1, 0, half))
    assert list(columns[1]) == list(range(COUNT))
    assert judge(written, 0, columns, keep_order=False) == []


@pytest.mark.parametrize(("first", "kind"), [(COUNT // 2 - KEYS, "key-order"), (COUNT // 2 + KEYS, "key-gap")])
def test_duplicate_or_missing_event_of_group_is_found(tmp_path, first, kind) -> None:
    written, *_ = history()
    del written.lives[2]
    columns = members(tmp_path, (0, 1, 0, COUNT // 2), (1, 1, first, COUNT - first))
    assert kind in {violation.kind for violation in judge(written, 0, columns, keep_order=False)}
