"""Codecs of the fields of commands, and the annotations that name them.

Everything is big-endian.  A command is a dataclass whose fields are annotated with the names below
(`request_id: Long`); `commands/registry.py` turns the field table into an encoder and a decoder.

A codec writes a value as one or more pieces to a list, so that large data is never copied, and reads a
value at a position of a payload, returning the position after it.  Every error is a ProtocolError:
too few bytes, negative lengths, numbers and strings that do not fit.

Strings are Java's *modified* UTF-8 (`core/versioned_objects.py`) after a uint16 byte length.
Source: wire.md par. 1.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

from sarit.core.errors import Invalid
from sarit.core.versioned_objects import decode_java, encode_java
from sarit.env.ports import Buffer
from sarit.wire.errors import ProtocolError
from sarit.wire.limits import MAX_SEGMENT_NAME_BYTES, MAX_WIRE_STRING_BYTES, UUID_BYTES

_INT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">H")
_NO_TEXT: Final = _LENGTH.pack(0)
_MAX_INT: Final = (1 << 31) - 1


class Codec(Protocol):
    """Encodes and decodes one field."""

    def write(self, value: Any, out: list[Buffer]) -> None:
        """Append the value's bytes to `out`.  Raises ProtocolError when it cannot be written."""

    def read(self, payload: Buffer, at: int) -> tuple[Any, int]:
        """Return the value at `at` and the position after it.  Raises ProtocolError."""


class Fixed:
    """A field of fixed width; neighbours are joined into one `struct` by the registry."""

    __slots__ = ("format", "layout", "width")

    def __init__(self, form: str, width: int = 0) -> None:
        """`width`: the length that a value must have, in bytes, because `struct` would pad or cut it; 0: a number."""
        self.format = form
        self.layout = struct.Struct(">" + form)
        self.width = width

    def write(self, value: Any, out: list[Buffer]) -> None:
        self.check(value)
        try:
            out.append(self.layout.pack(value))
        except struct.error as error:
            raise ProtocolError(f"{value!r} does not fit: {error}") from None

    def read(self, payload: Buffer, at: int) -> tuple[Any, int]:
        end = at + self.layout.size
        if len(payload) < end:
            raise ProtocolError("a field is cut short")
        return self.layout.unpack_from(payload, at)[0], end

    def check(self, value: Any) -> None:
        """Check the length of a value.  Raises ProtocolError."""
        if self.width and len(value) != self.width:
            raise ProtocolError(f"{self.width} bytes were expected, not {len(value)}")


def _encode_text(text: str) -> bytes:
    if text.isascii() and "\0" not in text:  # nearly all: the same in every encoding
        return text.encode()
    try:
        return encode_java(text)
    except Invalid as error:
        raise ProtocolError(str(error)) from None


