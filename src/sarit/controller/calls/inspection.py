"""The calls of Sarit's own service that show streams: pages of configurations, and scaling events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.limits import MAX_SCALING_EVENT_SEGMENTS, STREAM_CONFIGS_PER_PAGE
from sarit.controller.model import codec
from sarit.controller.model.scaling_events import scaling_events
from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.rpc.convert import config_message
from sarit.rpc.generated import sarit_pb2 as pb

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog


class InspectionCalls:
    """Rpcs that read records of streams and change nothing."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def streamConfigs(self, request: pb.StreamConfigsRequest) -> pb.StreamConfigsResponse:
        after = request.after
        while rows := await self._rows(request.scope, request.tag, after):
            after = rows[-1][0]
            streams = [
                config_message(StreamName(request.scope, name), codec.decode_stream_config(value))
                for name, value in rows
                if value is not None and not codec.is_deleting(value)
            ]
            if streams:
                return pb.StreamConfigsResponse(streams=streams)
        return pb.StreamConfigsResponse()

    async def _rows(self, scope: str, tag: str, after: str) -> list[tuple[str, bytes | None]]:
        """Return a page of streams after a name, each with its encoded record; None: it was deleted meanwhile."""
        prefix = keys.tag_prefix(tag) if tag else keys.STREAMS
        found = await self._catalog.scan_once(
            scope, prefix, prefix + after.encode() if after else b"", STREAM_CONFIGS_PER_PAGE
        )
        names = [key[len(prefix) :].decode() for key, _ in found]
        if not tag:
            return list(zip(names, (value.value for _, value in found), strict=True))
        if not names:
            return []
        records = await self._catalog.get(scope, [keys.stream_key(name) for name in names])
        return [(name, None if value is None else value.value) for name, value in zip(names, records, strict=True)]

    async def scalingEvents(self, request: pb.ScalingEventsRequest) -> pb.ScalingEventsResponse:
        name = StreamName(request.scope, request.stream)
        if not 0 <= request.fromMs <= request.toMs:
            raise Invalid(f"the time from {request.fromMs} to {request.toMs}: give two times in ms, in their order")
        record = (await self._catalog.require(name)).record
        events = scaling_events(await self._catalog.epochs(name, record, 0), request.fromMs, request.toMs)
        if (count := sum(len(event.segments) for event in events)) > MAX_SCALING_EVENT_SEGMENTS:
            raise Invalid(
                f"stream {name} scaled {len(events)} times in that time, which makes {count} segments to show, and at "
                f"most {MAX_SCALING_EVENT_SEGMENTS} are shown: ask for a shorter time"
            )
        return pb.ScalingEventsResponse(
            events=[
                pb.ScalingEvent(
                    timeMs=event.time_ms,
                    segments=[
                        pb.ScaledSegment(segmentId=s.segment, startMs=start, low=s.low, high=s.high)
                        for s, start in event.segments
                    ],
                    splits=event.splits,
                    merges=event.merges,
                )
                for event in events
            ]
        )
