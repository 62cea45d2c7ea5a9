"""What a stream was and is like: its epochs from the first on, and what its segments take now.  For people and maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sarit.controller.model import streams
from sarit.core.names import SegmentId

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.epochs import Epoch, SegmentRange
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.core.metering import Rates
    from sarit.core.names import StreamName


class SegmentLoad(NamedTuple):
    """An active segment and what it takes."""

    segment: SegmentRange
    rates: Rates


class History:
    """Questions about a stream's epochs and rates."""

    def __init__(self, catalog: Catalog, streams: Streams, segments: Segments) -> None:
        self._catalog = catalog
        self._streams = streams
        self._segments = segments

    async def epochs(self, name: StreamName, first: int = 0, count: int = 1000) -> tuple[Epoch, ...]:
        """Up to `count` epochs from `first` on, each with when it began.  Raises NotFound."""
        record = await self._streams.ready(name)
        return (await self._catalog.epochs(name, record, max(0, first)))[:count]

    async def head(self, name: StreamName) -> dict[int, int]:
        """The cut at which a stream begins.  Raises NotFound."""
        return streams.head(await self._streams.ready(name))

    async def rates(self, name: StreamName) -> tuple[SegmentLoad, ...]:
        """What each active segment takes; none once sealing began.  Raises NotFound."""
        active = await self._streams.active(name)
        rates = await self._segments.rates([name.segment(SegmentId.unpack(s.segment)) for s in active])
        return tuple(map(SegmentLoad, active, rates))
