"""Table segments: versioned entries, conditional batches, scans, delta reads.

Theory of operation.  A version is the position in the table where the entry would begin if the table were a file
(wire.md par. 6).  Positions never repeat, so versions rise across keys.

An entry is in one of four places, the newest first: pending (in flight), dirty (applied since the last snapshot),
flushing (in the checkpoint in progress), and the index.  Conditions are checked against the newest entry.  Reads are
served from the applied state: dirty and flushing entries overlay those of the index.

A read of the index awaits, and a checkpoint may move entries from memory to the index meanwhile.  So each read notes
the metadata cache's `generation` first, and repeats if that has changed: otherwise it could miss an entry in both.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from sarit.core.errors import Conflict, Exists, Invalid, NotFound, SaritError
from sarit.core.limits import MAX_TABLE_KEY_BYTES, MAX_TABLE_VALUE_BYTES, NOT_EXISTS
from sarit.index import keys
from sarit.store.container.operations import (
    KIND_TABLE_FIXED,
    KIND_TABLE_HASH,
    Delete,
    Entry,
    UpdateTable,
    serialized_bytes,
)
from sarit.store.limits import MAX_TABLE_BATCH_BYTES, MAX_TABLE_PAGE_BYTES, TABLE_ENTRY_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sarit.store.container.container import Container
    from sarit.store.container.segment import Segment, TableState

Change = tuple[bytes, bytes | None, int]

# How many rows of the index one read takes: at least, at first, while their size is unknown, and at most, since the
# next rows may have a MiB each whatever the size of those before.
_MIN_ROWS = 16
_FIRST_ROWS = 64
_MAX_ROWS = 256
# How many entries in memory a scan examines in one turn of the event loop.
_MAX_EXAMINED = 4096


class Tables:
    """The table operations of one container."""

    def __init__(self, container: Container) -> None:
        self._container = container

    async def create(
        self, name: str, key_length: int, rollover: int = 0, *, position: int = 0, mirror: bool = False
    ) -> None:
        """Create a table with keys of any length (`key_length` 0) or of exactly that many bytes.

        `position`: the least version of an entry.  `mirror`: clients may only read it.  Raises Exists, Invalid."""
        if not 0 <= key_length <= MAX_TABLE_KEY_BYTES:
            raise Invalid(f"key length {key_length} is not in [0, {MAX_TABLE_KEY_BYTES}]")
        kind = KIND_TABLE_FIXED if key_length else KIND_TABLE_HASH
        await self._container.create(
            name, kind=kind, key_length=key_length, rollover=rollover, offset=position, mirror=mirror
        )

    async def delete(self, name: str, must_be_empty: bool, unchanged_since: int | None = None) -> None:
        """Delete a table, if it is empty (`must_be_empty`), and still at position `unchanged_since` (None: any).

        Raises NotFound, Invalid (no table), Exists (not empty), Conflict (position)."""
        await self._require(name)

        def decide(segment: Segment) -> Delete:
            if must_be_empty and segment.assigned_entries:
                # An entry in flight counts, since this is the assigned state.
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
        """Apply a batch atomically.  Returns the version of each change in order (NOT_EXISTS for a removal).

        `fresh`: keys that were never in the table, as the caller knows, so that the index is not asked for them.
        Raises NotFound, Conflict, Invalid, Truncated (table position), Unavailable (over the control limit)."""
        operation = await self._change(name, changes, expected_length, fresh)
        # The entries that are not removals are those of the puts, in order.
        versions = iter([entry.version for entry in operation.entries if entry.value is not None])
        return [NOT_EXISTS if value is None else next(versions) for _, value, _ in changes]

    async def update_at(self, name: str, changes: Sequence[Change], position: int) -> int:
        """Apply a batch atomically if the table is at a position.  Returns the position behind the batch.

        Raises as `update` does; Truncated: it is at another position."""
        return (await self._change(name, changes, position, ())).length

    async def _change(
        self, name: str, changes: Sequence[Change], expected_length: int | None, fresh: Collection[bytes]
    ) -> UpdateTable:
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
                # Read again if a checkpoint has moved a key from memory to the index during the read.
                known = all(key in fresh or key in stored or _newest(table, key) is not None for key in wanted)
                if known and (generation == metadata.generation or not unknown):
                    break

            # No await from the last check of the loop to `submit`, so that `current` returns the newest entries.
            def current(key: bytes) -> Entry | None:
                return _newest(table, key) or stored.get(key)

            operation = self._container.state.update_table(segment, changes, current, expected_length)
        except SaritError:
            await self._container.group_commit.wait_durable()
            raise
        finally:
            segment.pins -= 1
        await self._container.submit(operation)
        return operation

    async def get(self, name: str, wanted: Sequence[bytes]) -> list[Entry | None]:
        """Return the applied entries of keys in order, None for absent ones.  Raises NotFound."""
        segment = await self._require(name)
        table = segment.table
        assert table is not None
        segment.pins += 1
        try:
            while True:
                generation = self._container.metadata.generation
                unknown = [key for key in wanted if _applied(table, key) is None]
                stored = await self._container.metadata.stored_entries(segment, unknown) if unknown else {}
                # Without a read of the index there was no await, so that no entry can have moved.
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
        """Return applied entries with start <= key (< end) by key, at most `limit` and about one page of bytes.

        All are of one moment.  After fewer than `limit` others may follow; no entry at all is the end.
        Raises NotFound, Invalid (no table)."""
        segment = await self._require(name)
        at, moment, most = start, -1, _MAX_EXAMINED
        while True:
            alive, after = await self._scan_page(segment, at, end, limit, most)
            if at != start and segment.length != moment:
                # Begin again if the table changed after removed entries were skipped.  Examine more at once then, so
                # that the scan ends even if the table changes all the time.
                at, most = start, 2 * most
            elif alive or after is None:
                return alive
            else:  # the entries below `after` are all removed
                at, moment = after, segment.length

    async def _scan_page(
        self, segment: Segment, start: bytes, end: bytes | None, limit: int, most: int
    ) -> tuple[list[Entry], bytes | None]:
        """Return at most a page of entries in order, and the key at which to continue, None after the last one.

        At most `most` entries in memory are examined, as that blocks the event loop."""
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
        # No await from the check of the generation on, so that index and overlay are of one moment.
        overlays = (overlay.irange(start, end, (True, False)) for overlay in (table.flushing, table.dirty))
        alive: list[Entry] = []
        size, previous = 0, None
        for count, key in enumerate(heapq.merge(merged, *overlays)):
            # Stop after the last scanned row of the index: its next rows may come before the next overlay entry.
            if last is not None and key > last:
                break
            if count == most or len(alive) >= max(limit, 1) or size >= MAX_TABLE_PAGE_BYTES:
                return alive, key
            if key == previous:  # the key is in more than one of dirty, flushing and index
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
        """Return a page or more of index entries without a newer one in memory, and the last key scanned (None: all).

        The rows are read in pieces, since clients choose the limit and rows may be large."""
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
                # Skip a row with a newer entry in memory, which `_scan_page` takes.
                if _applied(table, key) is None:
                    version, value = keys.parse_entry_value(row)
                    entry = found[key] = Entry(key, value, version)
                    size += serialized_bytes(entry)
            if len(rows) < piece:
                return found, None
            # `key` is of the last row scanned, even if that was skipped.
            if len(found) >= limit or size >= MAX_TABLE_PAGE_BYTES:
                return found, key
            # Continue at the smallest key after the last row.
            low = rows[-1][0] + b"\0"
            # Read as many rows as are missing, more if most were skipped, and about a page of bytes at their size.
            each = max(1, sum(len(row) for _, row in rows) // len(rows))
            wanted = max(limit - len(found), 4 * len(rows))
            piece = max(_MIN_ROWS, min(wanted, MAX_TABLE_PAGE_BYTES // each, _MAX_ROWS))

    async def delta(self, name: str, position: int, limit: int) -> tuple[list[Entry], bool, int]:
        """Return live entries written at or after `position`, whether the end was reached, and the next position.

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
            position = last + 1  # all entries up to `last` were replaced meanwhile, at later positions
        page = _page(live, limit)
        reached_end = last is None and len(page) == len(live)
        return page, reached_end, segment.length if reached_end else page[-1].version + serialized_bytes(page[-1])

    async def _delta_page(self, segment: Segment, position: int, limit: int) -> tuple[list[Entry], int | None]:
        """Return live entries in order of version, and the last version scanned (None: all)."""
        table = segment.table
        assert table is not None
        segment.pins += 1
        try:
            while True:
                generation = self._container.metadata.generation
                # Read as many rows more as entries in memory may replace, so that a page is seldom empty.
                stored, last = await self._stored_versions(
                    segment, position, limit + len(table.dirty) + len(table.flushing)
                )
                if generation == self._container.metadata.generation:
                    break
        finally:
            segment.pins -= 1
        # Leave out entries in memory beyond the last scanned version: the next rows may come before them.
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
        """Return a page of index entries from `position` on, or `most` rows, and the last version scanned (None: all).

        The entries are read in pieces, since they may be large."""
        found: dict[bytes, Entry] = {}
        table, size, at, piece = segment.table, 0, 0, _MIN_ROWS
        assert table is not None
        if not segment.committed:
            return found, None
        low, high = keys.offset_range(keys.VERSION, segment.id, position, segment.length + 1)
        rows = await self._container.index.scan(low, high, most)
        while at < len(rows) and size < MAX_TABLE_PAGE_BYTES:
            # A version row only names its key.  Read the entry, unless memory has a newer one.
            wanted = [key for _, key in rows[at : at + piece] if _applied(table, key) is None]
            at = min(at + piece, len(rows))
            for entry in (await self._container.metadata.stored_entries(segment, wanted)).values():
                if entry is not None:
                    found[entry.key] = entry
                    size += serialized_bytes(entry)
            each = max(1, size // max(1, len(found)))
            piece = max(_MIN_ROWS, min(MAX_TABLE_PAGE_BYTES // each, _MAX_ROWS))
        # There are no more rows if all are read and the scan returned fewer than `most`.
        whole = at == len(rows) < most
        return found, None if whole else keys.parse_version_key(rows[at - 1][0])[1]

    async def changes(self, name: str, position: int, limit: int) -> tuple[list[Entry], int] | None:
        """Return changes behind a position, with removals, in whole batches, and the position behind them; None: they
        are not known any more.  Follows the table from now on (`table_feeds.py`).  Raises NotFound."""
        segment = await self._require(name)
        return self._container.state.feeds.read(segment.id, segment.length, position, min(limit, MAX_TABLE_PAGE_BYTES))

    async def info(self, name: str) -> Segment:
        """Return the table's segment.  Raises NotFound, Invalid (no table)."""
        return await self._require(name)

    async def _require(self, name: str) -> Segment:
        segment = await self._container.metadata.require(name)
        if not segment.is_table:
            raise Invalid(f"segment {name} is not a table segment")
        # Wait while the creation is in flight: a reader must not see a table that a crash could undo.
        if not segment.created:
            await self._container.group_commit.wait_durable()
            if segment.deleted:
                raise NotFound(f"table {name} does not exist")
        return segment


def _newest(table: TableState, key: bytes) -> Entry | None:
    """Return the assigned entry, which conditions are checked against; None when memory has no change of the key."""
    # `or` does not skip a removal, which is an entry with value None.
    return table.pending.get(key) or _applied(table, key)


def _applied(table: TableState, key: bytes) -> Entry | None:
    """Return the applied entry, which reads are served from; None when memory has no applied change of the key."""
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
