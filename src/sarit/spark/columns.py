"""Between the connector's columns and Arrow batches.

Reading gives `event binary, segment long, offset long`: the event's bytes, the 64-bit id of its segment
(`epoch << 32 | number`) and the byte offset of its header there.  A query that needs less says so with
`.schema("event string")` or any subset of the columns; `event` may be binary or string (UTF-8).

Writing takes `event` (binary or string) and, when there is one, `routing_key` (string).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

SCHEMA = "event binary, segment long, offset long"

_READABLE: dict[str, tuple[type[DataType], ...]] = {
    "event": (BinaryType, StringType),
    "segment": (LongType,),
    "offset": (LongType,),
}
_WRITABLE: dict[str, tuple[type[DataType], ...]] = {
    "event": (BinaryType, StringType),
    "routing_key": (StringType,),
}


def check_read(schema: StructType) -> list[tuple[str, bool]]:
    """The columns to give, as (name, as text).  Raises Invalid."""
    return _check(schema, _READABLE, f"reading gives {SCHEMA} (event may be string) or some of these")


def check_write(schema: StructType) -> bool:
    """Whether there is a routing key column.  Raises Invalid."""
    names = _check(schema, _WRITABLE, "writing takes event (binary or string) and, if wanted, routing_key (string)")
    if "event" not in dict(names):
        raise Invalid("there is no column event: writing takes event (binary or string) and, if wanted, routing_key")
    return "routing_key" in dict(names)


def _check(schema: StructType, known: dict[str, tuple[type[DataType], ...]], rule: str) -> list[tuple[str, bool]]:
    for field in schema.fields:
        if not isinstance(field.dataType, known.get(field.name, ())):
            raise Invalid(f"column {field.name} {field.dataType.simpleString()}: {rule}")
    return [(field.name, isinstance(field.dataType, StringType)) for field in schema.fields]


def output_batch(events: pa.Array, offsets: pa.Array, segment: int, columns: list[tuple[str, bool]]) -> pa.RecordBatch:
    """One batch of the wanted columns, without copying the events.

    Raises pyarrow.ArrowInvalid when an event that is wanted as text is not UTF-8.
    """
    arrays: list[pa.Array] = []
    for name, text in columns:
        if name == "event":
            arrays.append(events.cast(pa.string()) if text else events)
        elif name == "offset":
            arrays.append(offsets)
        else:
            arrays.append(pa.repeat(pa.scalar(segment, pa.int64()), len(events)))
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])
