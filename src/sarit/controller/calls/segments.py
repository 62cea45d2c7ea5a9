"""Questions about segments: which there are, what follows which, and where one is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.model.streams import head
from sarit.core.errors import Invalid, NotFound
from sarit.core.names import SegmentId, segment_name
from sarit.rpc.convert import segment_id, segment_range, stream_name
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.controller.model.epochs import SegmentRange
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.core.names import StreamName


class SegmentCalls:
    """Rpcs on segments."""

    def __init__(self, streams: Streams, segments: Segments) -> None:
        self._streams = streams
        self._segments = segments

    async def getCurrentSegments(self, request: pb.StreamInfo) -> pb.SegmentRanges:
        name = stream_name(request)
        return _ranges(name, await self._streams.active(name))

    async def getEpochSegments(self, request: pb.GetEpochSegmentsRequest) -> pb.SegmentRanges:
        name = stream_name(request.streamInfo)
        return _ranges(name, (await self._streams.epoch(name, request.epoch)).segments)

    async def getSegments(self, request: pb.GetSegmentsRequest) -> pb.SegmentsAtTime:
        """Always the head, whatever the time: so it is in Pravega."""
        name = stream_name(request.streamInfo)
        cut = head(await self._streams.ready(name))
        location = pb.SegmentsAtTime.SegmentLocation
        places = [location(segmentId=segment_id(name, s), offset=offset) for s, offset in sorted(cut.items())]
        return pb.SegmentsAtTime(segments=places)

    async def getSegmentsImmediatelyFollowing(self, request: pb.SegmentId) -> pb.SuccessorResponse:
        name = stream_name(request.streamInfo)
        followers = await self._streams.followers(name, request.segmentId)
        entry = pb.SuccessorResponse.SegmentEntry
        entries = [
            entry(segment=segment_range(name, s.segment, s.low, s.high), value=before) for s, before in followers
        ]
        return pb.SuccessorResponse(segments=entries)

    async def getSegmentsImmediatlyFollowing(self, request: pb.SegmentId) -> pb.SuccessorResponse:
        """The spelling of old clients."""
        return await self.getSegmentsImmediatelyFollowing(request)

    async def getSegmentsBetween(self, request: pb.StreamCutRange) -> pb.StreamCutRangeResponse:
        name = stream_name(request.streamInfo)
        start, end = dict(getattr(request, "from")), dict(request.to)
        if not start and not end:
            raise Invalid("give a stream cut to begin with, one to end with, or both")
        segments = await self._streams.between(name, start, end)
        return pb.StreamCutRangeResponse(segments=[segment_id(name, segment) for segment in segments])

    async def getURI(self, request: pb.SegmentId) -> pb.NodeUri:
        """Never asks whether the segment exists: clients ask for transactions and tables by names they made."""
        info = request.streamInfo
        segment = segment_name(info.scope, info.stream, SegmentId.unpack(request.segmentId))
        host, port = self._segments.endpoint(segment)
        return pb.NodeUri(endpoint=host, port=port)

    async def isSegmentValid(self, request: pb.SegmentId) -> pb.SegmentValidityResponse:
        try:
            active = await self._streams.active(stream_name(request.streamInfo))
        except NotFound:
            return pb.SegmentValidityResponse(response=False)
        return pb.SegmentValidityResponse(response=any(s.segment == request.segmentId for s in active))

    async def isStreamCutValid(self, request: pb.StreamCut) -> pb.StreamCutValidityResponse:
        valid = await self._streams.is_cut(stream_name(request.streamInfo), dict(request.cut))
        return pb.StreamCutValidityResponse(response=valid)

    async def getDelegationToken(self, request: pb.StreamInfo) -> pb.DelegationToken:
        """Access is not restricted: the token is empty, for names unknown too."""
        return pb.DelegationToken(delegationToken="")


def _ranges(name: StreamName, segments: Iterable[SegmentRange]) -> pb.SegmentRanges:
    return pb.SegmentRanges(segmentRanges=[segment_range(name, s.segment, s.low, s.high) for s in segments])
