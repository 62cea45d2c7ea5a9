"""A stream as indexers and continuous queries read it (`search/ports.py`): by a client of this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.client.core.deadline import within
from sarit.client.core.segments import segment_infos
from sarit.client.reader.reader import EventReader
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.process.jobs.stream_source import StreamSource
from sarit.process.limits import (
    EVENT_POLL_SECONDS,
    EVENT_POLLS_OF_IDLE_TIME,
    EVENT_REST_SHARE,
    MAX_EVENT_POLL_SECONDS,
    MAX_JOB_REST_SECONDS,
)
from sarit.search.ports import EventSlice, endless

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from sarit.client.reader.cursor import Events
    from sarit.client.session.session import Session
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.env.ports import Clock


class StreamEvents:
    """One stream, read by a session of a client."""

    def __init__(
        self, session: Session, stream: StreamName, clock: Clock, max_poll_seconds: float = MAX_EVENT_POLL_SECONDS
    ) -> None:
        """`max_poll_seconds`: after which `follow` yields None, however long nothing has come."""
        self.stream = stream
        self._session = session
        self._clock = clock
        self._max_poll_seconds = max_poll_seconds
        self._source = StreamSource(session, stream, clock)

    def __repr__(self) -> str:
        return f"<StreamEvents {self.stream}>"

    async def identity(self) -> str:
        """Return the creation id of the stream, in hexadecimal digits.  Raises NotFound, Unavailable."""
        return await self._source.identity()

    async def edge(self, which: str) -> StreamCut:
        """Return the cut of the "head" or the "tail".  Raises NotFound, Unavailable."""
        return await self._source.edge(which)

    async def bytes_behind(self, cut: StreamCut) -> int:
        """Return how many bytes the stream has behind a cut.  Raises NotFound, Unavailable."""
        return await self._source.bytes_behind(cut)

    async def is_finished(self, cut: StreamCut) -> bool:
        """Return whether the stream is sealed, and nothing is behind a cut.  Raises NotFound, Unavailable."""
        return await self._source.is_finished(cut)

    async def is_before(self, earlier: StreamCut, later: StreamCut) -> bool:
        """Return whether a cut is nowhere behind another one; False, too, if segments of them are not known any more.
        Raises Unavailable."""
        return await self._source.is_before(earlier, later)

    async def appended_ms(self, cut: StreamCut) -> int:
        """Return about when the events behind a cut were appended, since 1970.  Raises NotFound, Unavailable."""
        return await self._source.ingested_ms(cut)

    async def is_truncated(self, cut: StreamCut) -> bool:
        """Return whether everything before a cut is truncated.  Raises NotFound, Unavailable."""
        head = (await self.edge("head")).positions
        infos = await segment_infos(self._session, self.stream, cut.positions)
        for segment, offset in cut.positions.items():
            info = infos.get(segment)
            # A segment that nothing was read of says nothing of those before it, unless the stream begins with it.
            if info is not None and (info.start_offset < offset or (offset == 0 and segment not in head)):
                return False
        return True

    async def follow(
        self, start: StreamCut, until_due: Callable[[], float] = endless
    ) -> AsyncGenerator[EventSlice | None, None]:
        """Yield the events behind a cut as they come, in the order of each segment and of segments that succeed one
        another; None whenever there is nothing at hand.  Raises NotFound, Unavailable, Corrupt.

        `until_due`: the seconds after which None is wanted at the latest."""

        async def bounds() -> tuple[StreamCut, None]:
            return start, None

        reader: EventReader[bytes] = EventReader(self._session, self.stream, bounds, skip_truncated=True)
        at, last = start, self._clock.monotonic()
        try:
            await reader.open()
            while True:
                idle = (self._clock.monotonic() - last) / EVENT_POLLS_OF_IDLE_TIME
                poll = max(0.0, min(max(idle, EVENT_POLL_SECONDS), self._max_poll_seconds, until_due()))
                found = await within(poll, reader.next_events())
                if found is None:
                    yield None
                    if reader.at_end:
                        await asyncio.sleep(poll)
                    continue
                events, begin = list(found.left), found.start
                end = reader.position()
                lost = self._lost(at, end, found)
                at = end
                begun = self._clock.monotonic()
                yield EventSlice(found.segment.packed, _offsets(begin, events), events, end, lost)
                # The process may serve the stream's writers, too.
                took = self._clock.monotonic() - begun
                await asyncio.sleep(min(took * EVENT_REST_SHARE, MAX_JOB_REST_SECONDS))
                last = self._clock.monotonic()
        finally:
            reader.close()

    def _lost(self, before: StreamCut, after: StreamCut, found: Events) -> int:
        """Return how many bytes were truncated between two slices, as far as it is known.

        Of a segment that was deleted before it was read, only what was seen of its length is."""
        lost = found.start - before.positions.get(found.segment, 0)
        for segment in before.positions.keys() - after.positions.keys():
            lost += max(0, self._source.seen_end(segment) - before.positions[segment])
        return lost


def _offsets(begin: int, events: Sequence[bytes]) -> list[int]:
    """Return where the header of each event begins, of events that follow one another."""
    found = []
    for event in events:
        found.append(begin)
        begin += EVENT_HEADER_BYTES + len(event)
    return found
