"""Avro data as JSON documents for people: one datum of a schema, with nothing but the schema.

Numbers, texts, enums, arrays, maps and records are what they are in JSON.  Bytes are base64; decimals, dates, times and
moments are texts, as "12.50" and "2026-01-31T12:00:00Z"; numbers that JSON lacks are "NaN", "Infinity", "-Infinity".
A branch of a union stands for itself, without its name.

The bytes are of anybody: a length is compared with the bytes that are left, and levels and values are counted, because
an array of nulls has any number of items in no bytes.  Pure.
"""

from __future__ import annotations

import base64
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_DOCUMENT_LEVELS, MAX_DOCUMENT_VALUES, MAX_SHOWN_DECIMAL_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.schemas.avro_types import AvroType

_FLOAT: Final = struct.Struct("<f")
_FLOAT_DIGITS: Final = (6, 7, 8)  # nine tell any two floats apart
_DOUBLE: Final = struct.Struct("<d")
_MAX_VARINT_BITS: Final = 70  # ten groups of seven: enough for the zigzag of a long
_INT: Final = 1 << 31
_LONG: Final = 1 << 63
_EPOCH: Final = datetime(1970, 1, 1)
_MICROS: Final[Mapping[str, float]] = {"millis": 1000, "micros": 1, "nanos": 0.001}
NOT_IN_JSON: Final = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def avro_document(root: AvroType, data: bytes) -> Any:
    """Return the datum that `data` is.  Raises Invalid, which says at which byte, also for bytes behind it."""
    reader = _Reader(data)
    found = reader.value(root, 0)
    if reader.at < len(data):
        raise Invalid(f"{len(data) - reader.at} bytes are left over after the datum of the Avro schema")
    return found


class _Reader:
    """Bytes, and how far they are read.  Internal."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self._values = 0
        self._readers: Mapping[str, Callable[[AvroType, int], Any]] = {
            "null": lambda *_: None, "boolean": self._boolean, "int": self._int, "long": self._long,
            "float": self._float, "double": self._double, "bytes": self._bytes, "string": self._string,
            "record": self._record, "enum": self._enum, "fixed": self._fixed, "array": self._array, "map": self._map,
            "union": self._union,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<_Reader at {self.at} of {len(self._data)}>"

    def value(self, kind: AvroType, level: int) -> Any:
        """Return the next value."""
        self._values += 1
        if level > MAX_DOCUMENT_LEVELS:
            raise self._wrong(f"it has more than {MAX_DOCUMENT_LEVELS} levels")
        if self._values > MAX_DOCUMENT_VALUES:
            raise self._wrong(f"it has more than {MAX_DOCUMENT_VALUES:,} values")
        return self._readers[kind.kind](kind, level)

    def _wrong(self, why: str) -> Invalid:
        return Invalid(f"it is no datum of the Avro schema: byte {self.at}: {why}")

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise self._wrong(f"{count} bytes are to follow, and {len(self._data) - self.at} are left")
        self.at += count
        return self._data[self.at - count : self.at]

    def _varint(self, most: int) -> int:
        value = 0
        for shift in range(0, _MAX_VARINT_BITS, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                found = (value >> 1) ^ -(value & 1)
                if not -most <= found < most:
                    break
                return found
        raise self._wrong("a number is larger than its type")

    def _length(self) -> int:
        found = self._varint(_LONG)
        if found < 0:
            raise self._wrong("a length is negative")
        return found

    def _boolean(self, _kind: AvroType, _level: int) -> bool:
        (byte,) = self._take(1)
        if byte > 1:
            raise self._wrong("a boolean is neither 0 nor 1")
        return byte == 1

    def _int(self, kind: AvroType, _level: int) -> Any:
        return _number(kind, self._varint(_INT))

    def _long(self, kind: AvroType, _level: int) -> Any:
        return _number(kind, self._varint(_LONG))

    def _float(self, _kind: AvroType, _level: int) -> Any:
        return _real(_shortest(_FLOAT.unpack(self._take(_FLOAT.size))[0]))

    def _double(self, _kind: AvroType, _level: int) -> Any:
        return _real(_DOUBLE.unpack(self._take(_DOUBLE.size))[0])

    def _bytes(self, kind: AvroType, _level: int) -> Any:
        return _octets(kind, self._take(self._length()))

    def _fixed(self, kind: AvroType, _level: int) -> Any:
        return _octets(kind, self._take(kind.size))

    def _string(self, _kind: AvroType, _level: int) -> str:
        try:
            return self._take(self._length()).decode()
        except UnicodeDecodeError:
            raise self._wrong("a string is no UTF-8") from None

    def _record(self, kind: AvroType, level: int) -> dict[str, Any]:
        fields = zip(kind.fields, kind.children, strict=True)
        return {field.name: self.value(child, level + 1) for field, child in fields}

    def _enum(self, kind: AvroType, _level: int) -> str:
        found = self._varint(_INT)
        if not 0 <= found < len(kind.symbols):
            raise self._wrong(f"an enum has no symbol {found}")
        return list(kind.symbols)[found]

    def _union(self, kind: AvroType, level: int) -> Any:
        found = self._varint(_LONG)
        if not 0 <= found < len(kind.children):
            raise self._wrong(f"a union has no branch {found}")
        return self.value(kind.children[found], level)

    def _array(self, kind: AvroType, level: int) -> list[Any]:
        found: list[Any] = []
        while count := self._count():
            found.extend(self.value(kind.children[0], level + 1) for _ in range(count))
        return found

    def _map(self, kind: AvroType, level: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while count := self._count():
            for _ in range(count):
                name = self._string(kind, level)
                found[name] = self.value(kind.children[0], level + 1)
        return found

    def _count(self) -> int:
        """Return how many items the next block has; 0: there is none."""
        found = self._varint(_LONG)
        if found < 0:
            self._length()  # of the block in bytes, for readers that skip it
            return -found
        return found


def _number(kind: AvroType, value: int) -> Any:
    logical = kind.properties.get("logicalType", "")
    if not isinstance(logical, str) or not logical:
        return value
    what, _, unit = logical.rpartition("-")
    try:
        if logical == "date" and kind.kind == "int":
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        if what == "time" and unit in _MICROS and value >= 0:
            return (_EPOCH + timedelta(microseconds=value * _MICROS[unit])).time().isoformat()
        if what in ("timestamp", "local-timestamp") and unit in _MICROS:
            moment = (_EPOCH + timedelta(microseconds=value * _MICROS[unit])).isoformat()
            return moment + ("Z" if what == "timestamp" else "")
    except OverflowError:  # a time that has no form is shown as a number
        pass
    return value


def _octets(kind: AvroType, data: bytes) -> str:
    if (found := kind.decimal) is not None and len(data) <= MAX_SHOWN_DECIMAL_BYTES:
        unscaled = int.from_bytes(data, "big", signed=True)
        # Decimal's own arithmetic would round it to the digits of its context.
        return format(Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -found[1])), "f")
    if kind.properties.get("logicalType") == "uuid" and len(data) == 16:
        parts = data[:4], data[4:6], data[6:8], data[8:10], data[10:]
        return "-".join(part.hex() for part in parts)
    return base64.b64encode(data).decode()


def _real(value: float) -> Any:
    return NOT_IN_JSON.get(str(value), value)


def _shortest(value: float) -> float:
    """Return the number with the fewest digits that is the same float: 0.1, not 0.10000000149011612."""
    for digits in _FLOAT_DIGITS:
        short = float(f"{value:.{digits}g}")
        if _FLOAT.pack(short) == _FLOAT.pack(value):
            return short
    return value
