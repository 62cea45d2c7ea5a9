"""Tables of an Iceberg catalog, by PyIceberg: only its public parts are used, and only here.

*One attempt.*  PyIceberg repeats a commit that failed, on what is then the newest snapshot, so a committer whose job
another one has taken would append its rows a second time.  The property that says how often is a property of the table,
which others read, too.  So a table is opened here with a catalog that passes a commit on once, and says of a failure
what PyIceberg does not repeat (`_OneAttempt`).  PyIceberg deletes the files of a commit that it takes for failed; it
never does so here, for the same reason.

*Files* are written here, batch by batch, and not by `Table.append`, which holds all of them in memory.  The statistics
of columns are taken from the footers that Arrow wrote.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sarit.core.errors import Conflict, Exists, Invalid, SaritError, Unavailable
from sarit.core.extras import require
from sarit.lake.catalogs import open_catalog
from sarit.lake.cuts import NUMBERED_METADATA, Snapshot
from sarit.lake.limits import MAX_LAKE_ERROR_CHARACTERS, METADATA_FILES_KEPT, ROW_GROUP_BYTES
from sarit.lake.numbered_metadata import write_numbered_metadata
from sarit.lake.ports import TableView
from sarit.lake.problems import SCHEMA, TableProblem
from sarit.lake.table_types import covers, fitted, small_schema
from sarit.serializers.widening import wider

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sarit.lake.catalogs import Catalogs

_log = logging.getLogger("sarit.lake")

_MS_PER_HOUR: Final = 3_600_000
_PARTITION_NAME: Final = "ingested_hour"
_PROPERTIES: Final = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(METADATA_FILES_KEPT),
}


class PyIcebergTables:
    """Tables of one catalog of a node.  Calls block."""

    def __init__(self, catalogs: Catalogs, catalog: str) -> None:
        """Take the catalog of the name `catalog`.  Raises MissingExtra."""
        require("lake", "a stream's Iceberg table")
        self._catalogs = catalogs
        self._name = catalog
        self._opened: Any = None

    def __repr__(self) -> str:
        return f"<PyIcebergTables of {self._name}>"

    def load(self, name: Sequence[str]) -> TableView | None:
        """Return a table; None: there is none.  Raises Unavailable, Invalid."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with self._errors(name, "cannot be loaded"):
            try:
                return _view(self._catalog().load_table(tuple(name)), self._catalog())
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def create(
        self, name: Sequence[str], schema: pa.Schema, partition_by: str, properties: Mapping[str, str]
    ) -> TableView:
        """Create a table, of format version 2, with hours of a column as partitions; empty: none.  Raises Exists,
        Unavailable, Invalid."""
        from pyiceberg.transforms import HourTransform

        with self._errors(name, "cannot be created"):
            catalog = self._catalog()
            for level in range(1, len(name)):
                catalog.create_namespace_if_not_exists(tuple(name[:level]))
            with catalog.create_table_transaction(
                tuple(name), schema=schema, properties={**_PROPERTIES, **properties}
            ) as transaction:
                if partition_by:
                    with transaction.update_spec() as spec:
                        spec.add_field(partition_by, HourTransform(), _PARTITION_NAME)
            created = catalog.load_table(tuple(name))
            self._number(created)
            return _view(created, catalog)

    def evolve(self, name: Sequence[str], view: TableView, schema: pa.Schema) -> TableView:
        """Add and widen columns until the table has those of `schema`.  Raises Conflict, Unavailable, TableProblem."""
        from pyiceberg.exceptions import ValidationError

        if covers(view.schema, schema):
            return view
        with self._errors(name, "cannot get other columns"):
            try:
                with view.handle.update_schema() as update:
                    update.union_by_name(wider(view.schema, schema))
            except (ValidationError, ValueError, TypeError) as error:
                raise TableProblem(
                    SCHEMA,
                    f"the columns of table {_dotted(name)} cannot be made those of the stream: {self._text(error)}",
                ) from None
            evolved = self._catalog().load_table(tuple(name))
            self._number(evolved)
            return _view(evolved, self._catalog())

    def writer(self, view: TableView, prefix: str, ingested_ms: int | None, target_bytes: int) -> ParquetFiles:
        """Return a writer of files whose names begin with `prefix`, of the partition of a time."""
        return ParquetFiles(view.handle, prefix, ingested_ms, target_bytes)

    def append(
        self,
        view: TableView,
        files: Sequence[Any],
        summary: Mapping[str, str],
        properties: Mapping[str, str],
    ) -> None:
        """Append files as one snapshot, and set properties, in one transaction that is tried once.  Raises Conflict,
        Unavailable."""
        table = view.handle
        # PyIceberg's table becomes what a commit has made of it, so one that was committed to is no view any more.
        if table.metadata.current_snapshot_id != view.head:
            raise Conflict(f"table {_dotted(table.name())} was committed to since it was loaded")
        with self._errors(table.name(), "cannot be appended to"):
            transaction = table.transaction()
            transaction.set_properties(dict(properties))
            with transaction.update_snapshot(snapshot_properties=dict(summary)).merge_append() as snapshot:
                for each in files:
                    snapshot.append_data_file(each)
            transaction.commit_transaction()
        self._number(table)

    def delete(self, view: TableView, files: Sequence[Any]) -> None:
        """Delete files that are in no snapshot.  Raises nothing."""
        for each in files:
            _delete(view.handle.io, each.file_path)

    def positions(self, view: TableView, ingested_ms: int) -> Sequence[pa.Table]:
        """Return the columns `segment` and `offset` of the rows of a table of dead letters whose `ingested` is this
        time, since 1970.  Raises Unavailable."""
        from pyiceberg.types import TimestamptzType

        table = view.handle
        with self._errors(table.name(), "cannot be read"):
            time = datetime.fromtimestamp(ingested_ms // 1000, UTC).replace(microsecond=ingested_ms % 1000 * 1000)
            zoned = isinstance(table.schema().find_field("ingested").field_type, TimestamptzType)
            text = (time if zoned else time.replace(tzinfo=None)).isoformat()
            return [table.scan(f"ingested == '{text}'", selected_fields=("segment", "offset")).to_arrow()]

    def _number(self, table: Any) -> None:
        """Write the numbered copy of a table's newest metadata, if the table has such copies."""
        if table.properties.get(NUMBERED_METADATA) != "true":
            return
        try:
            write_numbered_metadata(table)
        except Exception as error:  # readers without a catalog see the table as it was; the next commit writes again
            _log.warning("metadata of table %s are not numbered: %s", _dotted(table.name()), self._text(error))

    # -- the catalog ----------------------------------------------------------------------------------

    def _catalog(self) -> Any:
        if self._opened is None:
            self._opened = open_catalog(self._catalogs, self._name)
        return self._opened

    @contextmanager
    def _errors(self, name: Sequence[str], what: str) -> Iterator[None]:
        """Raise what PyIceberg and its libraries raise as one of our kinds; what is not known is Unavailable."""
        from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError

        try:
            yield
        except SaritError:
            raise
        except (TableAlreadyExistsError, NamespaceAlreadyExistsError, CommitFailedException):
            # A transaction that creates a table fails so if another process was faster.  No other one comes to here.
            raise Exists(f"table {self._name}.{_dotted(name)} {what}: it exists") from None
        except Exception as error:
            raise Unavailable(f"table {self._name}.{_dotted(name)} {what}: {self._text(error)}") from None

    def _text(self, error: Exception) -> str:
        return self._catalogs.hide(f"{type(error).__name__}: {error}")


def _dotted(name: Sequence[str]) -> str:
    return ".".join(name)


def import_library() -> None:
    """Import the parts of PyIceberg that tables need, all at once."""
    for module in ("pyiceberg.catalog", "pyiceberg.io.pyarrow", "pyiceberg.manifest", "pyiceberg.transforms"):
        import_module(module)


class _OneAttempt:
    """A catalog that passes a commit on once, for PyIceberg's tables."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        """Commit as the catalog does.  Raises Conflict instead of what PyIceberg would repeat."""
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

        try:
            return self._catalog.commit_table(table, requirements, updates)
        except (CommitFailedException, NoSuchTableError) as error:
            raise Conflict(f"{type(error).__name__}: {error}"[:MAX_LAKE_ERROR_CHARACTERS]) from None


class ParquetFiles:
    """Data files of one commit, in one partition.  Calls block."""

    def __init__(self, table: Any, prefix: str, ingested_ms: int | None, target_bytes: int) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._table = table
        self._prefix = prefix
        self._hour = None if ingested_ms is None else ingested_ms // _MS_PER_HOUR
        self._target_bytes = target_bytes
        self._schema = small_schema(schema_to_pyarrow(table.schema()))
        self._batches: list[pa.RecordBatch] = []
        self._batch_bytes = 0
        self._file: _OpenFile | None = None
        self._files: list[Any] = []
        self._paths: list[str] = []

    def __repr__(self) -> str:
        return f"<ParquetFiles {self._prefix}, {len(self._paths)} files>"

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, in the columns of the table by name.  Raises Unavailable, Invalid."""
        self._batches.append(fitted(rows, self._schema))
        self._batch_bytes += rows.nbytes
        if self._batch_bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def close(self) -> Sequence[Any]:
        """Finish the files, durably, and return them for `append`; none: there were no rows.  Raises Unavailable."""
        self._write_group()
        self._finish_file()
        return self._files

    def abort(self) -> None:
        """Delete what was written.  Raises nothing."""
        self._batches.clear()
        if self._file is not None:
            with suppress(Exception):
                self._file.stream.close()
        for path in self._paths:
            _delete(self._table.io, path)

    def _write_group(self) -> None:
        if not self._batches:
            return
        group = pa.Table.from_batches(self._batches, self._schema)
        self._batches, self._batch_bytes = [], 0
        with _writing(self._prefix):
            if self._file is None:
                self._file = self._open()
            self._file.writer.write_table(group)
            self._file.rows += len(group)
        if self._file.stream.tell() >= self._target_bytes:
            self._finish_file()

    def _open(self) -> _OpenFile:
        name = f"{self._prefix}-{len(self._paths)}.parquet"
        if self._hour is not None:
            name = f"{_PARTITION_NAME}={self._hour}/{name}"
        path = self._table.location_provider().new_data_location(name)
        self._paths.append(path)
        return _OpenFile(path, self._table.io.new_output(path).create(), self._schema)

    def _finish_file(self) -> None:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        done, self._file = self._file, None
        if done is None:
            return
        with _writing(self._prefix):
            metadata, size = done.close()
        table = self._table
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata,
            stats_columns=compute_statistics_plan(table.schema(), table.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
        )
        self._files.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=done.path,
                file_format=FileFormat.PARQUET,
                partition=Record() if self._hour is None else Record(self._hour),
                file_size_in_bytes=size,
                sort_order_id=None,
                spec_id=table.spec().spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )


