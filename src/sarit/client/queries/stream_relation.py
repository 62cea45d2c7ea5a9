"""A stream as a relation: what lies between two cuts, in parts by segment and recorded cut."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sarit.client.limits import QUERY_PARALLEL_SEGMENTS
from sarit.client.queries.timeline import Times, recorded_cuts, times_of
from sarit.client.reader import batch
from sarit.core.errors import Invalid
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.sql.limits import MAX_PARTS
from sarit.sql.ports import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from sarit.client.queries.access import QueryAccess
    from sarit.client.reader.batch import Slice
    from sarit.core.cuts import StreamCut
    from sarit.core.names import SegmentId


class StreamRelation:
    """The events of a stream between two cuts."""

    def __init__(self, access: QueryAccess, slices: Sequence[Slice], times: Mapping[SegmentId, Times]) -> None:
        self._access = access
        self._times = times
        self._slices = dict(enumerate(divided(slices, times)))
        self._parts = tuple(part_of(number, part, times[part.segment]) for number, part in self._slices.items())

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        from sarit.sql.rows import binary_schema

        return binary_schema()

    @property
    def parts(self) -> Sequence[Part]:
        """All of its rows, each in one part."""
        return self._parts

    def read(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some parts.  Raises Truncated, Unavailable, Forbidden."""
        from sarit.sql.rows import rows

        access = self._access
        slices = joined([self._slices[number] for number in numbers])
        reader = batch.BatchReader(access.session, slices, QUERY_PARALLEL_SEGMENTS, skip_truncated=False)
        ingested = _Ingested(self._times)
        for events in access.bridge.iterate(reader.arrow_batches()):
            access.meter.read(_length_of(events))
            yield rows(events, columns, ingested)


def _length_of(events: pa.RecordBatch) -> int:
    """Return how many bytes of its segment a batch of events is."""
    offsets, last = events.column(2), events.num_rows - 1
    return int(offsets[last].as_py() - offsets[0].as_py() + len(events.column(0)[last].as_py()) + EVENT_HEADER_BYTES)


class _Ingested:
    """Makes the column `sarit.ingested` of batches of one segment each."""

    def __init__(self, times: Mapping[SegmentId, Times]) -> None:
        import numpy as np

        self._arrays: dict[int, tuple[Any, Any]] = {
            segment.packed: (np.array(found.bounds, np.int64), np.array(found.times_us, np.int64))
            for segment, found in times.items()
        }

    def __call__(self, events: pa.RecordBatch) -> pa.Array:
        from sarit.sql.rows import ingested_at

        bounds, times = self._arrays[events.column(1)[0].as_py()]
        return ingested_at(bounds, times, events.column(2).to_numpy())


async def stream_relation(access: QueryAccess, start: StreamCut, end: StreamCut) -> StreamRelation:
    """Return a relation of what lies between two cuts and is not truncated.  Raises NotFound, Invalid."""
    session = access.session
    slices = await batch.slices_between(session, start, end, skip_truncated=True)
    try:
        cuts = await recorded_cuts(session, start.stream, session.env.clock.wall_ms())
    except Invalid:  # a server that records no cuts
        cuts = []
    segments = {part.segment for part in slices}
    return StreamRelation(access, slices, {segment: times_of(segment, cuts) for segment in segments})


def divided(slices: Sequence[Slice], times: Mapping[SegmentId, Times]) -> list[Slice]:
    """Return slices divided at recorded cuts (pure), in at most MAX_PARTS pieces if they were fewer before."""
    most = max(1, MAX_PARTS // max(1, len(slices)))
    found: list[Slice] = []
    for part in slices:
        inside = sorted({at for at in times[part.segment].bounds if part.start < at < part.end})
        step = -(-(len(inside) + 1) // most)
        bounds = [part.start, *inside[step - 1 :: step], part.end]
        found.extend(replace(part, start=low, end=high) for low, high in pairwise(bounds))
    return found


def part_of(number: int, part: Slice, times: Times) -> Part:
    """Return the bounds of a slice (pure)."""
    known = (0, *times.times_us)  # 1970 before the first cut
    inside = known[bisect_right(times.bounds, part.start) : bisect_right(times.bounds, part.end - 1) + 1]
    return Part(number, part.length, part.segment.packed, part.start, part.end, (min(inside), max(inside)))


def joined(slices: Sequence[Slice]) -> list[Slice]:
    """Return slices with those joined that adjoin (pure), so that each is one read."""
    found: list[Slice] = []
    for part in sorted(slices, key=lambda one: (one.segment, one.start)):
        if found and found[-1].segment == part.segment and found[-1].end == part.start:
            found[-1] = replace(found[-1], end=part.end)
        else:
            found.append(part)
    return found
