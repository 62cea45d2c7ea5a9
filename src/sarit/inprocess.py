"""The controller's ports on a segment store of the same process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.ports import SegmentInfo, TableUpdate, TableValue
from sarit.core.errors import NotFound, Sealed, Truncated
from sarit.store.requests import merge_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.store.store import SegmentStore


class InProcessTables:
    """`controller.ports.Tables`."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    async def create(self, table: str) -> None:
        """Create a table; Exists when it is there."""
        await self._store.tables(table).create(table, 0)

    async def get(self, table: str, keys: Sequence[bytes]) -> list[TableValue | None]:
        """Current values, None where absent."""
        entries = await self._store.tables(table).get(table, keys)
        return [None if entry is None else TableValue(entry.value or b"", entry.version) for entry in entries]

    async def update(self, table: str, updates: Sequence[TableUpdate]) -> list[int]:
        """Apply all updates atomically; Conflict when an expectation does not hold."""
        changes = [(update.key, update.value, update.expected) for update in updates]
        return await self._store.tables(table).update(table, changes)

    async def scan(self, table: str, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, TableValue]]:
        """Up to `limit` entries with start <= key (< end), ascending."""
        entries = await self._store.tables(table).scan(table, start, end, limit)
        return [(entry.key, TableValue(entry.value or b"", entry.version)) for entry in entries]

    async def delete(self, table: str, *, must_be_empty: bool = False) -> None:
        """Remove the table; NotFound when it is missing, Exists when it must be empty and is not."""
        await self._store.tables(table).delete(table, must_be_empty)


class InProcessSegments:
    """`controller.ports.Segments`."""

    def __init__(self, store: SegmentStore, host: str) -> None:
        self._store = store
        self._host = host
        self.port = 0

    async def create(self, segment: str, *, scale_type: int = 0, target_rate: int = 0, rollover_bytes: int = 0) -> None:
        """Create an empty segment; Exists when it is there."""
        await self._store.container(segment).create(
            segment, scale_type=scale_type, target_rate=target_rate, rollover=rollover_bytes
        )

    async def create_table(self, segment: str, *, key_length: int) -> None:
        """Create a table segment; Exists when it is there."""
        await self._store.tables(segment).create(segment, key_length)

    async def seal(self, segment: str) -> None:
        """Seal; succeeds when sealed already; NotFound."""
        try:
            await self._store.container(segment).seal(segment)
        except Sealed:
            return

    async def delete(self, segment: str) -> None:
        """Delete; NotFound."""
        await self._store.container(segment).delete(segment)

    async def truncate(self, segment: str, offset: int) -> None:
        """Raise the start offset; succeeds when it is there or above; NotFound, Invalid."""
        try:
            await self._store.container(segment).truncate(segment, offset)
        except Truncated as error:
            if offset > error.start_offset:
                raise

    async def merge(self, target: str, sources: Sequence[str]) -> list[int]:
        """Merge sources into target in order; the target's length after each."""
        return await merge_batch(self._store, target, list(sources))

    async def info(self, segment: str) -> SegmentInfo:
        """Length, start and state; NotFound."""
        info = await self._store.container(segment).info(segment)
        return SegmentInfo(info.length, info.start_offset, info.sealed, info.modified_ms)

    async def update_policy(self, segment: str, *, scale_type: int, target_rate: int) -> None:
        """Record the scaling policy; NotFound."""
        await self._store.container(segment).set_policy(segment, scale_type, target_rate)

    def endpoint(self, segment: str) -> tuple[str, int]:
        """Host and port of this node's store."""
        return self._host, self.port


__all__ = ["InProcessSegments", "InProcessTables", "NotFound"]
