"""Event time: writers note how far they are; readers learn between which times the events at their position lie.

From time to time the controller makes a *watermark* of the notes of all writers of a stream: "a reader that has read up
to this cut has everything the writers wrote before `lower`; `upper` is the latest time they had noted"
(client_behaviour.md 8).  It writes the watermark to stream `_MARK<stream>`.  So a reader knows that events older than
the `lower` of the last watermark it has passed do not come any more.  It has seen none later than the `upper` of the
first watermark ahead of it, except from writers that went on after their note before others made theirs: `upper` is an
estimate.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.client.core import segments
from sarit.client.limits import MAX_WATERMARKS_AHEAD
from sarit.client.reader.reader import EventReader
from sarit.client.session.guard import guarded
from sarit.client.streams import watermarks
from sarit.client.streams.history import Ranges
from sarit.core.errors import Invalid
from sarit.core.names import MARK_PREFIX, StreamName
from sarit.core.public import public
from sarit.rpc import convert
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sarit.client.session.session import Session
    from sarit.client.streams.watermarks import Watermark
    from sarit.core.cuts import StreamCut
    from sarit.core.keyspace import KeyRange
    from sarit.core.names import SegmentId

# Bounds of ranges that tile the key space are sums of doubles.
_ROUNDING: Final = 1e-9


@public
@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Between which times a position lies, as far as is known; None: not known yet."""

    lower: int | None
    upper: int | None


async def note_time(
    session: Session, stream: StreamName, writer: str, time: int, positions: Mapping[SegmentId, int]
) -> None:
    """Report to the controller that `writer` is at `time`, having written up to `positions`.

    Raises NotFound, Invalid when time or positions go back."""
    cut = convert.cut_message(stream, {segment.packed: offset for segment, offset in positions.items()})
    request = pb.TimestampFromWriter(writer=writer, position=cut, timestamp=time)
    controller = session.controller
    reply = await session.with_retry(lambda: controller.named(stream, controller.stub.noteTimestampFromWriter, request))
    if reply.result == pb.TimestampResponse.INVALID_TIME:
        raise Invalid(f"writer {writer} of {stream} noted a later time than {time} already")
    if reply.result != pb.TimestampResponse.SUCCESS:
        raise Invalid(f"writer {writer} of {stream} was further already: is its name used by another writer?")


async def forget_writer(session: Session, stream: StreamName, writer: str) -> None:
    """Report to the controller that a writer has left: watermarks wait for it no more.  Raises Unavailable."""
    request = pb.RemoveWriterRequest(writer=writer, stream=convert.stream_info(stream))
    controller = session.controller
    await session.with_retry(lambda: controller.call(controller.stub.removeWriter, request))


async def written_up_to(session: Session, stream: StreamName, used: Iterable[SegmentId]) -> dict[SegmentId, int]:
    """Return the ends of the segments a writer has written to: all it has flushed lies before them."""
    infos = await segments.segment_infos(session, stream, used)
    return {segment: info.end_offset for segment, info in infos.items()}


@guarded("_session")
class TimeWindows:
    """The time windows of one reader.  Positions must not go back.  Make one with `client.stream(...).time_windows()`.

    Watermarks are read when they are needed; only a few that lie ahead are cached."""

    def __init__(self, session: Session, stream: StreamName) -> None:
        self.stream = stream
        self._session = session
        self._marks = StreamName(stream.scope, MARK_PREFIX + stream.stream)
        self._ranges = Ranges(session, stream)
        self._read_to: StreamCut | None = None
        self._pending: deque[Watermark] = deque()
        self._passed: Watermark | None = None

    def __repr__(self) -> str:
        return f"TimeWindows({self.stream}, passed {self._passed}, {len(self._pending)} ahead)"

    async def at(self, position: StreamCut) -> TimeWindow:
        """Return the window at a reader's `position()`.  Raises NotFound, Invalid.

        A successor segment starts only when all its predecessors are read.  Until then a position covers less than the
        whole key space, and there is no `upper`."""
        if position.stream != self.stream:
            raise Invalid(f"that is a position in {position.stream}, not in {self.stream}")
        ranges = await self._ranges.of(position.positions)
        here = {segment: (ranges[segment], offset) for segment, offset in position.positions.items()}
        while True:
            # Read on until a watermark lies ahead, or there are no more.
            self._pass(here)
            if self._pending or not await self._read_more():
                break
        # At exactly a watermark's cut it is passed, and nothing beyond it was read.
        near = self._pending if self._passed is None else (self._passed, *self._pending)
        whole = sum(keys.high - keys.low for keys in ranges.values()) > 1.0 - _ROUNDING
        ahead = next((mark for mark in near if whole and watermarks.is_ahead(mark, here)), None)
        return TimeWindow(None if self._passed is None else self._passed.lower, None if ahead is None else ahead.upper)

    def _pass(self, here: Mapping[SegmentId, tuple[KeyRange, int]]) -> None:
        while self._pending and watermarks.is_behind(self._pending[0], here):
            self._passed = self._pending.popleft()

    async def _read_more(self) -> bool:
        """Read watermarks that were not read yet.  Returns whether there were any."""
        tail = await segments.tail_cut(self._session, self._marks)
        start = self._read_to or await segments.head_cut(self._session, self._marks)
        if start == tail:
            return False

        async def bounds() -> tuple[StreamCut, StreamCut]:
            return start, tail

        # Old watermarks may be truncated: a reader that can read the stream has passed those that are skipped.
        async with EventReader(self._session, self._marks, bounds, skip_truncated=True) as reader:
            events = await reader.read_events(MAX_WATERMARKS_AHEAD)
            # The next call goes on at this position, which may be before the tail.
            self._read_to = reader.position()
        self._pending.extend(map(watermarks.decode, events))
        return bool(events)
