"""Reads and changes the controller's records by compare-and-set; lists them in pages by name.

Every query reads the table.  Only two things are cached: the incarnation of a scope (a stale one names a table that
does not exist, whereupon the scope is read again), and decoded records by version.  `seen.last` returns a cached record
without a read, for callers that check it against the table later.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.epochs import Epoch, creation_epoch, place_of
from sarit.controller.model.records import ScopeRecord, State, StreamRecord
from sarit.controller.numbers import Numbers
from sarit.controller.ports import Tables, TableUpdate, TableValue
from sarit.core.errors import Conflict, Corrupt, Exists, NotFound
from sarit.core.names import StreamName, is_internal_name
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")

_log = logging.getLogger("sarit.controller")

PAGE: Final = 1000
_MAX_CACHED_SCOPES: Final = 1024
_MAX_DECODED: Final = 4096


async def scan_whole(
    tables: Tables, table: str, start: bytes = b"", end: bytes | None = None
) -> list[tuple[bytes, TableValue]]:  # fmt: skip
    """Return all rows of a table with start <= key (< end), in order, read by pages.  Raises NotFound."""
    found: list[tuple[bytes, TableValue]] = []
    while rows := await tables.scan(table, start, end, PAGE):
        found += rows
        start = rows[-1][0] + b"\0"
    return found


class Found(NamedTuple):
    """A stream's record, and its version, which the next change must expect."""

    record: StreamRecord
    version: int


