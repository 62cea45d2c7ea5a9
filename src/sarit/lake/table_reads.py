"""One snapshot of a stream's table, for readers: which cut it has, its files with what is known of them, its rows.

Whoever reads the events behind that cut from the stream, and nothing before it, has each event once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sarit.core.errors import SaritError, Unavailable
from sarit.lake.cuts import STREAM_ID, cut_of
from sarit.lake.layout import PARTITIONS, SARIT, UTC_TIME, sarit_type
from sarit.lake.problems import OTHER_STREAM, TableProblem
from sarit.lake.pyiceberg_tables import PyIcebergTables
from sarit.lake.table_types import fitted, small_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sarit.core.cuts import StreamCut
    from sarit.lake.catalogs import Catalogs
    from sarit.lake.ports import TableView
    from sarit.lake.settings import IcebergSettings

_US_PER_HOUR: Final = 3_600_000_000
_BOUNDED: Final = ("segment", "ingested")


@dataclass(frozen=True, slots=True)
class TableFile:
    """One data file: its size, and the bounds of `sarit.segment` and `sarit.ingested` in it; None: not known."""

    bytes: int
    segments: tuple[int, int] | None
    ingested_us: tuple[int, int] | None


class TableRead:
    """A table at one snapshot.  Calls block.

    `cut`: of the stream, up to where the table has its events; None: nothing was committed."""

    def __init__(self, catalogs: Catalogs, settings: IcebergSettings, view: TableView) -> None:
        self.schema = view.schema
        mark = cut_of(view.snapshots, view.head, view.properties)
        self.cut: StreamCut | None = None if mark is None else mark.cut
        self._catalogs = catalogs
        self._name = settings.table
        self._table = view.handle
        self._head = view.head
        self._by_hours = view.partitions == PARTITIONS
        self._tasks: list[Any] = []
        self.files: list[TableFile] = []

    def __repr__(self) -> str:
        return f"<TableRead {self._name}, {len(self.files)} files>"

    def plan(self) -> None:
        """Find the files.  Raises Unavailable."""
        if self._head is None:
            return
        try:
            self._tasks = list(self._table.scan(snapshot_id=self._head).plan_files())
            self.files = [self._file(task.file) for task in self._tasks]
        except Exception as error:
            raise self._unavailable(error) from None

    def batches(self, numbers: Sequence[int], columns: Sequence[str], target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield rows of some files with the columns of `target`, null where the table does not have them.

        `columns`: those of the table that are read.  Raises Unavailable."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        table, tasks = self._table, [self._tasks[number] for number in numbers]
        try:
            wanted = table.scan(snapshot_id=self._head, selected_fields=tuple(columns)).projection()
            scan = ArrowScan(table.metadata, table.io, wanted, AlwaysTrue())
            for batch in scan.to_record_batches(tasks):
                yield fitted(_zoned(batch), target)
        except SaritError:
            raise
        except Exception as error:
            raise self._unavailable(error) from None

    def _file(self, file: Any) -> TableFile:
        found = {name: self._bounds(file, f"{SARIT}.{name}") for name in _BOUNDED}
        ingested = found["ingested"]
        if ingested is None and self._by_hours and file.spec_id == self._table.spec().spec_id:
            hour = file.partition[0]
            ingested = None if hour is None else (hour * _US_PER_HOUR, (hour + 1) * _US_PER_HOUR - 1)
        return TableFile(file.file_size_in_bytes, found["segment"], ingested)

    def _bounds(self, file: Any, name: str) -> tuple[int, int] | None:
        from pyiceberg.conversions import from_bytes

        field = self._table.schema().find_field(name)
        low, high = ((bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds))
        if low is None or high is None or (file.null_value_counts or {}).get(field.field_id, 1):
            return None
        return int(from_bytes(field.field_type, low)), int(from_bytes(field.field_type, high))

    def _unavailable(self, error: Exception) -> Unavailable:
        reason = self._catalogs.hide(f"{type(error).__name__}: {error}")
        return Unavailable(f"table {self._name} cannot be read: {reason}")


def open_table(catalogs: Catalogs, settings: IcebergSettings, stream_id: str | None) -> TableRead | None:
    """Return the table of a stream, as it is now, without its files; None: there is none yet.

    `stream_id`: the creation id of the stream, in hexadecimal digits.  Raises TableProblem: it is another stream's
    table; Invalid, Unavailable (the catalog), MissingExtra."""
    try:
        view = PyIcebergTables(catalogs, settings.catalog).load(settings.identifier)
    except Unavailable:
        # Two that open a new SQL catalog both create its tables, and one of them fails: they are there now.
        view = PyIcebergTables(catalogs, settings.catalog).load(settings.identifier)
    if view is None:
        return None
    _check_stream(view.properties, settings.table, stream_id)
    return TableRead(catalogs, settings, view)


def _check_stream(properties: Mapping[str, str], table: str, stream_id: str | None) -> None:
    found = properties.get(STREAM_ID)
    if stream_id is not None and found is not None and found != stream_id:
        raise TableProblem(
            OTHER_STREAM, f"table {table} has the events of another stream, or of an earlier one of that name"
        )


def _zoned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose position has times in UTC with their zone, if it has them without."""
    schema = small_schema(batch.schema)
    place = schema.get_field_index(SARIT)
    if place < 0:
        return batch
    position = batch.column(place)
    kind = sarit_type()
    if position.type.field("ingested").type != UTC_TIME:
        parts = [position.field(field.name).cast(field.type) for field in kind]
        columns = list(batch.columns)
        columns[place] = pa.StructArray.from_arrays(parts, fields=list(kind))
        fields = [pa.field(SARIT, kind) if n == place else field for n, field in enumerate(batch.schema)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return batch
