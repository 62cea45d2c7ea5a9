"""Table segments: versioned entries, conditional batches, scans, delta reads.

Theory of operation.  A version is the position in the table where the entry would begin if the table were a file
(wire.md par. 6).  Positions never repeat, so versions rise across keys.

An entry is in one of four places, the newest first: pending (in flight), dirty (applied since the last snapshot),
flushing (in the checkpoint in progress), and the index.  Conditions are checked against the newest entry.  Reads are
served from the applied state: dirty and flushing entries overlay those of the index.

A read of the index awaits, and a checkpoint meanwhile moves entries from memory to the index.  So each read notes
the metadata cache's `generation` before, and repeats when it has changed: otherwise it could see an entry in neither.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from sarit.core.errors import Conflict, Exists, Invalid, NotFound, SaritError
from sarit.core.limits import MAX_TABLE_KEY_BYTES, MAX_TABLE_VALUE_BYTES, NOT_EXISTS
from sarit.index import keys
from sarit.store.container.operations import KIND_TABLE_FIXED, KIND_TABLE_HASH, Delete, Entry, serialized_bytes
from sarit.store.limits import MAX_TABLE_BATCH_BYTES, MAX_TABLE_PAGE_BYTES, TABLE_ENTRY_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sarit.store.container.container import Container
    from sarit.store.container.segment import Segment, TableState

Change = tuple[bytes, bytes | None, int]

# Rows of the index in one read: the first, while their size is unknown, and the most, since each may have a MiB
# whatever the size of those before it.
_MIN_ROWS = 16
_FIRST_ROWS = 64
_MAX_ROWS = 256
# Entries in memory that one turn of a scan examines.
_MAX_EXAMINED = 4096


class Tables:
    """The table operations of one container."""

    def __init__(self, container: Container) -> None:
        self._container = container

    async def create(self, name: str, key_length: int, rollover: int = 0) -> None:
        """Create a table with keys of any length (`key_length` 0) or of exactly that many bytes.

        Raises Exists, Invalid."""
        if not 0 <= key_length <= MAX_TABLE_KEY_BYTES:
            raise Invalid(f"key length {key_length} is not in [0, {MAX_TABLE_KEY_BYTES}]")
        kind = KIND_TABLE_FIXED if key_length else KIND_TABLE_HASH
        await self._container.create(name, kind=kind, key_length=key_length, rollover=rollover)

    async def delete(self, name: str, must_be_empty: bool, unchanged_since: int | None = None) -> None:
        """Delete a table, if it is empty (`must_be_empty`) and at position `unchanged_since` (None: at any).

        Raises NotFound, Invalid (no table), Exists (not empty), Conflict (position)."""
        await self._require(name)

        def decide(segment: Segment) -> Delete:
            if must_be_empty and segment.assigned_entries:
                # Of the assigned state: an entry in flight counts.
                raise Exists(f"table {name} is not empty")
            if unchanged_since not in (None, segment.assigned_length):
                raise Conflict(f"table {name} changed", expected=unchanged_since, actual=segment.assigned_length)
            return self._container.state.delete(segment)

        await self._container.change(name, decide)

    async def update(
        self,
        name: str,
        changes: Sequence[Change],
        expected_length: int | None = None,
        *,
        fresh: Collection[bytes] = (),
    ) -> list[int]:
        """Apply a batch atomically; returns the version of each change in order (NOT_EXISTS for a removal).

        The index is not asked for keys that are `fresh`: the caller knows that they were never in the table.
        Raises NotFound, Conflict, Invalid, Truncated (table position), Unavailable (over the control limit)."""
        await self._container.control_limit.wait_below(name)
        segment = await self._require(name)
        _check_sizes(segment, changes)
        metadata = self._container.metadata
        table = segment.table
        assert table is not None
        segment.pins += 1
        try:
            wanted = list(dict.fromkeys(key for key, _, _ in changes))
            while True:
                unknown = [key for key in wanted if key not in fresh and _newest(table, key) is None]
                generation = metadata.generation
                stored = await metadata.stored_entries(segment, unknown) if unknown else {}
                # The read awaited: a key that was in memory before it may be in the index alone now, and was not read.
                known = all(key in fresh or key in stored or _newest(table, key) is not None for key in wanted)
                if known and (generation == metadata.generation or not unknown):
                    break

            # Without an await from the last check of the loop to `submit`: what `current` answers is still the newest.
            def current(key: bytes) -> Entry | None:
                return _newest(table, key) or stored.get(key)

            operation = self._container.state.update_table(segment, changes, current, expected_length)
        except SaritError:
            await self._container.group_commit.wait_durable()
            raise
        finally:
            segment.pins -= 1
        await self._container.submit(operation)
        # `update_table` leaves out removals of absent keys; those of present ones have value None.  Puts are left, in
        # order.
        versions = iter([entry.version for entry in operation.entries if entry.value is not None])
        return [NOT_EXISTS if value is None else next(versions) for _, value, _ in changes]

    async def get(self, name: str, wanted: Sequence[bytes]) -> list[Entry | None]:
        """Applied entries in order, None where absent.  Raises NotFound."""
        segment = await self._require(name)
        table = segment.table
        assert table is not None
        segment.pins += 1
        try:
            while True:
                generation = self._container.metadata.generation
                unknown = [key for key in wanted if _applied(table, key) is None]
                stored = await self._container.metadata.stored_entries(segment, unknown) if unknown else {}
                # All in memory: no await, so nothing can have moved.
                if not unknown or generation == self._container.metadata.generation:
                    break
        finally:
            segment.pins -= 1
        out = []
        for key in wanted:
            entry = _applied(table, key) or stored.get(key)
            out.append(None if entry is None or entry.value is None else entry)
        return out

    async def scan(self, name: str, start: bytes, end: bytes | None, limit: int) -> list[Entry]:
        """Applied entries with start <= key (< end) by key, at most `limit` and about one page of bytes.

        All are of one moment.  Fewer may be followed by others; none is the end.
        Raises NotFound, Invalid (no table)."""
        segment = await self._require(name)
        at, moment, most = start, -1, _MAX_EXAMINED
        while True:
            alive, after = await self._scan_page(segment, at, end, limit, most)
            if at != start and segment.length != moment:
                # What was passed over was of another moment.  The next attempt examines more at once: it comes to an
                # end even if the table changes all the time.
                at, most = start, 2 * most
            elif alive or after is None:
                return alive
            else:  # all removed up to there
                at, moment = after, segment.length

    async def _scan_page(
        self, segment: Segment, start: bytes, end: bytes | None, limit: int, most: int
    ) -> tuple[list[Entry], bytes | None]:
        """At most a page of entries in order, and where to go on; None: these are all up to `end`.

        It examines at most `most` of those in memory: a turn of the event loop, which others wait for."""
        table = segment.table
        assert table is not None
        metadata = self._container.metadata
        segment.pins += 1
        try:
            while True:
                generation = metadata.generation
                merged, last = await self._stored_page(segment, start, end, limit)
                if generation == metadata.generation:
                    break
        finally:
            segment.pins -= 1
        # No await since the generation was checked: index and overlay are of one moment.
        overlays = (overlay.irange(start, end, (True, False)) for overlay in (table.flushing, table.dirty))
        alive: list[Entry] = []
        size, previous = 0, None
        for count, key in enumerate(heapq.merge(merged, *overlays)):
            # Rows of the index beyond the last one scanned may come before entries of the overlay: stop there.
            if last is not None and key > last:
                break
            if count == most or len(alive) >= max(limit, 1) or size >= MAX_TABLE_PAGE_BYTES:
                return alive, key
            if key == previous:  # in the overlay twice, or also in the index
                continue
            previous = key
            entry = _applied(table, key) or merged[key]
            if entry.value is not None:
                alive.append(entry)
                size += serialized_bytes(entry)
        return alive, None if last is None else last + b"\0"

    async def _stored_page(
        self, segment: Segment, start: bytes, end: bytes | None, limit: int
    ) -> tuple[dict[bytes, Entry], bytes | None]:
        """Return a page or more of entries of the index that are not overlaid, and the last key scanned (None: all).

        It reads in pieces, since clients choose the limit and rows may be large."""
        found: dict[bytes, Entry] = {}
        table, size, piece = segment.table, 0, max(1, min(limit, _FIRST_ROWS))
        assert table is not None
        if not segment.committed:
            return found, None
        low, high = keys.entry_range(segment.id, start, end)
        while True:
            rows = await self._container.metadata.stored_rows(low, high, piece)
            for row_key, row in rows:
                _, key = keys.parse_entry_key(row_key)
                # An overlaid row does not count: `_scan_page` puts the newer entry in its place, or nothing.
                if _applied(table, key) is None:
                    version, value = keys.parse_entry_value(row)
                    entry = found[key] = Entry(key, value, version)
                    size += serialized_bytes(entry)
            if len(rows) < piece:
                return found, None
            # `key` is the last one scanned, not the last one found.
            if len(found) >= limit or size >= MAX_TABLE_PAGE_BYTES:
                return found, key
            # The smallest key after the last row.
            low = rows[-1][0] + b"\0"
            # As many as are missing, more where the overlay replaces most; a page of bytes if rows stay as large.
            each = max(1, sum(len(row) for _, row in rows) // len(rows))
            wanted = max(limit - len(found), 4 * len(rows))
            piece = max(_MIN_ROWS, min(wanted, MAX_TABLE_PAGE_BYTES // each, _MAX_ROWS))

    async def delta(self, name: str, position: int, limit: int) -> tuple[list[Entry], bool, int]:
        """Live entries written at or after `position`, whether the end was reached, and the next position.

        Raises NotFound, Invalid (the position is after the end), NotImplementedError (keys of fixed length)."""
        segment = await self._require(name)
        if segment.kind == KIND_TABLE_FIXED:
            raise NotImplementedError("delta reads of a table with keys of fixed length")
        if position > segment.length:
            raise Invalid(f"position {position} is after the end {segment.length} of table {name}")
        if position == segment.length:
            return [], True, 0
        limit = min(limit, _MAX_ROWS)  # clients may ask for any number
        while True:
            live, last = await self._delta_page(segment, position, limit)
            if live or last is None:
                break
            position = last + 1  # everything up to there was replaced meanwhile, at later positions
        page = _page(live, limit)
        reached_end = last is None and len(page) == len(live)
        return page, reached_end, segment.length if reached_end else page[-1].version + serialized_bytes(page[-1])

    async def _delta_page(self, segment: Segment, position: int, limit: int) -> tuple[list[Entry], int | None]:
        """Live entries in order of version, and the last version scanned (None: all)."""
        table = segment.table
        assert table is not None
        segment.pins += 1
        try:
            while True:
                generation = self._container.metadata.generation
                # As many rows more as the overlay may replace: a page is seldom empty.
                stored, last = await self._stored_versions(
                    segment, position, limit + len(table.dirty) + len(table.flushing)
                )
                if generation == self._container.metadata.generation:
                    break
        finally:
            segment.pins -= 1
        # As in a scan: rows beyond the last one scanned may come before entries of the overlay.
        latest = stored | table.flushing | table.dirty
        versions = sorted(
            (e.version, e.key)
            for e in latest.values()
            if e.version >= position and e.value is not None and (last is None or e.version <= last)
        )
        return [latest[key] for _, key in versions], last

    async def _stored_versions(
        self, segment: Segment, position: int, most: int
    ) -> tuple[dict[bytes, Entry], int | None]:
        """Return a page of entries of the index from `position` on, or `most` rows, and the last version scanned (None:
        all).

        It reads in pieces, since entries may be large."""
        found: dict[bytes, Entry] = {}
        table, size, at, piece = segment.table, 0, 0, _MIN_ROWS
        assert table is not None
        if not segment.committed:
            return found, None
        low, high = keys.offset_range(keys.VERSION, segment.id, position, segment.length + 1)
        rows = await self._container.index.scan(low, high, most)
        while at < len(rows) and size < MAX_TABLE_PAGE_BYTES:
            # A version row names its key.  The entry is a second read, and an overlaid one is not read at all.
            wanted = [key for _, key in rows[at : at + piece] if _applied(table, key) is None]
            at = min(at + piece, len(rows))
            for entry in (await self._container.metadata.stored_entries(segment, wanted)).values():
                if entry is not None:
                    found[entry.key] = entry
                    size += serialized_bytes(entry)
            each = max(1, size // max(1, len(found)))
            piece = max(_MIN_ROWS, min(MAX_TABLE_PAGE_BYTES // each, _MAX_ROWS))
        # All rows are read, and the scan has returned fewer than it might: there are no more.
        whole = at == len(rows) < most
        return found, None if whole else keys.parse_version_key(rows[at - 1][0])[1]

    async def info(self, name: str) -> Segment:
        """Return the table's segment.  Raises NotFound, Invalid (no table)."""
        return await self._require(name)

    async def _require(self, name: str) -> Segment:
        segment = await self._container.metadata.require(name)
        if not segment.is_table:
            raise Invalid(f"segment {name} is not a table segment")
        # Its creation is in flight: a reader must not see a table that a crash could undo.
        if not segment.created:
            await self._container.group_commit.wait_durable()
            if segment.deleted:
                raise NotFound(f"table {name} does not exist")
        return segment


