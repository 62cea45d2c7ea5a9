"""Avro payloads to columns: each is one datum of a record schema, as Spark's `from_avro` takes it.

A read that wants fewer fields skips the others.  Data of another schema, as an earlier version, are read by Avro's
schema resolution: fields by name or alias, defaults, promotions.
"""

from __future__ import annotations

import base64
import copy
import io
import json
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sarit.schemas.avro_documents import NOT_IN_JSON
from sarit.schemas.avro_schema import (
    DOCUMENT,
    MICROS_PER_MILLI,
    MILLIS,
    avro_columns,
    branch,
    compare,
    contains_itself,
    fastavro,
    fits,
    resolved,
    without_logical,
)
from sarit.schemas.avro_units import written_types
from sarit.schemas.limits import MAX_JSON_TEXT_LEVELS
from sarit.schemas.payloads import Rows

_SHOWN: Final = 400


class AvroReader:
    """Decodes some fields of a record schema."""

    def __init__(
        self,
        wanted: pa.Schema,
        schema: dict[str, Any],
        written: Any = None,
        *,
        recursive: bool = False,
        padded: bool = False,
    ) -> None:
        """`wanted`: some of `avro_columns(schema)`.  `written`: the schema of the data, as JSON; None: the same one.
        `recursive`: it has a type that contains itself.  `padded`: zeros may follow a datum.

        Raises Invalid for another field or another type."""
        compare(wanted, avro_columns(schema))
        self._arrow = wanted
        fields = {one["name"]: one for one in resolved(schema)["fields"] if one["name"] in wanted.names}
        self._types = {name: one["type"] for name, one in fields.items()}
        if written is not None:
            self._types = written_types(fields, written)
        self._schema = without_logical(schema)
        self._written = self._schema if written is None else without_logical(written)
        self._recursive = recursive or (written is None and contains_itself(schema))
        self._padded = padded
        self._parsed: tuple[Any, Any] | None = None
        self._decode: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": None, "_decode": None}

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
            self._decode = _decoder(recursive=self._recursive)
        # Adds a byte to find payloads that are too short: fastavro does not notice that it skips beyond the end.
        data = io.BytesIO(payload + b"\0")
        try:
            found: dict[str, Any] = self._decode(data, *self._parsed)
            row = {name: _read_value(found[name], kind) for name, kind in self._types.items()}
        except Exception as error:  # fastavro raises several kinds, for damaged lengths even MemoryError
            return {}, f"it is no datum of the Avro schema: {error!r}"[:_SHOWN]
        if data.tell() > len(payload):
            return {}, "it ends within the datum of the Avro schema"
        if data.tell() < len(payload) and not (self._padded and not payload[data.tell() :].strip(b"\0")):
            return {}, f"{len(payload) - data.tell()} bytes are left over after the datum of the Avro schema"
        return row, None

    def _parse(self) -> tuple[Any, Any]:
        """Return the schema of the data, and that of the wanted fields."""
        parse = fastavro().parse_schema
        data = parse(copy.deepcopy(self._written))
        fields = [one for one in self._schema["fields"] if one["name"] in self._types]
        try:
            return data, parse(copy.deepcopy(self._schema | {"fields": fields}))
        except Exception:  # a wanted field names a type that an unwanted field defines
            return data, parse(copy.deepcopy(self._schema))


def _decoder(*, recursive: bool) -> Any:
    """Return the function that decodes a datum."""
    if recursive:
        # In Python: too many levels raise an error there, and end the process in C.
        from fastavro._read_py import schemaless_reader

        return schemaless_reader
    return fastavro().schemaless_reader


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
    if kind == DOCUMENT:
        return _document(value)
    if kind in ("bytes", "fixed") and isinstance(value, str):  # the default of a field, as the schema's JSON has it
        return _default_bytes(value, schema)
    if schema.get("logicalType") in MILLIS:
        return value * MICROS_PER_MILLI
    if kind == "array":
        return [_read_value(one, schema["items"]) for one in value]
    if kind == "map":
        return [(name, _read_value(one, schema["values"])) for name, one in value.items()]
    if kind == "record":
        # A default of a record may leave out fields with defaults of their own.
        fields = schema["fields"]
        return {one["name"]: _read_value(value.get(one["name"], one.get("default")), one["type"]) for one in fields}
    return value


def _document(value: Any) -> str:
    """Return a text as it is, and any other value as JSON.  Raises ValueError for one with too many levels."""
    if isinstance(value, str):
        return value
    return json.dumps(_plain(value, MAX_JSON_TEXT_LEVELS), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, levels: int) -> Any:
    """Return a value of fastavro as JSON has it: bytes in base64, decimals and numbers that JSON lacks as texts."""
    if not levels:
        raise ValueError(f"it has more than {MAX_JSON_TEXT_LEVELS} levels")
    if isinstance(value, dict):
        return {name: _plain(one, levels - 1) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, levels - 1) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    return NOT_IN_JSON.get(str(value), value) if isinstance(value, float) else value


def _default_bytes(text: str, schema: Any) -> Any:
    """Return the value of a default of bytes: a character is a byte."""
    data = text.encode("latin-1")
    if schema.get("logicalType") == "decimal" and fits(schema):
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-schema.get("scale", 0))
    return data
