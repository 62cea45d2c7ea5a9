"""The head of a list or a queue: the row of its table that numbers what is added.

Format of the row (after `formats.py`; all numbers int64, big-endian):

    next       the number that the next item gets
    first      the least number that is not removed (lists)
    lease      of items that are taken, in milliseconds (queues)
    operations that were ever done
    {id of an operation, 8 bytes; the first number that it gave} of the last 32 operations, the oldest one first

Theory of operation.  Whoever adds items replaces the head, on the condition of its version, and inserts the items, in
one atomic change of the table; all keys are in one partition.  When another process was first, the head is read and the
change made again.  When a reply was lost, the head tells whether the change was made: it has the id of the operation.
So an addition is done once or not at all.  Only when 32 other operations followed before the head could be read is the
outcome unknown.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from sarit.client.limits import MAX_CONFLICT_PAUSE_SECONDS
from sarit.client.structures.formats import body_of, with_header
from sarit.client.structures.limits import HEAD_OPERATIONS, OPERATION_ID_BYTES
from sarit.client.sync.write_turns import WriteTurns
from sarit.client.tables.changes import Insert, Replace
from sarit.client.tables.layout import TableConfig
from sarit.client.tables.table import Table, Tables
from sarit.core.errors import Conflict, Corrupt, Invalid, NotFound, SaritError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.client.session.session import Session
    from sarit.client.tables.changes import Change
    from sarit.client.tables.layout import Entry
    from sarit.core.names import StreamName

_FIELDS: Final = struct.Struct(">qqqq")
_OPERATION: Final = struct.Struct(f">{OPERATION_ID_BYTES}sq")
MAX_HEAD_CONFLICTS: Final = 10_000
YIELDING_HEAD_CONFLICTS: Final = 8
ITEM: Final = b"i"  # the first byte of the key of every item
_HEAD: Final = b"h"  # and of that of the head


class Head(NamedTuple):
    """The head as it is stored; `recent`: ids of operations, and the first number that each gave."""

    next: int = 0
    first: int = 0
    lease_ms: int = 0
    operations: int = 0
    recent: tuple[tuple[bytes, int], ...] = ()

    def after(self, operation: bytes, count: int) -> Head:
        """Return the head after an operation that adds some items."""
        recent = (*self.recent, (operation, self.next))[-HEAD_OPERATIONS:]
        return self._replace(next=self.next + count, operations=self.operations + 1, recent=recent)

    def number_of(self, operation: bytes) -> int | None:
        """Return the first number that an operation gave; None: it is not among the last ones."""
        return dict(self.recent).get(operation)


def encode(kind: bytes, head: Head) -> bytes:
    """Return the value of the row."""
    fields = _FIELDS.pack(head.next, head.first, head.lease_ms, head.operations)
    return with_header(kind, fields + b"".join(_OPERATION.pack(*each) for each in head.recent))


def decode(kind: bytes, data: bytes) -> Head:
    """Return the head of `encode`'s bytes.  Raises Invalid (another structure), Corrupt."""
    body = body_of(kind, data)
    rest = len(body) - _FIELDS.size
    if rest < 0 or rest % _OPERATION.size or rest > HEAD_OPERATIONS * _OPERATION.size:
        raise Corrupt(f"the head of this table has {len(data)} bytes, which no list or queue has")
    following, first, lease_ms, operations = _FIELDS.unpack_from(body)
    if not 0 <= first <= following or lease_ms < 0 or operations < 0:
        raise Corrupt("the head of this table has numbers that no list or queue has")
    recent = tuple(_OPERATION.iter_unpack(body[_FIELDS.size :]))
    return Head(following, first, lease_ms, operations, recent)


