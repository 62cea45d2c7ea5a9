"""The checker of tables accepts right commits, and names each kind of wrong ones."""

from __future__ import annotations

from typing import Any

from checkers.lake import TableCommit, TableHistory, check

# Two events of 2 bytes in segment 0, one in its successor.
EVENTS = {(0, 0): b"aa", (0, 10): b"bb", (1, 0): b"cc"}
FIRST = TableCommit("x", {0: 0}, {0: 10}, [((0, 0), b"aa")])
SECOND = TableCommit("y", {0: 10}, {1: 10}, [((1, 0), b"cc")])
LETTERS = ("y", [((0, 10), b"bb")])


def kinds(*commits: TableCommit, letters: Any = (LETTERS,), deleted: Any = ()) -> set[str]:
    history = TableHistory(EVENTS, {0: 0}, list(commits), list(letters), list(deleted))
    return {violation.kind for violation in check(history)}


def test_rows_and_dead_letters_that_are_all_events_once() -> None:
    assert kinds(FIRST, SECOND) == set()


def test_a_commit_that_does_not_begin_where_the_last_one_ended() -> None:
    assert kinds(FIRST, TableCommit("y", {0: 0}, {1: 10}, SECOND.rows)) == {"cut"}


def test_an_event_in_two_commits() -> None:
    again = TableCommit("y", {0: 10}, {1: 10}, [*SECOND.rows, *FIRST.rows])
    assert kinds(FIRST, again) == {"table-double"}
    assert kinds(FIRST, SECOND, letters=[LETTERS, LETTERS]) == {"table-double"}


def test_a_row_that_is_no_event() -> None:
    assert "table-foreign" in kinds(FIRST, TableCommit("y", {0: 10}, {1: 10}, [((1, 0), b"cd")]))
    assert "table-foreign" in kinds(FIRST, TableCommit("y", {0: 10}, {1: 10}, [*SECOND.rows, ((2, 0), b"cc")]))


def test_events_that_are_nowhere() -> None:
    assert kinds(FIRST, SECOND, letters=()) == {"table-lost"}
    assert kinds(FIRST, letters=()) == {"table-lost"}
    assert kinds(TableCommit("x", {0: 0}, {0: 20}, FIRST.rows), letters=()) == {"table-lost"}


def test_a_row_behind_the_cut_of_its_commit() -> None:
    early = TableCommit("x", {0: 0}, {0: 10}, [*FIRST.rows, ((0, 10), b"bb")])
    assert kinds(early, SECOND, letters=()) == {"table-early"}


def test_dead_letters_of_no_commit_and_deleted_files() -> None:
    assert kinds(FIRST, SECOND, letters=[LETTERS, ("z", [])]) == {"letters-alone"}
    assert kinds(FIRST, SECOND, deleted=["f"]) == {"file-deleted"}
