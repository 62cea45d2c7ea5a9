"""Stream cuts: {segment: offset in bytes}, a consistent position in a stream; bytes and text as Java has them.

The formats, with an example, are in docs/formats/stream-cut.md.  A cut may also be *unbounded*, which means the head
or the tail of any stream; here it is None.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.limits import MAX_CUT_TEXT_BYTES
from sarit.core.names import SegmentId, StreamName
from sarit.core.public import public
from sarit.core.versioned_objects import Cursor, pack_int, pack_long, pack_signed, pack_single, pack_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


UNBOUNDED_TEXT: Final = "UNBOUNDED"

_VERSION: Final = 1
_UNSIGNED_VERSION: Final = 0
_TEXT_VERSION: Final = "0"
_MAX_INT32: Final = (1 << 31) - 1

# What Java's GZIPOutputStream writes: no name, no time, system unknown.
_GZIP_HEAD: Final = bytes.fromhex("1f8b08000000000000ff")
_GZIP_TAIL: Final = struct.Struct("<II")
_GZIP_WINDOW: Final = 31
_RAW_WINDOW: Final = -15


@public
@dataclass(frozen=True, slots=True)
class StreamCut:
    """A position in `stream`.  Offsets are bytes, and >= 0."""

    stream: StreamName
    positions: Mapping[SegmentId, int]

    def __post_init__(self) -> None:
        """Check that there is a segment and that no offset is negative.  Raises Invalid."""
        if not self.positions:
            raise Invalid(f"a cut of {self.stream} without a segment")
        if min(self.positions.values()) < 0:
            raise Invalid(f"a cut of {self.stream} has a negative offset")
        ordered = {segment: self.positions[segment] for segment in sorted(self.positions)}
        object.__setattr__(self, "positions", MappingProxyType(ordered))

    def __hash__(self) -> int:
        return hash((self.stream, tuple(self.positions.items())))

    def __reduce__(self) -> tuple[object, ...]:
        return StreamCut, (self.stream, dict(self.positions))

    def __str__(self) -> str:
        return to_text(self)


def to_bytes(cut: StreamCut | None) -> bytes:
    """Return Java's serialized form; empty for an unbounded cut.  Raises Invalid for numbers it cannot hold."""
    if cut is None:
        return b""
    pairs = (pack_long(segment.packed) + pack_signed(offset) for segment, offset in cut.positions.items())
    payload = pack_text(str(cut.stream)) + pack_int(len(cut.positions)) + b"".join(pairs)
    return pack_single(_VERSION, {0: payload})


def from_bytes(data: bytes) -> StreamCut | None:
    """Return the inverse of `to_bytes`; reads the older version 0 too.  Raises Invalid."""
    if not data:
        return None
    cursor = Cursor(data)
    cut = read_cut(cursor)
    if not cursor.at_end:
        raise Invalid("a stream cut has bytes after its end")
    return cut


def read_cut(cursor: Cursor) -> StreamCut:
    """Return the cut at the cursor: inside a checkpoint, or alone.  Raises Invalid."""
    version, revisions = cursor.single()
    if version not in (_VERSION, _UNSIGNED_VERSION) or 0 not in revisions:
        raise Invalid(f"a stream cut of version {version}; versions 0 and 1 are known")
    payload = Cursor(revisions[0])
    stream = _stream(payload.text())
    positions: dict[SegmentId, int] = {}
    for _ in range(payload.compact_int()):
        segment = SegmentId.unpack(payload.compact_long())
        positions[segment] = payload.compact_signed() if version == _VERSION else payload.compact_long()
    return StreamCut(stream, positions)


def to_text(cut: StreamCut | None) -> str:
    """Return the text form: one line, safe in a shell."""
    if cut is None:
        return UNBOUNDED_TEXT
    segments = cut.positions
    numbers = ",".join(str(segment.number) for segment in segments)
    epochs = ",".join(str(segment.epoch) for segment in segments)
    offsets = ",".join(map(str, segments.values()))
    plain = f"{_TEXT_VERSION}:{cut.stream}:{numbers}:{epochs}:{offsets}".encode()
    deflate = zlib.compressobj(wbits=_RAW_WINDOW)
    body = deflate.compress(plain) + deflate.flush()
    tail = _GZIP_TAIL.pack(zlib.crc32(plain), len(plain))
    return base64.b64encode(_GZIP_HEAD + body + tail).decode("ascii")


def from_text(text: str) -> StreamCut | None:
    """Return the inverse of `to_text`.  Raises Invalid."""
    if text == UNBOUNDED_TEXT:
        return None
    fields = _unzip(text).split(":")
    if len(fields) != 5 or fields[0] != _TEXT_VERSION:
        raise Invalid(f"{text[:40]!r} is not a stream cut that this version knows")
    columns = [list(_numbers(field)) for field in fields[2:]]
    if len({len(column) for column in columns}) != 1:
        raise Invalid("a stream cut's lists of numbers, epochs and offsets differ in length")
    if max(*columns[0], *columns[1]) > _MAX_INT32:
        raise Invalid("a stream cut names a segment whose number or epoch is too large")
    positions = {SegmentId(epoch, number): offset for number, epoch, offset in zip(*columns, strict=True)}
    if len(positions) != len(columns[0]):
        raise Invalid("a stream cut names a segment twice")
    return StreamCut(_stream(fields[1]), positions)


def _stream(name: str) -> StreamName:
    scope, slash, stream = name.partition("/")
    if not slash or not scope or not stream:
        raise Invalid(f"{name!r} in a stream cut is not SCOPE/STREAM")
    return StreamName(scope, stream)


def _numbers(field: str) -> Iterator[int]:
    for text in field.split(","):
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            raise Invalid(f"{text[:20]!r} in a stream cut is not a number")
        yield int(text)


def _unzip(text: str) -> str:
    try:
        inflate = zlib.decompressobj(wbits=_GZIP_WINDOW)
        plain = inflate.decompress(base64.b64decode(text, validate=True), MAX_CUT_TEXT_BYTES)
        if not inflate.eof:
            raise Invalid("a stream cut is cut short, or too long")
        return plain.decode()
    except Invalid:
        raise
    except (binascii.Error, zlib.error, ValueError):
        raise Invalid(
            f"{text[:40]!r} is not a stream cut: give the whole text of one, as `sarit read --print-cut` prints it"
        ) from None
