"""What quotas mean for one connection: for how long it is not read from, and how long replies to reads wait.

*Bytes in.*  The appends of one read of the socket are charged together, after all of them were handed over; then the
connection is not read from until they are paid for.  TCP makes the client wait: it gets no error.
*Bytes out.*  A reply is charged when it is sent, and the next read waits until it is paid for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.security.limits import QUOTA_DEBT_SECONDS
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from sarit.store.flow_control.tenant_quotas import TenantQuotas

_REFUSED: Final = 0  # no new token mends it


class Connection(Protocol):
    """The connection that it is of."""

    def apply_backpressure(self) -> None:
        """Stop or resume reading."""


def scope_of(segment: str) -> str:
    """The scope of a segment by its name; empty: none."""
    scope, slash, _ = segment.partition("/")
    return scope if slash else ""


class ConnectionQuotas:
    """`stopped`: the connection is not read from because of a quota.  `user`: who it is of, as far as known."""

    __slots__ = ("_began", "_charged", "_connection", "_loop", "_paid", "_timer", "quotas", "stopped", "user")

    def __init__(self, connection: Connection, quotas: TenantQuotas) -> None:
        self._connection = connection
        self.quotas = quotas
        self.stopped = False
        self.user = ""
        self._charged: dict[str, int] = {}
        self._paid: dict[str, int] = {}  # what the stop is for
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<ConnectionQuotas of {self.user or 'unknown'}{', stopped' if self.stopped else ''}>"

    # -- bytes in -----------------------------------------------------------------------------------

    def received(self, segment: str, size: int) -> None:
        """So many bytes for a segment came; `charge` charges it."""
        scope = scope_of(segment)
        self._charged[scope] = self._charged.get(scope, 0) + size

    def charge(self) -> None:
        """Charge what came, and stop the connection if that has to be paid for."""
        if not self._charged:
            return
        charged, self._charged = self._charged, {}
        delay = self.quotas.received(charged, self.user)
        if self.stopped:  # what came before the stop took effect
            self._paid |= charged
            return
        if delay or self.quotas.is_full(charged):
            self.stopped = True
            self._paid = charged
            self._began = self._loop.time()
            self.quotas.wait(self)
            self._arm(delay)

    def quotas_changed(self) -> None:
        """See `Waiting`."""
        if self._timer is not None:
            self._timer.cancel()
        self._arm(self.quotas.write_delay(self._paid, self.user))

    def _arm(self, delay: float) -> None:
        if self.quotas.is_full(self._paid):
            self._timer = None  # until the quotas change
        else:
            self._timer = self._loop.call_later(delay, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._end_stop()
        self._connection.apply_backpressure()

    def _end_stop(self) -> None:
        self.stopped = False
        self.quotas.done_waiting(self)
        self.quotas.waited(True, self._paid, self._loop.time() - self._began)
        self._paid = {}

    # -- bytes out ----------------------------------------------------------------------------------

    def read_delay(self, segment: str) -> float:
        """How long a read has to wait."""
        return self.quotas.read_delay(scope_of(segment), self.user)

    async def wait_to_read(self, segment: str) -> None:
        """Wait until what was sent before is paid for: others may be quicker, but not for ever."""
        began = self._loop.time()
        while delay := min(self.read_delay(segment), began + QUOTA_DEBT_SECONDS - self._loop.time()):
            if delay <= 0:
                break
            await asyncio.sleep(delay)
        self.quotas.waited(False, {scope_of(segment): 0}, self._loop.time() - began)

    def sent(self, segment: str, size: int) -> None:
        """A reply to a read has so many bytes."""
        self.quotas.sent(scope_of(segment), self.user, size)

    # -- users --------------------------------------------------------------------------------------

    def connected(self, user: str, command: Any) -> wire.Command | None:
        """The connection is this user's, as its first request says; its answer where the quota does not allow it."""
        self.user = user
        if self.quotas.connected(user):
            return None
        text = f"user {user} has as many connections as its quota allows: close some, or ask for a higher quota"
        return wire.AuthTokenCheckFailed(command.request_id, text, _REFUSED)

    def connection_closed(self) -> None:
        """Nothing waits any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self.stopped:
            self._end_stop()
        if self.user:
            self.quotas.disconnected(self.user)
            self.user = ""
        # It refers to this object: a cycle would wait for a full garbage collection.
        del self._connection
