"""The clock of a controller: the wall clock at its start, plus the monotonic time since.

If the wall clock is set while a controller runs, no lease expires and no data gets old by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.env.ports import Clock


class SteadyClock:
    """A clock in ms since 1970 that never jumps ahead."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.wall_ms() - int(clock.monotonic() * 1000)

    def __repr__(self) -> str:
        return f"<SteadyClock at {self.now_ms()} ms>"

    def now_ms(self) -> int:
        """Return the time in ms since 1970."""
        return self._offset_ms + int(self._clock.monotonic() * 1000)

    def follow_back(self, least_ms: int) -> None:
        """Follow a wall clock that was set back by more than `least_ms`, which only makes data be kept longer."""
        offset = self._clock.wall_ms() - int(self._clock.monotonic() * 1000)
        if offset < self._offset_ms - least_ms:
            self._offset_ms = offset
