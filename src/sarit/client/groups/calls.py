"""Requests to the controller about reader groups: their configuration, and the cuts they release to retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from sarit.client.groups.values import GroupConfig
from sarit.core.errors import Conflict, Invalid, NotFound, Unavailable
from sarit.core.names import SegmentId
from sarit.rpc import convert
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.generated import sarit_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.groups.values import Cut
    from sarit.client.session.session import Session
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName


def _message(scope: str, group: str, config: GroupConfig) -> pb.ReaderGroupConfiguration:
    return pb.ReaderGroupConfiguration(
        scope=scope,
        readerGroupName=group,
        groupRefreshTimeMillis=config.refresh_ms,
        automaticCheckpointIntervalMillis=config.checkpoint_ms,
        maxOutstandingCheckpointRequest=config.max_outstanding,
        retentionType=config.retention,
        generation=config.generation,
        readerGroupId=_id_text(config.group_id),
        startingStreamCuts=_cut_messages(config.starts),
        endingStreamCuts=_cut_messages(config.ends),
    )


def _cut_messages(cuts: Mapping[StreamName, Cut | None]) -> list[pb.StreamCut]:
    return [convert.cut_message(name, {s.packed: at for s, at in (cut or {}).items()}) for name, cut in cuts.items()]


def _cuts(messages: Any) -> dict[StreamName, Cut | None]:
    return {
        convert.stream_name(found.streamInfo): {SegmentId.unpack(s): at for s, at in found.cut.items()} or None
        for found in messages
    }


def _config(message: pb.ReaderGroupConfiguration) -> GroupConfig:
    return GroupConfig(
        _cuts(message.startingStreamCuts),
        _cuts(message.endingStreamCuts),
        message.automaticCheckpointIntervalMillis,
        message.groupRefreshTimeMillis,
        message.maxOutstandingCheckpointRequest,
        message.retentionType,
        message.generation,
        UUID(message.readerGroupId).bytes,
    )


def _id_text(group_id: bytes) -> str:
    return str(UUID(bytes=group_id))


async def _call(session: Session, method: Any, request: Any) -> Any:
    return await session.with_retry(lambda: session.controller.call(method, request))


async def create(session: Session, scope: str, group: str, config: GroupConfig) -> GroupConfig:
    """Create a group.  Returns the configuration in force: the old one if the group exists.

    Raises NotFound (scope), Invalid."""
    reply = await _call(session, session.controller.stub.createReaderGroup, _message(scope, group, config))
    status = pb.CreateReaderGroupResponse
    if reply.status == status.SCOPE_NOT_FOUND:
        raise NotFound(f"scope {scope} does not exist: create it first")
    if reply.status == status.INVALID_RG_NAME:
        raise Invalid(f"{group!r} is no name for a reader group: use letters, digits, '.' and '-'")
    if reply.status != status.SUCCESS:
        raise Unavailable(f"reader group {scope}/{group} was not created: the controller reported a failure")
    return _config(reply.config)


async def config_of(session: Session, scope: str, group: str) -> GroupConfig:
    """Return the configuration in force.  Raises NotFound."""
    request = pb.ReaderGroupInfo(scope=scope, readerGroup=group)
    reply = await _call(session, session.controller.stub.getReaderGroupConfig, request)
    if reply.status == pb.ReaderGroupConfigResponse.RG_NOT_FOUND:
        raise NotFound(f"reader group {scope}/{group} does not exist")
    if reply.status != pb.ReaderGroupConfigResponse.SUCCESS:
        raise Unavailable(f"reader group {scope}/{group}: the controller reported a failure")
    return _config(reply.config)


async def update(session: Session, scope: str, group: str, config: GroupConfig) -> int:
    """Replace the configuration.  Returns its new generation.  Raises NotFound, Conflict (another generation or id)."""
    reply = await _call(session, session.controller.stub.updateReaderGroup, _message(scope, group, config))
    status = pb.UpdateReaderGroupResponse
    if reply.status == status.RG_NOT_FOUND:
        raise NotFound(f"reader group {scope}/{group} does not exist")
    if reply.status == status.INVALID_CONFIG:
        raise Conflict(f"reader group {scope}/{group} has another generation than {config.generation}, or is another")
    if reply.status != status.SUCCESS:
        raise Unavailable(f"reader group {scope}/{group} was not updated: the controller reported a failure")
    return int(reply.generation)


async def delete(session: Session, scope: str, group: str, group_id: bytes) -> None:
    """Delete a group and its state.  Raises NotFound."""
    request = pb.ReaderGroupInfo(scope=scope, readerGroup=group, readerGroupId=_id_text(group_id))

    async def once() -> None:
        reply = await session.controller.call(session.controller.stub.deleteReaderGroup, request)
        if reply.status == pb.DeleteReaderGroupStatus.RG_NOT_FOUND:
            raise NotFound(f"reader group {scope}/{group} does not exist")
        if reply.status != pb.DeleteReaderGroupStatus.SUCCESS:
            raise Unavailable(f"reader group {scope}/{group} was not deleted: the controller reported a failure")

    await session.with_retry_of_deletion(once)


async def release(session: Session, scope: str, group: str, config: GroupConfig, cut: StreamCut) -> None:
    """Report to the controller that the group needs nothing of a stream before `cut`.

    Raises NotFound (the stream, or the group is no subscriber), Invalid (the cut), Conflict (the generation)."""
    request = pb.SubscriberStreamCut(
        subscriber=f"{scope}/{group}",
        generation=config.generation,
        readerGroupId=_id_text(config.group_id),
        streamCut=convert.cut_message(cut.stream, {s.packed: at for s, at in cut.positions.items()}),
    )
    reply = await _call(session, session.controller.stub.updateSubscriberStreamCut, request)
    status = pb.UpdateSubscriberStatus
    if reply.status == status.STREAM_NOT_FOUND:
        raise NotFound(f"stream {cut.stream} does not exist")
    if reply.status == status.SUBSCRIBER_NOT_FOUND:
        raise NotFound(f"reader group {scope}/{group} is no subscriber of stream {cut.stream}")
    if reply.status == status.STREAM_CUT_NOT_VALID:
        raise Invalid(f"the cut does not cover stream {cut.stream} exactly once, or lies before what was released")
    if reply.status == status.GENERATION_MISMATCH:
        raise Conflict(f"reader group {scope}/{group} has another generation than {config.generation}")
    if reply.status != status.SUCCESS:
        raise Unavailable(
            f"{scope}/{group}: the cut of {cut.stream} was not released: the controller reported a failure"
        )


async def subscribers(session: Session, stream: StreamName) -> list[str]:
    """Return the groups ("scope/group") that protect a stream's data from retention.  Raises NotFound."""
    reply = await _call(session, session.controller.stub.listSubscribers, convert.stream_info(stream))
    if reply.status == pb.SubscribersResponse.STREAM_NOT_FOUND:
        raise NotFound(f"stream {stream} does not exist")
    return list(reply.subscribers)


async def drop_subscriber(session: Session, stream: StreamName, subscriber: str) -> bool:
    """End a group's hold on a stream's data.  Returns whether it had one.  Raises NotFound, Invalid (not Sarit)."""
    request = sarit_pb2.DropSubscriberRequest(scope=stream.scope, stream=stream.stream, subscriber=subscriber)
    reply = await _call(session, session.controller.sarit_stub.dropSubscriber, request)
    return bool(reply.dropped)
