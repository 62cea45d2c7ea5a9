"""Plans a read of a stream's Iceberg table with the tail of the stream (pure): the table at one snapshot, and the
stream from exactly the cut that this snapshot holds.

Each commit of a committer says in its snapshot up to which cut of the stream the table has the events
(`lake/cuts.py`).  What lies above that cut is in no file of the snapshot, and nothing below it is read from the stream:
so the two parts together have each event once, whatever is committed meanwhile.

If the events right above the cut were truncated, then a later snapshot may have them, so the table is loaded again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sarit.core.cuts import to_text
from sarit.core.errors import Invalid, NotFound, Truncated
from sarit.lake import cuts
from sarit.lake.problems import FOREIGN, OTHER_STREAM, TableProblem
from sarit.spark.limits import SPARK_VIEW_ATTEMPTS
from sarit.spark.source.bounded_ranges import batch_ranges, joined, piece_bytes, split

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.lake.cuts import Mark
    from sarit.lake.ports import TableView
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.options import ReadOptions
    from sarit.spark.source.ranges import Range


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """A table at its newest snapshot, and the ranges of the stream that each task reads besides.

    `ingested_ms`: a lower bound of when the events of these ranges came into the stream; 0: unknown."""

    table: TableView
    tail: Sequence[tuple[Range, ...]]
    ingested_ms: int


def planned(name: str, options: ReadOptions, load: Callable[[], TableView], access: StreamAccess) -> ViewPlan:
    """Return the plan of a read.  `name`: of the table, for errors.

    Raises TableProblem (the table is of another stream, or of none), NotFound (the stream), Truncated (the stream lacks
    events that the table does not have either), Invalid (nothing was committed yet), and what `load` raises."""
    identity = access.creation_id()
    table = load()
    for attempt in range(1, SPARK_VIEW_ATTEMPTS + 1):
        mark = reached(name, table, identity, str(access.stream))
        try:
            tail = _tail(replace(options, start=to_text(mark.cut), end="tail"), access)
        except (NotFound, Truncated) as error:
            later = load()
            if later.head == table.head or attempt == SPARK_VIEW_ATTEMPTS:
                raise _truncated(name, access, error) from None
            table = later
            continue
        return ViewPlan(table, tail, _ingested_ms(table, mark))
    raise AssertionError("the last attempt returns or raises")


def reached(name: str, table: TableView, identity: bytes | None, stream: str) -> Mark:
    """Return the cut that the newest snapshot of a table holds.  Raises TableProblem, Invalid."""
    properties = table.properties
    if cuts.FORMAT not in properties:
        raise TableProblem(FOREIGN, f"table {name} is not the table of a stream: nothing says which events it has")
    if properties[cuts.FORMAT] != cuts.TABLE_FORMAT:
        raise TableProblem(FOREIGN, f"table {name} was made by a newer version of Sarit")
    if identity is None or properties.get(cuts.STREAM_ID) != identity.hex():
        of = properties.get(cuts.STREAM, "another stream")[:200]
        deleted = ", or of one of this name that was deleted" if of == stream else ""
        raise TableProblem(OTHER_STREAM, f"table {name} is the table of {of}{deleted}, not of {stream}")
    mark = cuts.cut_of(table.snapshots, table.head, properties)
    if mark is None:
        raise Invalid(
            f"table {name} has no commit of {stream} yet: wait for the first one, or read the stream without iceberg"
        )
    return mark


def _tail(options: ReadOptions, access: StreamAccess) -> Sequence[tuple[Range, ...]]:
    ranges = batch_ranges(options, access)
    step = piece_bytes(ranges, options.min_partitions, options.max_bytes_per_partition)
    pieces = [piece for part in ranges for piece in split(part, step, access)]
    return joined(pieces, options.min_partitions, step)


def _truncated(name: str, access: StreamAccess, error: NotFound | Truncated) -> NotFound | Truncated:
    text = (
        f"stream {access.stream} was truncated above what table {name} has: those events are in neither, and its "
        f"committer is behind or has stopped; read the table alone by Iceberg's connector ({error})"
    )
    return NotFound(text) if isinstance(error, NotFound) else Truncated(text, error.start_offset)


def _ingested_ms(table: TableView, mark: Mark) -> int:
    """Return the bound of the mark's commit, which holds for all later events, too."""
    for snapshot in table.snapshots:
        text = snapshot.summary.get(cuts.INGESTED, "")
        if snapshot.id == mark.snapshot_id and text.isascii() and text.isdecimal():
            return int(text)
    return 0
