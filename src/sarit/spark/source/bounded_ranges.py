"""Plans a batch read: finds the ranges of segments between two cuts, and divides them into tasks.

Theory of operation.  Each segment between the two cuts is a range.  A range that is too long for a task is cut at event
boundaries that its store knows, without reading; they are at least about 256 KiB apart.  A task costs about as much as
reading a few MiB.  So if there are many more ranges than tasks, several ranges are joined to one task, which reads them
one after the other, in the order of their epochs and offsets.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sarit.core.cuts import StreamCut, to_text
from sarit.core.errors import Invalid
from sarit.spark.limits import SPARK_FILTER_STEP_BYTES, SPARK_FILTER_STEPS, SPARK_RANGE_BYTES
from sarit.spark.source.filters import EVERYTHING
from sarit.spark.source.ranges import Range, TruncationGuard, remaining_ranges
from sarit.spark.source.starts import Places, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sarit.core.keyspace import KeyRange
    from sarit.core.names import SegmentId, StreamName
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.filters import Wanted
    from sarit.spark.source.options import ReadOptions
    from sarit.spark.source.position import Position

# The least number of tasks (or `minPartitions`, if that is more); ranges are joined only if there are twice as many.
MIN_JOINED_TASKS: Final = 32


def check_places(options: ReadOptions, streams: Iterable[StreamName], present_ms: int) -> None:
    """Check that `start` and `end` fit the streams.  Raises Invalid."""
    selected = list(streams)
    for option, text in (("start", options.start), ("end", options.end)):
        Places(option, text, present_ms).check(selected)


def ends(options: ReadOptions, access: StreamAccess, present_ms: int) -> tuple[Position, Position]:
    """Return the start and end cuts of a read of one stream, as of now.  Raises NotFound, Truncated, Invalid."""
    start, end = (
        resolve(Places(option, text, present_ms).of(access.stream), access)
        for option, text in (("start", options.start), ("end", options.end))
    )
    return start, end


def batch_ranges(
    options: ReadOptions,
    access: StreamAccess,
    wanted: Wanted = EVERYTHING,
    present_ms: int = 0,
    *,
    with_cut: bool = False,
) -> list[Range]:
    """Return the ranges of a batch read of one stream: each segment between the two cuts that the filters leave.

    `with_cut`: ranges get the text of the end cut.  Raises Invalid, NotFound, Truncated."""
    guarded = TruncationGuard(access, fail=options.fail_on_data_loss)
    start, end = ends(options, access, present_ms)
    between = [part for part in _between(start, end, access) if wanted.has_segment(part[0])]
    if wanted.keys is not None:
        parts = {segment: keys for epoch in access.epochs() for segment, keys in epoch.items()}
        between = [part for part in between if wanted.has_keys(parts.get(part[0]))]
    found = remaining_ranges(between, guarded, fail=options.fail_on_data_loss)
    clipped = [clip(part, wanted, access) for part in found]
    cut = to_text(StreamCut(access.stream, end)) if with_cut else ""
    return [replace(part, cut=cut) for part in clipped if part.start < part.end]


def _between(start: Position, end: Position, access: StreamAccess) -> list[tuple[SegmentId, int, int | None]]:
    """Return (segment, start, end) for all segments from the start cut along successors to the end cut.  End None: the
    segment's end.  Raises Invalid if the end cut is not reached."""
    found: list[tuple[SegmentId, int, int | None]] = []
    todo = dict(start)
    seen: set[SegmentId] = set()
    # Get successors from the stream's epochs by one request, instead of a request for each segment.
    known = successors_by_epochs(access.epochs()) if start.keys() - end.keys() else {}
    while todo:
        segment = min(todo)
        seen.add(segment)
        found.append((segment, todo.pop(segment), end.get(segment)))
        if segment not in end:
            # Ask for a segment of an epoch before the head, which `epochs` does not return.
            following = known[segment] if segment in known else access.successors(segment)
            todo.update({successor: 0 for successor in following if successor not in seen})
    if not seen >= set(end):
        raise Invalid(f"the end of the read of {access.stream} lies before its start")
    return found


def successors_by_epochs(epochs: Sequence[Mapping[SegmentId, KeyRange]]) -> dict[SegmentId, list[SegmentId]]:
    """Return the successors of each segment that was replaced in these epochs."""
    found: dict[SegmentId, list[SegmentId]] = {}
    for before, after in pairwise(epochs):
        created = [(segment, keys) for segment, keys in after.items() if segment not in before]
        for segment, keys in before.items():
            if segment not in after:
                found[segment] = [successor for successor, part in created if part.overlaps(keys)]
    return found


def clip(part: Range, wanted: Wanted, access: StreamAccess) -> Range:
    """Return the part of a range with the wanted offsets, extended to event boundaries that the store knows."""
    start, end = part.start, part.end
    step, reach = SPARK_FILTER_STEP_BYTES, SPARK_FILTER_STEP_BYTES * SPARK_FILTER_STEPS
    if wanted.low >= end or (wanted.high is not None and wanted.high < start):
        return replace(part, end=start)
    if wanted.low > start + step:
        before = access.boundaries(part.segment, max(start, wanted.low - reach), wanted.low + 1, step)
        start = before[-1] if before else start
    if wanted.high is not None and wanted.high + step < end:
        after = access.boundaries(part.segment, wanted.high, min(end, wanted.high + reach), step)
        end = after[0] if after else end
    return replace(part, start=start, end=end)


def piece_bytes(ranges: Sequence[Range], min_partitions: int | None, most_bytes: int) -> int:
    """Return how many bytes a task may read, so that there are at least `min_partitions` tasks."""
    total = sum(part.end - part.start for part in ranges)
    return max(1, min(most_bytes, -(-total // min_partitions) if min_partitions else most_bytes))


def split(part: Range, most_bytes: int, access: StreamAccess) -> list[Range]:
    """Cut a range into equal pieces of about `most_bytes` at most, at boundaries that the store knows."""
    length = part.end - part.start
    pieces = -(-length // most_bytes)
    if pieces <= 1:
        return [part]
    inner = access.boundaries(part.segment, part.start, part.end, -(-length // pieces))
    return [replace(part, start=low, end=high) for low, high in pairwise([part.start, *inner, part.end])]


def joined(pieces: Sequence[Range], min_partitions: int | None, most_bytes: int) -> list[tuple[Range, ...]]:
    """Divide pieces among tasks of about equal size; if there are not very many pieces, each gets a task of its own."""
    least = max(MIN_JOINED_TASKS, min_partitions or 0)
    costs = [part.end - part.start + SPARK_RANGE_BYTES for part in pieces]
    count = max(least, -(-sum(costs) // most_bytes))
    if len(pieces) < 2 * count:
        return [(part,) for part in pieces]
    # Assign the largest pieces first, each to the task with the least bytes.
    loads = [(0, task) for task in range(count)]
    tasks: list[list[Range]] = [[] for _ in range(count)]
    for cost, index in sorted(zip(costs, range(len(pieces)), strict=True), key=lambda found: (-found[0], found[1])):
        load, task = heapq.heappop(loads)
        tasks[task].append(pieces[index])
        heapq.heappush(loads, (load + cost, task))
    return [tuple(sorted(task, key=lambda part: (part.stream, part.segment, part.start))) for task in tasks]
