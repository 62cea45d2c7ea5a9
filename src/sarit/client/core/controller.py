"""Requests to the controller: one method per rpc, core values in and out, errors by kind.

Statuses of answers and of gRPC itself map to `core.errors` in the two tables below (controller.md 1 and 2).  A method
makes one attempt; its callers repeat it (`Session.with_retry`).

A client may know several controllers, of which each answers every call.  It uses one of them until that one fails:

* Nothing could be sent: within the same attempt the other controllers get the call, one after the other.
* The answer was lost, or says that the controller cannot do it now: the next attempt goes to the next controller.  The
  outcome of such a call is as unknown as after a lost answer of a single controller, and treated the same way.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

from sarit.client.core.channels import Channels
from sarit.client.core.delegation import DelegationTokens
from sarit.client.core.login import MAYBE_TLS, no_tls, untrusted
from sarit.client.core.retry import Lost, NotAnswered, NotSent
from sarit.client.core.values import ScalingEvent, SegmentRange, Successor
from sarit.client.limits import CLIENT_KEEP_ALIVE_SECONDS, CONTROLLER_CALL_SECONDS, CONTROLLER_PING_SECONDS
from sarit.core.errors import (
    Conflict,
    Corrupt,
    Exists,
    Forbidden,
    Invalid,
    NotFound,
    SaritError,
    Sealed,
    Unauthenticated,
    Unavailable,
)
from sarit.core.names import SYSTEM_SCOPE, SegmentId, StreamName
from sarit.rpc import convert
from sarit.rpc.channel import CallLost
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.generated import sarit_pb2
from sarit.rpc.methods import PRAVEGA, SARIT
from sarit.rpc.status import CallFailed, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ssl import SSLContext

    from sarit.client.core.call_traces import CallTraces
    from sarit.client.core.channels import ControllerChannel
    from sarit.client.core.login import Credentials
    from sarit.core.policies import StreamConfig
    from sarit.env.ports import Clock
    from sarit.rpc.in_process import LocalChannel

T = TypeVar("T")
Token: TypeAlias = "pb.ContinuationToken"

log = logging.getLogger(__name__)

_KINDS: Final[dict[Status, type[SaritError]]] = {
    Status.NOT_FOUND: NotFound,
    Status.ALREADY_EXISTS: Exists,
    Status.INVALID_ARGUMENT: Invalid,
    Status.OUT_OF_RANGE: Corrupt,
    Status.DATA_LOSS: Corrupt,  # of a controller of before
    Status.PERMISSION_DENIED: Forbidden,
    Status.UNAUTHENTICATED: Unauthenticated,
    Status.FAILED_PRECONDITION: Conflict,
}


class ControllerClient:
    """One controller, or several.  Calls raise Unavailable when none answers, otherwise the kinds named."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        attempt_seconds: float = CONTROLLER_CALL_SECONDS,
        keep_alive_seconds: float = CLIENT_KEEP_ALIVE_SECONDS,
        credentials: Credentials | None = None,
        tls: SSLContext | None = None,
        clock: Clock | None = None,
        traces: CallTraces | None = None,
        first_request_id: int = 1,
        local: LocalChannel | None = None,
    ) -> None:
        """`attempt_seconds`: for one call, unless it says otherwise.  `keep_alive_seconds`: see `Channels`.

        `clock`: by which tokens expire; None where there are no credentials.  `first_request_id`: of the ids of calls,
        which join the lines of logs; one that no other client has.  `local`: see `Channels`."""
        self.address = ",".join(f"{host}:{port}" for host, port in addresses)
        self.attempt_seconds = attempt_seconds
        self._channels = Channels(addresses, keep_alive_seconds, credentials, tls, local)
        self._traces = traces
        self._request_ids = itertools.count(first_request_id)
        self.tokens: DelegationTokens | None = None
        if credentials is not None and clock is not None:
            self.tokens = DelegationTokens(partial(_fetch_token, self), clock)
        self.stub = PRAVEGA
        self.sarit_stub = SARIT

    def __repr__(self) -> str:
        return f"ControllerClient({self.address})"

    async def call(self, method: Any, request: Any, seconds: float | None = None) -> Any:
        """Call a method of `stub` once, within `seconds`; errors by kind.  For the rpcs that have no method here."""
        refused = 0
        while True:
            channel = self._channels.current
            try:
                return await self._call(channel, method, request, self.attempt_seconds if seconds is None else seconds)
            except NotSent as error:
                refused += 1
                self._channels.fail_over(channel, error)
                if refused >= len(self._channels.addresses):
                    raise
            except Unavailable as error:
                # Not to the others at once: it may have been carried out.  The caller knows whether to repeat it.
                if not isinstance(error, _Slow):
                    self._channels.fail_over(channel, error)
                raise

    async def _call(self, channel: ControllerChannel, method: Any, request: Any, seconds: float) -> Any:
        # Compared at a time-out: whether anything came on this channel since.
        received = channel.pieces_received
        channel.calls += 1
        request_id, outcome = str(next(self._request_ids)), "failed"
        began = self._traces.begin() if self._traces is not None else 0.0
        try:
            reply = await channel.call(method, request, seconds, request_id)
            outcome = "was answered"
            return reply
        except CallFailed as error:
            if error.status is Status.UNIMPLEMENTED:
                raise UnknownCall(
                    f"the server at {channel.address} has no call {method.name}: it is no Sarit, or an older one"
                ) from None
            # A status that is not listed may pass: callers retry Unavailable.
            kind = _KINDS.get(error.status, Unavailable)
            text = error.message or error.status.name
            raise kind(f"controller {channel.address}: {text} (request {request_id})") from None
        except TimeoutError:
            message = (
                f"the controller at {channel.address} did not answer within {seconds:.3g} s (request {request_id})"
            )
            if channel.pieces_received != received:
                raise _Slow(message) from None
            # No other call was answered either: the path may be dead.
            self._channels.replace(channel)
            raise NotAnswered(message) from None
        except ssl.SSLCertVerificationError as error:
            raise Invalid(untrusted(channel.address, error)) from None
        except ssl.SSLError as error:
            raise NotSent(no_tls(f"the controller at {channel.address}", error)) from None
        except (CallLost, OSError) as error:
            not_sent = isinstance(error, OSError)
            raise (NotSent if not_sent else Lost)(
                f"no Sarit controller answers at {self.address if not_sent else channel.address} ({error}): is the "
                "node running? start one with `sarit standalone`"
                + (f"; {MAYBE_TLS}" if channel.mute and not not_sent else "")
            ) from None
        finally:
            if log.isEnabledFor(logging.DEBUG):
                name = method.name.rpartition("/")[2]
                log.debug("controller %s: request %s, %s, %s", channel.address, request_id, name, outcome)
            if self._traces is not None:
                self._traces.ended(request_id, began, method.name, channel.address)
            channel.calls -= 1
            self._channels.call_ended(channel)

    async def ping(self) -> None:
        """Find out whether a controller answers, and knows us; that one is used.

        Raises Unavailable, Unauthenticated."""
        for left in reversed(range(len(self._channels.addresses))):
            try:
                await self.call(self.stub.checkScopeExists, pb.ScopeInfo(scope=SYSTEM_SCOPE), CONTROLLER_PING_SECONDS)
                return
            except Unavailable:
                if not left:
                    raise

    # -- scopes -------------------------------------------------------------------------------

    async def create_scope(self, scope: str) -> bool:
        """True when created, False when it existed.  Raises Invalid."""
        reply = await self.call(self.stub.createScope, pb.ScopeInfo(scope=scope))
        if reply.status == pb.CreateScopeStatus.INVALID_SCOPE_NAME:
            raise Invalid(f"{scope!r} is no name for a scope: letters, digits, '.' and '-' make one")
        if reply.status == pb.CreateScopeStatus.FAILURE:
            _failed(f"scope {scope} was not created")
        return bool(reply.status == pb.CreateScopeStatus.SUCCESS)

    async def delete_scope(self, scope: str, recursive: bool) -> None:
        """Delete a scope; `recursive` with all it holds.  Raises NotFound, Conflict when it is not empty."""
        info = pb.ScopeInfo(scope=scope)
        if recursive:  # whose success does not tell whether there was a scope
            with suppress(Forbidden):  # who may create and delete scopes need not read them
                if not (await self.call(self.stub.checkScopeExists, info)).exists:
                    raise NotFound(f"scope {scope} does not exist")
        reply = await self.call(self.stub.deleteScopeRecursive if recursive else self.stub.deleteScope, info)
        if reply.status == pb.DeleteScopeStatus.SCOPE_NOT_FOUND:
            raise NotFound(f"scope {scope} does not exist")
        if reply.status == pb.DeleteScopeStatus.SCOPE_NOT_EMPTY:
            raise Conflict(f"scope {scope} holds streams: delete them first, or delete recursively")
        if reply.status != pb.DeleteScopeStatus.SUCCESS:
            _failed(f"scope {scope} was not deleted")

    async def scopes(self, after: Token) -> tuple[list[str], Token]:
        """Return a page of the scopes after `after`, none at the end, and where the next page begins."""
        page = await self.call(self.stub.listScopes, pb.ScopesRequest(continuationToken=after))
        return list(page.scopes), page.continuationToken

    async def streams(self, scope: str, tag: str | None, after: Token) -> tuple[list[StreamName], Token]:
        """Return a page of the streams of a scope (those with `tag`), as `scopes`.  Raises NotFound."""
        info = pb.ScopeInfo(scope=scope)
        if tag is None:
            request: Any = pb.StreamsInScopeRequest(scope=info, continuationToken=after)
            page = await self.call(self.stub.listStreamsInScope, request)
        else:
            request = pb.StreamsInScopeWithTagRequest(scope=info, tag=tag, continuationToken=after)
            page = await self.call(self.stub.listStreamsInScopeForTag, request)
        if page.status == pb.StreamsInScopeResponse.SCOPE_NOT_FOUND:
            raise NotFound(f"scope {scope} does not exist")
        return [convert.stream_name(found) for found in page.streams], page.continuationToken

    async def stream_configs(self, scope: str, tag: str | None, after: str) -> list[tuple[StreamName, StreamConfig]]:
        """Return a page of the streams of a scope (those with `tag`) behind the name `after`, by name; none at the end.

        Raises NotFound, Invalid (the tag; the server is not Sarit)."""
        request = sarit_pb2.StreamConfigsRequest(scope=scope, tag=tag or "", after=after)
        page = await self.call(self.sarit_stub.streamConfigs, request)
        return [(convert.stream_name(found.streamInfo), convert.stream_config(found)) for found in page.streams]

    # -- streams ------------------------------------------------------------------------------

    async def create_stream(self, stream: StreamName, config: StreamConfig) -> bool:
        """True when created, False when it existed (its configuration is unchanged).  Raises NotFound, Invalid."""
        status = pb.CreateStreamStatus
        reply = await self.call(self.stub.createStream, convert.config_message(stream, config))
        if reply.status == status.SCOPE_NOT_FOUND:
            raise NotFound(f"scope {stream.scope} does not exist: create it first")
        if reply.status == status.INVALID_STREAM_NAME:
            raise Invalid(f"{stream.stream!r} is no name for a stream: letters, digits, '.' and '-' make one")
        if reply.status == status.FAILURE:
            _failed(f"stream {stream} was not created")
        return bool(reply.status == status.SUCCESS)

    async def update_stream(self, stream: StreamName, config: StreamConfig) -> None:
        """Replace the configuration.  Raises NotFound, Sealed, Invalid."""
        _check_update(stream, await self.call(self.stub.updateStream, convert.config_message(stream, config)))

    async def seal_stream(self, stream: StreamName) -> None:
        """Seal; succeeds when it is sealed.  Raises NotFound."""
        _check_update(stream, await self.call(self.stub.sealStream, convert.stream_info(stream)))

    async def truncate_stream(self, stream: StreamName, positions: Mapping[SegmentId, int]) -> None:
        """Truncate the stream at a cut.  Raises NotFound, Invalid."""
        cut = {segment.packed: offset for segment, offset in positions.items()}
        _check_update(stream, await self.call(self.stub.truncateStream, convert.cut_message(stream, cut)))

    async def delete_stream(self, stream: StreamName) -> None:
        """Delete a sealed stream.  Raises NotFound, Conflict when it is not sealed."""
        reply = await self.call(self.stub.deleteStream, convert.stream_info(stream))
        if reply.status == pb.DeleteStreamStatus.STREAM_NOT_FOUND:
            raise NotFound(f"stream {stream} does not exist")
        if reply.status == pb.DeleteStreamStatus.STREAM_NOT_SEALED:
            raise Conflict(f"stream {stream} is not sealed: seal it first, then delete it")
        if reply.status != pb.DeleteStreamStatus.SUCCESS:
            _failed(f"stream {stream} was not deleted")

    async def stream_config(self, stream: StreamName) -> StreamConfig:
        """Return the configuration of a stream.  Raises NotFound."""
        return convert.stream_config(await self.call(self.stub.getStreamConfiguration, convert.stream_info(stream)))

    async def start_scale(
        self, stream: StreamName, sealed: Sequence[SegmentId], ranges: Sequence[tuple[float, float]], now_ms: int
    ) -> int:
        """Begin to replace segments by new ones.  Returns the epoch to give to `scaled`.  Raises Conflict, Invalid."""
        request = pb.ScaleRequest(
            streamInfo=convert.stream_info(stream),
            sealedSegments=[segment.packed for segment in sealed],
            newKeyRanges=[pb.ScaleRequest.KeyRangeEntry(start=low, end=high) for low, high in ranges],
            scaleTimestamp=now_ms,
        )
        reply = await self.call(self.stub.scale, request)
        if reply.status == pb.ScaleResponse.PRECONDITION_FAILED:
            raise Conflict(
                f"stream {stream}: those segments are not active (any more), or fewer would remain than the stream's "
                "scaling policy asks for: update the stream to lower that number"
            )
        if reply.status != pb.ScaleResponse.STARTED:
            raise Invalid(
                f"stream {stream}: it is sealed or deleted, or the ranges do not replace those segments exactly"
            )
        return int(reply.epoch)

    async def scaled(self, stream: StreamName, epoch: int) -> bool:
        """Return whether the scale that began in `epoch` is finished.  Raises NotFound."""
        request = pb.ScaleStatusRequest(streamInfo=convert.stream_info(stream), epoch=epoch)
        reply = await self.call(self.stub.checkScale, request)
        if reply.status == pb.ScaleStatusResponse.INVALID_INPUT:
            raise NotFound(f"stream {stream} does not exist, or has no epoch {epoch}")
        return bool(reply.status == pb.ScaleStatusResponse.SUCCESS)

    # -- segments -----------------------------------------------------------------------------

    async def current_segments(self, stream: StreamName) -> list[SegmentRange]:
        """Return the active segments by range; none when the stream is sealed.  Raises NotFound."""
        info = convert.stream_info(stream)
        reply = await self.named(stream, self.stub.getCurrentSegments, info)
        return [_range(found) for found in reply.segmentRanges]

    async def head_segments(self, stream: StreamName) -> dict[SegmentId, int]:
        """Return the oldest position: segments and offsets.  Raises NotFound."""
        request = pb.GetSegmentsRequest(streamInfo=convert.stream_info(stream), timestamp=0)
        reply = await self.named(stream, self.stub.getSegments, request)
        return {SegmentId.unpack(found.segmentId.segmentId): found.offset for found in reply.segments}

    async def cut_at(self, stream: StreamName, time_ms: int) -> dict[SegmentId, int]:
        """Return a cut that every event appended at or after a time is behind.  Raises NotFound, Invalid (not
        Sarit)."""
        request = sarit_pb2.CutAtRequest(scope=stream.scope, stream=stream.stream, timeMs=time_ms)
        reply = await self.named(stream, self.sarit_stub.cutAt, request)
        return {SegmentId.unpack(segment): offset for segment, offset in reply.cut.items()}

    async def scaling_events(self, stream: StreamName, from_ms: int, to_ms: int) -> list[ScalingEvent]:
        """Return the epochs that began between two times, and the one in force before.  Raises NotFound, Invalid."""
        request = sarit_pb2.ScalingEventsRequest(scope=stream.scope, stream=stream.stream, fromMs=from_ms, toMs=to_ms)
        reply = await self.named(stream, self.sarit_stub.scalingEvents, request)
        return [
            ScalingEvent(
                event.timeMs,
                tuple((SegmentRange(SegmentId.unpack(s.segmentId), s.low, s.high), s.startMs) for s in event.segments),
                event.splits,
                event.merges,
            )
            for event in reply.events
        ]

    async def successors(self, stream: StreamName, segment: SegmentId) -> list[Successor]:
        """Return the successors of a segment; nothing while it is active and when the stream is sealed.  Raises
        NotFound."""
        request = convert.segment_id(stream, segment.packed)
        try:
            reply = await self.call(self.stub.getSegmentsImmediatelyFollowing, request)
        except NotFound:
            raise NotFound(
                f"stream {stream} has no segment {segment}: the stream does not exist, "
                "or was deleted and made again since that position was noted"
            ) from None
        return [
            Successor(
                SegmentId.unpack(entry.segment.segmentId.segmentId),
                entry.segment.minKey,
                entry.segment.maxKey,
                frozenset(map(SegmentId.unpack, entry.value)),
            )
            for entry in reply.segments
        ]

    async def endpoint(self, stream: StreamName, segment: SegmentId) -> tuple[str, int]:
        """Host and port of the store that owns a segment."""
        reply = await self.call(self.stub.getURI, convert.segment_id(stream, segment.packed))
        return reply.endpoint, reply.port

    async def token(self, stream: StreamName) -> str:
        """Return the token that a store requires before it serves a segment; empty while there is no authentication."""
        return "" if self.tokens is None else await self.tokens.get(stream)

    async def named(self, stream: StreamName, method: Any, request: Any) -> Any:
        """Call a method that asks for `stream`.  Raises NotFound that names it."""
        try:
            return await self.call(method, request)
        except NotFound:
            raise NotFound(f"stream {stream} does not exist: create it first") from None

    async def close(self) -> None:
        """End the connections."""
        self._channels.close()
        # One turn of the loop, for what the transports do when they close.
        await asyncio.sleep(0)


