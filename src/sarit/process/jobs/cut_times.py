"""The time of a position in a stream, as far as the controller's recorded cuts tell.

The controller answers which cut was recorded last at a time.  The newest recorded cut that is nowhere after a position
is found by asking for times further and further back, and then between them.  What was found for one position is where
the search for the next one, which is later, begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.process.limits import CLOSE_RECORDS_MS, FIRST_RECORD_STEP_MS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.client.streams.recorded_cuts import RecordedCut
    from sarit.core.cuts import StreamCut
    from sarit.env.ports import Clock


class CutTimes:
    """Times of rising positions of one stream."""

    def __init__(
        self,
        recorded: Callable[[int], Awaitable[RecordedCut | None]],
        is_before: Callable[[StreamCut, StreamCut], Awaitable[bool]],
        clock: Clock,
    ) -> None:
        """`recorded`: the newest record at a time or before; `is_before`: whether a cut is nowhere after another."""
        self._recorded = recorded
        self._is_before = is_before
        self._clock = clock
        self._last = 0  # the time that was found last: a record that is before all later positions

    def __repr__(self) -> str:
        return f"<CutTimes, {self._last} found last>"

    async def of(self, position: StreamCut) -> int:
        """Return the time in ms of the newest recorded cut that is nowhere after a position.

        If there is none, then that of the oldest recorded cut, and of no cut at all the present time: a stream is
        recorded first within a minute of its first events."""
        now = self._clock.wall_ms()
        record = await self._recorded(now)
        if record is None:
            return now
        if await self._is_before(record.cut, position):
            self._last = record.time_ms
            return self._last
        # `later` is after the position; nothing between `found` and `earliest` is recorded.
        later, step = record.time_ms, FIRST_RECORD_STEP_MS
        found = earliest = self._last
        while found < later - step and later - step > self._last:
            record = await self._recorded(later - step)
            if record is None:
                break
            if await self._is_before(record.cut, position):
                found, earliest = record.time_ms, later - step
                break
            later, step = record.time_ms, 2 * step
        while later - earliest > CLOSE_RECORDS_MS:
            middle = (earliest + later) // 2
            record = await self._recorded(middle)
            if record is None or record.time_ms <= found:
                earliest = middle
            elif await self._is_before(record.cut, position):
                found, earliest = record.time_ms, middle
            else:
                later = record.time_ms
        self._last = max(self._last, found)
        return found or later