def _newest(table: TableState, key: bytes) -> Entry | None:
    """Return the assigned entry, which conditions are checked against; None when it is in the index or absent."""
    # An entry is true also as a removal: it is an object, and `value` None says so.
    return table.pending.get(key) or _applied(table, key)


def _applied(table: TableState, key: bytes) -> Entry | None:
    """Return the applied entry, which reads are served from; None when it is in the index or absent."""
    found: Entry | None = table.dirty.get(key) or table.flushing.get(key)
    return found


def _page(entries: Iterable[Entry], limit: int) -> list[Entry]:
    out: list[Entry] = []
    size = 0
    for entry in entries:
        if len(out) >= limit or size >= MAX_TABLE_PAGE_BYTES:
            break
        out.append(entry)
        size += serialized_bytes(entry)
    return out


def _check_sizes(segment: Segment, changes: Sequence[Change]) -> None:
    total = 0
    for key, value, _ in changes:
        if not key or len(key) > MAX_TABLE_KEY_BYTES:
            raise Invalid(f"a table key has 1 to {MAX_TABLE_KEY_BYTES} bytes, not {len(key)}")
        if segment.key_length and len(key) != segment.key_length:
            raise Invalid(f"keys of table {segment.name} have {segment.key_length} bytes, not {len(key)}")
        if value is not None and len(value) > MAX_TABLE_VALUE_BYTES:
            raise Invalid(f"a table value has at most {MAX_TABLE_VALUE_BYTES} bytes, not {len(value)}")
        total += TABLE_ENTRY_HEADER_BYTES + len(key) + len(value or b"")  # more than its encoding in a frame
    if total > MAX_TABLE_BATCH_BYTES:
        raise Invalid(f"a table batch has at most {MAX_TABLE_BATCH_BYTES} bytes, not {total}")
