"""Parquet: a directory of files, with the parts of an envelope as columns.

pyarrow is imported when it is needed: it takes longer than the rest of a command.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sarit.cli.transfer.rows import FIELDS, Document, check_known, envelope_of, flag_of, key_of, segment_of
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.cli.transfer.rows import Row

PART_NAMES: Final = "part-*.parquet"
_BATCH_ROWS: Final = 10_000


def part_name(number: int) -> str:
    """The file of a part; the order of names is that of the parts."""
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
    """The rows of a file, or of all files of a directory.  Raises Invalid, which says where."""
    whole = Path(path)
    files = sorted(whole.glob("*.parquet")) if whole.is_dir() else [whole]
    if not files:
        raise Invalid(f"there are no Parquet files in {path}")
    for file in files:
        yield from _rows_of(file, drop_unknown=drop_unknown)


def _rows_of(path: Path, *, drop_unknown: bool) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    at = 0
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if "event" not in names:
                raise Invalid(f"{path.name} has no column event: it has {', '.join(names)}")
            if len(set(names)) < len(names):
                raise Invalid(f"{path.name} has two columns of one name: {', '.join(names)}")
            if not drop_unknown:
                check_known(names, FIELDS)
            for batch in file.iter_batches(_BATCH_ROWS, columns=[name for name in FIELDS if name in names]):
                # As numbers: not every time is one of Python's.
                if "event_time" in batch.schema.names:
                    place = batch.schema.names.index("event_time")
                    times = batch.column(place).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
                    batch = batch.set_column(place, "event_time", times)
                for found in batch.to_pylist():
                    yield _document(found).row()
                    at += 1
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise Invalid(f"{path.name}, row {at}: {error}") from None
    except Invalid as error:
        raise Invalid(f"{path.name}, row {at}: {error}") from None


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
        raise Invalid("its headers are no list of structs with a name and a value")
    return Document(
        event, key_of(found.get("key")), found.get("event_time"),
        tuple((one["name"], one["value"]) for one in headers or ()),
        flag_of(found.get("envelope")), segment_of(found.get("segment")),
    )  # fmt: skip