class TableHead:
    """The head of one structure, and the table that it is in."""

    def __init__(self, session: Session, table: Table, kind: bytes, key_bytes: int) -> None:
        self.table = table
        self._session = session
        self._kind = kind
        self._key = _HEAD + bytes(key_bytes - len(_HEAD))
        self._lock = asyncio.Lock()
        self._turns = WriteTurns(session.env.clock)
        self._known: tuple[Head, int] | None = None  # as of the last change of this process

    def __repr__(self) -> str:
        return f"TableHead({self.table.name})"

    @classmethod
    async def open(cls, session: Session, name: StreamName, kind: bytes, key_bytes: int, first: Head) -> TableHead:
        """Return the head of a structure, whose table is made when there is none.  Raises NotFound (the scope), Invalid
        (the table is something else)."""
        table = Table(session, name)
        try:
            config = await table.config()
        except NotFound:  # made only then: who may not make tables can open one that is there
            await Tables(session).create(name, primary_key_bytes=key_bytes)
            config = await table.config()
        if config != TableConfig(key_bytes):
            raise Invalid(f"{name} is a key-value table of another kind: choose another name")
        made = cls(session, table, kind, key_bytes)
        try:
            await made.read()
        except NotFound:
            await made._create(first)
        return made

    async def _create(self, first: Head) -> None:
        async with pages_between(self.table, b"", b"", 1) as pages:
            found = await anext(pages, None)
        backoff = self._session.backoff().begin()
        while True:
            failure: SaritError = Invalid(
                f"{self.table.name} is a key-value table with entries of its own: choose another name"
            )
            try:
                if not found:
                    await self.table.insert(self._key, encode(self._kind, first))
                    return
            except (Conflict, Unavailable) as error:
                failure = error
            try:
                await self.read()  # another process made it, or the reply was lost
                return
            except NotFound:
                if found:
                    raise failure from None
            await backoff.wait(failure)

    async def read(self) -> Head:
        """Return the head as it is now.  Raises NotFound (there is none), Invalid, Corrupt."""
        return (await self._read())[0]

    async def _read(self) -> tuple[Head, int]:
        entry = await self.table.get(self._key)
        if entry is None:
            raise NotFound(f"{self.table.name} has no head: it is no list or queue")
        return decode(self._kind, entry.value), entry.version

    async def add(self, rows: Callable[[int], Sequence[tuple[bytes, bytes]]], count: int) -> int:
        """Add the rows, keys with values, that `rows` makes for the first number it is given.  Returns that number.

        Raises Conflict (others were first ten thousand times), Unavailable (they may be added or not)."""
        operation = self._session.env.random.bytes(OPERATION_ID_BYTES)
        async with self._lock:
            began = self._session.env.clock.monotonic()
            number = await self._change(
                operation,
                lambda head: head.after(operation, count),
                lambda head: [Insert(key, value) for key, value in rows(head.next)],
            )
            await self._turns.yield_to_others(began)
            return number

    async def drop_before(self, number: int) -> None:
        """Make `number` the least one that is not removed, unless a larger one is already.  Raises Invalid."""

        def after(head: Head) -> Head:
            if number > head.next:
                raise Invalid(f"the list ends at index {head.next}: nothing can be removed up to {number}")
            return head._replace(first=max(head.first, number))

        async with self._lock:
            self._known = None  # what is refused must be refused by the newest head
            await self._change(b"", after, lambda _: [])

    async def _change(
        self, operation: bytes, after: Callable[[Head], Head], inserts: Callable[[Head], Sequence[Insert]]
    ) -> int:
        backoff = self._session.backoff().begin()
        lost: Unavailable | None = None  # the reply to a change of the head as it was last read
        for conflicts in range(MAX_HEAD_CONFLICTS):
            head, version = self._known or await self._read()
            new, self._known = after(head), None  # a call that is cancelled does not know what it changed
            if new == head:
                return head.next
            changes: list[Change] = [Replace(self._key, encode(self._kind, new), version), *inserts(head)]
            try:
                self._known = new, (await self.table.update(changes))[0]
                return head.next
            except Conflict:
                pass
            except Unavailable as error:
                lost = error
            now, at = self._known = await self._read()
            number = now.number_of(operation)
            if number is not None:
                return number
            if at != version:
                # The lost change cannot be made any more; but it may have been made, and be forgotten.
                if lost is not None and now.operations - head.operations > HEAD_OPERATIONS:
                    raise lost
                lost = None
            elif lost is not None:
                # Reads show what is durable, and conditions count what is on its way: the same change again does no
                # harm, since one version is replaced once.
                await backoff.wait(lost)
            if at == version or conflicts < YIELDING_HEAD_CONFLICTS:  # the process that has tried longer goes first
                await asyncio.sleep(MAX_CONFLICT_PAUSE_SECONDS * self._session.env.random.random())
        raise Conflict(f"{self.table.name}: other processes wrote first {MAX_HEAD_CONFLICTS} times")


@asynccontextmanager
async def pages_between(
    table: Table, first: bytes, last: bytes, page_entries: int
) -> AsyncIterator[AsyncIterator[list[Entry]]]:
    """Scan a range of keys in pages, for a caller that may stop before its end."""
    pages = table.scan_pages(first=first, last=last, page_entries=page_entries)
    try:
        yield pages
    finally:
        await pages.aclose()  # type: ignore[attr-defined]
