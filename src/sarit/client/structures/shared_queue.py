"""A priority queue that many processes put into and take from, in a key-value table.

Format: a table of one partition with keys of 17 bytes; all numbers big-endian:

    "h", 16 zeros                                             the head (`table_head.py`)
    "i", priority + 2^63 as uint64, number as uint64          an item:
                                          token of its taker, 16 bytes, zeros while it is free;
                                          how often it was taken, uint32; its value, encoded

Theory of operation.  The order of the keys is the order of the queue: by priority, the lowest one first, then by the
number that the head gave.  Whoever takes an item replaces its row, on the condition of its version: of several takers
one succeeds.  The token in the row says whose it is, so that a reply that was lost is found again, and a taker whose
lease has ended is refused.  A taken item whose row does not change for a lease is free again (`leases.py`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from sarit.client.core.typed import V
from sarit.client.limits import MAX_LEASE_SECONDS, MIN_LEASE_SECONDS
from sarit.client.session.guard import guarded
from sarit.client.structures.formats import QUEUE
from sarit.client.structures.leases import Leases
from sarit.client.structures.limits import (
    DEFAULT_ITEM_LEASE_SECONDS,
    MAX_ITEMS_AT_ONCE,
    MAX_TAKEN_ITEMS,
    QUEUE_PAGE_ROWS,
    TAKER_TOKEN_BYTES,
)
from sarit.client.structures.polls import Polls
from sarit.client.structures.table_head import ITEM, Head, TableHead, pages_between
from sarit.core.errors import Conflict, Corrupt, Invalid, SaritError, Unavailable
from sarit.core.limits import MAX_TABLE_VALUE_BYTES, NOT_EXISTS
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from contextlib import AbstractAsyncContextManager

    from sarit.client.session.session import Session
    from sarit.client.structures.values import Values
    from sarit.client.tables.layout import Entry
    from sarit.core.names import StreamName

_PLACE: Final = struct.Struct(">QQ")
_ROW: Final = struct.Struct(f">{TAKER_TOKEN_BYTES}sI")
_KEY_BYTES: Final = len(ITEM) + _PLACE.size
_MIDDLE: Final = 1 << 63  # added to a priority, so that its bytes have the order of its values
_MOST_TAKES: Final = (1 << 32) - 1
FREE: Final = bytes(TAKER_TOKEN_BYTES)


class Row(NamedTuple):
    """The row of an item."""

    token: bytes
    takes: int
    data: bytes


def key_of(priority: int, number: int) -> bytes:
    """Return the key of an item."""
    return ITEM + _PLACE.pack(priority + _MIDDLE, number)


def place_of(key: bytes) -> tuple[int, int]:
    """Return the priority and the number of the item with a key."""
    priority, number = _PLACE.unpack(key[len(ITEM) :])
    return priority - _MIDDLE, number


def encode_row(row: Row) -> bytes:
    """Return the value of a row."""
    return _ROW.pack(row.token, row.takes) + row.data


def decode_row(value: bytes) -> Row:
    """Return the row of `encode_row`'s bytes.  Raises Corrupt."""
    if len(value) < _ROW.size:
        raise Corrupt(f"a row of {len(value)} bytes is no item of a queue: does something else write to its table?")
    token, takes = _ROW.unpack_from(value)
    return Row(token, takes, value[_ROW.size :])


@public
@dataclass(frozen=True, slots=True)
class QueueItem(Generic[V]):
    """An item of a shared queue.  `number`: rises with every item that is put.  `takes`: how often it was taken, this
    time included."""

    value: V
    priority: int
    number: int
    takes: int
    token: bytes = field(repr=False)


