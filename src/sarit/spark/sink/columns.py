"""The columns of a write: `event` (binary or string) and, when there is one, `routing_key` (string)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, StringType, StructType

from sarit.core.errors import Invalid
from sarit.spark.formats.columns import typed_columns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_WRITABLE: dict[str, tuple[type[DataType], ...]] = {
    "event": (BinaryType, StringType),
    "routing_key": (StringType,),
}


def check_write(schema: StructType) -> bool:
    """Whether there is a routing key column.  Raises Invalid."""
    rule = "writing takes event (binary or string) and, if wanted, routing_key (string)"
    names = dict(typed_columns(schema, _WRITABLE, rule))
    if "event" not in names:
        raise Invalid(f"there is no column event: {rule}")
    return "routing_key" in names
