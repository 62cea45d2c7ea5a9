"""Key-value tables: `client.tables` creates, lists and deletes them, `client.table("scope/table")` is one of them.

Every change of a key gives it a new version.  A conditional change (insert, replace, remove of a version) raises
Conflict when another process changed the key first: read, decide and try again.  What is acknowledged is durable.

After a lost connection, requests are sent again as long as that is safe; `changes.py` says which changes may be applied
twice, and which end with Unavailable because their outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from sarit.client.core.identity import creation_id
from sarit.client.core.iteration import Items, Resumed
from sarit.client.limits import MAX_COALESCED_BYTES, MAX_OUTSTANDING_TABLE_BYTES
from sarit.client.session.guard import guarded
from sarit.client.tables import calls
from sarit.client.tables.changes import (
    MAX_BATCH_KEYS,
    Insert,
    Item,
    Put,
    Remove,
    Replace,
    batch_of,
    item_of,
    make_batch,
    size_of,
)
from sarit.client.tables.layout import Entry, TableConfig
from sarit.client.tables.partition import Partition
from sarit.client.tables.scans import PAGE_ENTRIES, PageCursor, merged
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import TABLE_SUFFIX, SegmentId, StreamName
from sarit.env.background import gather

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Sequence
    from typing import Any, TypeVar

    from sarit.client.session.session import Session
    from sarit.client.tables.changes import Batch, Change
    from sarit.client.tables.layout import Key, Layout, Part

    T = TypeVar("T")

MAX_OUTSTANDING_READS: Final = 2000
MAX_OUTSTANDING_INSERTS: Final = 2000


@guarded("_session")
class Tables:
    """The tables of a client: `client.tables`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Tables({self._session.controller.address}, {self._session.state()})"

    async def create(
        self, table: str | StreamName, *, primary_key_bytes: int, secondary_key_bytes: int = 0, partitions: int = 1
    ) -> bool:
        """True when created, False when it existed (and is left as it is).

        The lengths of keys and the number of partitions stay for ever.  Raises NotFound (scope), Invalid."""
        config = TableConfig(primary_key_bytes, secondary_key_bytes, partitions)
        name = table_name(table)
        return await self._session.with_retry(lambda: calls.create(self._session.controller, name, config))

    async def delete(self, table: str | StreamName) -> None:
        """Delete a table with all it holds.  Raises NotFound."""
        name = table_name(table)
        await self._session.with_retry_of_deletion(lambda: calls.delete(self._session.controller, name))

    async def creation_id(self, table: str | StreamName) -> bytes | None:
        """Return 16 bytes that tell a table from earlier and later ones of its name, None if the server cannot.

        Raises NotFound."""
        name = table_name(table)
        return await creation_id(self._session, name.scope, table=name.stream)

    def list(self, scope: str) -> AsyncIterator[StreamName]:
        """Return the tables of a scope, a page at a time.  Raises NotFound."""
        return Items(calls.pages(self._session, scope))


