"""Iteration over a range of a table's keys: pages of each partition, merged in the order of the keys."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from sarit.client.tables.layout import following

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from sarit.env.ports import Buffer

PAGE_ENTRIES: Final = 512


class Keyed(Protocol):
    """Anything with a key as the wire has it."""

    @property
    def key(self) -> Buffer: ...


K = TypeVar("K", bound=Keyed)


class PageCursor(Generic[K]):
    """The position of a scan in one partition.  `page(first, last, count)` requests entries; bounds are inclusive."""

    __slots__ = ("_count", "_last", "_next", "_page", "_waiting")

    def __init__(
        self, page: Callable[[bytes, bytes, int], Awaitable[Sequence[K]]], first: bytes, last: bytes, count: int
    ) -> None:
        self._page = page
        self._next: bytes | None = first if first <= last else None
        self._last = last
        self._count = count
        self._waiting: deque[K] = deque()

    def __repr__(self) -> str:
        return f"PageCursor({self._next!r} to {self._last!r}, {len(self._waiting)} buffered)"

    async def fill(self) -> bool:
        """Buffer an entry, if there is one.  Returns False at the end."""
        if not self._waiting and self._next is not None:
            self._waiting.extend(await self._page(self._next, self._last, self._count))
            after = following(bytes(self._waiting[-1].key)) if self._waiting else None
            self._next = after if after is not None and after <= self._last else None
        return bool(self._waiting)

    @property
    def first(self) -> bytes:
        """The next buffered key."""
        return bytes(self._waiting[0].key)

    def take(self) -> K:
        """Return the next buffered entry."""
        return self._waiting.popleft()

    def take_buffered(self) -> list[K]:
        """Take all buffered entries."""
        out = list(self._waiting)
        self._waiting.clear()
        return out

    @property
    def buffered(self) -> bool:
        """Whether `take` has an entry without a request."""
        return bool(self._waiting)


async def merged(cursors: Sequence[PageCursor[K]], size: int) -> AsyncIterator[list[K]]:
    """Lists of about `size` entries, all in the order of their keys."""
    if len(cursors) == 1:
        while await cursors[0].fill():
            yield cursors[0].take_buffered()
        return
    heads = [(cursor.first, index) for index, cursor in enumerate(cursors) if await cursor.fill()]
    heapq.heapify(heads)
    out: list[K] = []
    while heads:
        index = heads[0][1]
        cursor = cursors[index]
        out.append(cursor.take())
        if len(out) >= size:
            yield out
            out = []
        if cursor.buffered or await cursor.fill():
            heapq.heapreplace(heads, (cursor.first, index))
        else:
            heapq.heappop(heads)
    if out:
        yield out