class StreamsSeen:
    """The records of streams as this controller read them last, decoded once per version."""

    def __init__(self) -> None:
        self._decoded: OrderedDict[tuple[str, bytes], tuple[TableValue, StreamRecord]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<StreamsSeen {len(self._decoded)}>"

    def decode(self, name: StreamName, value: TableValue) -> Found:
        """Return a stream's record from its value."""
        key = (name.scope, name.stream.encode())
        known = self._decoded.get(key)
        # Versions start again with each incarnation of a scope, so the version alone does not identify the value.
        if known is not None and known[0] == value:
            self._decoded.move_to_end(key)
            return Found(known[1], value.version)
        record = codec.decode_stream(value.value)
        self._decoded[key] = (value, record)
        if len(self._decoded) > _MAX_DECODED:
            self._decoded.popitem(last=False)
        return Found(record, value.version)

    def last(self, name: StreamName) -> StreamRecord | None:
        """Return a stream's record as it was read last, perhaps long ago; None when none is known.

        Another controller may have changed it since: who decides by it must read the stream afterwards."""
        known = self._decoded.get((name.scope, name.stream.encode()))
        return None if known is None else known[1]

    def forget(self, name: StreamName) -> None:
        """Drop the record of a stream that does not exist."""
        self._decoded.pop((name.scope, name.stream.encode()), None)

    def changed(self, scope: str, updates: Sequence[TableUpdate]) -> None:
        """Drop the records of streams that these updates changed or may have changed."""
        for update in updates:
            if update.key.startswith(keys.STREAMS):
                key = (scope, update.key[len(keys.STREAMS) :])
                known = self._decoded.get(key)
                # Keep a record that was written again unchanged: only its version is new.
                if known is not None and known[0].value != update.value:
                    del self._decoded[key]


class Catalog:
    """All records of the controller."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._scopes: OrderedDict[str, str] = OrderedDict()
        self.seen = StreamsSeen()
        self.numbers = Numbers(tables, self._scope_table)

    def __repr__(self) -> str:
        return f"<Catalog {len(self._scopes)} scopes cached, {self.seen!r}>"

    async def start(self) -> None:
        """Create the controller's own tables where they are missing.

        A damaged table is only logged: calls that need it fail later, and clients go on reading and writing segments,
        for which they need no controller."""
        for table in (keys.SCOPES_TABLE, keys.WORK_TABLE, keys.MAINTENANCE_TABLE, keys.NUMBERS_TABLE):
            try:
                await self.tables.create(table)
            except Exists:
                continue
            except Corrupt as error:
                _log.error("the controller's table %s is damaged: %s", table, error)

    # -- scopes -----------------------------------------------------------------------------------

    async def scope(self, scope: str) -> tuple[ScopeRecord, int] | None:
        """Return a scope's record and version, None when it does not exist."""
        if not is_internal_name(scope):
            return None
        (value,) = await self.tables.get(keys.SCOPES_TABLE, [scope.encode()])
        return None if value is None else (codec.decode_scope(value.value), value.version)

    async def scope_exists(self, scope: str) -> bool:
        """Return whether a scope exists."""
        return await self.scope(scope) is not None

    async def list_scopes(self, token: str) -> list[str]:
        """Return a page of scopes after `token`: those of users by name, then internal ones (official clients expect
        so)."""
        names: list[str] = []
        for start, end in keys.scope_ranges(token):
            rows = await self._scan_all(keys.SCOPES_TABLE, start, end, PAGE - len(names))
            names += (key.decode() for key, _ in rows)
        return names

    async def in_scope(self, scope: str, call: Callable[[str], Awaitable[T]]) -> T:
        """Run `call` on the table of a scope.  Raises NotFound when the scope does not exist."""
        # A cached name may be used unchecked: the incarnation is part of it, so a stale name finds no table.
        table = self._scopes.get(scope)
        if table is not None:
            try:
                return await call(table)
            except NotFound:
                self._scopes.pop(scope, None)
        table = await self._scope_table(scope)
        try:
            return await call(table)
        except NotFound:
            self._scopes.pop(scope, None)
            raise NotFound(f"scope {scope} is being deleted") from None

    async def _scope_table(self, scope: str) -> str:
        """Return the name of a scope's table, from the cache or else from the scope's record.  Raises NotFound."""
        table = self._scopes.get(scope)
        if table is not None:
            return table
        found = await self.scope(scope)
        if found is None:
            raise NotFound(f"scope {scope} does not exist")
        table = self._scopes[scope] = keys.scope_table(scope, found[0].incarnation)
        if len(self._scopes) > _MAX_CACHED_SCOPES:
            self._scopes.popitem(last=False)
        return table

    # -- records of a scope: all raise NotFound when the scope does not exist -----------------------

    async def get(self, scope: str, wanted: Sequence[bytes]) -> list[TableValue | None]:
        """Return the records of these keys, in order; None for a missing one."""
        return await self.in_scope(scope, lambda table: self.tables.get(table, wanted))

    async def update(self, scope: str, updates: Sequence[TableUpdate], within: str | None = None) -> list[int]:
        """Change records atomically.  Returns their new versions.  `within`: the table of the scope's incarnation that
        the updates were decided for.  Raises Conflict, also if that table was deleted."""
        try:
            if within is not None:
                return await self.tables.update(within, updates)
            return await self.in_scope(scope, lambda table: self.tables.update(table, updates))
        except NotFound:
            if within is None:
                raise
            self._scopes.pop(scope, None)
            raise Conflict(f"scope {scope} was deleted in between") from None
        finally:
            self.seen.changed(scope, updates)

    async def renew(self, scope: str, key: bytes, value: bytes, version: int) -> bool:
        """Write a record again unchanged, so that changes decided on `version` get Conflict.  Returns False if the
        record has another version already."""
        try:
            await self.update(scope, [TableUpdate(key, value, version)])
        except Conflict:
            return False
        return True

    async def scan(
        self, scope: str, prefix: bytes, after: bytes = b"", limit: int = 0
    ) -> list[tuple[bytes, TableValue]]:
        """Return up to `limit` (0: PAGE) records with a prefix, after the key `after`; fewer only at the end."""
        # The smallest key greater than `after` is `after` with a zero byte appended.
        start = max(prefix, after + b"\0") if after else prefix
        end = keys.after_prefix(prefix)
        return await self.in_scope(scope, lambda table: self._scan_all(table, start, end, limit or PAGE))

    async def scan_once(
        self, scope: str, prefix: bytes, after: bytes = b"", limit: int = PAGE
    ) -> list[tuple[bytes, TableValue]]:
        """Return records as `scan` does, but by one read: a consistent snapshot, which may be short, and is empty only
        at the end."""
        start, end = max(prefix, after + b"\0") if after else prefix, keys.after_prefix(prefix)
        return await self.in_scope(scope, lambda table: self.tables.scan(table, start, end, limit))

    async def page(self, scope: str, prefix: bytes, token: str) -> list[str]:
        """Return names after `token` with a prefix, without those of things being deleted; empty only at the end."""
        after = prefix + token.encode() if token else b""
        while rows := await self.scan_once(scope, prefix, after):  # `scan` might gather 1000 large records in memory
            after = rows[-1][0]
            names = [key[len(prefix) :].decode() for key, value in rows if not codec.is_deleting(value.value)]
            if names:
                return names
        return []

    async def _scan_all(
        self, table: str, start: bytes, end: bytes | None, limit: int
    ) -> list[tuple[bytes, TableValue]]:
        """Repeat scans until `limit`: a store may return fewer entries than requested."""
        out: list[tuple[bytes, TableValue]] = []
        while len(out) < limit:
            rows = await self.tables.scan(table, start, end, limit - len(out))
            if not rows:
                break
            out += rows
            start = rows[-1][0] + b"\0"
        return out

    # -- streams ----------------------------------------------------------------------------------

    async def find(self, name: StreamName) -> Found | None:
        """Return a stream's record, whatever its state; None when it or its scope is missing."""
        key = keys.stream_key(name.stream)
        try:
            (value,) = await self.get(name.scope, [key])
        except NotFound:
            value = None
        if value is None:
            self.seen.forget(name)
            return None
        return self.seen.decode(name, value)

    async def require(self, name: StreamName) -> Found:
        """Return a stream that exists for its users.  Raises NotFound."""
        found = await self.find(name)
        if found is None or found.record.state is State.DELETING:
            raise NotFound(f"stream {name} does not exist")
        return found

    async def epochs(self, name: StreamName, record: StreamRecord, first: int) -> tuple[Epoch, ...]:
        """Return all epochs from number `first` on, or from the oldest one kept if that is later."""
        if first >= record.epochs[0].number:
            return record.epochs[place_of(record.epochs, first) :]
        chunks: tuple[Epoch, ...] = ()
        after = b""
        prefix = keys.of_stream(name.stream, keys.EPOCHS)
        while rows := await self.scan(name.scope, prefix, after, 16):
            after = rows[-1][0]
            for _, value in rows:
                known = codec.decode_chunk(value.value)  # the record may be older than the newest chunk
                chunks += tuple(epoch for epoch in known if first <= epoch.number < record.epochs[0].number)
        return chunks + record.epochs

    async def epochs_of(self, name: StreamName, record: StreamRecord, segments: Sequence[int]) -> tuple[Epoch, ...]:
        """Return all epochs from the one that created the first of `segments` on.  Raises Invalid for a negative id."""
        return await self.epochs(name, record, min(map(creation_epoch, segments), default=0))

    # -- pending-work index ------------------------------------------------------------------------------------

    async def index_pending(self, key: bytes, *, fresh: bool = False) -> int:
        """Enter work that is about to begin.  Returns the entry's version.  `fresh`: the key was never in the index."""
        (version,) = await self.tables.update(keys.WORK_TABLE, [TableUpdate(key, b"\x01", NO_VERSION, fresh)])
        return version

    async def remove_ended(self, entries: Sequence[bytes]) -> None:
        """Remove the entries of ended transactions, whatever their versions: transaction ids are never reused."""
        if entries:
            await self.tables.update(keys.WORK_TABLE, [TableUpdate(key, None, NO_VERSION) for key in entries])

    async def remove_pending_if_unchanged(self, entry: bytes, version: int) -> None:
        """Remove an entry, unless it was written again since this version."""
        with suppress(Conflict):
            await self.tables.update(keys.WORK_TABLE, [TableUpdate(entry, None, version)])

    async def pending_work(self, start: bytes = b"", end: bytes | None = None) -> list[tuple[bytes, int]]:
        """Return the entries from `start` to `end`, each with its version."""
        return [(key, value.version) for key, value in await scan_whole(self.tables, keys.WORK_TABLE, start, end)]

    # -- maintenance index --------------------------------------------------------------------------

    async def index_for_maintenance(self, kind: bytes, name: StreamName) -> None:
        """Enter a stream that needs periodic maintenance.

        An existing entry gets a new version, so that a concurrent removal fails.  Raises Invalid for a name that no
        stream can have."""
        StreamName.parse(str(name))
        await self.tables.update(
            keys.MAINTENANCE_TABLE, [TableUpdate(keys.maintenance_key(kind, name), b"\x01", NO_VERSION)]
        )

    async def remove_from_maintenance(self, kind: bytes, name: StreamName, version: int) -> None:
        """Remove an entry, unless it was written again since this version."""
        with suppress(Conflict):
            await self.tables.update(
                keys.MAINTENANCE_TABLE, [TableUpdate(keys.maintenance_key(kind, name), None, version)]
            )

    async def maintained_streams(self, kind: bytes) -> list[tuple[StreamName, int]]:
        """Return the entries of one kind, each with its version."""
        out: list[tuple[StreamName, int]] = []
        for key, value in await scan_whole(self.tables, keys.MAINTENANCE_TABLE, kind, keys.after_prefix(kind)):
            try:
                out.append((keys.parse_maintenance_key(key), value.version))
            except Corrupt as error:  # earlier releases did not check names
                _log.warning("removing an entry from %s: %s", keys.MAINTENANCE_TABLE, error)
                with suppress(Conflict):
                    await self.tables.update(keys.MAINTENANCE_TABLE, [TableUpdate(key, None, value.version)])
        return out

    async def stream_records(self, name: StreamName, kind: bytes) -> list[tuple[bytes, TableValue]]:
        """Return all records of one kind that belong to a stream, ordered by key.  Raises NotFound (scope)."""
        prefix, after, out = keys.of_stream(name.stream, kind), b"", list[tuple[bytes, TableValue]]()
        while rows := await self.scan(name.scope, prefix, after):
            after = rows[-1][0]
            out += rows
        return out


__all__ = ["PAGE", "Catalog", "Found", "StreamsSeen", "scan_whole"]
