"""Spark's reader for batch reads.

Spark makes a reader, offers it the filters of the query, and asks it once for the partitions.  These fix the ends of
the read as offsets, so that every attempt of a task reads the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sarit.spark.client import ConnectedStream, connect, now_ms
from sarit.spark.source.bounded_ranges import batch_ranges, check_places, joined, piece_bytes, split
from sarit.spark.source.pushdown import PushedFilters
from sarit.spark.source.task import RangePartition, read_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from sarit.client.blocking.client import Client
    from sarit.core.names import StreamName
    from sarit.spark.formats.columns import Projection
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.event_search import EventSearch
    from sarit.spark.source.filters import Wanted
    from sarit.spark.source.options import ReadOptions
    from sarit.spark.source.ranges import Range


class BatchReader(DataSourceReader):
    """Reads the events between two positions, of one stream or of several."""

    def __init__(self, options: ReadOptions, projection: Projection, *, with_cut: bool = False) -> None:
        """`with_cut`: rows have a column `cut` with the end of the read."""
        self._options = options
        self._projection = projection
        self._with_cut = with_cut
        self.pushFilters = PushedFilters(options)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of segments that each task reads; none if there is nothing to read.

        Raises Invalid, NotFound, Truncated, Unavailable."""
        target = self._options.target
        with connect(target) as client:
            streams = self._options.selection.resolve(client.list_streams)
            check_places(self._options, streams, now_ms())
            accesses = [ConnectedStream(target, s, client) for s in streams if self._wanted.has_stream(s)]
            groups = plan(self._options, accesses, self._wanted, now_ms(), with_cut=self._with_cut)
            searches = self._searches(client, accesses, groups)
        return [RangePartition(*group, searches=searches) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one partition; Spark passes None if there is no partition."""
        if isinstance(partition, RangePartition):
            yield from read_ranges(self._options, partition, self._projection)

    def _searches(
        self, client: Client, accesses: Iterable[ConnectedStream], groups: Iterable[tuple[Range, ...]]
    ) -> dict[StreamName, EventSearch] | None:
        """Return the query for each stream that is read; None: all events are wanted."""
        search = self._options.search
        if search is None:
            return None
        parts = [part for group in groups for part in group]
        return {
            access.stream: search.of_stream(client, access, mine)
            for access in accesses
            if (mine := [part for part in parts if part.stream == access.stream])
        }

    @property
    def _wanted(self) -> Wanted:
        filters: object = self.pushFilters
        assert isinstance(filters, PushedFilters)
        return filters.wanted


def plan(
    options: ReadOptions, accesses: Sequence[StreamAccess], wanted: Wanted, present_ms: int, *, with_cut: bool = False
) -> list[tuple[Range, ...]]:
    """Return the ranges that each task reads.  Raises Invalid, NotFound, Truncated."""
    by_stream = {access.stream: access for access in accesses}
    found = [batch_ranges(options, access, wanted, present_ms, with_cut=with_cut) for access in accesses]
    ranges = [part for parts in found for part in parts]
    step = piece_bytes(ranges, options.min_partitions, options.max_bytes_per_partition)
    pieces = [piece for part in ranges for piece in split(part, step, by_stream[part.stream])]
    return joined(pieces, options.min_partitions, step)
