"""Pauses that a machine's monotonic clock has not seen.

The monotonic clock stands still while the machine is suspended.  The wall clock shows the pause, if it runs on or is
set when the machine resumes.  A wall clock that was set for another reason looks the same, so callers must use a pause
only as a reason for more caution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.env.ports import Clock


class Standstill:
    """Finds pauses by comparing the two clocks.

    `ended_at`: the monotonic time at which the last pause was found; negative infinity: none was found.
    `seconds`: a pause is found when the wall clock has gained as much on the monotonic clock."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.ended_at = float("-inf")
        self._clock = clock
        self._seconds = seconds
        # The least seconds by which the wall clock was ahead of the monotonic clock since the last pause.
        self._ahead = clock.wall_ms() / 1000 - clock.monotonic()

    def __repr__(self) -> str:
        return f"<Standstill {self.ended_at}>"

    def now(self) -> float:
        """Return the monotonic time; first set `ended_at` to it if there was a pause since the last call."""
        now = self._clock.monotonic()
        ahead = self._clock.wall_ms() / 1000 - now
        if ahead - self._ahead >= self._seconds:
            self.ended_at = now
            self._ahead = ahead
        self._ahead = min(self._ahead, ahead)
        return now


__all__ = ["Standstill"]
