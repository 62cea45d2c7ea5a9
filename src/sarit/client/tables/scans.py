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
    """A key of the wire, with what belongs to it."""

    @property
    def key(self) -> Buffer: ...


K = TypeVar("K", bound=Keyed)


class Cursor(Generic[K]):
    """The place in one partition.  `page(first, last, count)` asks it; bounds are part of the range."""

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
        return f"Cursor({self._next!r} to {self._last!r}, {len(self._waiting)} at hand)"

    async def fill(self) -> bool:
        """Have an entry at hand; False at the end."""
        if not self._waiting and self._next is not None:
            self._waiting.extend(await self._page(self._next, self._last, self._count))
            after = following(bytes(self._waiting[-1].key)) if self._waiting else None
            self._next = after if after is not None and after <= self._last else None
        return bool(self._waiting)

    @property
    def first(self) -> bytes:
        """The key at hand."""
        return bytes(self._waiting[0].key)

    def take(self) -> K:
        """The entry at hand."""
        return self._waiting.popleft()

    def take_buffered(self) -> list[K]:
        """All that is at hand."""
        out = list(self._waiting)
        self._waiting.clear()
        return out

    @property
    def buffered(self) -> bool:
        """Whether `take` gives something without a question."""
        return bool(self._waiting)


async def merged(cursors: Sequence[Cursor[K]], size: int) -> AsyncIterator[list[K]]:
    """Lists of about `size` entries, all in the order of their keys."""
    if len(cursors) == 1:
        while await cursors[0].fill():
            yield cursors[0].take_buffered()
        return
    heads = [(cursor.first, place) for place, cursor in enumerate(cursors) if await cursor.fill()]
    heapq.heapify(heads)
    out: list[K] = []
    while heads:
        place = heads[0][1]
        cursor = cursors[place]
        out.append(cursor.take())
        if len(out) >= size:
            yield out
            out = []
        if cursor.buffered or await cursor.fill():
            heapq.heapreplace(heads, (cursor.first, place))
        else:
            heapq.heappop(heads)
    if out:
        yield out
