"""Decisions of an indexer: what its state becomes, and when a shard is closed.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sarit.search.limits import (
    COMMIT_TIME_KEPT,
    LARGE_STATE_BYTES,
    MAX_MAPPED_FIELDS,
    MAX_SEARCH_SETTINGS_BYTES,
    MAX_SHARD_AGE_MS,
    MAX_SHARD_BYTES,
    MAX_SHARD_EVENTS,
    MIN_SHARD_EVENTS,
    SHARD_HOUR_MS,
)
from sarit.search.mapping import Mapping, to_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sarit.core.cuts import StreamCut
    from sarit.search.state import IndexState, Shard, StoredFile


@dataclass(slots=True)
class Uncommitted:
    """The events that were added to a shard since its last commit.

    `end`: the cut behind it.  `size`: bytes of its events.  `first_ms`, `last_ms`: of those with a time; 0 if there is
    no event."""

    end: StreamCut
    events: int = 0
    partly: int = 0
    lost_bytes: int = 0
    size: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add_times(self, times: Sequence[int]) -> None:
        """Take the times of further events in; call it before they are counted in `events`."""
        if times:
            first, last = min(times), max(times)
            self.first_ms = min(self.first_ms, first) if self.events else first
            self.last_ms = max(self.last_ms, last) if self.events else last
            self.events += len(times)


class CommitTimes:
    """When commits begin: so early that each ends an interval after the one before began, if it takes as long.

    Events that were written when a commit began are in the next one.  Whatever commits take, half of an interval is for
    events."""

    def __init__(self, now: Callable[[], float], interval_seconds: float) -> None:
        self._now = now
        self._interval = interval_seconds
        self._due_at = now() + interval_seconds
        self._took = 0.0  # the longest of the last ones

    def __repr__(self) -> str:
        return f"<CommitTimes, due in {self.until_due():.1f} s>"

    def until_due(self) -> float:
        """Return the seconds until the next commit begins, if there is anything to commit."""
        return self._due_at - self._now()

    def put_off(self, seconds: float) -> None:
        """Put the next commit off."""
        self._due_at += seconds

    def ended(self, begun: float) -> None:
        """Plan the next commit: one has just ended, which began at a time of the same clock."""
        ended = self._now()
        self._took = max(ended - begun, self._took * COMMIT_TIME_KEPT)
        self._due_at = max(begun + self._interval - self._took, ended + self._interval / 2)


def committed(
    state: IndexState,
    added: Uncommitted,
    shard: Shard | None,
    files: Sequence[StoredFile],
    closed_bytes: int,
    now_ms: int,
) -> IndexState:
    """Return the state after a commit: what was added is in the growing shard, which has these files.

    `shard`: as it was before this commit; None: nothing has ever been added.  `closed_bytes`: of the closed shards."""
    if shard is not None:
        first, last = shard.first_ms, shard.last_ms
        if added.events:
            first = min(first, added.first_ms) if shard.events else added.first_ms
            last = max(last, added.last_ms) if shard.events else added.last_ms
        shard = replace(
            shard, events=shard.events + added.events, first_ms=first, last_ms=last, end=added.end, files=tuple(files)
        )
    return replace(
        state,
        cut=added.end,
        growing=shard,
        events=state.events + added.events,
        partly=state.partly + added.partly,
        lost_bytes=state.lost_bytes + added.lost_bytes,
        stored_bytes=closed_bytes + length_of(files),
        commits=state.commits + 1,
        committed_ms=now_ms,
    )


def length_of(files: Iterable[StoredFile]) -> int:
    """Return how many bytes files have."""
    return sum(file.length for file in files)


def is_due_to_close(shard: Shard, state_bytes: int, now_ms: int) -> bool:
    """Return whether the growing shard is closed now.  `state_bytes`: of the state that names its files."""
    if not shard.events:
        return False
    if length_of(shard.files) >= MAX_SHARD_BYTES or shard.events >= MAX_SHARD_EVENTS:
        return True
    if state_bytes >= LARGE_STATE_BYTES and len(shard.files) > 1:
        return True
    age_ms = now_ms - shard.opened_ms
    is_new_hour = now_ms // SHARD_HOUR_MS > shard.opened_ms // SHARD_HOUR_MS
    return age_ms >= MAX_SHARD_AGE_MS or (is_new_hour and shard.events >= MIN_SHARD_EVENTS)


def blobs_of(state: IndexState, shards: Iterable[Shard]) -> set[str]:
    """Return the names of all blobs that an index refers to; `shards`: the closed ones."""
    files = [file for shard in shards for file in shard.files]
    files += [] if state.growing is None else state.growing.files
    files += [] if state.closed is None else [state.closed]
    return {file.blob for file in files}


def merged(before: Mapping | None, found: Mapping) -> Mapping:
    """Return the mapping of a new shard: that of the one before, and fields that were found since.

    A field keeps its kind.  Fields for which there is no room are left out."""
    if before is None:
        return found
    fields = list(before.fields)
    known = {field.path for field in fields}
    for field in found.fields:
        if field.path not in known and len(fields) < MAX_MAPPED_FIELDS:
            grown = Mapping((*fields, field), before.time_field)
            if len(repr(to_document(grown))) > MAX_SEARCH_SETTINGS_BYTES:
                break
            fields.append(field)
    kinds = {field.path: field.kind for field in fields}
    time_field = before.time_field or found.time_field
    keeps = time_field in kinds and (before.time_field == time_field or time_field not in known)
    return Mapping(tuple(fields), time_field if keeps else before.time_field)
