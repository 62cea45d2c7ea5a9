"""The calls on streams, their configurations and their segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model.streams import head
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed
from sarit.core.keyspace import snapped
from sarit.core.names import SegmentId, is_internal_name, segment_name
from sarit.rpc.convert import config_message, page_token, segment_id, segment_range, stream_config, stream_name
from sarit.rpc.generated import controller_pb2 as pb
from sarit.security.quotas import QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.epochs import SegmentRange
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.core.names import StreamName

_Create = pb.CreateStreamStatus
_Update = pb.UpdateStreamStatus
_Delete = pb.DeleteStreamStatus
_Page = pb.StreamsInScopeResponse
_Scale = pb.ScaleResponse
_Check = pb.ScaleStatusResponse


class StreamCalls:
    """Rpcs on streams."""

    def __init__(self, catalog: Catalog, streams: Streams) -> None:
        self._catalog = catalog
        self._streams = streams

    async def createStream(self, request: pb.StreamConfig) -> pb.CreateStreamStatus:
        name = stream_name(request.streamInfo)
        # Check the name before `create`, whose Invalid may be about the configuration: only a wrong name has a status.
        if not is_internal_name(name.stream):
            return _Create(status=_Create.INVALID_STREAM_NAME)
        try:
            await self._streams.create(name, stream_config(request))
        except NotFound:
            return _Create(status=_Create.SCOPE_NOT_FOUND)
        except Exists:
            return _Create(status=_Create.STREAM_EXISTS)
        return _Create(status=_Create.SUCCESS)

    async def updateStream(self, request: pb.StreamConfig) -> pb.UpdateStreamStatus:
        name = stream_name(request.streamInfo)
        return await self._update(name, self._streams.update(name, stream_config(request)))

    async def truncateStream(self, request: pb.StreamCut) -> pb.UpdateStreamStatus:
        name = stream_name(request.streamInfo)
        try:
            return await self._update(name, self._streams.truncate(name, dict(request.cut)))
        except Invalid:
            return _Update(status=_Update.FAILURE)

    async def sealStream(self, request: pb.StreamInfo) -> pb.UpdateStreamStatus:
        name = stream_name(request)
        return await self._update(name, self._streams.seal(name))

    async def _update(self, name: StreamName, work: Awaitable[None]) -> pb.UpdateStreamStatus:
        try:
            await work
        except NotFound:
            # NotFound may be the stream's or the scope's, and the protocol has a status for each.
            exists = await self._catalog.scope_exists(name.scope)
            return _Update(status=_Update.STREAM_NOT_FOUND if exists else _Update.SCOPE_NOT_FOUND)
        except Sealed:
            return _Update(status=_Update.STREAM_SEALED)
        return _Update(status=_Update.SUCCESS)

    async def deleteStream(self, request: pb.StreamInfo) -> pb.DeleteStreamStatus:
        try:
            await self._streams.delete(stream_name(request))
        except NotFound:
            return _Delete(status=_Delete.STREAM_NOT_FOUND)
        except Conflict:
            return _Delete(status=_Delete.STREAM_NOT_SEALED)
        return _Delete(status=_Delete.SUCCESS)

    async def checkStreamExists(self, request: pb.StreamInfo) -> pb.ExistsResponse:
        try:
            await self._catalog.require(stream_name(request))
        except NotFound:
            return pb.ExistsResponse(exists=False)
        return pb.ExistsResponse(exists=True)

    async def getStreamConfiguration(self, request: pb.StreamInfo) -> pb.StreamConfig:
        name = stream_name(request)
        return config_message(name, (await self._catalog.require(name)).record.config)

    async def listStreamsInScope(self, request: pb.StreamsInScopeRequest) -> pb.StreamsInScopeResponse:
        return await self._list(request.scope.scope, keys.STREAMS, request.continuationToken.token)

    async def listStreamsInScopeForTag(self, request: pb.StreamsInScopeWithTagRequest) -> pb.StreamsInScopeResponse:
        return await self._list(request.scope.scope, keys.tag_prefix(request.tag), request.continuationToken.token)

    async def _list(self, scope: str, prefix: bytes, asked: str) -> pb.StreamsInScopeResponse:
        try:
            names = await self._catalog.page(scope, prefix, asked)
        except NotFound:
            return _Page(status=_Page.SCOPE_NOT_FOUND, continuationToken=page_token([], asked))
        streams = [pb.StreamInfo(scope=scope, stream=name) for name in names]
        return _Page(streams=streams, continuationToken=page_token(names, asked), status=_Page.SUCCESS)

    # -- scaling ----------------------------------------------------------------------------------

    async def scale(self, request: pb.ScaleRequest) -> pb.ScaleResponse:
        name = stream_name(request.streamInfo)
        try:
            ranges = snapped(((entry.start, entry.end) for entry in request.newKeyRanges), ())
            before, new = await self._streams.scale(name, list(request.sealedSegments), ranges)
        # Raised when a segment to replace is not active any more.
        except Conflict:
            return _Scale(status=_Scale.PRECONDITION_FAILED)
        except QuotaExceeded:  # the status would not say why
            raise
        except (Invalid, Sealed, NotFound):
            return _Scale(status=_Scale.FAILURE)
        segments = [segment_range(name, s.segment, s.low, s.high) for s in new]
        return _Scale(status=_Scale.STARTED, segments=segments, epoch=before)

    async def checkScale(self, request: pb.ScaleStatusRequest) -> pb.ScaleStatusResponse:
        try:
            found = await self._catalog.require(stream_name(request.streamInfo))
        except NotFound:
            return _Check(status=_Check.INVALID_INPUT)
        current = found.record.current.number
        if request.epoch > current or request.epoch < 0:
            return _Check(status=_Check.INVALID_INPUT)
        # A scaling is complete when the replaced segments are sealed, which is pending work after the new epoch.
        before = found.record.epochs[-2].number if len(found.record.epochs) > 1 else current - 1
        busy = request.epoch == current or (request.epoch >= before and found.record.pending)
        return _Check(status=_Check.IN_PROGRESS if busy else _Check.SUCCESS)


class SegmentCalls:
    """Rpcs on segments: active segments, successors, cuts, and the address of a segment's store."""

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
        """Return the head of the stream whatever the requested time is, as Pravega does."""
        name = stream_name(request.streamInfo)
        cut = head(await self._streams.ready(name))
        location = pb.SegmentsAtTime.SegmentLocation
        places = [location(segmentId=segment_id(name, s), offset=offset) for s, offset in sorted(cut.items())]
        return pb.SegmentsAtTime(segments=places)

    async def getSegmentsImmediatelyFollowing(self, request: pb.SegmentId) -> pb.SuccessorResponse:
        name = stream_name(request.streamInfo)
        followers = await self._streams.successors_of(name, request.segmentId)
        entry = pb.SuccessorResponse.SegmentEntry
        entries = [
            entry(segment=segment_range(name, s.segment, s.low, s.high), value=before) for s, before in followers
        ]
        return pb.SuccessorResponse(segments=entries)

    async def getSegmentsImmediatlyFollowing(self, request: pb.SegmentId) -> pb.SuccessorResponse:
        """Answer the call under its misspelled name, which old clients use."""
        return await self.getSegmentsImmediatelyFollowing(request)

    async def getSegmentsBetween(self, request: pb.StreamCutRange) -> pb.StreamCutRangeResponse:
        name = stream_name(request.streamInfo)
        start, end = dict(getattr(request, "from")), dict(request.to)
        if not start and not end:
            raise Invalid("give a stream cut to begin with, one to end with, or both")
        segments = await self._streams.segments_between(name, start, end)
        return pb.StreamCutRangeResponse(segments=[segment_id(name, segment) for segment in segments])

    async def getURI(self, request: pb.SegmentId) -> pb.NodeUri:
        """Return the address of a segment's store, without checking that the segment exists: clients construct the
        names of segments of transactions and tables themselves."""
        info = request.streamInfo
        segment = segment_name(info.scope, info.stream, SegmentId.unpack(request.segmentId))
        # This must not read any table: clients call it for each segment that they open.
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
        """Return an empty token for any name: where access is checked, `Access` puts the real token in its place."""
        return pb.DelegationToken(delegationToken="")


def _ranges(name: StreamName, segments: Iterable[SegmentRange]) -> pb.SegmentRanges:
    return pb.SegmentRanges(segmentRanges=[segment_range(name, s.segment, s.low, s.high) for s in segments])
