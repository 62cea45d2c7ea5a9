"""Implements the controller's ports with calls to a segment store of the same process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.controller.ports import SegmentInfo, TableFeed, TableUpdate, TableValue
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed, Truncated
from sarit.core.metering import NO_RATES
from sarit.store.metering.growth import GrowthMonitor
from sarit.store.metering.scope_use import scope_use
from sarit.store.server.batches import append_many, infos, read_many
from sarit.store.server.control_handler import locate, merge_at, merge_batch
from sarit.store.server.internal_handler import append_at, change_at, create_fresh, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.core.errors import SaritError
    from sarit.core.metering import Rates, ScaleAdvice
    from sarit.security.quotas import Quotas
    from sarit.store.metering.load_meters import LoadMeters
    from sarit.store.metering.scale_requests import ScaleRequests
    from sarit.store.store import SegmentStore


class InProcessTables:
    """`controller.ports.Tables`."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    async def create(self, table: str) -> None:
        """Create a table.  Raises Exists."""
        await self._store.tables(table).create(table, 0)

    async def get(self, table: str, keys: Sequence[bytes]) -> list[TableValue | None]:
        """Return the current values of keys, in order; None for a missing key."""
        entries = await self._store.tables(table).get(table, keys)
        return [None if entry is None else TableValue(entry.value or b"", entry.version) for entry in entries]

    async def update(self, table: str, updates: Sequence[TableUpdate]) -> list[int]:
        """Apply all updates atomically.  Raises Conflict (a key does not have its expected version)."""
        changes = [(update.key, update.value, update.expected) for update in updates]
        fresh = {update.key for update in updates if update.fresh}
        return await self._store.tables(table).update(table, changes, fresh=fresh)

    async def update_at(self, table: str, updates: Sequence[TableUpdate], position: int) -> int:
        """Apply all updates atomically if the table is at a position.  Raises Conflict (it is at another one)."""
        changes = [(update.key, update.value, update.expected) for update in updates]
        return await change_at(self._store, table, changes, position)

    async def changes(self, table: str, position: int, limit: int) -> TableFeed | None:
        """Return the changes behind a position; None: they are not known."""
        found = await self._store.tables(table).changes(table, position, limit)
        return None if found is None else TableFeed(tuple((entry.key, entry.value) for entry in found[0]), found[1])

    async def scan(self, table: str, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, TableValue]]:
        """Return up to `limit` entries with start <= key (< end), ascending."""
        entries = await self._store.tables(table).scan(table, start, end, limit)
        return [(entry.key, TableValue(entry.value or b"", entry.version)) for entry in entries]

    async def position(self, table: str) -> int:
        """Return the offset where the table's next entry begins.  Raises NotFound."""
        return (await self._store.tables(table).info(table)).length

    async def delete(self, table: str, *, must_be_empty: bool = False, unchanged_since: int | None = None) -> None:
        """Delete a table.  Raises NotFound, Exists (it must be empty and is not), Conflict (it was changed)."""
        await self._store.tables(table).delete(table, must_be_empty, unchanged_since)


