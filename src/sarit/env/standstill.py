"""Pauses that a machine's monotonic clock has not seen.

It stands still while the machine is suspended, and goes on as if nothing had been.  The wall clock shows the pause, if
it runs on or is set when the machine goes on.  A wall clock that was set for another reason looks the same: whoever
asks must only be more careful then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.env.ports import Clock


class Standstill:
    """`ended_at`: when the last pause was found, on the monotonic clock; negative infinity: none was.

    `seconds`: by which the wall clock must have gone on more than the monotonic one."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.ended_at = float("-inf")
        self._clock = clock
        self._seconds = seconds
        # How far the wall clock is ahead, at least.
        self._ahead = clock.wall_ms() / 1000 - clock.monotonic()

    def __repr__(self) -> str:
        return f"<Standstill {self.ended_at}>"

    def now(self) -> float:
        """Return the monotonic time, with which pauses before it are found."""
        now = self._clock.monotonic()
        ahead = self._clock.wall_ms() / 1000 - now
        if ahead - self._ahead >= self._seconds:
            self.ended_at = now
            self._ahead = ahead
        self._ahead = min(self._ahead, ahead)
        return now


__all__ = ["Standstill"]
