"""Finds since when mirrors are behind, mostly from memory, and seldom from the recorded cuts of the stream."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.cuts import follows
from sarit.controller.model.epochs import known_segments
from sarit.mirror.limits import BEHIND_INTERVAL_MS, MAX_STREAMS_BEHIND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.core.names import StreamName
    from sarit.env.ports import Clock
    from sarit.mirror.offers import Moment
    from sarit.mirror.values import Position


@dataclass(slots=True)
class _Behind:
    """Since when a mirror is behind: the position of which this was found, the time, and when the timeline was read."""

    position: tuple[int, Cut]
    since_ms: int
    read_ms: int


class Lags:
    """The streams of which a mirror is behind."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._behind: OrderedDict[StreamName, _Behind] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Lags of {len(self._behind)} streams>"

    async def oldest_ms(self, position: Position, moment: Moment, behind: Iterable[int]) -> int:
        """Return a time at or before which the first byte behind a position was appended; 0: nothing is behind."""
        name, key = position.name, (position.epoch, position.lengths)
        known = self._behind.pop(name, None)
        times = [moment.infos[segment].modified_ms for segment in behind]
        if not times:
            return 0
        now, since = self._clock.wall_ms(), min(times)
        if known is None or now - known.read_ms > BEHIND_INTERVAL_MS < now - known.since_ms:
            since = min(since, await self.recorded_behind(position, moment) or since)
            known = _Behind(key, since, now)
        elif known.position == key:
            known.since_ms = min(known.since_ms, since)
        else:
            # The mirror has come closer: how old the rest is was last read when it was further away.
            lagging = now - known.since_ms > BEHIND_INTERVAL_MS
            known = _Behind(key, known.since_ms if lagging else since, known.read_ms)
        self._behind[name] = known
        if len(self._behind) > MAX_STREAMS_BEHIND:
            self._behind.popitem(last=False)
        return known.since_ms

    async def recorded_behind(self, position: Position, moment: Moment) -> int | None:
        """Return the time of the first recorded cut that is behind a position; None: there is none."""
        rows = await self._catalog.stream_records(position.name, keys.TIMELINE)
        known = known_segments(moment.epochs)
        low, high = 0, len(rows)  # the cuts of a stream follow each other, so that they can be searched
        while low < high:
            middle = (low + high) // 2
            cut = codec.decode_cut(rows[middle][1].value).cut
            if any(segment not in known for segment in cut) or follows(known, cut, position.lengths):
                low = middle + 1
            else:
                high = middle
        return codec.decode_cut(rows[low][1].value).time_ms if low < len(rows) else None
