"""One writer's appends to one segment over one connection, each acknowledged before the next.

A SetupAppend sent on an abandoned connection may reach the store after the SetupAppend of the next connection.  The
store keeps the session that was set up last, so the session in use is then refused with InvalidEventNumber, as if its
writer had been opened elsewhere.  That is no fault: the actor sets up again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.wire import commands as wire
from sarit.wire.commands import encode
from sarit.wire.frames import append_block_end_header
from simulation.actors.links import ANSWER_SECONDS, Link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.client.core.connection import Connection
    from sarit.env.ports import Buffer


class Appends:
    """A session of `writer` (16 bytes) on `segment`.  Calls raise Unavailable: set up again to learn the outcome."""

    def __init__(self, link: Link, writer: bytes, segment: str) -> None:
        self._link = link
        self._writer = writer
        self._segment = segment
        self._connection: Connection | None = None
        self._request = 0
        self._set_ups = 0
        self._session: _SetUp | None = None
        self._answer: asyncio.Future[Any] | None = None

    def answered(self, session: _SetUp, answer: Any) -> None:
        """A reply for one of the set-ups, or an error when its connection ended."""
        if session is not self._session:
            return  # of an earlier set-up: its connection may end while a later one is in use
        if isinstance(answer, Unavailable):
            self._connection = None
        if self._answer is None or self._answer.done():
            return
        if isinstance(answer, Unavailable):
            self._answer.set_exception(answer)
        else:
            self._answer.set_result(answer)

    # -- calls ----------------------------------------------------------------------------------

    async def set_up(self) -> int | None:
        """The number of this writer's last event in the store (0: none); None when the segment does not exist."""
        connection = await self._link.connection(self._segment)
        self._session = _SetUp(self)
        self._request = connection.expect(self._session)
        self._connection = connection
        self._set_ups += 1
        setup = wire.SetupAppend(self._request, self._writer, self._segment, "")
        answer = await self._ask([encode(setup)])
        if isinstance(answer, wire.NoSuchSegment):
            return None
        assert isinstance(answer, wire.AppendSetup), answer
        return 0 if answer.last_event_number == NULL_ATTRIBUTE_VALUE else answer.last_event_number

    async def block(self, data: bytes, events: int, last: int) -> Any:
        """A block of `events` events up to number `last`."""
        prefix, suffix = append_block_end_header(self._writer, len(data), events, last, self._request)
        return await self._ask([prefix, data, suffix])

    async def conditional(self, data: bytes, number: int, expected: int) -> Any:
        """One append on condition that the segment is `expected` bytes long."""
        return await self._ask([encode(wire.ConditionalBlockEnd(self._writer, number, expected, data, self._request))])

    async def _ask(self, parts: Sequence[Buffer]) -> Any:
        if self._connection is None:
            raise Unavailable("not set up")
        self._answer = asyncio.get_running_loop().create_future()
        self._connection.send(parts)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._answer
        except TimeoutError:
            self._give_up()
            raise Unavailable("no answer") from None
        finally:
            self._answer = None
        if isinstance(answer, wire.WrongHost):
            self._give_up()
            raise Unavailable("another store has the segment")
        if isinstance(answer, wire.InvalidEventNumber) and self._set_ups > 1:
            self._give_up()
            raise Unavailable("an earlier set-up of this writer came late")
        return answer

    def _give_up(self) -> None:
        self._connection = None
        self._link.drop()


class _SetUp:
    """One set-up on one connection."""

    def __init__(self, appends: Appends) -> None:
        self._appends = appends

    def reply(self, command: Any) -> bool:
        """A reply on its request id."""
        self._appends.answered(self, command)
        return False

    def lost(self, error: Unavailable) -> None:
        """The connection ended."""
        self._appends.answered(self, error)
