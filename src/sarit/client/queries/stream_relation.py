"""A stream as a relation: what lies between two cuts, in parts by segment and recorded cut."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sarit.client.limits import QUERY_PARALLEL_SEGMENTS, QUERY_SAMPLE_EVENTS
from sarit.client.queries.timeline import Times, recorded_cuts, times_of
from sarit.client.reader import batch
from sarit.client.streams import properties
from sarit.core.errors import Invalid
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.sql.limits import MAX_PARTS
from sarit.sql.ports import Part

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    import pyarrow as pa

    from sarit.client.queries.access import QueryAccess
    from sarit.client.queries.values import Values
    from sarit.client.reader.batch import Slice
    from sarit.core.cuts import StreamCut
    from sarit.core.names import SegmentId, StreamName
    from sarit.sql.rows import RowMaker


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The part of a stream that a query reads, and what is known of it."""

    name: StreamName
    slices: tuple[Slice, ...]
    times: Mapping[SegmentId, Times]
    properties: Mapping[str, str]


class StreamRelation:
    """The events of a stream between two cuts."""

    def __init__(self, access: QueryAccess, plan: StreamPlan, rows: RowMaker) -> None:
        self._access = access
        self._times = plan.times
        self._rows = rows
        self._slices = dict(enumerate(divided(plan.slices, plan.times)))
        self._parts = tuple(part_of(number, part, plan.times[part.segment]) for number, part in self._slices.items())

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self._rows.schema

    @property
    def parts(self) -> Sequence[Part]:
        """All of its rows, each in one part."""
        return self._parts

    def read(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some parts.  Raises Truncated, Unavailable, Forbidden."""
        import numpy as np

        access, arrays = self._access, {}
        for segment, found in self._times.items():
            arrays[segment.packed] = np.array(found.bounds, np.int64), np.array(found.times_us, np.int64)
        for events in read_slices(access, joined([self._slices[number] for number in numbers])):
            access.meter.read(_length_of(events))
            yield self._rows.rows(events, columns, *arrays[events.column(1)[0].as_py()])


def read_slices(access: QueryAccess, slices: Sequence[Slice]) -> Generator[pa.RecordBatch, None, None]:
    """Return the events of slices as batches (event, segment, offset).  Raises Truncated, Unavailable, Forbidden."""
    reader = batch.BatchReader(access.session, list(slices), QUERY_PARALLEL_SEGMENTS, skip_truncated=False)
    return access.bridge.iterate(reader.arrow_batches())


def relation_of(
    access: QueryAccess,
    plan: StreamPlan,
    values: Values,
    *,
    known: pa.Schema | None = None,
    whole: bool = False,
) -> StreamRelation:
    """Return the relation of a plan.  Blocks.  Raises what `ValueOptions.columns` raises.

    `known`: the columns that earlier values have in a table.  `whole`: events that do not fit are left out."""
    from sarit.sql.rows import RowMaker

    def sample() -> Iterator[bytes | None]:
        from sarit.sql.rows import split

        left = QUERY_SAMPLE_EVENTS
        with closing(read_slices(access, plan.slices)) as batches:
            for events in batches:
                yield from split(events.column(0).slice(0, left), ())[1].to_pylist()
                left -= events.num_rows
                if left <= 0:
                    return

    columns = values.columns(plan.name, plan.properties, sample, known)
    return StreamRelation(access, plan, RowMaker(columns, access.meter, whole=whole))


def _length_of(events: pa.RecordBatch) -> int:
    """Return how many bytes of its segment a batch of events is."""
    offsets, last = events.column(2), events.num_rows - 1
    return int(offsets[last].as_py() - offsets[0].as_py() + len(events.column(0)[last].as_py()) + EVENT_HEADER_BYTES)


async def plan_stream(access: QueryAccess, start: StreamCut, end: StreamCut, *, whole: bool = False) -> StreamPlan:
    """Return the plan of what lies between two cuts.  `whole`: nothing of it may be truncated, else it is skipped.

    Raises NotFound, Invalid, Truncated."""
    session, name = access.session, start.stream
    slices = await batch.slices_between(session, start, end, skip_truncated=not whole)
    now_ms = session.env.clock.wall_ms()
    try:
        cuts = await recorded_cuts(session, name, now_ms)
    except Invalid:  # a server that records no cuts
        cuts = []
    times = {segment: times_of(segment, cuts, now_ms) for segment in {part.segment for part in slices}}
    return StreamPlan(name, tuple(slices), times, await properties.read(session, name))


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
    inside = times.times_us[bisect_right(times.bounds, part.start) : bisect_right(times.bounds, part.end - 1) + 1]
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