class _OpenFile:
    """One Parquet file that is written."""

    def __init__(self, path: str, stream: Any, schema: pa.Schema) -> None:
        self.path = path
        self.stream = stream
        self.rows = 0
        self._metadata: list[Any] = []
        self.writer = pq.ParquetWriter(
            stream,
            schema,
            compression="zstd",
            use_dictionary=_repeated(schema),
            store_schema=False,
            metadata_collector=self._metadata,
        )

    def close(self) -> tuple[Any, int]:
        """Finish the file, and return its footer and its size."""
        self.writer.close()
        size = self.stream.tell()
        self.stream.close()
        return self._metadata[0], size


def _repeated(schema: pa.Schema) -> list[str]:
    """Return the columns in which values repeat, so that a dictionary of them pays."""
    values = [name for name in schema.names if name not in ("sarit", "value", "raw", "offset")]
    return ["sarit.segment", "sarit.ingested", "sarit.headers.list.element.key", *values]


@contextmanager
def _writing(prefix: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise Invalid(f"rows of {prefix} cannot be written: {error}"[:MAX_LAKE_ERROR_CHARACTERS]) from None
    except SaritError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:MAX_LAKE_ERROR_CHARACTERS]
        raise Unavailable(f"files of {prefix} cannot be written: {text}") from None


def _delete(io: Any, path: str) -> None:
    try:
        io.delete(path)
    except Exception as error:  # the file is an orphan, which the catalog's own tools remove
        _log.info("file %s cannot be deleted: %s", path, type(error).__name__)


def _view(table: Any, catalog: Any) -> TableView:
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.table import Table

    metadata = table.metadata
    head = metadata.current_snapshot_id
    snapshots = [
        Snapshot(
            snapshot.snapshot_id,
            snapshot.parent_snapshot_id,
            {} if snapshot.summary is None else dict(snapshot.summary.additional_properties),
            snapshot.sequence_number or 0,
        )
        for snapshot in metadata.snapshots
    ]
    spec, schema = metadata.spec(), metadata.schema()
    partitions = ", ".join(f"{each.transform}({schema.find_column_name(each.source_id)})" for each in spec.fields)
    attempt: Any = _OneAttempt(catalog)
    once = Table(table.name(), metadata, table.metadata_location, table.io, attempt, table.config)
    return TableView(
        str(metadata.table_uuid),
        metadata.format_version,
        None if head in (None, -1) else head,
        snapshots,
        dict(metadata.properties),
        small_schema(schema_to_pyarrow(schema, include_field_ids=False)),
        partitions,
        once,
    )
