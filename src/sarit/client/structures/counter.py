"""A number that many processes add to.

Format of the stream (a synchronizer's, after `formats.py`):

    initial   value int64
    update    amount int64
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sarit.client.session.guard import guarded
from sarit.client.structures.formats import COUNTER, body_of, with_header
from sarit.client.structures.limits import MAX_COUNTER_VALUE, MIN_COUNTER_VALUE
from sarit.client.structures.shared_copy import SharedCopy, open_copy
from sarit.core.errors import Corrupt, Invalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sarit.client.session.session import Session
    from sarit.client.sync.revisioned_stream import Revision
    from sarit.core.names import StreamName

_INT64: Final = struct.Struct(">q")


def encode(value: int) -> bytes:
    """Return the initial state."""
    return with_header(COUNTER, _INT64.pack(value))


def decode(data: bytes) -> int:
    """Return the value of `encode`'s bytes.  Raises Invalid (another structure), Corrupt."""
    return _number(body_of(COUNTER, data))


def apply(value: int, update: bytes, _: Revision) -> int:
    """Return the value after an update.  Raises Corrupt."""
    return value + _number(update)


def added(value: int, amount: int) -> list[bytes]:
    """Return the updates that add to a value.  Raises Invalid: the sum does not fit."""
    if not MIN_COUNTER_VALUE <= value + amount <= MAX_COUNTER_VALUE:
        raise Invalid(f"the counter is {value}: {amount} more is beyond 64 bits; nothing was added")
    return [_INT64.pack(amount)] if amount else []


def _number(data: bytes) -> int:
    if len(data) != _INT64.size:
        raise Corrupt(f"a number of a counter has {_INT64.size} bytes, not {len(data)}")
    found: int = _INT64.unpack(data)[0]
    return found


@guarded("_session")
class SharedCounter:
    """A number that many processes add to.  Open one with `await client.structures.counter("scope/name")`.

    Additions are linearizable, each done once or not at all.  All methods raise NotFound (its stream was deleted) and
    Unavailable."""

    def __init__(self, session: Session, name: StreamName, copy: SharedCopy[int]) -> None:
        self.name = name
        self._session = session
        self._copy = copy

    @classmethod
    async def open(cls, session: Session, name: StreamName) -> SharedCounter:
        """Return the counter of that name, 0 when there was none."""
        return cls(session, name, await open_copy(session, name, encode(0), decode, apply, encode))

    def __repr__(self) -> str:
        return f"SharedCounter({self.name}, {self._session.state()})"

    async def add(self, amount: int = 1) -> int:
        """Add to the counter.  Returns its value after that.

        Raises Invalid (the sum has more than 64 bits: nothing is added), Unavailable (it may be added or not)."""
        before = 0

        def decide(value: int) -> list[bytes]:
            nonlocal before
            before = value
            return added(value, amount)

        await self._copy.change(decide)
        return before + amount

    async def value(self, *, fresh: bool = True) -> int:
        """Return the value, with all that was added before this call.

        `fresh` False: as this process knows it from its last call, without a request."""
        return await self._copy.read(fresh=fresh)

    def watch(self) -> AsyncIterator[int]:
        """Return the value now, and after every change; changes in quick succession may be seen as one."""
        return self._copy.watch(lambda before, now: [] if before == now else [now])
