"""The epochs of a stream: which segments it had, over which keys, and what lies between two cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sarit.client.core.values import SegmentRange
from sarit.core.errors import Corrupt, NotFound
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId
from sarit.core.public import public
from sarit.rpc import convert
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.session.session import Session
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName


@public
@dataclass(frozen=True, slots=True)
class Epoch:
    """One generation of a stream's segments, by their ranges."""

    number: int
    segments: tuple[SegmentRange, ...]


async def _request(session: Session, method: Any, request: Any) -> Any:
    return await session.with_retry(lambda: session.controller.call(method, request))


async def epoch(session: Session, stream: StreamName, number: int) -> Epoch:
    """Return one epoch of the stream.  Raises NotFound (the stream, or it has no such epoch)."""
    request = pb.GetEpochSegmentsRequest(streamInfo=convert.stream_info(stream), epoch=number)
    reply = await _request(session, session.controller.stub.getEpochSegments, request)
    segments = (
        SegmentRange(SegmentId.unpack(found.segmentId.segmentId), found.minKey, found.maxKey)
        for found in reply.segmentRanges
    )
    return Epoch(number, tuple(sorted(segments, key=lambda found: found.low)))


async def epochs(session: Session, stream: StreamName) -> list[Epoch]:
    """Return all epochs that hold data, from that of the head to the newest.  Raises NotFound."""
    head = await session.with_retry(lambda: session.controller.head_segments(stream))
    found = [await epoch(session, stream, min(segment.epoch for segment in head))]
    while True:
        # Only NotFound shows which epoch is the newest.
        try:
            following = await epoch(session, stream, found[-1].number + 1)
        except NotFound:
            return found
        # Every epoch has segments of its own number.  Between the last epoch of a mirror and the epoch of its
        # promotion there is none, and the controller answers with the last one.
        if max(one.segment.epoch for one in following.segments) < following.number:
            successors = await session.controller.successors(stream, found[-1].segments[0].segment)
            following = await epoch(session, stream, min(one.segment.epoch for one in successors))
        found.append(following)


async def between(session: Session, start: StreamCut, end: StreamCut) -> list[SegmentId]:
    """Return all segments from one cut to another, those of both cuts included.  Raises NotFound, Invalid."""
    request = pb.StreamCutRange(
        streamInfo=convert.stream_info(start.stream), to={s.packed: at for s, at in end.positions.items()}
    )
    # `from` is a keyword of Python.
    getattr(request, "from").update({s.packed: at for s, at in start.positions.items()})
    reply = await _request(session, session.controller.stub.getSegmentsBetween, request)
    return sorted(SegmentId.unpack(found.segmentId) for found in reply.segments)


class Ranges:
    """The key ranges of a stream's segments, asked for once each."""

    def __init__(self, session: Session, stream: StreamName) -> None:
        self._session = session
        self._stream = stream
        self._known: dict[SegmentId, KeyRange] = {}

    def __repr__(self) -> str:
        return f"Ranges({self._stream}, {len(self._known)} known)"

    async def of(self, segments: Iterable[SegmentId]) -> dict[SegmentId, KeyRange]:
        """Return the ranges of these segments; all others are forgotten.  Raises NotFound."""
        wanted = list(segments)
        known = {segment: self._known[segment] for segment in wanted if segment in self._known}
        # An id holds the epoch that made the segment: one request per epoch.
        for number in sorted({segment.epoch for segment in wanted if segment not in known}):
            found = await epoch(self._session, self._stream, number)
            known |= {r.segment: KeyRange(r.low, r.high) for r in found.segments if r.segment in wanted}
        for segment in wanted:
            if segment not in known:
                raise Corrupt(f"{self._stream}: segment {segment} is not in the epoch that made it")
        self._known = known
        return known
