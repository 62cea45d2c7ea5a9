"""The calls of MirrorService: what a link's other side asks of this installation.

They are carried out by the two ports (`ports.py`) of this installation, for callers whose permission
`controller/access.py` has checked.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

from sarit.core.errors import Invalid, Truncated
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM
from sarit.mirror import messages
from sarit.mirror.compression import Compressor, split, unpack
from sarit.mirror.limits import (
    MAX_GROWN_REPLIES,
    MAX_MIRROR_DATA_BYTES,
    MAX_MIRROR_TRANSFERS,
    MAX_MIRROR_WAIT_SECONDS,
    MAX_MIRROR_WAITS,
    MIRROR_MESSAGE_BYTES,
)
from sarit.mirror.values import Write
from sarit.rpc.generated import mirror_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from sarit.mirror.ports import MirrorSource, MirrorTarget
    from sarit.mirror.values import LinkIdentity, MirrorState


class Sides(Protocol):
    """This installation as both sides of links."""

    @property
    def source(self) -> MirrorSource:
        """Return its streams."""

    @property
    def target(self) -> MirrorTarget:
        """Return its mirrors."""


class MirrorCalls:
    """The calls of MirrorService.

    `held`: notes that a link holds streams of a scope; None: nothing is noted.  `own`: the id of this installation."""

    def __init__(
        self, sides: Sides, held: Callable[[LinkIdentity, str], Awaitable[object]] | None = None, own: str = ""
    ) -> None:
        self._own = own
        self._sides = sides
        self._held = held
        self._compressor = Compressor()
        self._replies: OrderedDict[tuple[bytes, str], int] = OrderedDict()  # the last about growth, by link and scope
        self._waiting = 0  # calls that wait for growth
        self._transfers = asyncio.Semaphore(MAX_MIRROR_TRANSFERS)

    def _link(self, request: Any) -> LinkIdentity:
        return messages.link_of(request.link, self._own)

    def __repr__(self) -> str:
        return f"<MirrorCalls on {self._sides!r}>"

    async def mirrorSite(self, request: pb.MirrorSiteRequest) -> pb.MirrorSiteResponse:
        site = await self._sides.source.site()
        return pb.MirrorSiteResponse(
            installation=site.installation, protocol=site.protocol, wallMs=site.wall_ms, compresses=site.compresses
        )

    # -- of the source -----------------------------------------------------------------------------

    async def mirrorScopes(self, request: pb.MirrorScopesRequest) -> pb.MirrorScopesResponse:
        return pb.MirrorScopesResponse(scopes=await self._sides.source.scopes(request.after))

    async def mirrorStreams(self, request: pb.MirrorStreamsRequest) -> pb.MirrorFactsResponse:
        found = await self._sides.source.streams(request.scope, request.after)
        return pb.MirrorFactsResponse(streams=_begin_of(map(messages.facts_message, found)))

    async def mirrorFacts(self, request: pb.MirrorFactsRequest) -> pb.MirrorFactsResponse:
        names = messages.names_of(request.streams, request.scope)
        found = await self._sides.source.facts(request.scope, names, request.startMs)
        return pb.MirrorFactsResponse(streams=_begin_of(map(messages.facts_message, found)))

    async def mirrorOffers(self, request: pb.MirrorOffersRequest) -> pb.MirrorOffersResponse:
        messages.bounded(request.positions)
        positions = [messages.position_of(each, request.scope) for each in request.positions]
        found = await self._sides.source.offers(request.scope, positions, max(request.limit, 1))
        return pb.MirrorOffersResponse(offers=_begin_of(map(messages.offer_message, found)))

    async def mirrorRead(self, request: pb.MirrorReadRequest) -> pb.MirrorReadResponse:
        messages.bounded(request.ranges)
        ranges = [messages.range_of(each, request.scope) for each in request.ranges]
        if sum(wanted.length for wanted in ranges) > MAX_MIRROR_DATA_BYTES:
            raise Invalid(f"a read of a link is of at most {MAX_MIRROR_DATA_BYTES} bytes")
        async with self._transfers:
            try:
                pieces = await self._sides.source.read(request.scope, ranges)
            except Truncated as error:
                return pb.MirrorReadResponse(truncated=True, startOffset=error.start_offset)
            reply = pb.MirrorReadResponse(lengths=map(len, pieces))
            self._compressor.pack(reply.data, pieces, zstd=request.zstd)
            return reply

    async def mirrorGrown(self, request: pb.MirrorGrownRequest) -> pb.MirrorGrownResponse:
        seconds = request.waitSeconds
        if not math.isfinite(seconds) or seconds < 0:
            raise Invalid("a link waits for no such time")
        link = self._link(request)
        key = link.link_id, request.scope
        if (number := self._replies.get(key, 0)) != request.after:  # what the last reply said did not arrive
            return pb.MirrorGrownResponse(any=True, number=number)
        # A call that waits takes the place of another one in the server: some may, the others ask again.
        wait = min(seconds, MAX_MIRROR_WAIT_SECONDS) if self._waiting < MAX_MIRROR_WAITS else 0.0
        self._waiting += 1
        try:
            names = await self._sides.source.grown(link, request.scope, wait)
        finally:
            self._waiting -= 1
        if names is not None and not names:
            return pb.MirrorGrownResponse(number=request.after)
        # An abandoned call may have been answered meanwhile, and then this number is not the one after its request's.
        number = self._replies.pop(key, 0) + 1
        self._replies[key] = number
        if len(self._replies) > MAX_GROWN_REPLIES:
            self._replies.popitem(last=False)
        lost = number != request.after + 1
        return pb.MirrorGrownResponse(
            streams=[name.stream for name in names or ()], any=names is None or lost, number=number
        )

    async def mirrorHold(self, request: pb.MirrorHoldRequest) -> pb.MirrorDone:
        messages.bounded(request.cuts)
        cuts = [(messages.stream_of(request.scope, held.stream), messages.cut_of(held.cut)) for held in request.cuts]
        link = self._link(request)
        if self._held is not None and cuts:
            await self._held(link, request.scope)
        await self._sides.source.hold(link, request.scope, cuts)
        return pb.MirrorDone()

    async def mirrorFence(self, request: pb.MirrorFenceRequest) -> pb.MirrorDone:
        names = messages.names_of(request.streams, request.scope)
        await self._sides.source.fence(self._link(request), request.scope, names, request.lineage)
        return pb.MirrorDone()

    # -- of the target -----------------------------------------------------------------------------

    async def mirrorBegin(self, request: pb.MirrorBeginRequest) -> pb.MirrorStatesResponse:
        messages.bounded(request.streams)
        link, scope = self._link(request), request.scope
        facts = [messages.facts_of(each, scope) for each in request.streams]
        begun = await self._sides.target.begin(link, scope, facts, discard_divergent=request.discardDivergent)
        return _states(begun)

    async def mirrorStates(self, request: pb.MirrorNamesRequest) -> pb.MirrorStatesResponse:
        names = messages.names_of(request.streams, request.scope)
        return _states(await self._sides.target.states(self._link(request), request.scope, names))

    async def mirrorWrite(self, request: pb.MirrorWriteRequest) -> pb.MirrorWriteResponse:
        messages.bounded(request.writes)
        link, scope = self._link(request), request.scope
        async with self._transfers:
            pieces = split(unpack(request.data), [each.length for each in request.writes])
            writes = [_write_of(each, scope, piece) for each, piece in zip(request.writes, pieces, strict=True)]
            written = await self._sides.target.write(link, scope, writes)
        return pb.MirrorWriteResponse(
            written=[pb.MirrorWritten(end=one.end, refused=one.refused, reason=one.reason) for one in written]
        )

    async def mirrorFinish(self, request: pb.MirrorFinishRequest) -> pb.MirrorStatesResponse:
        messages.bounded(request.rounds)
        rounds = [messages.round_of(each, request.scope) for each in request.rounds]
        return _states(await self._sides.target.finish(self._link(request), request.scope, rounds))

    async def mirrorDrop(self, request: pb.MirrorDropRequest) -> pb.MirrorDone:
        messages.bounded(request.segments, MAX_SEGMENTS_PER_STREAM)
        staged = [(messages.stream_of(request.scope, each.stream), each.segment) for each in request.segments]
        await self._sides.target.drop(self._link(request), request.scope, staged)
        return pb.MirrorDone()

    async def mirrorRestart(self, request: pb.MirrorRestartRequest) -> pb.MirrorStatesResponse:
        facts = messages.facts_of(request.stream, request.scope)
        return _states([await self._sides.target.restart(self._link(request), request.scope, facts)])

    async def mirrorPromote(self, request: pb.MirrorNamesRequest) -> pb.MirrorStatesResponse:
        names = messages.names_of(request.streams, request.scope)
        return _states(await self._sides.target.promote(self._link(request), request.scope, names))


def _write_of(message: pb.MirrorWrite, scope: str, data: bytes) -> Write:
    if min(message.segment, message.offset) < 0:
        raise Invalid("a write of a link is at no offset of a segment")
    return Write(messages.stream_of(scope, message.stream), message.segment, message.offset, data, message.staged)


def _states(states: list[MirrorState]) -> pb.MirrorStatesResponse:
    # The caller repeats the call for those that are left out: a repeated one changes nothing more.
    return pb.MirrorStatesResponse(states=_begin_of(map(messages.state_message, states)))


def _begin_of(made: Iterable[Any]) -> list[Any]:
    """Return the first messages of a list, as many as one reply takes."""
    found, size = [], 0
    for message in made:
        found.append(message)
        size += message.ByteSize()
        if size >= MIRROR_MESSAGE_BYTES:
            break
    return found