@guarded("_session")
class SharedQueue(Generic[V]):
    """A priority queue of many processes.  Open one with `await client.structures.queue("scope/name")`.

    An item is put once or not at all.  It is handed out at least once: to one taker at a time, for a lease; when that
    ends before `done`, it is handed out again.  Items are not in memory.  All methods raise NotFound (its table was
    deleted), Invalid and Unavailable (of a change: it may be done or not)."""

    def __init__(self, session: Session, values: Values[V], head: TableHead, lease_seconds: float) -> None:
        self.name = head.table.name
        self.lease_seconds = lease_seconds
        self._session = session
        self._values = values
        self._head = head
        self._table = head.table
        self._leases = Leases(lease_seconds)

    @classmethod
    async def open(
        cls, session: Session, name: StreamName, values: Values[V], lease_seconds: float | None
    ) -> SharedQueue[V]:
        """Return the queue of that name, an empty one when there was none.  Raises Invalid (the lease)."""
        if lease_seconds is not None and not MIN_LEASE_SECONDS <= lease_seconds <= MAX_LEASE_SECONDS:
            raise Invalid(f"a lease has {MIN_LEASE_SECONDS} to {MAX_LEASE_SECONDS} seconds, not {lease_seconds}")
        lease_ms = round(1000 * (DEFAULT_ITEM_LEASE_SECONDS if lease_seconds is None else lease_seconds))
        head = await TableHead.open(session, name, QUEUE, _KEY_BYTES, Head(lease_ms=lease_ms))
        found = (await head.read()).lease_ms
        if lease_seconds is not None and found != lease_ms:
            raise Invalid(f"queue {name} has a lease of {found / 1000} seconds, not {lease_seconds}: all must agree")
        return cls(session, values, head, found / 1000)

    def __repr__(self) -> str:
        return f"SharedQueue({self.name}, {self._session.state()})"

    # -- putting --------------------------------------------------------------------------------

    async def put(self, value: V, priority: int = 0) -> None:
        """Put a value.  Items of a lower priority are taken first; of the same one, those that were put first."""
        await self._put([self._encoded(value)], priority)

    async def put_many(self, values: Iterable[V], priority: int = 0) -> None:
        """Put 1 to 255 values, all of them or none."""
        encoded = [self._encoded(value) for value in values]
        if not 1 <= len(encoded) <= MAX_ITEMS_AT_ONCE:
            raise Invalid(f"1 to {MAX_ITEMS_AT_ONCE} values are put at once, not {len(encoded)}")
        await self._put(encoded, priority)

    async def _put(self, encoded: list[bytes], priority: int) -> None:
        def rows(first: int) -> list[tuple[bytes, bytes]]:
            return [(key_of(priority, number), value) for number, value in enumerate(encoded, first)]

        await self._head.add(rows, len(encoded))

    # -- taking ---------------------------------------------------------------------------------

    async def take(self, *, timeout: float | None = None) -> QueueItem[V] | None:
        """Take the first item that is free, for a lease.  Waits for one, `timeout` seconds at most; returns None then.

        Raises Invalid also when the value cannot be decoded: that item stays taken until its lease ends."""
        clock = self._session.env.clock
        until = None if timeout is None else clock.monotonic() + timeout
        polls = Polls()
        while True:
            found = await self._poll()
            left = None if until is None else until - clock.monotonic()
            if found is not None or (left is not None and left <= 0):
                return found
            await polls.pause(left)

    async def _poll(self) -> QueueItem[V] | None:
        now = self._session.env.clock.monotonic()
        taken = 0
        async with self._pages() as pages:
            async for page in pages:
                for entry in page:
                    row = decode_row(entry.value)
                    if row.token == FREE or self._leases.ended(entry.primary, entry.version, now):
                        token = await self._claim(entry, row)
                        if token is not None:
                            self._leases.forget(entry.primary)
                            return self._item(entry.primary, Row(token, row.takes + 1, row.data))
                taken += len(page)
                if taken >= MAX_TAKEN_ITEMS:
                    self._leases.keep(MAX_TAKEN_ITEMS)
                    return None
        self._leases.swept(now)
        return None

    def _pages(self) -> AbstractAsyncContextManager[AsyncIterator[list[Entry]]]:
        return pages_between(self._table, ITEM, ITEM, QUEUE_PAGE_ROWS)

    async def _claim(self, entry: Entry, row: Row) -> bytes | None:
        """Take an item.  Returns the token that it has now; None: another taker was first."""
        token = self._session.env.random.bytes(TAKER_TOKEN_BYTES)
        value = encode_row(Row(token, min(row.takes + 1, _MOST_TAKES), row.data))
        backoff, lost = self._session.backoff().begin(), False
        while True:
            try:
                await self._table.replace(entry.primary, value, entry.version)
                return token
            except Conflict as error:
                failure: SaritError = error
                if not lost:
                    return None
            except Unavailable as error:
                failure, lost = error, True
            # A reply was lost: the row says whose the item is, once it has changed.
            now = await self._table.get(entry.primary)
            if now is None or now.version != entry.version:
                return token if now is not None and decode_row(now.value).token == token else None
            await backoff.wait(failure)

    async def peek(self) -> QueueItem[V] | None:
        """Return the first item that nobody has taken, without taking it; None when there is none.

        An item whose lease has ended is not shown before somebody takes it."""
        async with self._pages() as pages:
            async for page in pages:
                for entry in page:
                    row = decode_row(entry.value)
                    if row.token == FREE:
                        return self._item(entry.primary, row)
        return None

    async def size(self) -> int:
        """Return the number of items, those that are taken included: it counts them one by one."""
        count = 0
        async for _ in self._table.scan_keys(prefix=ITEM):
            count += 1
        return count

    # -- what a taker does ----------------------------------------------------------------------

    async def done(self, item: QueueItem[V]) -> None:
        """Remove an item that this process has taken.  Raises Conflict: its lease had ended, and another took it."""
        await self._finish(item, None)

    async def give_back(self, item: QueueItem[V]) -> None:
        """Make an item that this process has taken free again, at its place.  Raises as `done` does."""
        await self._finish(item, FREE)

    async def renew(self, item: QueueItem[V]) -> None:
        """Begin the lease of a taken item again.  Raises as `done` does."""
        await self._finish(item, _own(item))

    async def _finish(self, item: QueueItem[V], token: bytes | None) -> None:
        """Replace the row of a taken item by one with another token; None: remove it."""
        own, key = _own(item), key_of(item.priority, item.number)
        backoff = self._session.backoff().begin()
        failure: SaritError | None = None
        lost, expected = False, NOT_EXISTS
        while True:
            entry = await self._table.get(key)
            row = None if entry is None else decode_row(entry.value)
            if entry is None and token is None:
                return  # removed, by this call or by a taker after this one
            if entry is None or row is None or row.token != own:
                if lost and token == FREE:
                    return  # given back, and perhaps taken by another one since
                raise Conflict(f"queue {self.name}: the lease of item {item.number} has ended, and it is not yours now")
            if failure is not None and entry.version == expected:
                await backoff.wait(failure)  # reads show what is durable, and conditions count what is on its way
            else:
                expected, lost = entry.version, False
            try:
                if token is None:
                    await self._table.remove(key, expected)
                else:
                    await self._table.replace(key, encode_row(row._replace(token=token)), expected)
                return
            except (Conflict, Unavailable) as error:
                failure, lost = error, lost or isinstance(error, Unavailable)

    # -- values ---------------------------------------------------------------------------------

    def _encoded(self, value: V) -> bytes:
        encoded = encode_row(Row(FREE, 0, self._values.encode(value)))
        if len(encoded) > MAX_TABLE_VALUE_BYTES:
            most = MAX_TABLE_VALUE_BYTES - _ROW.size
            raise Invalid(f"an item of a queue has at most {most} bytes, not {len(encoded) - _ROW.size}")
        return encoded

    def _item(self, key: bytes, row: Row) -> QueueItem[V]:
        priority, number = place_of(key)
        value = self._values.decode(row.data, f"item {number} of queue {self.name}")
        return QueueItem(value, priority, number, row.takes, row.token)


def _own(item: QueueItem[V]) -> bytes:
    if item.token == FREE:
        raise Invalid(f"item {item.number} was peeked at, and not taken: take it first")
    return item.token
