"""Rows about streams, segments, reader groups and tables: `.option("metadata", ...)`.

The driver lists names, and each task makes the rows for some of them.  Things deleted in between are left out.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sarit.core.errors import NotFound
from sarit.core.names import StreamName, is_user_name
from sarit.env.real import RealClock
from sarit.spark.client import connect
from sarit.spark.tables import options as names
from sarit.spark.tables.columns import STRINGS, TIMESTAMP, batch_of, chosen, ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from pyspark.sql.types import StructType

    from sarit.client.blocking.client import Client
    from sarit.client.core.values import SegmentInfo, SegmentRange
    from sarit.core.names import SegmentId
    from sarit.core.policies import StreamConfig
    from sarit.spark.tables.options import MetadataOptions

NAMES_PER_TASK: Final = 64

_NAME = [("scope", pa.string()), ("stream", pa.string())]
_SEGMENT = [*_NAME, ("segment_id", pa.int64()), ("epoch", pa.int32()), ("number", pa.int32())]
_KEYS = [("key_low", pa.float64()), ("key_high", pa.float64())]

STREAMS: Final = pa.schema([
    *_NAME, ("tags", STRINGS), ("segments", pa.int32()), ("epochs", pa.int32()), ("bytes", pa.int64()),
    ("sealed", pa.bool_()), ("scaling", pa.string()), ("target_rate", pa.int32()), ("scale_factor", pa.int32()),
    ("min_segments", pa.int32()), ("retention", pa.string()), ("retention_limit", pa.int64()),
    ("retention_maximum", pa.int64()), ("head", pa.string()), ("tail", pa.string()), ("modified", TIMESTAMP),
])  # fmt: skip
SEGMENTS: Final = pa.schema([
    *_SEGMENT, *_KEYS, ("start_offset", pa.int64()), ("end_offset", pa.int64()), ("bytes", pa.int64()),
    ("sealed", pa.bool_()), ("active", pa.bool_()), ("modified", TIMESTAMP), ("node", pa.string()),
])  # fmt: skip
GROUPS: Final = pa.schema([
    ("scope", pa.string()), ("group", pa.string()), ("reader", pa.string()), ("state", pa.string()),
    ("stream_scope", pa.string()), ("stream", pa.string()), *_SEGMENT[2:], ("position", pa.int64()),
    ("end_offset", pa.int64()), ("lag_bytes", pa.int64()),
])  # fmt: skip
HEAT: Final = pa.schema([
    *_SEGMENT, *_KEYS, ("end_offset", pa.int64()), ("bytes_per_second", pa.float64()), ("share", pa.float64()),
    ("idle_seconds", pa.float64()), ("node", pa.string()),
])  # fmt: skip
TABLES: Final = pa.schema([
    ("scope", pa.string()), ("table", pa.string()), ("primary_key_bytes", pa.int32()),
    ("secondary_key_bytes", pa.int32()), ("partitions", pa.int32()),
])  # fmt: skip

Row = tuple["Any", ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of metadata: its columns, the names that the driver lists, and the rows of some names."""

    schema: pa.Schema
    list: Callable[[Client, MetadataOptions], Iterator[StreamName]]
    rows: Callable[[Client, MetadataOptions, Sequence[StreamName]], Iterator[Row]]


class NamesPartition(InputPartition):
    """The names of one task."""

    def __init__(self, names: Sequence[StreamName]) -> None:
        super().__init__(names)
        self.names = names


