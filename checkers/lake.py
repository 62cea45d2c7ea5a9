"""Guarantees of a stream's Iceberg table, checked over all its commits.  Pure.

A commit says from which cut to which it goes, and has rows; its dead letters are in a second table, under the same id.
Rows and dead letters are events with their positions.

| kind | meaning |
|---|---|
| `cut` | a commit does not begin where the one before ended |
| `table-double` | one event is in two rows, or in a row and a dead letter |
| `table-foreign` | a row or a dead letter is no event of the stream, or an event with other bytes |
| `table-lost` | at the cut of a commit, an event before it is neither a row nor a dead letter |
| `table-early` | at the cut of a commit, an event behind it is a row |
| `letters-alone` | at the end, dead letters are of a commit that the table does not have |
| `file-deleted` | a file that the table refers to was deleted |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Position = tuple[int, int]
Cut = dict[int, int]

_FRAME_BYTES: Final = 8
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit.  `rows`: (position, event)."""

    commit: str
    start: Cut
    end: Cut
    rows: list[tuple[Position, bytes]]


@dataclass(slots=True)
class TableHistory:
    """Everything that was seen.

    `events`: of the stream, by their positions.  `head`: where it begins.  `letters`: commits of dead letters, each
    with the id and (position, event).  `deleted`: names of deleted files that a table refers to."""

    events: Mapping[Position, bytes] = field(default_factory=dict)
    head: Cut = field(default_factory=dict)
    commits: list[TableCommit] = field(default_factory=list)
    letters: list[tuple[str, list[tuple[Position, bytes]]]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


def check(history: TableHistory) -> list[Violation]:
    """Everything that is wrong; empty when nothing is."""
    return [*_chain(history), *_events(history), *_files(history)]


def _files(history: TableHistory) -> Iterator[Violation]:
    if history.deleted:
        yield Violation("file-deleted", f"{len(history.deleted)} files, as {history.deleted[:_SHOWN]}")


def _chain(history: TableHistory) -> Iterator[Violation]:
    at = history.head
    for commit in history.commits:
        if commit.start != at:
            yield Violation("cut", f"commit {commit.commit} begins at {commit.start}, and not at {at}")
        at = commit.end


def _events(history: TableHistory) -> Iterator[Violation]:
    dead: dict[str, list[tuple[Position, bytes]]] = {}
    for number, letters in history.letters:
        dead.setdefault(number, []).extend(letters)
    if alone := dead.keys() - {commit.commit for commit in history.commits}:
        yield Violation("letters-alone", f"dead letters of commits that are not in the table: {sorted(alone)}")
    seen: dict[Position, str] = {}
    reached: dict[int, int] = {}  # the end of the last event of each segment that is in the table
    for commit in history.commits:
        for position, event in sorted([*commit.rows, *dead.get(commit.commit, [])]):
            if position in seen:
                yield Violation("table-double", f"{position} is in commits {seen[position]} and {commit.commit}")
                continue
            seen[position] = commit.commit
            if history.events.get(position) != event:
                yield Violation("table-foreign", f"commit {commit.commit} has {event[:60]!r} at {position}")
                continue
            segment, offset = position
            if offset != reached.get(segment, 0):
                yield Violation(
                    "table-lost", f"commit {commit.commit} goes from {reached.get(segment, 0)} to {position}"
                )
            reached[segment] = offset + _FRAME_BYTES + len(event)
        for segment, offset in commit.end.items():
            if (found := reached.get(segment, 0)) != offset:
                kind = "table-lost" if found < offset else "table-early"
                yield Violation(kind, f"commit {commit.commit} ends at {offset} of {segment}, its rows at {found}")
    if missing := sorted(history.events.keys() - seen.keys()):
        yield Violation("table-lost", f"{len(missing)} events are in no commit, as {missing[:_SHOWN]}")


__all__ = ["TableCommit", "TableHistory", "check"]
