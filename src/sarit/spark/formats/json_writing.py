"""Columns to JSON payloads, a whole column at a time.

Each column becomes a column of JSON texts; Arrow joins them.  The texts are those of Spark's `to_json`: fields that are
null are left out, dates are `2026-01-31`, timestamps `2026-01-31T12:00:00.000Z`, binary is base64, numbers that are
none are `"NaN"`.  Where Spark would lose something, it is kept: a timestamp has its microseconds if it has any.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sarit.core.errors import Invalid
from sarit.spark.formats.types import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TEXT: Final = pa.large_string()
_NONE: Final = pa.scalar("", _TEXT)
_NULL: Final = pa.scalar("null", _TEXT)
_SPECIAL: Final = r'["\\\x00-\x1f]'
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_OTHER_CONTROLS: Final = [chr(code) for code in range(32) if chr(code) not in _ESCAPES]
_MS_PER_SECOND: Final = 1000


class JsonWriter:
    """Encodes rows as JSON objects."""

    def __init__(self, fields: StructType) -> None:
        """Raises Invalid for a field of a type that JSON does not have."""
        for field in arrow_schema(fields):
            _check(field.type, field.name)

    def write(self, rows: pa.RecordBatch, keys: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
        """The payload of each row."""
        columns = {field.name: rows.column(at) for at, field in enumerate(rows.schema)}
        return _object(columns, len(rows)).cast(pa.large_binary()), keys


def _check(kind: pa.DataType, column: str) -> None:
    types = pa.types
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise Invalid(f"column {column}: the names of a JSON object are strings, so a map's keys must be")
        _check(kind.item_type, column)
    elif types.is_list(kind):
        _check(kind.value_type, column)
    elif types.is_struct(kind):
        for field in kind:
            _check(field.type, f"{column}.{field.name}")


def _object(columns: dict[str, pa.Array], count: int) -> pa.Array:
    """JSON objects; nulls are left out."""
    members = [_member(name, values) for name, values in columns.items()]
    if not members:
        return pa.array(["{}"], _TEXT).take(pa.array(np.zeros(count, np.int8)))
    joined = pc.binary_join_element_wise(*members, _NONE)
    # Every member has its comma before it; that of the first becomes the bracket.
    opened = pc.binary_replace_slice(joined.cast(pa.large_binary()), 0, 1, b"{").cast(_TEXT)
    return pc.binary_join_element_wise(opened, pa.scalar("}", _TEXT), _NONE)


def _member(name: str, values: pa.Array) -> pa.Array:
    text = json.dumps(name, ensure_ascii=False)
    return pc.binary_join_element_wise(pa.scalar(f",{text}:", _TEXT), _json(values), _NONE).fill_null("")


def _between(begin: str, texts: pa.Array, end: str) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(begin, _TEXT), texts, pa.scalar(end, _TEXT), _NONE)


def _json(values: pa.Array) -> pa.Array:
    """The JSON text of each value, null for null."""
    kind, types = values.type, pa.types
    if types.is_struct(kind):
        # By `flatten`, not `field`: it takes the slice, and the nulls of the struct.
        texts = _object(dict(zip([field.name for field in kind], values.flatten(), strict=True)), len(values))
        return _with_nulls(texts, values)
    if types.is_map(kind):
        return _map(values)
    if types.is_list(kind) or types.is_large_list(kind):
        return _joined(values, _json(values.values).fill_null(_NULL), "[", "]")
    if types.is_boolean(kind) or types.is_integer(kind):
        return values.cast(_TEXT)
    if types.is_floating(kind):
        return _numbers(values)
    if types.is_decimal(kind):
        return values.cast(pa.string()).cast(_TEXT)
    if types.is_date(kind):
        return _between('"', values.cast(pa.string()).cast(_TEXT), '"')
    if types.is_timestamp(kind):
        return _between('"', _times(values), '"')
    if types.is_binary(kind) or types.is_large_binary(kind):
        texts = [None if value is None else base64.b64encode(value).decode() for value in values.to_pylist()]
        return _between('"', pa.array(texts, _TEXT), '"')
    return _between('"', _escaped(values.cast(_TEXT)), '"')


def _with_nulls(texts: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, _TEXT)) if values.null_count else texts


def _joined(values: pa.Array, texts: pa.Array, begin: str, end: str) -> pa.Array:
    """The texts of the elements of a list or a map array, between brackets."""
    lists = pa.LargeListArray.from_arrays(pa.array(values.offsets.to_numpy().astype(np.int64)), texts)
    return _with_nulls(_between(begin, pc.binary_join(lists, pa.scalar(",", _TEXT)), end), values)


def _map(values: pa.MapArray) -> pa.Array:
    names = _between('"', _escaped(values.keys.cast(_TEXT)), '":')
    items = _json(values.items).fill_null(_NULL)
    return _joined(values, pc.binary_join_element_wise(names, items, _NONE), "{", "}")


def _numbers(values: pa.Array) -> pa.Array:
    texts = values.cast(_TEXT)
    finite = pc.is_finite(values)
    if pc.all(finite).as_py() is not False:
        return texts
    named = pc.if_else(pc.is_nan(values), "NaN", pc.if_else(pc.greater(values, 0), "Infinity", "-Infinity"))
    return pc.if_else(finite, texts, _between('"', named.cast(_TEXT), '"'))


def _times(values: pa.Array) -> pa.Array:
    zoned = values.type.tz is not None
    moments = values.cast(pa.timestamp("us"))
    micros = moments.cast(pa.int64())
    # Of "2026-01-31 12:00:00.123456" as many digits as there are.
    texts = pc.replace_substring(moments.cast(pa.string()), " ", "T").cast(_TEXT)
    whole = pc.equal(pc.multiply(pc.divide(micros, _MS_PER_SECOND), _MS_PER_SECOND), micros)
    if pc.all(whole).as_py() is not False:
        texts = pc.utf8_slice_codeunits(texts, 0, -3)
    else:
        texts = pc.if_else(whole, pc.utf8_slice_codeunits(texts, 0, -3), texts)
    return pc.binary_join_element_wise(texts, pa.scalar("Z", _TEXT), _NONE) if zoned else texts


def _escaped(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        return texts
    for found, written in _ESCAPES.items():
        texts = pc.replace_substring(texts, found, written)
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for found in _OTHER_CONTROLS:
            texts = pc.replace_substring(texts, found, f"\\u{ord(found):04x}")
    return texts
