"""Java's versioned objects: the container format of stream cuts, positions, checkpoints and reader-group state.

    00, version u8, count of revisions u8, then per revision: its number u8, length int32, payload

A reader uses the revisions it knows and skips the others by their length; a missing revision leaves defaults.
Payloads are made of the values below, big-endian.  Compact numbers carry their size in their top bits:

    compact int    0 .. 2^30-1     1, 2 or 4 bytes: 0…, 10…, 11…
    compact long   0 .. 2^62-1     1, 2, 4 or 8 bytes: 00…, 01…, 10…, 11…
    signed long    ±2^61           top bit: negative (then of -value-1); next two bits the size as above

Source: naming.md par. 5; Pravega `VersionedSerializer`, `RevisionDataOutputStream`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.limits import MAX_JAVA_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMAT: Final = 0
_HEAD: Final = struct.Struct(">BBB")
_REVISION: Final = struct.Struct(">Bi")

_INT_WIDTHS: Final = ((1, 7), (2, 14), (4, 30))
_INT_MARKS: Final = {1: 0, 2: 0x8000, 4: 0xC000_0000}
_LONG_WIDTHS: Final = ((1, 0), (2, 1), (4, 2), (8, 3))


def pack_single(version: int, revisions: Mapping[int, bytes]) -> bytes:
    """Return a versioned object of these revisions."""
    parts = [_HEAD.pack(_FORMAT, version, len(revisions))]
    for number in sorted(revisions):
        parts += (_REVISION.pack(number, len(revisions[number])), revisions[number])
    return b"".join(parts)


def pack_text(text: str) -> bytes:
    """Return a text as its uint16 length and modified UTF-8.  Raises Invalid when it is too long."""
    raw = encode_java(text)
    if len(raw) > MAX_JAVA_TEXT_BYTES:
        raise Invalid(f"a string of {len(raw)} bytes; the most is {MAX_JAVA_TEXT_BYTES}")
    return len(raw).to_bytes(2, "big") + raw


def pack_int(value: int) -> bytes:
    """Return a compact int.  Raises Invalid outside of 0 .. 2^30-1."""
    for width, bits in _INT_WIDTHS:
        if 0 <= value < 1 << bits:
            return (value | _INT_MARKS[width]).to_bytes(width, "big")
    raise Invalid(f"{value} is no compact int")


def pack_long(value: int) -> bytes:
    """Return a compact long.  Raises Invalid outside of 0 .. 2^62-1."""
    for width, mark in _LONG_WIDTHS:
        if 0 <= value < 1 << 8 * width - 2:
            return (value | mark << 8 * width - 2).to_bytes(width, "big")
    raise Invalid(f"{value} is no compact long")


def pack_signed(value: int) -> bytes:
    """Return a compact signed long.  Raises Invalid outside of -2^61 .. 2^61-1."""
    sign, size = (1, -value - 1) if value < 0 else (0, value)
    for width, mark in _LONG_WIDTHS:
        if size < 1 << 8 * width - 3:
            return (size | (sign << 2 | mark) << 8 * width - 3).to_bytes(width, "big")
    raise Invalid(f"{value} is no compact signed long")


class Cursor:
    """Reads values one after the other.  Every method raises Invalid when the bytes end too early."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Whether all bytes were read."""
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise Invalid(f"{count} bytes at {self._at} of {len(self._data)} are not there")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def take_rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.take(len(self._data) - self._at)

    def number(self, width: int) -> int:
        """Return an unsigned number of `width` bytes."""
        return int.from_bytes(self.take(width), "big")

    def text(self) -> str:
        """Return a string after its uint16 length."""
        return decode_java(self.take(self.number(2)))

    def compact_int(self) -> int:
        """Return a compact int."""
        first = self._peek()
        width = 1 if first < 0x80 else 2 if first < 0xC0 else 4
        return self.number(width) ^ _INT_MARKS[width]

    def compact_long(self) -> int:
        """Return a compact long."""
        width = 1 << (self._peek() >> 6)
        return self.number(width) & (1 << 8 * width - 2) - 1

    def compact_signed(self) -> int:
        """Return a compact signed long."""
        first = self._peek()
        width = 1 << (first >> 5 & 3)
        size = self.number(width) & (1 << 8 * width - 3) - 1
        return -size - 1 if first & 0x80 else size

    def single(self) -> tuple[int, dict[int, bytes]]:
        """Return a versioned object: its version, and the payload of each revision."""
        form, version, count = self.take(_HEAD.size)
        if form != _FORMAT:
            raise Invalid(f"a versioned object begins with {form}, not with {_FORMAT}")
        revisions: dict[int, bytes] = {}
        for _ in range(count):
            number, length = _REVISION.unpack(self.take(_REVISION.size))
            revisions[number] = self.take(length)
        return version, revisions

    def _peek(self) -> int:
        if self.at_end:
            raise Invalid("the bytes end where a number is expected")
        return self._data[self._at]


# -- Java's modified UTF-8 ---------------------------------------------------------------------
#
# UTF-8, but NUL is c0 80, and a character above U+FFFF is a surrogate pair of 3 bytes each (java.io.DataInput).  The
# wire protocol and Java's serialized objects use it, always after a uint16 byte length.  The Rust client writes plain
# UTF-8; the decoder accepts both, which never conflict.  Half a surrogate pair is refused both ways: it could not be
# stored.


def encode_java(text: str) -> bytes:
    """Return a text as modified UTF-8, without a length.  Raises Invalid for half a surrogate pair."""
    if text.isascii():  # nearly all texts are
        return text.encode().replace(b"\0", b"\xc0\x80")
    try:
        raw = text.encode()
        if max(text) > "\uffff":
            units = text.encode("utf-16-be")
            halves = (chr(units[at] << 8 | units[at + 1]) for at in range(0, len(units), 2))
            raw = "".join(halves).encode("utf-8", "surrogatepass")
    except UnicodeEncodeError as error:
        raise Invalid(f"not a string: {error}") from None
    return raw.replace(b"\0", b"\xc0\x80") if "\0" in text else raw


def decode_java(raw: bytes) -> str:
    """Return the inverse of `encode_java`; accepts plain UTF-8, too.  Raises Invalid."""
    try:
        if raw.isascii():
            return raw.decode("ascii")
        text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise Invalid(f"a string is not UTF-8: {error}") from None
