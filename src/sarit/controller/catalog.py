"""Reads and changes records by compare-and-set; lists them in pages by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.controller.ports import Tables, TableUpdate
from sarit.controller.records import (
    DELETED_TABLE,
    SCOPES_TABLE,
    EpochRecord,
    StreamRecord,
    after_prefix,
    epoch_key,
    scope_table,
    stream_key,
)
from sarit.core.errors import Conflict, Exists, NotFound, Unavailable
from sarit.core.limits import NO_VERSION, NOT_EXISTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.core.names import StreamName

PAGE = 1000
_MAX_CONFLICTS = 50


@dataclass(frozen=True, slots=True)
class Versioned:
    """A stream's record and the version its next change must name."""

    record: StreamRecord
    version: int


class Catalog:
    """All records of the controller."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def start(self) -> None:
        """Create the controller's own tables where they are missing."""
        for table in (SCOPES_TABLE, DELETED_TABLE):
            try:
                await self.tables.create(table)
            except Exists:
                continue

    # -- streams ------------------------------------------------------------------------------

    async def find(self, name: StreamName) -> Versioned | None:
        """A stream's record, None when it or its scope is missing."""
        try:
            (value,) = await self.tables.get(scope_table(name.scope), [stream_key(name.stream)])
        except NotFound:
            return None
        return None if value is None else Versioned(StreamRecord.decode(value.value), value.version)

    async def require(self, name: StreamName) -> Versioned:
        """Raises NotFound."""
        found = await self.find(name)
        if found is None:
            raise NotFound(f"stream {name} does not exist")
        return found

    async def change(
        self, name: StreamName, decide: Callable[[StreamRecord], tuple[StreamRecord, Sequence[TableUpdate]]]
    ) -> StreamRecord:
        """Replace a stream's record by what `decide` makes of it, with other updates in the same batch.

        Reads again and decides again after a conflict.  Raises NotFound and what `decide` raises."""
        for _ in range(_MAX_CONFLICTS):
            found = await self.require(name)
            new, others = decide(found.record)
            if new == found.record and not others:
                return new
            update = TableUpdate(stream_key(name.stream), new.encode(), found.version)
            try:
                await self.tables.update(scope_table(name.scope), [update, *others])
            except Conflict:
                continue
            return new
        raise Unavailable(f"stream {name} is changed by too many others at once; try again")

    async def history(self, name: StreamName, first: int = 0) -> list[EpochRecord]:
        """Epochs from `first` on."""
        table = scope_table(name.scope)
        at, end = epoch_key(name.stream, first), after_prefix(f"e/{name.stream}/".encode())
        out: list[EpochRecord] = []
        while True:
            page = await self.tables.scan(table, at, end, PAGE)
            if not page:
                return out
            out.extend(EpochRecord.decode(value.value) for _, value in page)
            at = page[-1][0] + b"\0"

    # -- listings -----------------------------------------------------------------------------

    async def list_scopes(self, token: str) -> list[str]:
        """A page of scopes after `token`, by name."""
        return await self._page(SCOPES_TABLE, b"", token)

    async def list_names(self, scope: str, prefix: bytes, token: str) -> list[str]:
        """A page of names behind `prefix` in a scope, after `token`.  Raises NotFound (scope)."""
        return await self._page(scope_table(scope), prefix, token)

    async def _page(self, table: str, prefix: bytes, token: str) -> list[str]:
        start = prefix + (token.encode() + b"\0" if token else b"")
        end = after_prefix(prefix) if prefix else None
        rows = await self.tables.scan(table, start, end, PAGE)
        return [key[len(prefix) :].decode() for key, _ in rows]

    async def scope_exists(self, scope: str) -> bool:
        """Whether a scope was created."""
        (value,) = await self.tables.get(SCOPES_TABLE, [scope.encode()])
        return value is not None

    # -- numbers of deleted streams ---------------------------------------------------------------

    async def first_number(self, name: StreamName) -> int:
        """The first segment number a new stream of that name may use."""
        (value,) = await self.tables.get(DELETED_TABLE, [str(name).encode()])
        return 0 if value is None else int(value.value)

    async def keep_number(self, name: StreamName, next_number: int) -> None:
        """Remember where a stream of that name must go on."""
        update = TableUpdate(str(name).encode(), str(next_number).encode(), NO_VERSION)
        await self.tables.update(DELETED_TABLE, [update])

    # -- small records ----------------------------------------------------------------------------

    async def get(self, scope: str, key: bytes) -> tuple[bytes, int] | None:
        """Value and version of a record in a scope; None when it or the scope is missing."""
        try:
            (value,) = await self.tables.get(scope_table(scope), [key])
        except NotFound:
            return None
        return None if value is None else (value.value, value.version)

    async def insert(self, scope: str, updates: Sequence[tuple[bytes, bytes]]) -> None:
        """Add records, all or none.  Raises Conflict when the first is there, NotFound (scope)."""
        changes = [
            TableUpdate(key, value, NOT_EXISTS if at == 0 else NO_VERSION) for at, (key, value) in enumerate(updates)
        ]
        await self.tables.update(scope_table(scope), changes)

    async def put(self, scope: str, key: bytes, value: bytes | None, version: int) -> None:
        """Replace or remove a record at a version.  Raises Conflict, NotFound (scope)."""
        await self.tables.update(scope_table(scope), [TableUpdate(key, value, version)])


__all__ = ["PAGE", "Catalog", "Versioned"]