class InProcessSegments:
    """`controller.ports.Segments`."""

    def __init__(
        self, store: SegmentStore, address: Callable[[], tuple[str, int]], meters: LoadMeters | None = None
    ) -> None:
        """`address`: returns the store's address for clients."""
        self._store = store
        self._address = address
        self._meters = meters
        self._growth = GrowthMonitor(store, store.env.clock)

    async def create(self, segment: str, *, scale_type: int = 0, target_rate: int = 0, rollover_bytes: int = 0) -> None:
        """Create an empty segment.  Raises Exists."""
        await self._store.container(segment).create(
            segment, scale_type=scale_type, target_rate=target_rate, rollover=rollover_bytes
        )

    async def create_fresh(self, segments: Sequence[str]) -> None:
        """Create empty segments that never existed."""
        await create_fresh(self._store, segments)

    async def create_table(self, segment: str, *, key_length: int) -> None:
        """Create a table segment.  Raises Exists, Conflict (it exists with keys of another length)."""
        await self.create_table_at(segment, key_length=key_length, position=0)

    async def create_at(
        self, segment: str, offset: int, *, mirror: bool, scale_type: int = 0, target_rate: int = 0,
        rollover_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Create a segment that begins and ends at `offset`.  Raises Exists."""
        await self._store.container(segment).create(
            segment, scale_type=scale_type, target_rate=target_rate, rollover=rollover_bytes, offset=offset,
            mirror=mirror,
        )  # fmt: skip

    async def create_table_at(self, segment: str, *, key_length: int, position: int, mirror: bool = False) -> None:
        """Create a table segment whose versions begin at `position`.  Raises as `create_table`."""
        tables = self._store.tables(segment)
        try:
            await tables.create(segment, key_length, position=position, mirror=mirror)
        except Exists:
            if (await tables.info(segment)).key_length != key_length:
                raise Conflict(f"segment {segment} is a table with keys of another length") from None
            raise

    async def set_mirror(self, segment: str, mirror: bool) -> None:
        """Let clients change a segment, or only read it.  Raises NotFound."""
        await self._store.container(segment).set_mirror(segment, mirror)

    async def seal(self, segment: str) -> None:
        """Seal a segment, which may be sealed already.  Raises NotFound."""
        try:
            await self._store.container(segment).seal(segment)
        except Sealed:
            return

    async def delete(self, segment: str) -> None:
        """Delete a segment.  Raises NotFound."""
        await self._store.container(segment).delete(segment)

    async def truncate(self, segment: str, offset: int) -> None:
        """Raise a segment's start offset to `offset`, unless it is higher already.  Raises NotFound, Invalid."""
        try:
            await self._store.container(segment).truncate(segment, offset)
        except Truncated as error:
            # A repeated request of the controller finds the offset truncated already.
            if offset > error.start_offset:
                raise Invalid(f"segment {segment} cannot be truncated at {offset}: {error}") from None

    async def merge(self, target: str, sources: Sequence[str]) -> list[int]:
        """Merge source segments into a target, in order.  Returns the target's length after each source."""
        return await merge_batch(self._store, target, list(sources))

    async def merge_at(self, target: str, source: str, expected_offset: int) -> int:
        """Merge a source into a target that ends at an offset.  Raises Conflict, NotFound, Sealed."""
        return await merge_at(self._store, target, source, expected_offset)

    async def append_at_many(
        self, writes: Sequence[tuple[str, int, bytes]], *, begin_events: bool = True
    ) -> list[int | SaritError]:
        """Append bytes at offsets of segments.  Returns the length after each append, or why there was none."""
        return await append_many(self._store, writes, begin_events=begin_events)

    async def read_many(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes | SaritError]:
        """Return bytes of segments, or in place of them an error."""
        return await read_many(self._store, ranges)

    async def infos(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        """Return the states of segments, None for a missing one."""
        found = await infos(self._store, segments)
        return [
            None if info is None else SegmentInfo(info.length, info.start_offset, info.sealed, info.modified_ms)
            for info in found
        ]

    async def locate(self, segment: str, offset: int) -> int:
        """Return the first known offset at or after `offset` where an append began.  Raises NotFound."""
        return await locate(self._store, segment, offset)

    async def info(self, segment: str) -> SegmentInfo:
        """Return the state of a segment.  Raises NotFound."""
        info = await self._store.container(segment).info(segment)
        return SegmentInfo(info.length, info.start_offset, info.sealed, info.modified_ms)

    async def update_policy(self, segment: str, *, scale_type: int, target_rate: int) -> None:
        """Record the scaling policy of a segment.  Raises NotFound."""
        await self._store.container(segment).set_policy(segment, scale_type, target_rate)

    async def rates(self, segments: Sequence[str]) -> list[Rates]:
        """Return the rates of each segment; zero without a meter."""
        return [NO_RATES if self._meters is None else self._meters.rates(segment) for segment in segments]

    async def grown(self) -> list[str]:
        """Return the segments that may have grown since the last call."""
        return await self._growth.grown()

    async def scope_bytes(self, scope: str) -> int:
        """Return the bytes of all segments of a scope."""
        return (await scope_use(self._store, scope)).bytes

    async def read(self, segment: str, offset: int, limit: int) -> bytes:
        """Return up to `limit` bytes from `offset`.  Raises NotFound, Truncated, Invalid."""
        return await read_bytes(self._store, segment, offset, limit)

    async def write(self, segment: str, data: bytes, expected_offset: int) -> None:
        """Append one event at an offset.  Raises Conflict, NotFound, Sealed."""
        await append_at(self._store, segment, data, expected_offset)

    async def get_attribute(self, segment: str, key: bytes) -> int:
        """Return the value of an attribute, NULL_ATTRIBUTE_VALUE if it is not set.  Raises NotFound."""
        return await self._store.container(segment).get_attribute(segment, key)

    async def update_attribute(self, segment: str, key: bytes, value: int, expected: int) -> bool:
        """Set an attribute if its value is `expected`.  Returns whether it was.  Raises NotFound."""
        return await self._store.container(segment).update_attribute(segment, key, value, expected)

    def endpoint(self, segment: str) -> tuple[str, int]:
        """Return the host and port of this node's store."""
        return self._address()


class InProcessStores:
    """The one store of a node in one process, for the controller in it."""

    def __init__(
        self, store: SegmentStore, meters: LoadMeters, requests: ScaleRequests, address: Callable[[], tuple[str, int]]
    ) -> None:
        self.tables = InProcessTables(store)
        self.segments = InProcessSegments(store, address, meters)
        self._store = store
        self._requests = requests

    def __repr__(self) -> str:
        return f"<InProcessStores {self._store!r}>"

    async def use_quotas(self, quotas: Quotas) -> None:
        """Make the store enforce these quotas."""
        self._store.quotas.use(quotas, 1)

    async def follow_scaling(self, report: Callable[[str, ScaleAdvice], None]) -> None:
        """Pass the scaling requests of the store to `report`, until cancelled."""
        self._requests.listen(report)
        try:
            await asyncio.Event().wait()
        finally:
            self._requests.ignore(report)

    async def close(self) -> None:
        """Do nothing: the node closes the store itself."""


__all__ = ["InProcessSegments", "InProcessStores", "InProcessTables", "NotFound"]
