"""The controller API over grpclib: each rpc reads its message, calls a workflow, answers a status.

Paging: clients ask until a page is empty and never look at the token to stop, so the token of a
page is its last name, and an empty page returns the token it was asked with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict, ParseDict

from sarit.controller import model
from sarit.controller.records import TableRecord
from sarit.controller.status import answering
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed
from sarit.core.names import SegmentId, StreamName
from sarit.rpc.convert import config_message, segment_id, segment_range, stream_config, stream_info, stream_name
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.generated.controller_grpc import ControllerServiceBase

if TYPE_CHECKING:
    from sarit.controller.server import Controller


_NO_TRANSACTIONS = "this version of Sarit has no transactions"


def _token(names: list[str], asked: str) -> pb.ContinuationToken:
    return pb.ContinuationToken(token=names[-1] if names else asked or "-")


class ControllerService(ControllerServiceBase):
    """All rpcs of the controller; what is not built yet answers UNIMPLEMENTED."""

    def __init__(self, controller: Controller) -> None:
        self._c = controller

    # -- scopes ---------------------------------------------------------------------------------

    @answering
    async def getControllerServerList(self, request: Any) -> Any:
        host, port = self._c.advertised
        return pb.ServerResponse(nodeURI=[pb.NodeUri(endpoint=host, port=port)])

    @answering
    async def createScope(self, request: Any) -> Any:
        status = pb.CreateScopeStatus
        try:
            await self._c.scopes.create(request.scope)
        except Invalid:
            return status(status=status.INVALID_SCOPE_NAME)
        except Exists:
            return status(status=status.SCOPE_EXISTS)
        return status(status=status.SUCCESS)

    @answering
    async def deleteScope(self, request: Any) -> Any:
        status = pb.DeleteScopeStatus
        try:
            await self._c.scopes.delete(request.scope)
        except NotFound:
            return status(status=status.SCOPE_NOT_FOUND)
        except Exists:
            return status(status=status.SCOPE_NOT_EMPTY)
        return status(status=status.SUCCESS)

    @answering
    async def deleteScopeRecursive(self, request: Any) -> Any:
        status = pb.DeleteScopeStatus
        try:
            await self._c.scopes.delete_recursive(request.scope)
        except NotFound:
            return status(status=status.SCOPE_NOT_FOUND)
        return status(status=status.SUCCESS)

    @answering
    async def checkScopeExists(self, request: Any) -> Any:
        return pb.ExistsResponse(exists=await self._c.catalog.scope_exists(request.scope))

    @answering
    async def listScopes(self, request: Any) -> Any:
        asked = request.continuationToken.token
        names = await self._c.catalog.list_scopes(asked)
        return pb.ScopesResponse(scopes=names, continuationToken=_token(names, asked))

    # -- streams --------------------------------------------------------------------------------

    @answering
    async def listStreamsInScope(self, request: Any) -> Any:
        return await self._list_streams(request, b"s/")

    @answering
    async def listStreamsInScopeForTag(self, request: Any) -> Any:
        return await self._list_streams(request, f"t/{request.tag}/".encode())

    async def _list_streams(self, request: Any, prefix: bytes) -> Any:
        reply, scope, asked = pb.StreamsInScopeResponse, request.scope.scope, request.continuationToken.token
        try:
            names = await self._c.catalog.list_names(scope, prefix, asked)
        except NotFound:
            return reply(status=reply.SCOPE_NOT_FOUND, continuationToken=_token([], asked))
        streams = [pb.StreamInfo(scope=scope, stream=name) for name in names]
        return reply(streams=streams, continuationToken=_token(names, asked), status=reply.SUCCESS)

    @answering
    async def createStream(self, request: Any) -> Any:
        status = pb.CreateStreamStatus
        try:
            await self._c.streams.create(stream_name(request.streamInfo), stream_config(request))
        except Invalid:
            return status(status=status.INVALID_STREAM_NAME)
        except NotFound:
            return status(status=status.SCOPE_NOT_FOUND)
        except Exists:
            return status(status=status.STREAM_EXISTS)
        return status(status=status.SUCCESS)

    @answering
    async def updateStream(self, request: Any) -> Any:
        name = stream_name(request.streamInfo)
        return await self._update(name, self._c.streams.update(name, stream_config(request)))

    @answering
    async def truncateStream(self, request: Any) -> Any:
        name = stream_name(request.streamInfo)
        return await self._update(name, self._c.streams.truncate(name, dict(request.cut)))

    @answering
    async def sealStream(self, request: Any) -> Any:
        name = stream_name(request)
        return await self._update(name, self._c.streams.seal(name))

    async def _update(self, name: StreamName, work: Any) -> Any:
        status = pb.UpdateStreamStatus
        try:
            await work
        except NotFound:
            exists = await self._c.catalog.scope_exists(name.scope)
            return status(status=status.STREAM_NOT_FOUND if exists else status.SCOPE_NOT_FOUND)
        except Sealed:
            return status(status=status.STREAM_SEALED)
        except Invalid:
            return status(status=status.FAILURE)
        return status(status=status.SUCCESS)

    @answering
    async def deleteStream(self, request: Any) -> Any:
        status = pb.DeleteStreamStatus
        try:
            await self._c.streams.delete(stream_name(request))
        except NotFound:
            return status(status=status.STREAM_NOT_FOUND)
        except Conflict:
            return status(status=status.STREAM_NOT_SEALED)
        return status(status=status.SUCCESS)

    @answering
    async def getStreamConfiguration(self, request: Any) -> Any:
        name = stream_name(request)
        return config_message(name, (await self._c.catalog.require(name)).record.config)

    @answering
    async def checkStreamExists(self, request: Any) -> Any:
        return pb.ExistsResponse(exists=await self._c.catalog.find(stream_name(request)) is not None)

    # -- segments -------------------------------------------------------------------------------

    @answering
    async def getCurrentSegments(self, request: Any) -> Any:
        name = stream_name(request)
        active = (await self._c.catalog.require(name)).record.active
        return pb.SegmentRanges(segmentRanges=[segment_range(name, s.segment, s.low, s.high) for s in active])

    @answering
    async def getEpochSegments(self, request: Any) -> Any:
        name = stream_name(request.streamInfo)
        await self._c.catalog.require(name)
        history = await self._c.catalog.history(name, max(0, request.epoch))
        if not history or history[0].epoch != request.epoch:
            raise NotFound(f"stream {name} has no epoch {request.epoch}")
        ranges = [segment_range(name, s.segment, s.low, s.high) for s in history[0].segments]
        return pb.SegmentRanges(segmentRanges=ranges)

    @answering
    async def getSegments(self, request: Any) -> Any:
        name = stream_name(request.streamInfo)
        head = await self._c.streams.head(name)
        location = pb.SegmentsAtTime.SegmentLocation
        return pb.SegmentsAtTime(
            segments=[location(segmentId=segment_id(name, s), offset=offset) for s, offset in sorted(head.items())]
        )

    @answering
    async def getSegmentsImmediatlyFollowing(self, request: Any) -> Any:
        return await self._followers(request)

    @answering
    async def getSegmentsImmediatelyFollowing(self, request: Any) -> Any:
        return await self._followers(request)

    async def _followers(self, request: Any) -> Any:
        name = stream_name(request.streamInfo)
        entry = pb.SuccessorResponse.SegmentEntry
        followers = await self._c.streams.followers(name, request.segmentId)
        return pb.SuccessorResponse(
            segments=[
                entry(segment=segment_range(name, s.segment, s.low, s.high), value=predecessors)
                for s, predecessors in followers
            ]
        )

    @answering
    async def getSegmentsBetween(self, request: Any) -> Any:
        name = stream_name(request.streamInfo)
        start, end = dict(getattr(request, "from")), dict(request.to)
        if not start and not end:
            raise Invalid("give a stream cut to begin with, one to end with, or both")
        segments = await self._c.streams.between(name, start, end)
        return pb.StreamCutRangeResponse(segments=[segment_id(name, segment) for segment in segments])

    @answering
    async def scale(self, request: Any) -> Any:
        name, reply = stream_name(request.streamInfo), pb.ScaleResponse
        ranges = [(entry.start, entry.end) for entry in request.newKeyRanges]
        try:
            before, epoch = await self._c.streams.scale(name, list(request.sealedSegments), ranges)
        except (Invalid, Sealed):
            return reply(status=reply.PRECONDITION_FAILED)
        except NotFound:
            return reply(status=reply.FAILURE)
        segments = [segment_range(name, s.segment, s.low, s.high) for s in epoch.segments]
        return reply(status=reply.STARTED, segments=segments, epoch=before)

    @answering
    async def checkScale(self, request: Any) -> Any:
        name, reply = stream_name(request.streamInfo), pb.ScaleStatusResponse
        await self._c.streams.finish(name)
        current = (await self._c.catalog.require(name)).record.current.epoch
        if request.epoch > current:
            return reply(status=reply.INVALID_INPUT)
        return reply(status=reply.SUCCESS if request.epoch < current else reply.IN_PROGRESS)

    @answering
    async def getURI(self, request: Any) -> Any:
        name = stream_name(request.streamInfo)
        segment = request.segmentId if request.segmentId >= 0 else 0
        host, port = self._c.segments.endpoint(name.segment(SegmentId.unpack(segment)))
        return pb.NodeUri(endpoint=host, port=port)

    @answering
    async def isSegmentValid(self, request: Any) -> Any:
        found = await self._c.catalog.find(stream_name(request.streamInfo))
        valid = found is not None and any(s.segment == request.segmentId for s in found.record.active)
        return pb.SegmentValidityResponse(response=valid)

    @answering
    async def isStreamCutValid(self, request: Any) -> Any:
        name = stream_name(request.streamInfo)
        await self._c.catalog.require(name)
        return pb.StreamCutValidityResponse(response=model.is_cut(await self._c.catalog.history(name), request.cut))

    @answering
    async def getDelegationToken(self, request: Any) -> Any:
        return pb.DelegationToken(delegationToken="")

    # -- transactions, time -----------------------------------------------------------------------

    @answering
    async def createTransaction(self, request: Any) -> Any:
        raise NotImplementedError(_NO_TRANSACTIONS)

    @answering
    async def pingTransaction(self, request: Any) -> Any:
        raise NotImplementedError(_NO_TRANSACTIONS)

    @answering
    async def commitTransaction(self, request: Any) -> Any:
        raise NotImplementedError(_NO_TRANSACTIONS)

    @answering
    async def abortTransaction(self, request: Any) -> Any:
        raise NotImplementedError(_NO_TRANSACTIONS)

    @answering
    async def checkTransactionState(self, request: Any) -> Any:
        raise NotImplementedError(_NO_TRANSACTIONS)

    @answering
    async def listCompletedTransactions(self, request: Any) -> Any:
        raise NotImplementedError(_NO_TRANSACTIONS)

    @answering
    async def noteTimestampFromWriter(self, request: Any) -> Any:
        reply = pb.TimestampResponse
        name = stream_name(request.position.streamInfo)
        status = await self._c.note_time(name, request.writer, request.timestamp, dict(request.position.cut))
        return reply(result=status)  # type: ignore[arg-type]

    @answering
    async def removeWriter(self, request: Any) -> Any:
        reply, name = pb.RemoveWriterResponse, stream_name(request.stream)
        try:
            known = await self._c.remove_writer(name, request.writer)
        except NotFound:
            return reply(result=reply.STREAM_DOES_NOT_EXIST)
        return reply(result=reply.SUCCESS if known else reply.UNKNOWN_WRITER)

    # -- key-value tables -------------------------------------------------------------------------

    @answering
    async def createKeyValueTable(self, request: Any) -> Any:
        status = pb.CreateKeyValueTableStatus
        record = TableRecord(
            request.partitionCount, request.primaryKeyLength, request.secondaryKeyLength, request.rolloverSizeBytes
        )
        try:
            await self._c.tables.create(request.scope, request.kvtName, record)
        except Invalid:
            return status(status=status.INVALID_TABLE_NAME)
        except NotFound:
            return status(status=status.SCOPE_NOT_FOUND)
        except Exists:
            return status(status=status.TABLE_EXISTS)
        return status(status=status.SUCCESS)

    @answering
    async def getCurrentSegmentsKeyValueTable(self, request: Any) -> Any:
        name = StreamName(request.scope, request.kvtName)
        partitions = await self._c.tables.partitions(request.scope, request.kvtName)
        return pb.SegmentRanges(segmentRanges=[segment_range(name, s, low, high) for s, low, high in partitions])

    @answering
    async def listKeyValueTablesInScope(self, request: Any) -> Any:
        reply, scope, asked = pb.KVTablesInScopeResponse, request.scope.scope, request.continuationToken.token
        try:
            names = await self._c.catalog.list_names(scope, b"k/", asked)
        except NotFound:
            return reply(status=reply.SCOPE_NOT_FOUND, continuationToken=_token([], asked))
        tables = [pb.KeyValueTableInfo(scope=scope, kvtName=name) for name in names]
        return reply(kvtables=tables, continuationToken=_token(names, asked), status=reply.SUCCESS)

    @answering
    async def getKeyValueTableConfiguration(self, request: Any) -> Any:
        reply = pb.KeyValueTableConfigResponse
        try:
            record = await self._c.tables.find(request.scope, request.kvtName)
        except NotFound:
            return reply(status=reply.TABLE_NOT_FOUND)
        config = pb.KeyValueTableConfig(
            scope=request.scope, kvtName=request.kvtName, partitionCount=record.partitions,
            primaryKeyLength=record.primary_key_length, secondaryKeyLength=record.secondary_key_length,
            rolloverSizeBytes=record.rollover_bytes,
        )  # fmt: skip
        return reply(config=config, status=reply.SUCCESS)

    @answering
    async def deleteKeyValueTable(self, request: Any) -> Any:
        status = pb.DeleteKVTableStatus
        try:
            await self._c.tables.delete(request.scope, request.kvtName)
        except NotFound:
            return status(status=status.TABLE_NOT_FOUND)
        return status(status=status.SUCCESS)

    # -- reader groups ----------------------------------------------------------------------------

    @answering
    async def createReaderGroup(self, request: Any) -> Any:
        reply = pb.CreateReaderGroupResponse
        try:
            config = await self._c.groups.create(request.scope, request.readerGroupName, MessageToDict(request))
        except Invalid:
            return reply(status=reply.INVALID_RG_NAME)
        except NotFound:
            return reply(status=reply.SCOPE_NOT_FOUND)
        return reply(status=reply.SUCCESS, config=ParseDict(config, pb.ReaderGroupConfiguration()))

    @answering
    async def getReaderGroupConfig(self, request: Any) -> Any:
        reply = pb.ReaderGroupConfigResponse
        try:
            config = await self._c.groups.find(request.scope, request.readerGroup)
        except NotFound:
            return reply(status=reply.RG_NOT_FOUND)
        return reply(status=reply.SUCCESS, config=ParseDict(config, pb.ReaderGroupConfiguration()))

    @answering
    async def updateReaderGroup(self, request: Any) -> Any:
        reply = pb.UpdateReaderGroupResponse
        try:
            generation = await self._c.groups.update(request.scope, request.readerGroupName, MessageToDict(request))
        except NotFound:
            return reply(status=reply.RG_NOT_FOUND)
        except Conflict:
            return reply(status=reply.INVALID_CONFIG)
        return reply(status=reply.SUCCESS, generation=generation)

    @answering
    async def deleteReaderGroup(self, request: Any) -> Any:
        status = pb.DeleteReaderGroupStatus
        try:
            await self._c.groups.delete(request.scope, request.readerGroup, request.readerGroupId or None)
        except NotFound:
            return status(status=status.RG_NOT_FOUND)
        return status(status=status.SUCCESS)

    @answering
    async def listSubscribers(self, request: Any) -> Any:
        reply = pb.SubscribersResponse
        found = await self._c.catalog.find(stream_name(request))
        if found is None:
            return reply(status=reply.STREAM_NOT_FOUND)
        return reply(subscribers=sorted(found.record.subscribers), status=reply.SUCCESS)

    @answering
    async def updateSubscriberStreamCut(self, request: Any) -> Any:
        status, cut = pb.UpdateSubscriberStatus, request.streamCut
        try:
            await self._c.groups.note_cut(
                stream_name(cut.streamInfo),
                request.subscriber,
                request.generation,
                request.readerGroupId,
                dict(cut.cut),
            )
        except NotFound:
            return status(status=status.STREAM_NOT_FOUND)
        except LookupError:
            return status(status=status.SUBSCRIBER_NOT_FOUND)
        except Invalid:
            return status(status=status.STREAM_CUT_NOT_VALID)
        except Conflict:
            return status(status=status.GENERATION_MISMATCH)
        return status(status=status.SUCCESS)


__all__ = ["ControllerService", "stream_info"]