class MetadataReader(DataSourceReader):
    """A batch read of metadata."""

    def __init__(self, options: MetadataOptions, schema: StructType) -> None:
        """Raises Invalid for unknown columns."""
        self._options = options
        self._columns = chosen(KINDS[options.kind].schema, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the names for each task."""
        with connect(self._options.target) as client:
            found = list(KINDS[self._options.kind].list(client, self._options))
        return [NamesPartition(found[at : at + NAMES_PER_TASK]) for at in range(0, len(found), NAMES_PER_TASK)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some names; Spark passes None if there are no names."""
        if not isinstance(partition, NamesPartition):
            return
        kind = KINDS[self._options.kind]
        with connect(self._options.target) as client:
            rows = list(kind.rows(client, self._options, partition.names))
        yield batch_of(kind.schema, rows, self._columns)


def schema_of(kind: str) -> str:
    """Return the columns of a kind of metadata as DDL text for Spark."""
    return ddl(KINDS[kind].schema)


# -- names ------------------------------------------------------------------------------------------


def _scopes(client: Client, options: MetadataOptions) -> Iterator[str]:
    if options.scope is not None:
        yield options.scope
    else:
        yield from (scope for scope in client.list_scopes() if is_user_name(scope))


def _streams(client: Client, options: MetadataOptions) -> Iterator[StreamName]:
    if options.stream is not None:
        client.stream(options.stream).segments()  # raises NotFound
        yield options.stream
        return
    for scope in _scopes(client, options):
        yield from client.list_streams(scope)


def _groups(client: Client, options: MetadataOptions) -> Iterator[StreamName]:
    for scope in _scopes(client, options):
        for name in client.reader_groups.list(scope):
            yield StreamName(scope, name.partition("/")[2])


def _tables(client: Client, options: MetadataOptions) -> Iterator[StreamName]:
    for scope in _scopes(client, options):
        yield from client.tables.list(scope)


# -- rows -------------------------------------------------------------------------------------------


def _stream_rows(client: Client, _: MetadataOptions, streams: Sequence[StreamName]) -> Iterator[Row]:
    for name in streams:
        try:
            found = client.stream_info(name)
            epochs, infos = _segments(client, name)
        except NotFound:
            continue
        size = sum(info.end_offset - info.start_offset for info in infos.values())
        modified = max((info.modified_ms for info in infos.values()), default=None)
        config = found.config
        yield (
            name.scope, name.stream, list(config.tags), len(found.segments), epochs, size, found.sealed,
            *_scaling(config), config.retention.type.name.lower(), config.retention.limit, config.retention.maximum,
            str(found.head), str(found.tail), modified,
        )  # fmt: skip


def _scaling(config: StreamConfig) -> Row:
    policy = config.scaling
    return (policy.type.name.lower(), policy.target_rate, policy.scale_factor, policy.min_segments)


def _segments(client: Client, name: StreamName) -> tuple[int, dict[SegmentId, SegmentInfo]]:
    """Return the number of epochs that hold data, and all segments that exist."""
    epochs = client.stream(name).epochs()
    wanted = dict.fromkeys(part.segment for epoch in epochs for part in epoch.segments)
    return len(epochs), dict(client.segment_infos(name, wanted))


def _segment_rows(client: Client, _: MetadataOptions, streams: Sequence[StreamName]) -> Iterator[Row]:
    for name in streams:
        try:
            stream = client.stream(name)
            ranges = {part.segment: part for epoch in stream.epochs() for part in epoch.segments}
            active = {part.segment for part in stream.segments()}
            infos = client.segment_infos(name, sorted(ranges))
            nodes = stream.nodes(infos)
        except NotFound:
            continue
        for segment, info in infos.items():
            yield (
                *_identity(name, ranges[segment]), info.start_offset, info.end_offset,
                info.end_offset - info.start_offset, info.sealed, segment in active, info.modified_ms, nodes[segment],
            )  # fmt: skip


def _identity(name: StreamName, part: SegmentRange) -> Row:
    segment = part.segment
    return (name.scope, name.stream, segment.packed, segment.epoch, segment.number, part.low, part.high)


def _group_rows(client: Client, options: MetadataOptions, groups: Sequence[StreamName]) -> Iterator[Row]:
    for name in groups:
        try:
            found = client.reader_groups.open(str(name)).progress()
        except NotFound:
            continue
        for one in found:
            if options.stream in (None, one.stream):
                yield (
                    name.scope, name.stream, one.reader, one.state, one.stream.scope, one.stream.stream,
                    one.segment.packed, one.segment.epoch, one.segment.number, one.position, one.end, one.unread,
                )  # fmt: skip


def _heat_rows(client: Client, options: MetadataOptions, streams: Sequence[StreamName]) -> Iterator[Row]:
    """Yield the write rates of segments.  Each segment's end is observed twice: a node reports no rates to clients."""
    clock = RealClock()
    before = {name: observed for name in streams if (observed := _observe(client, name, clock))}
    threading.Event().wait(options.sample_seconds)
    for name, (ranges, first, began) in before.items():
        infos = client.segment_infos(name, first)
        seconds, now_ms = clock.monotonic() - began, clock.wall_ms()
        rates = {one: (info.end_offset - first[one].end_offset) / seconds for one, info in infos.items()}
        total = sum(rates.values())
        nodes = client.stream(name).nodes(infos)
        for segment, info in infos.items():
            share = rates[segment] / total if total else 0.0
            idle = max(0, now_ms - info.modified_ms) / 1000
            yield (*_identity(name, ranges[segment]), info.end_offset, rates[segment], share, idle, nodes[segment])


def _observe(
    client: Client, name: StreamName, clock: RealClock
) -> tuple[dict[SegmentId, SegmentRange], dict[SegmentId, SegmentInfo], float] | None:
    """Return the active segments, their infos, and when these were observed; None: the stream does not exist."""
    try:
        ranges = {part.segment: part for part in client.stream(name).segments()}
        began = clock.monotonic()
        return ranges, dict(client.segment_infos(name, ranges)), began
    except NotFound:
        return None


def _table_rows(client: Client, _: MetadataOptions, tables: Sequence[StreamName]) -> Iterator[Row]:
    for name in tables:
        try:
            config = client.table(name).config()
        except NotFound:
            continue
        yield (name.scope, name.stream, config.primary_key_bytes, config.secondary_key_bytes, config.partitions)


KINDS: Final = {
    names.STREAMS: Kind(STREAMS, _streams, _stream_rows),
    names.SEGMENTS: Kind(SEGMENTS, _streams, _segment_rows),
    names.GROUPS: Kind(GROUPS, _groups, _group_rows),
    names.HEAT: Kind(HEAT, _streams, _heat_rows),
    names.TABLES: Kind(TABLES, _tables, _table_rows),
}
