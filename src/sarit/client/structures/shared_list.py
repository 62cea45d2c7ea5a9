"""A list that many processes append to, in a key-value table.

Format: a table of one partition with keys of 9 bytes:

    "h", 8 zeros          the head (`table_head.py`)
    "i", index uint64     an item: its value, encoded
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic

from sarit.client.core.iteration import Items
from sarit.client.core.typed import V
from sarit.client.session.guard import guarded
from sarit.client.structures.formats import LIST
from sarit.client.structures.limits import MAX_ITEMS_AT_ONCE
from sarit.client.structures.polls import Polls
from sarit.client.structures.table_head import ITEM, Head, TableHead, pages_between
from sarit.client.tables.scans import PAGE_ENTRIES
from sarit.core.errors import Invalid, NotFound, Truncated
from sarit.core.limits import MAX_TABLE_VALUE_BYTES
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from sarit.client.session.session import Session
    from sarit.client.structures.values import Values
    from sarit.client.tables.layout import Entry, Key
    from sarit.core.names import StreamName

_INDEX: Final = struct.Struct(">Q")
_KEY_BYTES: Final = len(ITEM) + _INDEX.size
MAX_INDEX: Final = (1 << 63) - 1


def key_of(index: int) -> bytes:
    """Return the key of an item."""
    return ITEM + _INDEX.pack(index)


def index_of(key: bytes) -> int:
    """Return the index of the item with a key."""
    index: int = _INDEX.unpack(key[len(ITEM) :])[0]
    return index


@public
@dataclass(frozen=True, slots=True)
class ListItem(Generic[V]):
    """An item of a shared list, and its index."""

    index: int
    value: V


@guarded("_session")
class SharedList(Generic[V]):
    """A list that many processes append to.  Open one with `await client.structures.list("scope/name")`.

    Appends are linearizable, each done once or not at all: indexes have no gaps.  Items stay until they are removed
    from the front, and are not in memory.  All methods raise NotFound (its table was deleted), Invalid and Unavailable
    (of a change: it may be done or not)."""

    def __init__(self, session: Session, values: Values[V], head: TableHead) -> None:
        self.name = head.table.name
        self._session = session
        self._values = values
        self._head = head
        self._table = head.table

    @classmethod
    async def open(cls, session: Session, name: StreamName, values: Values[V]) -> SharedList[V]:
        """Return the list of that name, an empty one when there was none."""
        return cls(session, values, await TableHead.open(session, name, LIST, _KEY_BYTES, Head()))

    def __repr__(self) -> str:
        return f"SharedList({self.name}, {self._session.state()})"

    # -- changes --------------------------------------------------------------------------------

    async def append(self, value: V) -> int:
        """Append a value.  Returns its index: the first one is 0."""
        return await self._append([self._encoded(value)])

    async def extend(self, values: Iterable[V]) -> int:
        """Append 1 to 255 values that follow each other, all of them or none.  Returns the index of the first one."""
        encoded = [self._encoded(value) for value in values]
        if not 1 <= len(encoded) <= MAX_ITEMS_AT_ONCE:
            raise Invalid(f"1 to {MAX_ITEMS_AT_ONCE} values are appended at once, not {len(encoded)}")
        return await self._append(encoded)

    async def _append(self, encoded: Sequence[bytes]) -> int:
        def rows(first: int) -> list[tuple[bytes, bytes]]:
            return [(key_of(index), value) for index, value in enumerate(encoded, first)]

        return await self._head.add(rows, len(encoded))

    async def remove_before(self, index: int) -> None:
        """Remove the items before an index; the others keep theirs.  Raises Invalid: it is beyond the end.

        After an error some may be removed and others not: call it again."""
        if index < 0:
            raise Invalid(f"an index of a shared list is 0 or more, not {index}")
        await self._head.drop_before(index)
        if index == 0:
            return
        removed: list[Key] = []
        # From the first key on: what a process that died left is found here, too.
        async for entry in self._table.scan_keys(first=key_of(0), last=key_of(index - 1)):
            removed.append(entry.primary)
            if len(removed) >= PAGE_ENTRIES:
                await self._table.remove_many(removed)
                removed.clear()
        await self._table.remove_many(removed)

    # -- reads ----------------------------------------------------------------------------------

    async def get(self, index: int) -> V:
        """Return the value at an index.  Raises NotFound (the list is not so long), Truncated (it was removed)."""
        entry = await self._table.get(key_of(index)) if index >= 0 else None
        if entry is not None:
            return self._decoded(entry).value
        head = await self._head.read()
        if 0 <= index < head.first:
            raise self._removed(index, head.first)
        has = f"it has {head.first} to {head.next - 1}" if head.next > head.first else "it is empty"
        raise NotFound(f"list {self.name} has no index {index}: {has}")

    async def bounds(self) -> tuple[int, int]:
        """Return the index of the first item that is not removed, and the one that the next item gets."""
        head = await self._head.read()
        return head.first, head.next

    async def length(self) -> int:
        """Return how many items there are that are not removed."""
        head = await self._head.read()
        return head.next - head.first

    def items(self, start: int = 0, end: int | None = None) -> AsyncIterator[ListItem[V]]:
        """Return the items from `start` on, before `end`; None: those there are when this begins.

        Raises Truncated when one of them was removed."""
        return Items(_Pages(self._head, self._page, start, end, follows=False))

    def watch(self, start: int | None = None) -> AsyncIterator[ListItem[V]]:
        """Return the items from `start` on, and then every later one; None: those appended after the first call.

        It asks for more after 0.01 to 0.5 seconds.  Raises Truncated when the next one was removed."""
        return Items(_Pages(self._head, self._page, start, MAX_INDEX, follows=True))

    async def _page(self, start: int, end: int) -> list[ListItem[V]]:
        """Return the next items from `start` on, before `end`; none at the end of the list.  Raises Truncated."""
        async with pages_between(self._table, key_of(start), key_of(end - 1), PAGE_ENTRIES) as pages:
            page: list[Entry] = await anext(pages, [])
        if page and index_of(page[0].primary) == start:
            return self._decoded_page(page)
        head = await self._head.read()
        if start < head.first:
            raise self._removed(start, head.first)
        return []

    def _removed(self, index: int, first: int) -> Truncated:
        return Truncated(f"list {self.name}: index {index} was removed; it begins at {first}", first)

    def _encoded(self, value: V) -> bytes:
        encoded = self._values.encode(value)
        if len(encoded) > MAX_TABLE_VALUE_BYTES:
            raise Invalid(f"an item of a list has at most {MAX_TABLE_VALUE_BYTES} bytes, not {len(encoded)}")
        return encoded

    def _decoded_page(self, page: Sequence[Entry]) -> list[ListItem[V]]:
        """Return the items up to one that cannot be decoded.  Raises Invalid if that is the first."""
        found: list[ListItem[V]] = []
        try:
            for entry in page:
                found.append(self._decoded(entry))  # noqa: PERF401 (those before an error are kept)
        except Invalid:
            if not found:
                raise
        return found

    def _decoded(self, entry: Entry) -> ListItem[V]:
        index = index_of(entry.primary)
        return ListItem(index, self._values.decode(entry.value, f"item {index} of list {self.name}"))


class _Pages(Generic[V]):
    """The items of a list from `start` on, in lists.  A cancelled call loses nothing.

    `start` None: from the end on, as of the first call.  `end` None: that end.  `follows`: it waits for more."""

    def __init__(
        self,
        head: TableHead,
        page: Callable[[int, int], Awaitable[list[ListItem[V]]]],
        start: int | None,
        end: int | None,
        *,
        follows: bool,
    ) -> None:
        self._head = head
        self._page = page
        self._start = start
        self._end = end
        self._follows = follows
        self._polls = Polls()

    def __repr__(self) -> str:
        return f"_Pages({self._head!r}, from {self._start} to {self._end})"

    def __aiter__(self) -> _Pages[V]:
        return self

    async def __anext__(self) -> list[ListItem[V]]:
        if self._start is None or self._end is None:
            tail = (await self._head.read()).next
            self._start = tail if self._start is None else self._start
            self._end = tail if self._end is None else self._end
        while self._start < self._end:
            found = await self._page(self._start, self._end)
            if found:
                self._start = found[-1].index + 1
                self._polls.found()
                return found
            if not self._follows:
                break
            await self._polls.pause()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration."""
        self._start = self._end = 0
