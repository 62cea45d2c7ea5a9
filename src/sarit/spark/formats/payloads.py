"""Typed payloads: the ports of a format, and which module has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sarit.spark.formats.options import FormatOptions


@dataclass(frozen=True, slots=True)
class Rows:
    """Decoded payloads: `columns`, one per field.  `bad` (numpy bool): rows of payloads that could not be decoded.

    `event_of` (numpy int64): the payload that each row is of; None: one row per payload, in order."""

    columns: list[pa.Array]
    bad: Any
    event_of: Any = None


class PayloadReader(Protocol):
    """Payloads to columns; pickled to tasks."""

    def read(self, payloads: pa.Array) -> Rows:
        """Decode binary payloads; a null one is bad."""

    def problem(self, payload: bytes) -> str:
        """What is wrong with a bad payload."""


class PayloadWriter(Protocol):
    """Columns to payloads; pickled to tasks."""

    def write(self, rows: pa.RecordBatch, keys: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
        """Encode rows; the payloads, and the routing key of each (None: there are none).  Raises Invalid."""


def payload_reader(formats: FormatOptions, fields: StructType) -> PayloadReader:
    """A decoder of `fields`.  Raises Invalid for fields that the format does not have."""
    raise Invalid(f"format {formats.format} is not there yet")


def payload_writer(formats: FormatOptions, fields: StructType) -> PayloadWriter:
    """An encoder of `fields`.  Raises Invalid for fields that the format does not have."""
    raise Invalid(f"format {formats.format} is not there yet")


def payload_schema(formats: FormatOptions, first_payload: Callable[[], bytes | None]) -> StructType:
    """The fields of payloads when the query names none.  Raises Invalid."""
    raise Invalid(f"format {formats.format} is not there yet")
