"""Protobuf payloads to columns: each is one message, without a header of a serializer.

A field is null where a message does not set it and its bytes show that; fields of proto3 without `optional` have their
default then.  Enums are names, or the digits of a number that has none.  Unsigned integers are columns of a wider type.
A time has microseconds: what is finer is left out.  A message that is not read into columns is decoded all the same.
A message within itself, and google.protobuf's Struct, Value and ListValue, are texts with their JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf import json_format, message_factory

from sarit.core.errors import Invalid
from sarit.schemas.column_types import TIMESTAMP, sql_name
from sarit.schemas.limits import MAX_PROTOBUF_COLUMNS, MAX_PROTOBUF_LEVELS
from sarit.schemas.payloads import Rows
from sarit.schemas.protobuf_option_values import ENUM_TYPE, GROUP_TYPE, MESSAGE_TYPE, STRING_TYPE
from sarit.schemas.protobuf_parser import TYPES
from sarit.schemas.protobuf_schema import pool_of
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sarit.schemas.protobuf_schema import ProtobufSchema

    Convert = Callable[[Any], Any]

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DOCUMENTS: Final = tuple(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_SCALARS: Final[Mapping[int, pa.DataType]] = {
    **{TYPES[name]: pa.int32() for name in ("int32", "sint32", "sfixed32")},
    **{TYPES[name]: pa.int64() for name in ("int64", "sint64", "sfixed64", "uint32", "fixed32")},
    **{TYPES[name]: pa.decimal128(20, 0) for name in ("uint64", "fixed64")},
    TYPES["double"]: pa.float64(),
    TYPES["float"]: pa.float32(),
    TYPES["bool"]: pa.bool_(),
    TYPES["string"]: pa.string(),
    TYPES["bytes"]: pa.binary(),
    ENUM_TYPE: pa.string(),
}
_MICROS: Final = 1_000_000
_MAX_INT64: Final = (1 << 63) - 1
_SHOWN: Final = 400


def protobuf_columns(schema: ProtobufSchema, message: str) -> pa.Schema:
    """Return the columns of a message, by its full name.

    Raises Invalid for a name that no message has, and for too many columns."""
    return pa.schema(list(_Columns().struct(_descriptor(schema, message), shown(message))))


def _descriptor(schema: ProtobufSchema, message: str) -> Any:
    try:
        return pool_of(schema).FindMessageTypeByName(message)
    except (KeyError, TypeError):  # and a name that is no UTF-8
        raise Invalid(f"the Protobuf schema has no message {shown(message)}") from None


class _Columns:
    """The messages around a field, and how many columns they have so far.  Internal."""

    def __init__(self) -> None:
        self._around: list[str] = []
        self._count = 0

    def struct(self, kind: Any, path: str) -> pa.DataType:
        """Return the type of a message.  As deep as messages are within each other, which is bounded."""
        self._count += len(kind.fields)
        if self._count > MAX_PROTOBUF_COLUMNS or len(self._around) >= MAX_PROTOBUF_LEVELS:
            levels = f"more than {MAX_PROTOBUF_COLUMNS:,} columns, or {MAX_PROTOBUF_LEVELS} within each other"
            raise Invalid(f"field {shown(path)}: the message has {levels}")
        self._around.append(kind.full_name)
        found = pa.struct([pa.field(one.name, self._column(one, f"{path}.{one.name}")) for one in kind.fields])
        self._around.pop()
        return found

    def _column(self, field: Any, path: str) -> pa.DataType:
        if _is_map(field):
            key, value = (field.message_type.fields_by_name[role] for role in ("key", "value"))
            inner = pa.field("value", self._single(value, f"{path}{{}}"), nullable=False)
            return pa.map_(pa.field("key", self._single(key, path), nullable=False), inner)
        if field.is_repeated:
            return pa.list_(pa.field("element", self._single(field, f"{path}[]"), nullable=False))
        return self._single(field, path)

    def _single(self, field: Any, path: str) -> pa.DataType:
        if field.type not in (MESSAGE_TYPE, GROUP_TYPE):
            return _SCALARS[field.type]
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return TIMESTAMP
        return pa.string() if _is_document(name, self._around) else self.struct(field.message_type, path)


def _is_document(name: str, around: Sequence[str]) -> bool:
    """Return whether a message is a text with its JSON, by its full name and those of the messages around it."""
    return name in _DOCUMENTS or name in around


class ProtobufReader:
    """Decodes some fields of a message."""

    def __init__(self, wanted: pa.Schema, schema: ProtobufSchema, message: str) -> None:
        """`wanted`: some of `protobuf_columns(schema, message)`.  Raises Invalid for another field or another type."""
        known = {field.name: sql_name(field.type) for field in protobuf_columns(schema, message)}
        for field in wanted:
            if field.name not in known:
                raise Invalid(f"column {shown(field.name)}: the message has {shown(', '.join(known))}")
            if known[field.name] != sql_name(field.type):
                given = f"column {shown(field.name)} {shown(sql_name(field.type))}"
                raise Invalid(f"{given}: the message has {shown(known[field.name])}")
        self._arrow, self._schema, self._message = wanted, schema, message
        self._made: tuple[Any, list[Convert]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def problem(self, payload: bytes | None) -> str:
        """Return what is wrong with a payload."""
        return self._row(payload)[1] or "nothing is wrong with it"

    def read(self, payloads: pa.Array) -> Rows:
        """Decode payloads, one row each."""
        bad = np.zeros(len(payloads), bool)
        nothing = [None] * len(self._arrow)
        rows = []
        for at, payload in enumerate(payloads.to_pylist()):
            row, problem = self._row(payload)
            bad[at] = problem is not None
            rows.append(nothing if problem else row)
        columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(self._arrow)]
        return Rows(columns, bad)

    def _row(self, payload: bytes | None) -> tuple[list[Any], str | None]:
        if payload is None:
            return [], "there is no payload"
        if self._made is None:
            self._made = self._make()
        kind, converts = self._made
        try:
            message = kind.FromString(payload)
            if not kind.IsInitialized(message):
                return [], f"it lacks {shown(', '.join(kind.FindInitializationErrors(message)))}"
            return [convert(message) for convert in converts], None
        except Exception as error:  # DecodeError, and what the values of a damaged message raise
            return [], f"it is no message {shown(self._message)}: {shown(str(error))}"[:_SHOWN]

    def _make(self) -> tuple[Any, list[Convert]]:
        """Return the class of the message, and the conversion of each wanted field."""
        kind = _descriptor(self._schema, self._message)
        made = message_factory.GetMessageClass(kind)
        around = (kind.full_name,)
        return made, [_field_of(kind.fields_by_name[field.name], around) for field in self._arrow]


def _is_map(field: Any) -> bool:
    return bool(field.is_repeated and field.type == MESSAGE_TYPE and field.message_type.GetOptions().map_entry)


def _field_of(field: Any, around: tuple[str, ...]) -> Convert:
    """Return what gets a field of a message, as Arrow takes it.  `around`: the messages that it is a part of."""
    name = field.name
    if _is_map(field):
        key, value = (_value_of(field.message_type.fields_by_name[role], around) for role in ("key", "value"))
        return lambda message: [(key(one), value(other)) for one, other in getattr(message, name).items()]
    convert = _value_of(field, around)
    if field.is_repeated:
        return lambda message: [convert(one) for one in getattr(message, name)]
    if field.has_presence:
        # By the class, since a field may have the name of the method.
        return lambda message: convert(getattr(message, name)) if type(message).HasField(message, name) else None
    return lambda message: convert(getattr(message, name))


def _value_of(field: Any, around: tuple[str, ...]) -> Convert:
    """Return what converts a value that a field has."""
    if field.type == STRING_TYPE:
        return _text
    if field.type == ENUM_TYPE:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    if field.type not in (MESSAGE_TYPE, GROUP_TYPE):
        return _same
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return _micros
    if _is_document(name, around):
        return _document
    parts = [(one.name, _field_of(one, (*around, name))) for one in field.message_type.fields]
    return lambda message: {name: convert(message) for name, convert in parts}


def _document(value: Any) -> str:
    """Return the JSON of a message as its library makes it, with the fields' own names."""
    found = json_format.MessageToDict(value, preserving_proto_field_name=True)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if isinstance(value, bytes):  # the library's answer to a string of proto2 that is no UTF-8
        raise ValueError("a string is no UTF-8")
    return str(value)


def _micros(value: Any) -> int:
    found = value.seconds * _MICROS + value.nanos // 1000
    if not -_MAX_INT64 <= found <= _MAX_INT64:
        raise ValueError("a time is beyond what a column holds")
    return int(found)