@dataclass(frozen=True, slots=True)
class TextCodec:
    """A text as uint16 byte length and modified UTF-8.

    `clip`: cut a text that is too long to be sent, instead of refusing it.  `most`: the longest text that is accepted,
    in bytes."""

    clip: bool = False
    most: int = MAX_WIRE_STRING_BYTES

    def pack(self, value: str) -> bytes:
        """Encode a text with its length.  Raises ProtocolError."""
        if not value:
            return _NO_TEXT
        raw = _encode_text(value)
        if len(raw) > MAX_WIRE_STRING_BYTES:
            if not self.clip:
                raise ProtocolError(f"a string of {len(raw)} bytes; the most is {MAX_WIRE_STRING_BYTES}")
            raw = _encode_text(value[: MAX_WIRE_STRING_BYTES // 6])  # 6 bytes is the most one character takes
        return _LENGTH.pack(len(raw)) + raw

    def write(self, value: str, out: list[Buffer]) -> None:
        out.append(self.pack(value))

    def read(self, payload: Buffer, at: int) -> tuple[str, int]:
        start = at + 2
        if len(payload) < start:
            raise ProtocolError("the length of a string is cut short")
        end = start + _LENGTH.unpack_from(payload, at)[0]
        # Handle empty texts early: tokens and the stack traces of refusals often are.
        if end == start:
            return "", end
        if len(payload) < end:
            raise ProtocolError("a string is cut short")
        if end - start > self.most:
            raise ProtocolError(f"a name of {end - start} bytes; the most is {self.most}")
        raw = bytes(payload[start:end])
        try:
            text = raw.decode("ascii") if raw.isascii() else decode_java(raw)
        except Invalid as error:
            raise ProtocolError(str(error)) from None
        # Refuse text that could not be sent back: plain UTF-8, which is accepted, too, may double when encoded.
        if end - start > MAX_WIRE_STRING_BYTES // 2:
            self.pack(text)
        return text, end


def read_count(payload: Buffer, at: int) -> tuple[int, int]:
    """Read an int32 count.  Returns it and the position after it.  Raises ProtocolError (cut short, negative)."""
    end = at + 4
    if len(payload) < end:
        raise ProtocolError("a length is cut short")
    count = _INT.unpack_from(payload, at)[0]
    if count < 0:
        raise ProtocolError(f"a length is negative: {count}")
    return count, end


class BytesCodec:
    """Raw bytes after an int32 length; read as a slice of the payload, without a copy if that is a memoryview."""

    def write(self, value: Buffer, out: list[Buffer]) -> None:
        # Check the length here, because the error of `struct` would be no ProtocolError.
        if len(value) > _MAX_INT:
            raise ProtocolError(f"a field of {len(value)} bytes")
        out.append(_INT.pack(len(value)))
        # Append a reference: `encode_parts` decides whether to copy the value.
        out.append(value)

    def read(self, payload: Buffer, at: int) -> tuple[Buffer, int]:
        length, start = read_count(payload, at)
        end = start + length
        if len(payload) < end:
            raise ProtocolError("a field of bytes is cut short")
        return payload[start:end], end


class RestCodec:
    """The rest of the payload."""

    def write(self, value: Buffer, out: list[Buffer]) -> None:
        out.append(value)

    def read(self, payload: Buffer, at: int) -> tuple[Buffer, int]:
        return payload[at:], len(payload)


@dataclass(frozen=True, slots=True)
class ListCodec:
    """Items after an int32 count; read as a tuple."""

    item: Codec

    def write(self, value: Any, out: list[Buffer]) -> None:
        out.append(_INT.pack(len(value)))
        for item in value:
            self.item.write(item, out)

    def read(self, payload: Buffer, at: int) -> tuple[tuple[Any, ...], int]:
        count, at = read_count(payload, at)
        items = []
        for _ in range(count):  # every item takes at least a byte, so a false count fails early
            item, at = self.item.read(payload, at)
            items.append(item)
        return tuple(items), at


@dataclass(frozen=True, slots=True)
class StructCodec:
    """Fields one after the other, without a length.  `make(*fields)` and `take(value)` are inverses of each other."""

    make: Callable[..., Any]
    take: Callable[[Any], tuple[Any, ...]]
    fields: tuple[Codec, ...]

    def write(self, value: Any, out: list[Buffer]) -> None:
        for codec, part in zip(self.fields, self.take(value), strict=True):
            codec.write(part, out)

    def read(self, payload: Buffer, at: int) -> tuple[Any, int]:
        parts = []
        for codec in self.fields:
            part, at = codec.read(payload, at)
            parts.append(part)
        return self.make(*parts), at


LONG: Final = Fixed("q")
INT: Final = Fixed("i")
BYTE: Final = Fixed("b")
FLAG: Final = Fixed("?")
UUID: Final = Fixed("16s", UUID_BYTES)
TEXT: Final = TextCodec()
NAME: Final = TextCodec(most=MAX_SEGMENT_NAME_BYTES)
BYTES: Final = BytesCodec()

Long = Annotated[int, LONG]
Int = Annotated[int, INT]
Byte = Annotated[int, BYTE]
Flag = Annotated[bool, FLAG]
Uuid = Annotated[bytes, UUID]
Text = Annotated[str, TEXT]
Name = Annotated[str, NAME]  # of a segment, in a request
Prose = Annotated[str, TextCodec(clip=True)]
Blob = Annotated[Buffer, BYTES]
Rest = Annotated[Buffer, RestCodec()]
Texts = Annotated[tuple[str, ...], ListCodec(TEXT)]
Names = Annotated[tuple[str, ...], ListCodec(NAME)]
Longs = Annotated[tuple[int, ...], ListCodec(LONG)]
