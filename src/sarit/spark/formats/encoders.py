"""Encodes the rows of a write as events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType, TimestampNTZType, TimestampType

from sarit.core import envelope_columns
from sarit.core.errors import Invalid
from sarit.spark.formats.options import ARROW, FormatOptions
from sarit.spark.formats.payloads import payload_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark.sql.types import DataType

    from sarit.schemas.payloads import PayloadWriter

ROUTING_KEY: Final = "routing_key"

_BYTES_OR_TEXT: Final = (BinaryType, StringType)
_ENVELOPE_TYPES: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "key": (StringType,),
    "event_time": (TimestampType, TimestampNTZType, LongType),
    "headers": (ArrayType,),
}


def encoder(
    schema: StructType,
    formats: FormatOptions = FormatOptions(),  # noqa: B008
    *,
    key_column: str | None = None,
    apart: Collection[str] = (),
    register: Callable[[StructType], bytes] | None = None,
) -> Encoder:
    """Return an encoder of rows of `schema`.

    `key_column`: the column with the routing key of each row; None: `routing_key` if there is one, else the `key` of
    an envelope.  `apart`: columns that are no part of events.  `register`: as of `payload_writer`.  Raises Invalid for
    a schema that does not fit."""
    return Encoder(schema, formats, key_column, frozenset(apart), register)


class Encoder:
    """Encodes rows as events.  Made on the driver, and pickled for the tasks."""

    def __init__(
        self,
        schema: StructType,
        formats: FormatOptions,
        key_column: str | None,
        apart: frozenset[str],
        register: Callable[[StructType], bytes] | None,
    ) -> None:
        self._formats = formats
        names = [field.name for field in schema.fields if field.name not in apart]
        if key_column is not None and key_column not in names:
            raise Invalid(f"there is no column {key_column} for the routing key: columns are {', '.join(names)}")
        default = ROUTING_KEY if ROUTING_KEY in names else "key" if formats.envelope and "key" in names else None
        self._key = key_column or default
        kinds = {field.name: field.dataType for field in schema.fields}
        if self._key is not None and not isinstance(kinds[self._key], StringType):
            raise Invalid(f"column {self._key} {kinds[self._key].simpleString()}: a routing key is a string")
        self._of_envelope = {name for name in _ENVELOPE_TYPES if formats.envelope and name in names}
        own = {ROUTING_KEY, *self._of_envelope}
        # A key column that the user named is part of typed payloads, but not of plain events.
        self._payload = [name for name in names if name not in own and (formats.typed or name != key_column)]
        self._writer: PayloadWriter | None = None
        self._check(kinds)
        if formats.typed:
            fields = StructType([field for field in schema.fields if field.name in self._payload])
            self._writer = payload_writer(formats, self._fields(fields), register)
            if formats.format == ARROW and self._of_envelope - {"key"}:
                one = min(self._of_envelope - {"key"})
                raise Invalid(
                    f"column {one}: an event of format arrow has many rows; write it as a field of its own name"
                )

    def _check(self, kinds: Mapping[str, DataType]) -> None:
        for name in self._of_envelope:
            if not isinstance(kinds[name], _ENVELOPE_TYPES[name]):
                raise Invalid(f"column {name} {kinds[name].simpleString()}: {self.rule()}")
        if self._formats.typed:
            if not self._payload:
                raise Invalid(f"there is no column for the payload: {self.rule()}")
            return
        wanted = self._event_column()
        for name in self._payload:
            if name != wanted or not isinstance(kinds[name], _BYTES_OR_TEXT):
                raise Invalid(f"column {name} {kinds[name].simpleString()}: {self.rule()}")
        if wanted not in self._payload:
            raise Invalid(f"there is no column {wanted}: {self.rule()}")

    def _fields(self, fields: StructType) -> StructType:
        name = self._formats.payload_column
        if name is None:
            return fields
        column = {field.name: field.dataType for field in fields.fields}
        if set(column) != {name} or not isinstance(column[name], StructType):
            raise Invalid(f"option payloadColumn is {name}: write a struct of that name, and no other payload column")
        kind = column[name]
        assert isinstance(kind, StructType)
        return kind

    def _event_column(self) -> str:
        return "payload" if self._formats.envelope else "event"

    def rule(self) -> str:
        """Return a text about the columns that a write takes, for errors."""
        if self._formats.typed:
            payload = f"the columns of the payload (format {self._formats.format})"
        else:
            payload = f"{self._event_column()} (binary or string)"
        parts = [payload]
        if self._formats.envelope:
            parts += ["key (string)", "event_time (timestamp)", "headers (array<struct<key: string, value: binary>>)"]
        text = f"writing takes {payload} and, if wanted, {', '.join([*parts[1:], 'routing_key (string)'])}"
        if self._formats == FormatOptions():
            text += '; other columns: make JSON of them with to_json, or give .option("format", "avro") or "arrow"'
        return text

    def encode(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array | None]:
        """Return the events of a batch (large binary), and the routing key of each (string; None: no event has a key).

        Each row is an event, except with format `arrow`, where an event has many rows.  A row whose `event` or
        `payload` is null gives a null.  Raises Invalid, with row and column, for what cannot be encoded."""
        keys = None if self._key is None else batch.column(self._key).cast(pa.string())
        if self._writer is None:
            payloads = self._events(batch)
        else:
            payloads, keys = self._writer.write(self._rows(batch), keys)
        if not self._formats.envelope:
            return payloads, keys
        if self._formats.format == ARROW:
            own_keys = keys if self._key == "key" else None
            return envelope_columns.encode(payloads, own_keys), keys
        columns = [batch.column(name) if name in self._of_envelope else None for name in _ENVELOPE_TYPES]
        return envelope_columns.encode(payloads, *columns), keys

    def _events(self, batch: pa.RecordBatch) -> pa.Array:
        name = self._event_column()
        column = batch.column(name)
        if pa.types.is_string(column.type):
            column = column.cast(pa.binary())
        return column.cast(pa.large_binary())

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._formats.payload_column is None:
            return batch.select(self._payload)
        column = batch.column(self._formats.payload_column)
        if column.null_count:
            raise Invalid(f"column {self._formats.payload_column} is null in {column.null_count} of {len(column)} rows")
        return pa.RecordBatch.from_struct_array(column)
