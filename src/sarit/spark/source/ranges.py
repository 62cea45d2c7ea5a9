"""The ranges that tasks read.  If they were truncated meanwhile, the query fails with an explanation, or continues.

Theory of operation.  A truncation may happen between any two steps: while the query is stopped, between the planning of
a micro-batch and its tasks, during a task's read.  Offsets in Spark's checkpoint do not change with it, so each step
checks where the segments begin now:

* positions move above truncated data before the next micro-batch is planned (`clamp_to_start`);
* ranges between two offsets begin where their segments begin now (`remaining_ranges`);
* a read below the new start of its segment continues at that start (`TruncationGuard`).

With `failOnDataLoss` each of the three fails instead.  Without it, a repeated micro-batch has those events of its first
run that still exist, at the same offsets, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid, NotFound, SaritError, Truncated
from sarit.spark.source.position import to_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import pyarrow as pa

    from sarit.core.names import SegmentId, StreamName
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.position import Position, SegmentState

_DATA_LOSS_ADVICE: Final = (
    'the stream was truncated or deleted; .option("failOnDataLoss", "false") continues with the remaining data'
)
# An offset beyond all offsets.
_NOWHERE: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of one segment between two event boundaries.

    `cut`: the text of the cut where the read of the stream ends, for the column `cut`; else empty.

    `times`: (offset, ms), ascending: the times noted by writers, each from its offset on (`noted_times.py`)."""

    stream: StreamName
    segment: SegmentId
    start: int
    end: int
    cut: str = ""
    times: tuple[tuple[int, int], ...] = ()


def data_loss_error(segment: SegmentId, at: int, start: int | None) -> SaritError:
    """Return the error for a segment to be read from offset `at` that now begins at `start`; None: it was deleted."""
    what = f"segment {to_name(segment)}, to be read from offset {at},"
    if start is None:
        return NotFound(f"{what} was deleted, with any unread events: {_DATA_LOSS_ADVICE}")
    return Truncated(f"{what} begins at offset {start} now: {_DATA_LOSS_ADVICE}", start)


def remade_error(stream: StreamName) -> SaritError:
    """Return the error for a stream that was recreated since the checkpoint."""
    return NotFound(
        f"stream {stream} is not the one of the checkpoint: it was deleted and made again, with any unread events; use "
        'another checkpointLocation, or .option("failOnDataLoss", "false") to go on from the head of the new stream'
    )


def clamp_to_start(
    position: Position, states: Mapping[SegmentId, SegmentState], *, fail: bool, ended: Collection[SegmentId] = ()
) -> Position:
    """Return a position moved above truncated data.  `fail`: raise NotFound or Truncated instead.  Raises Invalid for
    an offset beyond the end of its segment.

    A deleted segment stays in the position, as finished, if data loss is allowed or it is one of `ended`, which were
    sealed and read to their ends while their store could still be asked.
    """
    moved = dict(position)
    for segment, at in position.items():
        state = states.get(segment)
        if fail and state is None and segment not in ended:
            raise data_loss_error(segment, at, None)
        if state is not None:
            if fail and at < state.start:
                raise data_loss_error(segment, at, state.start)
            _check_end(segment, at, state)
            moved[segment] = max(at, state.start)
    return moved


def _check_end(segment: SegmentId, at: int, state: SegmentState) -> None:
    """Check that an offset is not beyond its segment's end: ends only grow, so it was never reported, and a read up to
    it would wait for ever.  Raises Invalid."""
    if at > state.end:
        raise Invalid(f"offset {at} is beyond the end of segment {to_name(segment)}, which is at {state.end}")


def remaining_ranges(
    wanted: Iterable[tuple[SegmentId, int, int | None]], access: StreamAccess, *, fail: bool
) -> list[Range]:
    """Return the ranges that remain of `wanted`, (segment, start, end), without empty ones.  End None: the segment's
    end.  Raises NotFound, Truncated, Invalid (an end before its start, or beyond the end of its segment)."""
    # The segment of an empty range may be deleted, so do not ask for its state.
    unread = [part for part in wanted if part[1] != part[2]]
    states = access.states([segment for segment, _, _ in unread]) if unread else {}
    found: list[Range] = []
    for segment, at, end in unread:
        if end is not None and at > end:
            where = f"offset {at} of segment {to_name(segment)}"
            raise Invalid(f"the read would begin at {where}, and end before it, at {end}")
        start = clamp_to_start({segment: at}, states, fail=fail)[segment]
        state = states.get(segment)
        if state is not None:
            _check_end(segment, end or 0, state)
            found.append(Range(access.stream, segment, start, state.end if end is None else end))
    return [part for part in found if part.start < part.end]


class TruncationGuard:
    """A `StreamAccess` whose reads continue above a truncation, or (`fail`) raise an error with advice."""

    def __init__(self, access: StreamAccess, *, fail: bool) -> None:
        self._access = access
        self._fail = fail
        self.stream = access.stream
        self.cut = access.cut
        self.states = access.states
        self.successors = access.successors
        self.boundaries = access.boundaries
        self.epochs = access.epochs
        self.creation_id = access.creation_id
        self.properties = access.properties
        self.cut_at = access.cut_at
        self.marks = access.marks
        self.watermarks = access.watermarks
        self.close = access.close

    def event_ends(self, segment: SegmentId, start: int, end: int, max_bytes: int) -> list[int]:
        """Return where the first events end, of those that remain if data loss is allowed.  Raises NotFound,
        Truncated."""
        while start < end:
            try:
                return self._access.event_ends(segment, start, end, max_bytes)
            except (NotFound, Truncated) as error:
                start = self._begins_after(segment, start, error)
        return []

    def batches(self, segment: SegmentId, start: int, end: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield the events between two byte offsets; the remaining ones if data loss is allowed.  Raises NotFound,
        Truncated.  No event comes twice: those that were read before lie below the truncation."""
        while start < end:
            try:
                yield from self._access.batches(segment, start, end)
                return
            except (NotFound, Truncated) as error:
                begins = self._begins_after(segment, start, error)
                if begins >= end:
                    return
                start = begins

    def _begins_after(self, segment: SegmentId, start: int, error: SaritError) -> int:
        """Return the offset at which to continue after an error; _NOWHERE: give the segment up.  With `fail`, raises
        the error with advice."""
        begins = error.start_offset if isinstance(error, Truncated) else None
        if self._fail:
            raise data_loss_error(segment, start, begins) from error
        # Give the segment up if it was deleted (`begins` is None), or if the truncation is not above `start`: the same
        # read would fail again for ever.
        return begins if begins is not None and begins > start else _NOWHERE
