"""Avro payloads to columns: each is one datum of a record schema, as Spark's `from_avro` takes it.

A read that wants fewer fields skips the others.
"""

from __future__ import annotations

import copy
import io
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sarit.schemas.avro_schema import (
    MICROS_PER_MILLI,
    MILLIS,
    avro_columns,
    branch,
    compare,
    fastavro,
    resolved,
    without_logical,
)
from sarit.schemas.payloads import Rows

_SHOWN: Final = 400


class AvroReader:
    """Decodes some fields of a record schema."""

    def __init__(self, wanted: pa.Schema, schema: dict[str, Any]) -> None:
        """`wanted`: some of `avro_columns(schema)`.  Raises Invalid for another field or another type."""
        compare(wanted, avro_columns(schema))
        self._arrow = wanted
        self._types = {one["name"]: one["type"] for one in resolved(schema)["fields"] if one["name"] in wanted.names}
        self._schema = without_logical(schema)
        self._parsed: tuple[Any, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": None}

    def problem(self, payload: bytes | None) -> str:
        """Return what is wrong with a payload."""
        return self._row(payload)[1] or "nothing is wrong with it"

    def read(self, payloads: pa.Array) -> Rows:
        """Decode payloads, one row each."""
        bad = np.zeros(len(payloads), bool)
        rows: list[dict[str, Any]] = []
        for at, payload in enumerate(payloads.to_pylist()):
            row, problem = self._row(payload)
            rows.append(row)
            bad[at] = problem is not None
        columns = [_array([row.get(field.name) for row in rows], field.type, bad) for field in self._arrow]
        return Rows(columns, bad)

    def _row(self, payload: bytes | None) -> tuple[dict[str, Any], str | None]:
        if payload is None:
            return {}, "there is no payload"
        if self._parsed is None:
            self._parsed = self._parse()
        # Adds a byte to find payloads that are too short: fastavro does not notice that it skips beyond the end.
        data = io.BytesIO(payload + b"\0")
        try:
            found: dict[str, Any] = fastavro().schemaless_reader(data, *self._parsed)
            row = {name: _read_value(found[name], kind) for name, kind in self._types.items()}
        except Exception as error:  # fastavro raises several kinds, for damaged lengths even MemoryError
            return {}, f"it is no datum of the Avro schema: {error!r}"[:_SHOWN]
        if data.tell() > len(payload):
            return {}, "it ends within the datum of the Avro schema"
        if data.tell() < len(payload):
            return {}, f"{len(payload) - data.tell()} bytes are left over after the datum of the Avro schema"
        return row, None

    def _parse(self) -> tuple[Any, Any]:
        """Return the schema of the data, and that of the wanted fields."""
        parse = fastavro().parse_schema
        whole = parse(copy.deepcopy(self._schema))
        fields = [one for one in self._schema["fields"] if one["name"] in self._types]
        try:
            return whole, parse(copy.deepcopy(self._schema | {"fields": fields}))
        except Exception:  # a wanted field names a type that an unwanted field defines
            return whole, whole


def _array(values: list[Any], kind: pa.DataType, bad: Any) -> pa.Array:
    """Return the values as an array; those that it cannot hold are null, and marked in `bad`."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass
    for at, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            values[at], bad[at] = None, True
    return pa.array(values, kind)


def _read_value(value: Any, schema: Any) -> Any:
    """Return a value of fastavro as Arrow takes it: maps as pairs, times as microseconds."""
    if value is None:
        return None
    schema = branch(schema)
    kind = schema["type"]
    if schema.get("logicalType") in MILLIS:
        return value * MICROS_PER_MILLI
    if kind == "array":
        return [_read_value(one, schema["items"]) for one in value]
    if kind == "map":
        return [(name, _read_value(one, schema["values"])) for name, one in value.items()]
    if kind == "record":
        return {one["name"]: _read_value(value[one["name"]], one["type"]) for one in schema["fields"]}
    return value
