"""Parquet: a directory of files, with the parts of an envelope as columns.

pyarrow is imported when it is needed: it takes longer than the rest of a command.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sarit.cli.transfer.limits import (
    IMPORT_READ_BYTES,
    MAX_PARQUET_NAMES_SHOWN,
    PARQUET_BATCH_BYTES,
    PARQUET_HEADER_BYTES,
)
from sarit.cli.transfer.parquet_pages import dictionary_columns, rows_at_a_time
from sarit.cli.transfer.rows import FIELDS, Document, check_known, envelope_of, flag_of, key_of, segment_of, shown
from sarit.client.limits import MAX_EVENT_BYTES
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.cli.transfer.rows import Row

PART_NAMES: Final = "part-*.parquet"
_NO_HEADERS: Final = "its headers are no list of structs with a name and a value"
_SHOWN: Final = 500


def part_name(number: int) -> str:
    """Return the file of a part; the order of names is that of the parts."""
    return f"part-{number:06d}.parquet"


def _schema() -> Any:
    import pyarrow as pa

    header = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
    return pa.schema(
        [
            pa.field("event", pa.binary(), nullable=False),
            pa.field("key", pa.string()),
            pa.field("event_time", pa.timestamp("us", "UTC")),
            pa.field("headers", pa.list_(header)),
            pa.field("envelope", pa.bool_(), nullable=False),
            pa.field("segment", pa.int64()),
        ]
    )


def write_part(path: Path, rows: list[Row]) -> None:
    """Write one file, whole or not at all.  Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for row in rows:
        found = envelope_of(row.event)
        columns["event"].append(row.event if found is None else found.payload)
        columns["key"].append(row.key)
        columns["event_time"].append(None if found is None else found.event_time)
        headers = None if found is None else [{"name": name, "value": value} for name, value in found.headers]
        columns["headers"].append(headers)
        columns["envelope"].append(found is not None)
        columns["segment"].append(row.segment)
    # The time from int64: from Python's datetimes it would not be exact, and some have none.
    arrays = [
        pa.array(values, pa.int64()).cast(field.type) if field.name == "event_time" else pa.array(values, field.type)
        for field, values in zip(schema, columns.values(), strict=True)
    ]
    beside = path.with_suffix(".tmp")
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), beside, compression="zstd")
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def rows(path: str, *, drop_unknown: bool = False) -> Iterator[Row]:
    """Yield the rows of a file, or of all files of a directory.  Raises Invalid, which says where."""
    whole = Path(path)
    files = sorted(whole.glob("*.parquet")) if whole.is_dir() else [whole]
    if not files:
        raise Invalid(f"there are no Parquet files in {path}")
    for file in files:
        yield from _rows_of(file, drop_unknown=drop_unknown)


def _rows_of(path: Path, *, drop_unknown: bool) -> Iterator[Row]:
    import pyarrow as pa

    at = 0
    try:
        for batch in _batches(path, drop_unknown=drop_unknown):
            for found in batch.to_pylist():
                yield _document(found).row()
                at += 1
    except Invalid as error:
        raise Invalid(f"{path.name}, row {at}: {error}") from None
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise Invalid(f"{path.name}, row {at}: {str(error)[:_SHOWN]}") from None


def _batches(path: Path, *, drop_unknown: bool) -> Iterator[Any]:
    """Yield the rows of a file in batches of bounded size, their times as numbers: not every time is one of
    Python's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = _checked_names(path, file.schema_arrow, drop_unknown=drop_unknown)
        leaves = [leaf for leaf in range(len(file.schema)) if file.schema.column(leaf).path.partition(".")[0] in names]
        repeated = dictionary_columns(file, leaves)
        metadata = file.metadata
        with path.open("rb") as pages:
            sizes = [rows_at_a_time(pages, file, group, leaves, repeated) for group in range(metadata.num_row_groups)]
    with pq.ParquetFile(
        path, metadata=metadata, read_dictionary=repeated, pre_buffer=False, buffer_size=IMPORT_READ_BYTES
    ) as file:
        for group, size in enumerate(sizes):
            for batch in file.iter_batches(size, row_groups=[group], columns=names, use_threads=False):
                if "event_time" in batch.schema.names:
                    place = batch.schema.names.index("event_time")
                    times = batch.column(place).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
                    batch = batch.set_column(place, "event_time", times)
                yield from _pieces(batch)


def _checked_names(path: Path, schema: Any, *, drop_unknown: bool) -> list[str]:
    """Return the columns to read.  Raises Invalid."""
    import pyarrow as pa

    names = schema.names
    listed = ", ".join(shown(name)[1:-1] for name in names[:MAX_PARQUET_NAMES_SHOWN])
    if "event" not in names:
        raise Invalid(f"{path.name} has no column event: it has {listed}")
    if len(set(names)) < len(names):
        raise Invalid(f"{path.name} has two columns of one name: {listed}")
    if not drop_unknown:
        check_known(names, FIELDS)
    for name in FIELDS:
        if name in names and pa.types.is_nested(schema.field(name).type):
            if name != "headers":
                raise Invalid(f"its {name} is no single value")
            _check_headers(schema.field(name).type)
    return [name for name in FIELDS if name in names]


def _check_headers(found: Any) -> None:
    import pyarrow as pa

    header = found.value_type if pa.types.is_list(found) or pa.types.is_large_list(found) else None
    if (
        header is None
        or not pa.types.is_struct(header)
        or sorted(field.name for field in header) != ["name", "value"]
        or any(pa.types.is_nested(field.type) for field in header)
    ):
        raise Invalid(_NO_HEADERS)


def _pieces(batch: Any) -> Iterator[Any]:
    """Yield the batch in parts that are small as Python's objects.  Raises Invalid for a row that cannot be an
    event."""
    size = sum(_object_bytes(column) for column in batch.columns)
    if size <= PARQUET_BATCH_BYTES:
        yield batch
    elif batch.num_rows == 1:
        raise Invalid(f"it takes {size} bytes, and an event has at most {MAX_EVENT_BYTES}")
    else:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))


def _object_bytes(array: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        if not (pa.types.is_binary(array.type.value_type) or pa.types.is_string(array.type.value_type)):
            return int(array.indices.nbytes + array.dictionary.nbytes)
        lengths = pc.binary_length(array.dictionary).cast(pa.int64())
        return int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    if pa.types.is_struct(array.type):
        return PARQUET_HEADER_BYTES * len(array) + sum(map(_object_bytes, array.flatten()))
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _object_bytes(array.flatten())
    return int(array.nbytes)


def _document(found: dict[str, Any]) -> Document:
    event = found["event"]
    if isinstance(event, str):
        event = event.encode()
    if not isinstance(event, bytes):
        raise Invalid("its event is no binary or text")
    headers = found.get("headers")
    if headers is not None and not (
        isinstance(headers, list) and all(isinstance(one, dict) and one.keys() == {"name", "value"} for one in headers)
    ):
        raise Invalid(_NO_HEADERS)
    return Document(
        event, key_of(found.get("key")), found.get("event_time"),
        tuple((one["name"], one["value"]) for one in headers or ()),
        flag_of(found.get("envelope")), segment_of(found.get("segment")),
    )  # fmt: skip
