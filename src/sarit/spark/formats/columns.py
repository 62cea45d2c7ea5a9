"""The columns of a read: `event` and where it stands in its stream.  Arrow batches in and out.

`event binary`, `scope string`, `stream string` (without the scope), `segment_id long` (`epoch << 32 | number`) and
`offset long` (of the event's header in its segment).  A query that needs less says so with `.schema("event string")` or
any subset of the columns; `event` may be binary or string (UTF-8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import DataType

    from sarit.spark.source.ranges import Range

SCHEMA = "event binary, scope string, stream string, segment_id long, offset long"

_READABLE: dict[str, tuple[type[DataType], ...]] = {
    "event": (BinaryType, StringType),
    "scope": (StringType,),
    "stream": (StringType,),
    "segment_id": (LongType,),
    "offset": (LongType,),
}


class Projection:
    """The columns that one read gives.  Made on the driver, carried to the tasks."""

    def __init__(self, schema: StructType) -> None:
        """Raises Invalid for columns that a read does not have."""
        self._columns = typed_columns(
            schema, _READABLE, f"reading gives {SCHEMA} (event may be string) or some of these"
        )

    def batch(self, events: pa.Array, offsets: pa.Array, part: Range) -> pa.RecordBatch:
        """One batch of the wanted columns, without copying the events.

        Raises pyarrow.ArrowInvalid when an event that is wanted as text is not UTF-8."""
        rows = len(events)
        arrays: list[pa.Array] = []
        for name, text in self._columns:
            if name == "event":
                arrays.append(events.cast(pa.string()) if text else events)
            elif name == "offset":
                arrays.append(offsets)
            elif name == "segment_id":
                arrays.append(pa.repeat(pa.scalar(part.segment.packed, pa.int64()), rows))
            else:
                arrays.append(pa.repeat(getattr(part.stream, name), rows))
        return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in self._columns])


def typed_columns(
    schema: StructType, known: Mapping[str, tuple[type[DataType], ...]], rule: str
) -> list[tuple[str, bool]]:
    """The columns as (name, is text).  Raises Invalid with the rule."""
    for field in schema.fields:
        if not isinstance(field.dataType, known.get(field.name, ())):
            raise Invalid(f"column {field.name} {field.dataType.simpleString()}: {rule}")
    return [(field.name, isinstance(field.dataType, StringType)) for field in schema.fields]
