"""Applies quotas to one connection: for how long the connection is not read from, and how long replies to reads wait.

*Bytes in.*  An append is accepted, and charged, only when its scope and its user have no debt from any connection.
Otherwise it waits in memory with the later ones, and the connection is not read from: TCP makes the client wait, which
gets no error.  A client that reconnects has to wait as well.
*Bytes out.*  A reply is charged when it is sent, and the next read waits until the debt is paid.
*Requests.*  A large request, and each update of a table, waits as a task until there is no debt; an update also while
its scope is full.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import SaritError
from sarit.store.limits import QUOTA_COUNTED_BYTES, QUOTA_READ_WAIT_SECONDS, QUOTA_TURN_SECONDS
from sarit.wire import commands as wire
from sarit.wire.commands import encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.store.metering.tenant_quotas import TenantQuotas
    from sarit.store.server.connection_budget import Peer

_REFUSED: Final = 0  # the error code of AuthTokenCheckFailed for which a client does not ask for a new token


def scope_of(segment: str) -> str:
    """Return the scope of a segment by its name; empty when the name has none."""
    scope, slash, _ = segment.partition("/")
    return scope if slash else ""


class ConnectionQuotas:
    """The quotas as they apply to one connection.  `stopped`: the connection is not read from because of a quota.

    `user`: the user of the connection, empty while unknown."""

    __slots__ = ("_began", "_connection", "_loop", "_scope", "_take_waiting", "_timer", "quotas", "stopped", "user")

    def __init__(self, connection: Peer, quotas: TenantQuotas) -> None:
        self._connection = connection
        self.quotas = quotas
        self.stopped = False
        self.user = ""
        self._scope = ""  # the scope of the first append that waits
        self._take_waiting: Callable[[], None] | None = None
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<ConnectionQuotas of {self.user or 'unknown'}{', stopped' if self.stopped else ''}>"

    # -- bytes in -----------------------------------------------------------------------------------

    def when_paid(self, take_waiting: Callable[[], None]) -> None:
        """Call `take_waiting` when a stop ends, to submit the appends that waited; it may stop the connection again."""
        self._take_waiting = take_waiting

    def take(self, segment: str, size: int) -> bool:
        """Charge an append of `size` bytes unless it has to wait, and stop the connection while there is a debt.

        Returns whether it was charged."""
        if self.stopped or self.stop_if_owed(segment):
            return False
        self.quotas.received(scope_of(segment), self.user, size)
        self.stop_if_owed(segment)
        return True

    def stop_if_owed(self, segment: str) -> bool:
        """Stop reading from the connection if the next append to a segment has to wait.  Returns whether it stopped."""
        scope = scope_of(segment)
        delay = self._delay(scope)
        if self.stopped or delay == 0:
            return self.stopped
        self.stopped, self._scope, self._began = True, scope, self._loop.time()
        self.quotas.wait(self)
        self._arm(delay)
        self._connection.apply_backpressure()
        return True

    async def answer(self, command: Any, size: int, answer: Callable[[], Awaitable[None]]) -> None:
        """Call `answer` for a request of `size` bytes when the quotas allow it; refuse a creation over the quota."""
        scope = scope_of(getattr(command, "segment", ""))
        writes = isinstance(command, wire.UpdateTableEntries)
        if writes or size > QUOTA_COUNTED_BYTES:
            while (delay := self._request_delay(scope, writes=writes)) is None or delay > 0:  # noqa: ASYNC110 - time pays, no event
                await asyncio.sleep(QUOTA_READ_WAIT_SECONDS if delay is None else max(delay, QUOTA_TURN_SECONDS))
            self.quotas.received(scope, self.user, size)
        if isinstance(command, wire.CreateTableSegment):
            await self._create_table(command, scope, answer)
        else:
            await answer()

    async def _create_table(
        self, command: wire.CreateTableSegment, scope: str, answer: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            text = ""
            if not await self.quotas.create(scope):
                text = (
                    f"clients have made as many segments in scope {scope} as its quota allows: remove some, or raise it"
                )
        except SaritError as error:
            text = f"the tables of scope {scope} cannot be counted for its quota: {error}"
        if text:
            self._connection.send(encode(wire.ErrorMessage(command.request_id, command.segment, text, _REFUSED)))
            return
        try:
            await answer()
        finally:
            self.quotas.creation_ended(scope)

    def answered(self, command: Any, reply: wire.Command | None) -> None:
        """Subtract a table that was not created, or was deleted, from the count of its scope."""
        not_made = isinstance(command, wire.CreateTableSegment) and not isinstance(reply, wire.SegmentCreated | None)
        if not_made or isinstance(reply, wire.SegmentDeleted):
            self.quotas.removed(scope_of(command.segment))

    def quotas_changed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._arm(self._delay(self._scope))

    def _request_delay(self, scope: str, *, writes: bool) -> float | None:
        # Only an update waits while the scope is full: a removal frees space.
        return self._delay(scope) if writes else self.quotas.write_delay(scope, self.user)

    def _delay(self, scope: str) -> float | None:
        """Return how many seconds an append to a scope has to wait; None: until the quotas change."""
        return None if self.quotas.is_full(scope) else self.quotas.write_delay(scope, self.user)

    def _arm(self, delay: float | None) -> None:
        # Wait at least QUOTA_TURN_SECONDS, or each append of a few bytes would have its own timer.
        self._timer = None if delay is None else self._loop.call_later(max(delay, QUOTA_TURN_SECONDS), self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._end_stop()
        if self._take_waiting is not None:
            self._take_waiting()
        self._connection.apply_backpressure()

    def _end_stop(self) -> None:
        self.stopped = False
        self.quotas.done_waiting(self)
        self.quotas.waited(True, self._scope, self._loop.time() - self._began)

    # -- bytes out ----------------------------------------------------------------------------------

    def read_delay(self, segment: str) -> float:
        """Return how many seconds a read has to wait."""
        return self.quotas.read_delay(scope_of(segment), self.user)

    async def wait_to_read(self, segment: str) -> bool:
        """Wait until the debt of earlier replies is paid, at most as long as clients wait for an answer.

        Returns whether it is paid."""
        began = self._loop.time()
        while delay := self.read_delay(segment):
            left = began + QUOTA_READ_WAIT_SECONDS - self._loop.time()
            if left <= 0:
                break
            await asyncio.sleep(min(delay, left))
        self.quotas.waited(False, scope_of(segment), self._loop.time() - began)
        return not delay

    def sent(self, segment: str, size: int) -> None:
        """Charge a reply to a read."""
        self.quotas.sent(scope_of(segment), self.user, size)

    # -- users --------------------------------------------------------------------------------------

    def connected(self, user: str, command: Any) -> wire.Command | None:
        """Note the user of the connection, whom its first request names.  Returns the refusal if the user's quota
        allows no more connections."""
        self.user = user
        if self.quotas.connected(user):
            return None
        text = f"user {user} has as many connections as its quota allows: close some, or ask for a higher quota"
        return wire.AuthTokenCheckFailed(command.request_id, text, _REFUSED)

    def connection_closed(self) -> None:
        """Cancel the timer and subtract the connection, since it has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self.stopped:
            self._end_stop()
        if self.user:
            self.quotas.disconnected(self.user)
            self.user = ""
        # Break the reference cycle with the connection, which would wait for a full garbage collection.
        self._take_waiting = None
        del self._connection
