"""The calls on reader groups and subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.authorized_caller import current_authorized
from sarit.controller.model import groups
from sarit.controller.model.records import GroupRecord, State
from sarit.core.errors import Conflict, Forbidden, Invalid, NotFound
from sarit.core.names import StreamName
from sarit.rpc.convert import cut_message, stream_name
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.generated import sarit_pb2
from sarit.security.permissions import Permission, group_resource

if TYPE_CHECKING:
    from sarit.controller.groups import Groups

_Create = pb.CreateReaderGroupResponse
_Config = pb.ReaderGroupConfigResponse
_Update = pb.UpdateReaderGroupResponse
_Delete = pb.DeleteReaderGroupStatus
_Subscribers = pb.SubscribersResponse
_Note = pb.UpdateSubscriberStatus


def group_record(message: pb.ReaderGroupConfiguration) -> GroupRecord:
    """Return the record of a reader group as a client configured it.  Raises Invalid: too many streams."""
    groups.check_size(max(len(message.startingStreamCuts), len(message.endingStreamCuts)))
    return GroupRecord(
        State.CREATING,
        message.readerGroupId,
        message.generation,
        message.groupRefreshTimeMillis,
        message.automaticCheckpointIntervalMillis,
        message.maxOutstandingCheckpointRequest,
        message.retentionType,
        message.rolloverSizeBytes,
        tuple((stream_name(cut.streamInfo), tuple(sorted(cut.cut.items()))) for cut in message.startingStreamCuts),
        tuple((stream_name(cut.streamInfo), tuple(sorted(cut.cut.items()))) for cut in message.endingStreamCuts),
    )


def group_message(scope: str, group: str, record: GroupRecord) -> pb.ReaderGroupConfiguration:
    """Return the configuration as its creator gave it: clients compare all of it."""
    return pb.ReaderGroupConfiguration(
        scope=scope,
        readerGroupName=group,
        groupRefreshTimeMillis=record.refresh_ms,
        automaticCheckpointIntervalMillis=record.checkpoint_ms,
        maxOutstandingCheckpointRequest=record.max_outstanding,
        retentionType=record.retention,
        generation=record.generation,
        readerGroupId=record.group_id,
        startingStreamCuts=[cut_message(name, dict(cut)) for name, cut in record.starts],
        endingStreamCuts=[cut_message(name, dict(cut)) for name, cut in record.ends],
        rolloverSizeBytes=record.rollover_bytes,
    )


class GroupCalls:
    """Rpcs on reader groups."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def createReaderGroup(self, request: pb.ReaderGroupConfiguration) -> pb.CreateReaderGroupResponse:
        scope, group, wanted = request.scope, request.readerGroupName, group_record(request)
        try:
            who = current_authorized.get()
            maker = "" if who is None else who.user
            record = await self._groups.create(scope, group, wanted, maker)
        except Invalid:
            return _Create(status=_Create.INVALID_RG_NAME)
        except NotFound:
            return _Create(status=_Create.SCOPE_NOT_FOUND)
        return _Create(status=_Create.SUCCESS, config=group_message(scope, group, record))

    async def getReaderGroupConfig(self, request: pb.ReaderGroupInfo) -> pb.ReaderGroupConfigResponse:
        try:
            record = await self._groups.find(request.scope, request.readerGroup)
        except NotFound:
            return _Config(status=_Config.RG_NOT_FOUND)
        return _Config(status=_Config.SUCCESS, config=group_message(request.scope, request.readerGroup, record))

    async def updateReaderGroup(self, request: pb.ReaderGroupConfiguration) -> pb.UpdateReaderGroupResponse:
        wanted = group_record(request)
        try:
            generation = await self._groups.update(request.scope, request.readerGroupName, wanted)
        except NotFound:
            return _Update(status=_Update.RG_NOT_FOUND, generation=request.generation)
        # The protocol has one status for both errors; Sarit's client reads it as Conflict.
        except (Conflict, Invalid):
            return _Update(status=_Update.INVALID_CONFIG, generation=request.generation)
        return _Update(status=_Update.SUCCESS, generation=generation)

    async def deleteReaderGroup(self, request: pb.ReaderGroupInfo) -> pb.DeleteReaderGroupStatus:
        try:
            await self._check_deletion(request.scope, request.readerGroup)
            await self._groups.delete(request.scope, request.readerGroup, request.readerGroupId)
        except NotFound:
            return _Delete(status=_Delete.RG_NOT_FOUND)
        return _Delete(status=_Delete.SUCCESS)

    async def _check_deletion(self, scope: str, group: str) -> None:
        """Check that the caller may delete a group.  Raises Forbidden (the caller may only read and has not created
        it), NotFound."""
        who = current_authorized.get()
        if who is None or who.permission is Permission.READ_UPDATE:
            return
        maker = await self._groups.maker(scope, group)
        if not maker or maker != who.user:
            resource = group_resource(scope, group)
            raise Forbidden(
                f"{who.user} may not delete {resource}, which somebody else created: an administrator "
                f"gives the permission with `sarit acl grant user:{who.user} {resource} READ_UPDATE`"
            )

    async def listSubscribers(self, request: pb.StreamInfo) -> pb.SubscribersResponse:
        try:
            subscribers = await self._groups.subscribers(stream_name(request))
        except NotFound:
            return _Subscribers(status=_Subscribers.STREAM_NOT_FOUND)
        return _Subscribers(subscribers=subscribers, status=_Subscribers.SUCCESS)

    async def dropSubscriber(self, request: sarit_pb2.DropSubscriberRequest) -> sarit_pb2.DropSubscriberResponse:
        name = StreamName(request.scope, request.stream)
        return sarit_pb2.DropSubscriberResponse(dropped=await self._groups.drop_subscriber(name, request.subscriber))

    async def updateSubscriberStreamCut(self, request: pb.SubscriberStreamCut) -> pb.UpdateSubscriberStatus:
        name, cut = stream_name(request.streamCut.streamInfo), dict(request.streamCut.cut)
        try:
            await self._groups.record_cut(name, request.subscriber, request.generation, request.readerGroupId, cut)
        except NotFound:
            return _Note(status=_Note.STREAM_NOT_FOUND)
        # Raised for the subscriber; NotFound is raised for the stream.
        except LookupError:
            return _Note(status=_Note.SUBSCRIBER_NOT_FOUND)
        except Invalid:
            return _Note(status=_Note.STREAM_CUT_NOT_VALID)
        except Conflict:
            return _Note(status=_Note.GENERATION_MISMATCH)
        return _Note(status=_Note.SUCCESS)