async def _fetch_token(controller: ControllerClient, stream: StreamName) -> str:
    request = pb.StreamInfo(scope=stream.scope, stream=stream.stream)
    reply = await controller.call(controller.stub.getDelegationToken, request)
    token: str = reply.delegationToken
    return token


class UnknownCall(Invalid):
    """The server has no such call."""


class _Slow(NotAnswered):
    """A call took too long, and the controller answered others meanwhile."""


def _range(found: pb.SegmentRange) -> SegmentRange:
    return SegmentRange(SegmentId.unpack(found.segmentId.segmentId), found.minKey, found.maxKey)


def _failed(what: str) -> NoReturn:
    raise Unavailable(f"{what}: the controller reported a failure; retry, and check its log")


def _check_update(stream: StreamName, reply: pb.UpdateStreamStatus) -> None:
    status = pb.UpdateStreamStatus
    if reply.status == status.STREAM_NOT_FOUND:
        raise NotFound(f"stream {stream} does not exist")
    if reply.status == status.SCOPE_NOT_FOUND:
        raise NotFound(f"scope {stream.scope} does not exist")
    if reply.status == status.STREAM_SEALED:
        raise Sealed(f"stream {stream} is sealed: nothing about it can change any more")
    if reply.status != status.SUCCESS:
        raise Invalid(
            f"stream {stream}: the controller refused; a cut must cover the whole stream and not lie below "
            "an earlier truncation, a configuration must be possible"
        )
