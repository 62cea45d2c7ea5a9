"""Columns to JSON payloads: one document for each row, which `JsonReader` reads back as it was.

A column that is null has no member.  Times are texts with microseconds, binary is base64, decimals are numbers.
"""

from __future__ import annotations

import base64
import datetime
import math
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sarit.core.errors import Invalid
from sarit.schemas.column_types import check_columns, raw_values, sql_name

if TYPE_CHECKING:
    from collections.abc import Callable

    # The JSON of a value that is not null.  Raises ValueError or OverflowError for what JSON cannot hold.
    Encode = Callable[[Any], str]

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()


class JsonWriter:
    """An encoder of rows as JSON documents."""

    def __init__(self, columns: pa.Schema) -> None:
        """Raises Invalid for a column of a type that JSON does not have."""
        check_columns(columns)
        _struct(pa.struct(list(columns)))
        self._columns = columns

    def write(self, rows: pa.RecordBatch, keys: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
        """Return the document of each row.  Raises Invalid naming the row that JSON cannot hold."""
        encoders = [(f"{encode_basestring(one.name)}:", _encoder(one.type)) for one in self._columns]
        lists = [raw_values(rows.column(one.name)).to_pylist() for one in self._columns]
        payloads = []
        for at, values in enumerate(zip(*lists, strict=True)):
            try:
                payloads.append(_members(encoders, values).encode())
            except (ValueError, OverflowError) as error:
                raise Invalid(f"row {at} of a batch is no JSON document: {error}"[:400]) from None
        return pa.array(payloads, pa.large_binary()), keys


def _members(encoders: list[tuple[str, Encode]], values: Any) -> str:
    pairs = zip(encoders, values, strict=True)
    return f"{{{','.join([name + encode(value) for (name, encode), value in pairs if value is not None])}}}"


def _encoder(kind: pa.DataType) -> Encode:
    types = pa.types
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_list(kind):
        element = _encoder(kind.value_type)
        return lambda value: f"[{','.join(['null' if one is None else element(one) for one in value])}]"
    if types.is_map(kind):
        return _map(kind)
    if types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if types.is_floating(kind):
        return _number
    if types.is_decimal(kind):
        return lambda value: format(value, "f")
    if types.is_string(kind):
        return encode_basestring
    if types.is_binary(kind):
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    if types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        return lambda value: f'"{_time(value)}{zone}"'
    if types.is_date(kind):
        return lambda value: f'"{datetime.date.fromordinal(value + _EPOCH_DAY).isoformat()}"'
    return str


def _struct(kind: pa.DataType) -> Encode:
    names = [one.name for one in kind]
    encoders = [(f"{encode_basestring(one.name)}:", _encoder(one.type)) for one in kind]
    if len(set(names)) < len(names):
        raise Invalid(f"{sql_name(kind)}: an object has one member of a name")
    return lambda value: _members(encoders, [value[name] for name in names])


def _map(kind: pa.DataType) -> Encode:
    if not pa.types.is_string(kind.key_type):
        raise Invalid(f"{sql_name(kind)}: the names of a JSON object are strings, map<string, ...>")
    item = _encoder(kind.item_type)

    def encode(value: Any) -> str:
        pairs = [f"{encode_basestring(name)}:{'null' if one is None else item(one)}" for name, one in value]
        return f"{{{','.join(pairs)}}}"

    return encode


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"JSON has no number {value}")
    return repr(value)


def _time(micros: int) -> str:
    return (_EPOCH + datetime.timedelta(microseconds=micros)).isoformat(timespec="microseconds")
