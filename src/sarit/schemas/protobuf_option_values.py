"""Values of options in .proto source, before it is known what the options are, and defaults of fields.  Pure."""

from __future__ import annotations

import math
import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from sarit.schemas.protobuf_tokens import FLOAT, INTEGER, NAME, STRING, escaped, integer, string_bytes
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    from sarit.schemas.protobuf_tokens import TokenReader

DOUBLE_TYPE, FLOAT_TYPE, BOOL_TYPE, STRING_TYPE, GROUP_TYPE, MESSAGE_TYPE, BYTES_TYPE, ENUM_TYPE = (
    1, 2, 8, 9, 10, 11, 12, 14,
)  # fmt: skip
# Of each type of integers, the least and the most.
_INT32, _INT64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
_UINT32, _UINT64 = (0, (1 << 32) - 1), (0, (1 << 64) - 1)
INTEGERS: Final = {
    3: _INT64, 4: _UINT64, 5: _INT32, 6: _UINT64, 7: _UINT32, 13: _UINT32, 15: _INT32, 16: _INT64, 17: _INT32,
    18: _INT64,
}  # fmt: skip
_INFINITE: Final = ("inf", "nan")
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")


class Entry(NamedTuple):
    """A field of a message in text format.  `extension`: whether the name is one of an extension, or of a type."""

    name: str
    extension: bool
    value: Value


# A name (also `-inf`), an integer, a number with a fraction, a string, or a message.
Value: TypeAlias = str | int | float | bytes | list[Entry]


class Option(NamedTuple):
    """An option.  `parts`: names, and whether each is one of an extension.

    `scope`: the message in which it stands, without the package.  `offset`: of its first character in the text."""

    parts: list[tuple[str, bool]]
    value: Value
    scope: str
    offset: int

    @property
    def is_custom(self) -> bool:
        """Whether the option has a name of an extension anywhere."""
        return any(extension for _, extension in self.parts) or _has_extension(self.value)


class OptionParser:
    """Parses options from tokens."""

    def __init__(self, tokens: TokenReader) -> None:
        self._in = tokens

    def parse(self, scope: str) -> Option:
        """Return the option that the next tokens set."""
        offset = self._in.next.offset
        parts = [self._part()]
        while self._in.accept("."):
            parts.append(self._part())
        self._in.expect("=")
        if self._in.accept("{"):
            return Option(parts, self._message("}"), scope, offset)
        return Option(parts, self._scalar(), scope, offset)

    def _part(self) -> tuple[str, bool]:
        if not self._in.accept("("):
            return self._in.name(), False
        name = self._in.full_name(dotted=True)
        self._in.expect(")")
        return name, True

    def _scalar(self) -> str | int | float | bytes:
        if self._in.next.kind == STRING:
            return self._in.string()
        negative = self._in.accept("-")
        token = self._in.next
        if token.kind == NAME and (not negative or token.text in _INFINITE):
            return f"{'-' if negative else ''}{self._in.take().text}"
        return -self._number() if negative else self._number()

    def _number(self) -> int | float:
        token = self._in.next
        value: int | float | None = None
        if token.kind == INTEGER:
            value = integer(token.text)
        elif token.kind == FLOAT:
            value = float(token.text.rstrip("fF"))
        if value is None:
            raise self._in.wrong(f"{self._in.shown_next()} stands where a value was expected")
        self._in.take()
        return value

    def _message(self, end: str) -> list[Entry]:
        """Return the fields of a message in text format, behind its opening brace."""
        self._in.enter()
        found: list[Entry] = []
        while not self._in.accept(end):
            name, extension = self._field_name()
            colon = self._in.accept(":")
            if not colon and self._in.next.text not in ("{", "<", "["):
                raise self._in.wrong(f"{self._in.shown_next()} stands where a colon was expected")
            if self._in.accept("["):
                self._list(found, name, extension)
            else:
                found.append(Entry(name, extension, self._value()))
            if not self._in.accept(","):
                self._in.accept(";")
        self._in.leave()
        return found

    def _list(self, found: list[Entry], name: str, extension: bool) -> None:
        if self._in.accept("]"):
            return
        found.append(Entry(name, extension, self._value()))
        while self._in.accept(","):
            found.append(Entry(name, extension, self._value()))
        self._in.expect("]")

    def _field_name(self) -> tuple[str, bool]:
        if not self._in.accept("["):
            return self._in.name(), False
        name = self._in.full_name(dotted=True)
        if self._in.next.text == "/":
            raise self._in.wrong("an Any in an option is written with type_url and value")
        self._in.expect("]")
        return name, True

    def _value(self) -> Value:
        if self._in.accept("{"):
            return self._message("}")
        if self._in.accept("<"):
            return self._message(">")
        return self._scalar()

    def default(self, field: FieldDescriptorProto) -> str:
        """Return the default that the next tokens give a field, as descriptors hold it."""
        kind: int = field.type if field.HasField("type") else ENUM_TYPE  # of a name, which may be an enum's
        if kind == STRING_TYPE:
            return self._in.utf8()
        if kind == BYTES_TYPE:
            return escaped(self._in.string())
        before = self._in.next
        value = self._scalar()
        found = None
        if kind in INTEGERS:
            found = written_default(kind, str(value)) if isinstance(value, int) else None
        elif kind in (FLOAT_TYPE, DOUBLE_TYPE):
            found = written_default(kind, str(value)) if not isinstance(value, bytes) else None
        elif isinstance(value, str):
            found = written_default(kind, value)
        if found is None:
            raise self._in.wrong(f"{shown(before.text)} is no default of such a field", before.offset)
        return found


def written_default(kind: int, text: str) -> str | None:
    """Return a default as protoc writes it in descriptors, or None if a field of the type has no such default."""
    if kind in INTEGERS:
        least, most = INTEGERS[kind]
        return f"{int(text)}" if _INTEGER.fullmatch(text) and least <= int(text) <= most else None
    if kind in (FLOAT_TYPE, DOUBLE_TYPE):
        try:
            return number_text(float(text), single=kind == FLOAT_TYPE)
        except ValueError:
            return None
    if kind == BOOL_TYPE:
        return text if text in ("true", "false") else None
    if kind == BYTES_TYPE:
        try:
            return escaped(string_bytes(f'"{text}"'))
        except ValueError:
            return None
    return text if kind in (STRING_TYPE, ENUM_TYPE) else None


def number_text(value: float, *, single: bool) -> str:
    """Return a number as protoc writes it: shortest of two lengths that give it again.  `single`: 32 bits."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if not single:
        short = f"{value:.15g}"
        return short if float(short) == value else f"{value:.17g}"
    value = as_single(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    short = f"{value:.6g}"
    return short if as_single(float(short)) == value else f"{value:.9g}"


def as_single(value: float) -> float:
    """Return the number of 32 bits next to one of 64."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _has_extension(value: Value) -> bool:
    return isinstance(value, list) and any(one.extension or _has_extension(one.value) for one in value)
