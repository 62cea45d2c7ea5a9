"""Bounds how much of a node's time the client of an HTTP/2 connection may use by frames.

Two things are counted.

*Control frames.*  PING, SETTINGS, RST_STREAM, WINDOW_UPDATE, PRIORITY, CONTINUATION, frames of unknown types and DATA
of a few bytes cost the node as much as the frames of a call, and cost the client nothing.  A client needs a few of them
for each call, and a few in each second.  A client that sends more is disconnected (ENHANCE_YOUR_CALM).

*Work before the first log-in.*  Anybody who reaches the port may begin calls, which are refused one by one.  Until a
client is known, its frames and calls are read at a bounded rate, for each connection and for each host; the rest waits
in the socket.  The work of a known client is not counted: its calls are bounded by their number.

A disconnected client gains nothing by connecting again: the budget of control frames for a client that has become known
grows only by its rate, and the host is charged for each disconnection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.bucket import Bucket
from sarit.rpc.limits import (
    CALL_WORK,
    CONNECTION_WORK,
    CONTROL_BURST,
    CONTROL_PER_CALL,
    CONTROL_PER_SECOND,
    FLOOD_WORK,
    HEADER_BYTES_PER_WORK,
    REFUSED_CALL_CONTROL,
    UNKNOWN_CONTROL_BURST,
    UNKNOWN_CONTROL_PER_SECOND,
    UNKNOWN_WORK_BURST,
    UNKNOWN_WORK_PER_SECOND,
)

if TYPE_CHECKING:
    from sarit.rpc.frames import Frames


class FrameBudget:
    """The budget of one connection.  `host`: the budget that all unknown clients of its host share."""

    __slots__ = ("_control", "_host", "_spent", "_work")

    def __init__(self, host: Bucket, now: float) -> None:
        self._control = Bucket(UNKNOWN_CONTROL_BURST, UNKNOWN_CONTROL_PER_SECOND, now)
        self._work: Bucket | None = Bucket(UNKNOWN_WORK_BURST, UNKNOWN_WORK_PER_SECOND, now)
        self._host = host
        self._spent = float(CONNECTION_WORK)
        host.use(self._spent, now)

    def __repr__(self) -> str:
        return f"<FrameBudget, control {self._control!r}, work {self._work!r}>"

    def become_known(self, now: float) -> None:
        """Raise the budget of a client that has logged in, or made a call where everybody may."""
        self._control.use(0, now)
        self._control.burst, self._control.rate = CONTROL_BURST, CONTROL_PER_SECOND
        self._work = None
        # Give back what was charged to the host: many of its clients may begin at once, as tasks of a cluster do.
        self._host.use(-self._spent, now)

    def charge(self, frames: Frames, begun: int, now: float) -> bool:
        """Count frames.  Returns False if the client must be disconnected.  `begun`: how many of their calls were
        accepted."""
        if self._work is not None:
            work = frames.frames + frames.calls * CALL_WORK + frames.header_bytes / HEADER_BYTES_PER_WORK
            self._spent += work
            self._work.use(work, now)
            self._host.use(work, now)
        refused = frames.calls - begun
        control = frames.control + refused * REFUSED_CALL_CONTROL - begun * CONTROL_PER_CALL
        if self._control.use(control, now):
            return True
        self._host.use(FLOOD_WORK, now)
        return False

    def wait(self, now: float) -> float:
        """Return the seconds until more may be read from the client."""
        return max(self._work.wait(now), self._host.wait(now)) if self._work is not None else 0.0
