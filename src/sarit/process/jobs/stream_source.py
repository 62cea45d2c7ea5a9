"""A stream as a committer reads it (`lake/ports.py`): by a client of this process.

*Truncation.*  Retention may be ahead of a committer.  Then the segments between two cuts begin later than the first cut
says, or are gone.  What is left between the cuts is read; what is missing is counted in bytes, at least as far as it is
known: the length of a segment that was deleted is known only if it was seen sealed.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from sarit.client.core.identity import creation_id
from sarit.client.core.segments import resolve_cut, segment_infos
from sarit.client.reader import batch, boundaries
from sarit.client.reader.progress import Progress
from sarit.client.streams import history
from sarit.client.streams.recorded_cuts import recorded_cut
from sarit.controller.model.cuts import follows
from sarit.controller.model.epochs import SegmentRange
from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid, NotFound, Truncated
from sarit.env.background import gather
from sarit.lake.ports import Gap
from sarit.process.jobs.cut_times import CutTimes
from sarit.process.limits import JOB_READ_BYTES, MAX_JOB_REST_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    import pyarrow as pa

    from sarit.client.core.values import SegmentInfo, Successor
    from sarit.client.session.session import Session
    from sarit.client.streams.recorded_cuts import RecordedCut
    from sarit.controller.model.cuts import Cut
    from sarit.core.names import SegmentId, StreamName
    from sarit.env.ports import Clock


class StreamSource:
    """One stream, read by a session of a client."""

    def __init__(self, session: Session, stream: StreamName, clock: Clock) -> None:
        self.stream = stream
        self._session = session
        self._clock = clock
        self._times = CutTimes(self._recorded, self.is_before, clock)
        self._ranges = history.Ranges(session, stream)
        # The ends at which segments were seen, and whether they were sealed there, for those deleted meanwhile.
        self._seen: dict[SegmentId, tuple[int, bool]] = {}

    def __repr__(self) -> str:
        return f"<StreamSource {self.stream}>"

    async def identity(self) -> str:
        """Return the creation id of the stream, in hexadecimal digits.  Raises NotFound, Invalid."""
        found = await creation_id(self._session, self.stream.scope, stream=self.stream.stream)
        if found is None:
            raise Invalid(f"the server of {self.stream} is not Sarit: its streams have no creation ids")
        return found.hex()

    async def edge(self, which: str) -> StreamCut:
        """Return the cut of the "head" or the "tail".  Raises NotFound."""
        found = await resolve_cut(self._session, self.stream, which)
        assert found is not None
        return found

    async def bytes_behind(self, cut: StreamCut) -> int:
        """Return how many bytes the stream has behind a cut.  Raises NotFound."""
        infos = await _infos_between(self._session, cut, await self.edge("tail"))
        oldest = min(segment.epoch for segment in cut.positions)
        self._seen = {segment: seen for segment, seen in self._seen.items() if segment.epoch >= oldest}
        self._seen |= {s: (info.end_offset, info.sealed) for s, info in infos.items() if info is not None}
        at = cut.positions
        return sum(
            info.end_offset - max(at.get(segment, 0), info.start_offset)
            for segment, info in infos.items()
            if info is not None
        )

    def seen_end(self, segment: SegmentId) -> int:
        """Return the end at which a segment was seen by `bytes_behind`; 0: it was not seen lately."""
        return self._seen.get(segment, (0, False))[0]

    async def is_finished(self, cut: StreamCut) -> bool:
        """Return whether the stream is sealed, and nothing is behind a cut.  Raises NotFound."""
        active = await self._session.with_retry(lambda: self._session.controller.current_segments(self.stream))
        return not active and not await self.bytes_behind(cut)

    async def next_cut(self, start: StreamCut, distance_bytes: int) -> StreamCut:
        """Return a cut about so many bytes after `start`; `start` itself: there is nothing behind it.

        The distance goes first to the segments with little left, so the cut is as far as it may be however the bytes
        are spread.  Raises NotFound."""
        progress = Progress(start.positions, None)
        left = distance_bytes
        while True:
            infos = await segment_infos(self._session, self.stream, progress.positions)
            if not await self._follow(progress, infos):
                continue
            at = progress.positions
            available = {s: infos[s].end_offset - max(at[s], infos[s].start_offset) for s in at if s in infos}
            wanted = quotas({s: length for s, length in available.items() if length > 0}, left)
            if not wanted:
                return StreamCut(self.stream, at)
            moved = await gather(*(self._moved(s, at[s], share, infos[s]) for s, share in wanted.items()))
            for segment, offset in zip(wanted, moved, strict=True):
                left -= offset - max(at[segment], infos[segment].start_offset)
            progress.positions = at | dict(zip(wanted, moved, strict=True))
            if left <= 0:
                return StreamCut(self.stream, progress.positions)

    async def _follow(self, progress: Progress, infos: Mapping[SegmentId, SegmentInfo]) -> bool:
        """Replace the segments that are read to their ends, or gone, by their successors.  Returns whether there were
        none."""
        new = False
        for segment in progress.unfinished():
            info = infos.get(segment)
            if info is None or (info.sealed and max(progress.positions[segment], info.start_offset) >= info.end_offset):
                new |= bool(progress.followed(segment, await self._successors(segment)))
        return not new

    async def _successors(self, segment: SegmentId) -> list[Successor]:
        return await self._session.with_retry(lambda: self._session.controller.successors(self.stream, segment))

    async def _moved(self, segment: SegmentId, at: int, share: int, info: SegmentInfo) -> int:
        """Return an event boundary about `share` bytes behind what is left of a segment at an offset."""
        begin = max(at, info.start_offset)
        if begin + share >= info.end_offset:
            return info.end_offset
        return min(await boundaries.locate(self._session, self.stream, segment, begin + share), info.end_offset)

    # -- times ----------------------------------------------------------------------------------------

    async def ingested_ms(self, cut: StreamCut) -> int:
        """Return the time, since 1970, of the newest recorded cut that is nowhere after a cut; if there is none, that
        of the oldest one, or the present time.  Raises NotFound."""
        return await self._times.of(cut)

    async def _recorded(self, time_ms: int) -> RecordedCut | None:
        return await recorded_cut(self._session, self.stream, time_ms)

    async def is_before(self, earlier: StreamCut, later: StreamCut) -> bool:
        """Return whether a cut is nowhere behind another one; False, too, if segments of them are not known any more:
        then an older record is found, and reading goes on.  Raises Unavailable.

        Epochs that the cuts before had, too, are not asked for: a segment's range never changes, and its id is never
        used again, not even by a recreated stream."""
        early, late = earlier.positions, later.positions
        if any(early[segment] > late[segment] for segment in early.keys() & late.keys()):
            return False
        if early.keys() == late.keys():
            return True
        try:
            ranges = await self._ranges.of({*early, *late})
        except (NotFound, Corrupt):
            return False
        known = {s.packed: SegmentRange(found.low, found.high, s.packed) for s, found in ranges.items()}
        return follows(known, _packed(earlier), _packed(later))

    async def _lost(self, start: StreamCut, end: StreamCut) -> int:
        infos = await _infos_between(self._session, start, end)
        return lost_between(start.positions, end.positions, infos, self._seen)

    # -- reading --------------------------------------------------------------------------------------

    async def read(self, start: StreamCut, end: StreamCut) -> AsyncGenerator[pa.RecordBatch | Gap, None]:
        """Yield what lies between two cuts as batches (event, segment, offset), and the gaps.  Raises NotFound,
        Corrupt."""
        slices = await batch.slices_between(self._session, start, end, skip_truncated=True)
        if lost := await self._lost(start, end):
            yield Gap(lost)
        for part in sorted(slices, key=lambda part: part.segment):
            rest: batch.Slice | None = part
            while rest is not None:
                try:
                    reading = batch.read_slice(self._session, rest, batch.as_arrow(), JOB_READ_BYTES)
                    async with aclosing(reading) as batches:
                        begun = self._clock.monotonic()
                        async for found in batches:
                            yield found
                            # Rest as long as the piece took: the process may serve the stream's writers, too.
                            took = self._clock.monotonic() - begun
                            await asyncio.sleep(min(took, MAX_JOB_REST_SECONDS))
                            begun = self._clock.monotonic()
                    break
                except Truncated as error:
                    at, rest = rest, batch.remaining_after(rest, error)
                    yield Gap((at.end if rest is None else rest.start) - at.start)


def _packed(cut: StreamCut) -> Cut:
    return {segment.packed: offset for segment, offset in cut.positions.items()}


async def _infos_between(session: Session, start: StreamCut, end: StreamCut) -> dict[SegmentId, SegmentInfo | None]:
    """Return the segments from one cut to another with their infos; None: it was deleted."""
    wanted = await history.between(session, start, end)
    found = await segment_infos(session, start.stream, wanted)
    return {segment: found.get(segment) for segment in wanted}


def lost_between(
    start: Mapping[SegmentId, int],
    end: Mapping[SegmentId, int],
    infos: Mapping[SegmentId, SegmentInfo | None],
    seen: Mapping[SegmentId, tuple[int, bool]],
) -> int:
    """Return at least how many bytes between two cuts were truncated (pure).

    `infos`: None: the segment was deleted.  `seen`: the ends at which segments were seen, and whether they were sealed
    there.  A deleted segment of which neither says its end counts 1: something may be lost, and it has to be shown."""
    lost = 0
    for segment, info in infos.items():
        begin = start.get(segment, 0)
        if info is not None:
            lost += max(0, min(info.start_offset, end.get(segment, info.end_offset)) - begin)
            continue
        last, sealed = (end[segment], True) if segment in end else seen.get(segment, (0, False))
        lost += max(last - begin, 0 if sealed else 1)
    return lost


def quotas(available: Mapping[SegmentId, int], total: int) -> dict[SegmentId, int]:
    """Divide a number of bytes among segments (pure): each gets what it has, or as much as the others that have more.

    `available`: more than 0 for each.  At least 1 byte each, so that a cut moves on."""
    found: dict[SegmentId, int] = {}
    left, waiting = total, len(available)
    for segment, length in sorted(available.items(), key=lambda item: (item[1], item[0])):
        found[segment] = max(1, min(length, left // waiting))
        left -= found[segment]
        waiting -= 1
    return found