@guarded("_session")
class Table:
    """One table.  It sends no request until it is used; many tasks may use it concurrently.

    All methods raise NotFound (no such table), Invalid and Unavailable."""

    def __init__(self, session: Session, name: StreamName) -> None:
        self.name = name
        self._session = session
        self._stream = StreamName(name.scope, name.stream + TABLE_SUFFIX)
        self._known: Layout | None = None
        self._partitions: dict[SegmentId, Partition] = {}

    def __repr__(self) -> str:
        return f"Table({self.name}, {self._session.state()})"

    async def config(self) -> TableConfig:
        """Return the configuration of the table."""
        return (await self._layout()).config

    async def partitions(self) -> tuple[SegmentId, ...]:
        """Return the partitions, as `scan_pages` takes them.  They stay the same for ever."""
        return (await self._layout()).partitions

    # -- changes --------------------------------------------------------------------------------

    async def put(self, key: Key, value: bytes | str) -> int:
        """Set a value unconditionally.  Returns its new version."""
        return await self._change(Put(key, value))

    async def insert(self, key: Key, value: bytes | str) -> int:
        """Set the value of an absent key.  Returns its version.  Raises Conflict when the key exists."""
        return await self._change(Insert(key, value))

    async def replace(self, key: Key, value: bytes | str, version: int) -> int:
        """Set a value if the key has `version`.  Returns its new version.  Raises Conflict."""
        return await self._change(Replace(key, value, version))

    async def remove(self, key: Key, version: int | None = None) -> None:
        """Remove a key (if it has `version`); no effect on an absent key.  Raises Conflict (with `version`)."""
        await self._change(Remove(key, version))

    async def update(self, changes: Iterable[Change]) -> list[int]:
        """Apply changes atomically.  Returns their versions in order, NOT_EXISTS (-1) for removed keys.

        All keys must be in one partition (those with the same primary key are), all changes either write or remove,
        at most 256.  Conditions are evaluated against the state before.  Raises Conflict: nothing was changed."""
        return await self._submit(batch_of(await self._layout(), changes))

    async def put_many(self, items: Iterable[tuple[Key, bytes | str]]) -> list[int]:
        """Put many values fast, in order.  Returns their versions.  Not atomic: after an error, some may be written.

        All items are validated before any is sent."""
        layout = await self._layout()
        return await self._apply(layout, [item_of(layout, Put(key, value)) for key, value in items])

    async def remove_many(self, keys: Iterable[Key]) -> None:
        """Remove many keys at full speed; no effect on absent ones.  Not atomic: after an error, some may be removed.

        All keys are validated before any is sent."""
        layout = await self._layout()
        await self._apply(layout, [item_of(layout, Remove(key)) for key in keys])

    async def insert_many(self, items: Iterable[tuple[Key, bytes | str]]) -> list[int]:
        """Set the values of those keys that are absent, in order; their versions, NOT_EXISTS (-1) for present ones.

        Not atomic: after an error, some may be written.  All items are validated before any is sent."""
        layout = await self._layout()
        checked = [item_of(layout, Insert(key, value)) for key, value in items]
        versions = [NOT_EXISTS] * len(checked)
        for first in range(0, len(checked), MAX_OUTSTANDING_INSERTS):
            some = checked[first : first + MAX_OUTSTANDING_INSERTS]
            # A batch for each: the partition coalesces them, and sends those alone that were refused together.
            waiting = [self._submit(make_batch(layout.partition(item.key), [item])) for item in some]
            for index, outcome in enumerate(await asyncio.gather(*waiting, return_exceptions=True), first):
                if isinstance(outcome, BaseException):
                    if not isinstance(outcome, Conflict):
                        raise outcome
                else:
                    versions[index] = outcome[0]
        return versions

    async def _apply(self, layout: Layout, checked: list[Item]) -> list[int]:
        """Send unconditional changes in batches, with a bound on the bytes that are not acknowledged."""
        versions = [NOT_EXISTS] * len(checked)
        outstanding: deque[tuple[list[int], int, asyncio.Future[list[int]]]] = deque()
        size = 0
        try:
            for partition, indexes in _chunks(layout, checked):
                batch = make_batch(partition, [checked[index] for index in indexes])
                outstanding.append((indexes, batch.size, self._partition(partition).change(batch)))
                size += batch.size
                # Waits for the oldest batch: this bounds the bytes that are not acknowledged.
                while size > MAX_OUTSTANDING_TABLE_BYTES:
                    size -= await self._collect(outstanding.popleft(), versions)
            while outstanding:
                await self._collect(outstanding.popleft(), versions)
        finally:
            await asyncio.gather(*(done for _, _, done in outstanding), return_exceptions=True)
        return versions

    async def _collect(self, one: tuple[list[int], int, asyncio.Future[list[int]]], versions: list[int]) -> int:
        indexes, size, done = one
        for index, version in zip(indexes, await self._translating_not_found(done), strict=True):
            versions[index] = version
        return size

    async def _change(self, change: Change) -> int:
        layout = self._known or await self._layout()
        item = item_of(layout, change)
        return (await self._submit(make_batch(layout.partition(item.key), [item])))[0]

    async def _submit(self, batch: Batch) -> list[int]:
        return await self._translating_not_found(self._partition(batch.partition).change(batch))

    # -- reads ----------------------------------------------------------------------------------

    async def get(self, key: Key) -> Entry | None:
        """Return the entry of a key, None when it is absent."""
        layout = self._known or await self._layout()
        wire_key = layout.wire_key(key)
        version, value = await self._translating_not_found(self._partition(layout.partition(wire_key)).read(wire_key))
        return None if version == NOT_EXISTS else layout.entry(wire_key, value, version)

    async def get_many(self, keys: Iterable[Key]) -> list[Entry | None]:
        """Return the entries of many keys, in order.  Not a snapshot."""
        layout = await self._layout()
        wire_keys = iter([layout.wire_key(key) for key in keys])
        out: list[Entry | None] = []
        while some := list(islice(wire_keys, MAX_OUTSTANDING_READS)):
            answers = [self._partition(layout.partition(key)).read(key) for key in some]
            found = await self._translating_not_found(gather(*answers))
            out += [
                None if version == NOT_EXISTS else layout.entry(key, value, version)
                for key, (version, value) in zip(some, found, strict=True)
            ]
        return out

    def scan(
        self,
        primary: Part | None = None,
        *,
        first: Part | None = None,
        last: Part | None = None,
        prefix: Part | None = None,
        page_entries: int = PAGE_ENTRIES,
    ) -> AsyncIterator[Entry]:
        """Entries in the order of their keys: of the whole table, or of one primary key.

        `first`, `last`: inclusive bounds, of secondary keys when `primary` is given, else of primary ones; they may
        be shorter than a key.  `prefix`: keys that begin with it.  Not a snapshot: an entry changed during the scan is
        seen before or after its change."""
        return Items(self.scan_pages(primary, first=first, last=last, prefix=prefix, page_entries=page_entries))

    def scan_pages(
        self,
        primary: Part | None = None,
        *,
        first: Part | None = None,
        last: Part | None = None,
        prefix: Part | None = None,
        page_entries: int = PAGE_ENTRIES,
        partition: SegmentId | None = None,
    ) -> AsyncIterator[list[Entry]]:
        """Scan the table as `scan` does, in lists.  `partition`: the entries of this one of `partitions` alone."""
        _check_page(page_entries)

        async def pages() -> AsyncGenerator[list[Entry], None]:
            layout = await self._layout()
            low, high = layout.bounds(primary, first, last, prefix)
            partitions = self._range(layout, low, primary, partition)
            cursors = [PageCursor(partition.page, low, high, page_entries) for partition in partitions]
            async for page in self._pages(merged(cursors, page_entries)):
                yield [layout.entry(bytes(found.key), bytes(found.value), found.version) for found in page]

        return Resumed(pages())

    def scan_keys(
        self,
        primary: Part | None = None,
        *,
        first: Part | None = None,
        last: Part | None = None,
        prefix: Part | None = None,
        page_entries: int = PAGE_ENTRIES,
    ) -> AsyncIterator[Entry]:
        """Scan the keys of the table: entries as those of `scan`, with empty values."""
        _check_page(page_entries)

        async def pages() -> AsyncGenerator[list[Entry], None]:
            layout = await self._layout()
            low, high = layout.bounds(primary, first, last, prefix)
            partitions = self._range(layout, low, primary)
            cursors = [PageCursor(partition.key_page, low, high, page_entries) for partition in partitions]
            async for page in self._pages(merged(cursors, page_entries)):
                yield [layout.entry(bytes(found.key), b"", found.version) for found in page]

        return Items(Resumed(pages()))

    def _range(
        self, layout: Layout, low: bytes, primary: Part | None, only: SegmentId | None = None
    ) -> list[Partition]:
        if only is not None and only not in layout.partitions:
            raise Invalid(f"table {self.name} has no partition {only}")
        wanted = layout.partitions if primary is None else (layout.partition(low),)
        return [self._partition(segment) for segment in wanted if only in (None, segment)]

    # -- partitions -----------------------------------------------------------------------------

    async def _layout(self) -> Layout:
        if self._known is None:
            self._known = await self._session.with_retry(lambda: calls.layout(self._session.controller, self.name))
        return self._known

    def _partition(self, segment: SegmentId) -> Partition:
        found = self._partitions.get(segment)
        if found is None:
            found = self._partitions[segment] = Partition(self._session, self.name, self._stream, segment)
        return found

    async def _translating_not_found(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except NotFound:
            raise self._forget_table() from None

    async def _pages(self, pages: AsyncIterator[list[Any]]) -> AsyncIterator[list[Any]]:
        try:
            async for page in pages:
                yield page
        except NotFound:
            raise self._forget_table() from None

    def _forget_table(self) -> SaritError:
        """Forget the table, which was deleted.  One created again under its name has other partitions, which the next
        call finds."""
        self._known = None
        self._partitions = {}
        return NotFound(f"table {self.name} does not exist any more")


def table_name(table: str | StreamName) -> StreamName:
    """`"scope/table"` as a name.  Raises Invalid."""
    return table if isinstance(table, StreamName) else StreamName.parse(table)


def _check_page(page_entries: int) -> None:
    if page_entries < 1:
        raise Invalid(f"a page has 1 entry or more, not {page_entries}")


def _chunks(layout: Layout, items: Sequence[Item]) -> Iterable[tuple[SegmentId, list[int]]]:
    """Yield the indexes of the items of each batch: by partition, in order, within the bounds of a batch."""
    filling: dict[SegmentId, tuple[list[int], int]] = {}
    for index, item in enumerate(items):
        segment = layout.partition(item.key)
        indexes, size = filling.get(segment, ([], 0))
        more = size_of(item)
        if indexes and (len(indexes) >= MAX_BATCH_KEYS or size + more > MAX_COALESCED_BYTES):
            yield segment, indexes
            indexes, size = [], 0
        indexes.append(index)
        filling[segment] = (indexes, size + more)
    yield from ((segment, indexes) for segment, (indexes, _) in filling.items() if indexes)
