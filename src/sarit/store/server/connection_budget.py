"""The budget of useless frames of a connection: KeepAlive, Hello, and requests whose token is refused.

Such frames are tiny and are answered without disk or memory, so no other bound slows down a client that sends millions.
A connection without a valid request yet (a *stranger*) has a much smaller budget.  A frame over the budget is still
served; it determines how long the connection has to wait before it is read from again.

A refused token also counts for the host, whatever connection it comes on: verifying a signature costs more than a
frame, and a client that reconnects begins with a new budget.

A stranger, or a connection whose tokens are refused, is slowed down: it is not read from until its budget allows it.
If it were ended it would reconnect, which costs more than a frame.  Official clients repeat a refused request without a
pause, so this is no proof of an attack.  A connection that was served, and floods with KeepAlive or Hello, is ended: no
client does so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from sarit.core.bucket import Bucket
from sarit.core.networks import network_of
from sarit.store.limits import (
    FRAME_BUDGET,
    FRAMES_PER_SECOND,
    MAX_FRAME_WAIT_SECONDS,
    STRANGER_FRAME_BUDGET,
    STRANGER_FRAMES_PER_SECOND,
)

if TYPE_CHECKING:
    from sarit.core.bucket import HostBuckets
    from sarit.core.repeated_log import RepeatedLog


class Peer(Protocol):
    """A connection that can be answered, slowed down and ended."""

    host: str

    def send(self, frame: bytes) -> None:
        """Send a frame to the client."""

    def close(self, reason: str | None = None) -> None:
        """Send what is queued, then end the connection."""

    def apply_backpressure(self) -> None:
        """Stop or resume reading from the socket."""


class ConnectionBudget:
    """The budget of one connection.  `slowed`: the connection is not read from, because its budget is used up.

    `served`: the connection has sent a request, with a valid token where one is needed."""

    __slots__ = ("_connection", "_floods", "_frames", "_loop", "_refusals", "_timer", "_until", "served", "slowed")

    def __init__(self, connection: Peer, refusals: HostBuckets, floods: RepeatedLog) -> None:
        self._connection = connection
        # The budgets of refused tokens by host, which all connections of the listener share.
        self._refusals = refusals
        self._floods = floods
        self._loop = asyncio.get_running_loop()
        self._frames = frame_budget(STRANGER_FRAME_BUDGET, STRANGER_FRAMES_PER_SECOND, self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self.served = False
        self.slowed = False

    def __repr__(self) -> str:
        return f"<ConnectionBudget {self._frames!r}{', slowed' if self.slowed else ''}>"

    def serve(self) -> None:
        """Give the connection the larger budget, since it has sent a valid request."""
        self.served = True
        self._frames = frame_budget(FRAME_BUDGET, FRAMES_PER_SECOND, self._loop.time())

    def greeting(self) -> bool:
        """Count a KeepAlive or Hello.  Returns whether to answer it; if not, the connection has been ended."""
        delay = _take(self._frames, self._loop.time())
        if delay and self.served:
            self._report("sent more KeepAlive and Hello frames than any client does, and was closed")
            self._connection.close()
            return False
        self._slow(delay, "sends KeepAlive and Hello frames and asks for nothing: it is slowed down")
        return True

    def refused(self) -> None:
        """Count a request whose token was refused."""
        now = self._loop.time()
        shared = self._refusals.of(network_of(self._connection.host), now)
        delay = max(_take(self._frames, now), _take(shared, now))
        self._slow(delay, "sends requests whose tokens are refused: it is slowed down")

    def connection_closed(self) -> None:
        """Cancel the timer, since the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.slowed = False
        # Break the reference cycle with the connection, which would wait for a full garbage collection.
        del self._connection

    def _slow(self, delay: float, what: str) -> None:
        if not delay:
            return
        self._until = self._loop.time() + delay
        if not self.slowed:
            self.slowed = True
            self._report(what)
            self._timer = self._loop.call_later(delay, self._go_on)

    def _go_on(self) -> None:
        left = self._until - self._loop.time()
        if left > 0:  # frames of the same turn were counted after the timer was set
            self._timer = self._loop.call_later(left, self._go_on)
            return
        self._timer = None
        self.slowed = False
        self._connection.apply_backpressure()

    def _report(self, what: str) -> None:
        host = self._connection.host
        self._floods.warning((host, what), f"a connection from {host} {what}")


def frame_budget(burst: int, rate: float, now: float) -> Bucket:
    """Return the bucket of a connection, which waits for MAX_FRAME_WAIT_SECONDS at most."""
    return Bucket(burst, rate, now, rate * MAX_FRAME_WAIT_SECONDS)


def _take(bucket: Bucket, now: float) -> float:
    """Count a frame.  Returns how many seconds to wait after it, 0 within the budget."""
    bucket.use(1, now)
    return bucket.wait(now)
