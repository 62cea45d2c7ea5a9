"""The keys of a container's index, and its small values.

A key is one letter for the kind of record, then the segment id (8 bytes, big-endian, so that byte order is numeric
order), then the rest that identifies the record within its kind.  So all records of one kind of one segment are
adjacent: a scan lists them and a range delete drops them.  docs/formats/sqlite-index.md has examples of each layout.

    s <id>                segment record            (encoded in store/container/segment.py)
    n <name>              segment id, 8 bytes
    a <id> <attribute 16> attribute value, int64
    c <id> <start 8>      extent in a chunk         (encoded in storage/layout.py)
    i <id> <start 8>      inlined extent: the bytes themselves
    k <id> <key>          table entry: version 8, value
    v <id> <version 8>    the table key whose entry has this version
    g <chunk>             chunk awaiting deletion
    p <pack>@<begin>      piece of a pack that an extent names: segment id, start of the extent, lengths
    m <name>              meta value

Warnings.  (1) Numbers in keys are unsigned, attribute values are signed.  (2) A range ends where the next id begins, so
ids stay below 2**63.  (3) Parsers raise Corrupt, since only this module writes keys.
"""

from __future__ import annotations

import struct
from typing import Final

from sarit.core.errors import Corrupt
from sarit.core.limits import LOG_IDENTITY_BYTES
from sarit.wire.limits import UUID_BYTES

FORMAT_VERSION: Final = 2

SEGMENT: Final = b"s"
NAME: Final = b"n"
ATTRIBUTE: Final = b"a"
EXTENT: Final = b"c"
INLINED: Final = b"i"
ENTRY: Final = b"k"
VERSION: Final = b"v"
GARBAGE: Final = b"g"
PIECE: Final = b"p"
META: Final = b"m"

PER_SEGMENT: Final = (ATTRIBUTE, EXTENT, INLINED, ENTRY, VERSION)
"""The kinds of which one segment may have many records, that is, all but its record (`s`) and its name."""

MAX_SEGMENT_ID: Final = (1 << 63) - 1
MAX_OFFSET: Final = (1 << 63) - 1

_ONE = struct.Struct(">cQ")
_TWO = struct.Struct(">cQQ")
_U64 = struct.Struct(">Q")
_PIECE_VALUE = struct.Struct(">QQQQ")
_I64 = struct.Struct(">q")
_HEAD_BYTES: Final = _ONE.size

# -- keys -----------------------------------------------------------------------------------


def segment_key(segment: int) -> bytes:
    """Return the key of a segment's record."""
    return _ONE.pack(SEGMENT, segment)


def name_key(name: str) -> bytes:
    """Return the key of the id of the segment that has `name` now."""
    return NAME + name.encode()


def attribute_key(segment: int, attribute: bytes) -> bytes:
    """Return the key of the value of an attribute, whose id has 16 bytes."""
    assert len(attribute) == UUID_BYTES, attribute
    return _ONE.pack(ATTRIBUTE, segment) + attribute


def extent_key(segment: int, start: int) -> bytes:
    """Return the key of the extent in a chunk that begins at offset `start`."""
    return _TWO.pack(EXTENT, segment, start)


def inlined_key(segment: int, start: int) -> bytes:
    """Return the key of the inlined extent that begins at offset `start`."""
    return _TWO.pack(INLINED, segment, start)


def entry_key(segment: int, key: bytes) -> bytes:
    """Return the key of an entry of a table segment."""
    return _ONE.pack(ENTRY, segment) + key


def version_key(segment: int, version: int) -> bytes:
    """Return the key of the table key whose entry has that version."""
    return _TWO.pack(VERSION, segment, version)


def garbage_key(chunk: str) -> bytes:
    """Return the key that records a chunk as garbage, to be deleted."""
    return GARBAGE + chunk.encode()


def piece_key(reference: str) -> bytes:
    """Return the key that records a piece of a pack (`storage/packs.py`) as needed."""
    return PIECE + reference.encode()


def meta_key(name: str) -> bytes:
    """Return the key of a value of the container itself."""
    return META + name.encode()


# -- ranges: (start, end), end excluded ---------------------------------------------------------


def kind_range(kind: bytes) -> tuple[bytes, bytes]:
    """Return the range of all records of a kind."""
    # The next letter is above every key of this kind, however long.
    return kind, bytes((kind[0] + 1,))


def names_range(scope: str) -> tuple[bytes, bytes]:
    """Return the range of the names of all segments of a scope."""
    # A name is SCOPE/REST, and "0" follows "/".
    return NAME + scope.encode() + b"/", NAME + scope.encode() + b"0"


def pieces_range(pack: str) -> tuple[bytes, bytes]:
    """Return the range of all pieces of a pack."""
    # A piece is NAME@OFFSET, and "A" follows "@".
    return PIECE + pack.encode() + b"@", PIECE + pack.encode() + b"A"


def segment_range(kind: bytes, segment: int) -> tuple[bytes, bytes]:
    """Return the range of all records of a kind of one segment."""
    assert 0 <= segment <= MAX_SEGMENT_ID, segment
    # Numbers are big-endian and of fixed length, so the next id is above every key of this segment.
    return _ONE.pack(kind, segment), _ONE.pack(kind, segment + 1)


def offset_range(kind: bytes, segment: int, start: int, end: int) -> tuple[bytes, bytes]:
    """Return the range of the extents or versions of one segment with start <= number < end."""
    return _TWO.pack(kind, segment, start), _TWO.pack(kind, segment, end)


def number_of(key: bytes) -> int:
    """Return the offset or version at the end of a key of an extent or a version."""
    return int.from_bytes(key[-_U64.size :], "big")


def segment_of(key: bytes) -> int:
    """Return the segment id of a key of a kind in PER_SEGMENT."""
    return int.from_bytes(key[1:_HEAD_BYTES], "big")


def entry_range(segment: int, start: bytes = b"", end: bytes | None = None) -> tuple[bytes, bytes]:
    """Return the range of a table's entries with start <= key (< end)."""
    first, last = segment_range(ENTRY, segment)
    # The table key is the end of the record's key, so entries sort by the bytes of their table keys.
    return first + start, last if end is None else first + end


def after(key: bytes) -> bytes:
    """Return the least key above `key`, at which a scan continues."""
    # Nothing sorts between a key and the same key with a zero byte.
    return key + b"\0"


def ranges_of_segment(segment: int) -> list[tuple[bytes, bytes]]:
    """Return the ranges of all records of a segment except its record (`s`) and its name."""
    return [segment_range(kind, segment) for kind in PER_SEGMENT]


# -- parsers of keys ------------------------------------------------------------------------


def parse_segment_key(key: bytes) -> int:
    """Return the segment id of an `s` key.  Raises Corrupt."""
    return _parse_one(key, SEGMENT)


def parse_name_key(key: bytes) -> str:
    """Return the name of an `n` key.  Raises Corrupt."""
    return _parse_text(key, NAME)


def parse_attribute_key(key: bytes) -> tuple[int, bytes]:
    """Return the segment id and the attribute id of an `a` key.  Raises Corrupt."""
    if len(key) != _HEAD_BYTES + UUID_BYTES or key[:1] != ATTRIBUTE:
        raise Corrupt(f"not an attribute key: {key.hex()}")
    return int.from_bytes(key[1:9], "big"), key[9:]


def parse_extent_key(key: bytes) -> tuple[int, int]:
    """Return the segment id and the start offset of a `c` key.  Raises Corrupt."""
    return _parse_two(key, EXTENT)


def parse_inlined_key(key: bytes) -> tuple[int, int]:
    """Return the segment id and the start offset of an `i` key.  Raises Corrupt."""
    return _parse_two(key, INLINED)


def parse_entry_key(key: bytes) -> tuple[int, bytes]:
    """Return the segment id and the table key of a `k` key.  Raises Corrupt."""
    if len(key) < _HEAD_BYTES or key[:1] != ENTRY:
        raise Corrupt(f"not a table entry's key: {key.hex()}")
    return int.from_bytes(key[1:9], "big"), key[9:]


def parse_version_key(key: bytes) -> tuple[int, int]:
    """Return the segment id and the version of a `v` key.  Raises Corrupt."""
    return _parse_two(key, VERSION)


def parse_garbage_key(key: bytes) -> str:
    """Return the chunk name of a `g` key.  Raises Corrupt."""
    return _parse_text(key, GARBAGE)


def parse_piece_key(key: bytes) -> str:
    """Return the reference of a `p` key.  Raises Corrupt."""
    reference = _parse_text(key, PIECE)
    if not reference.rpartition("@")[2].isdigit():
        raise Corrupt(f"not a piece of a pack: {key.hex()}")
    return reference


def parse_meta_key(key: bytes) -> str:
    """Return the name of an `m` key.  Raises Corrupt."""
    return _parse_text(key, META)


def _parse_one(key: bytes, kind: bytes) -> int:
    if len(key) != _ONE.size or key[:1] != kind:
        raise Corrupt(f"not a {kind.decode()!r} key: {key.hex()}")
    return int.from_bytes(key[1:], "big")


def _parse_two(key: bytes, kind: bytes) -> tuple[int, int]:
    if len(key) != _TWO.size or key[:1] != kind:
        raise Corrupt(f"not a {kind.decode()!r} key: {key.hex()}")
    _, segment, number = _TWO.unpack(key)
    return segment, number


def _parse_text(key: bytes, kind: bytes) -> str:
    if key[:1] != kind:
        raise Corrupt(f"not a {kind.decode()!r} key: {key.hex()}")
    try:
        return key[1:].decode()
    except UnicodeDecodeError:
        raise Corrupt(f"not a {kind.decode()!r} key: {key.hex()}") from None


def describe(key: bytes) -> str:
    """Return a description of the record with this key, for messages; the key may be any bytes."""
    kind, number = key[:1], int.from_bytes(key[1:9], "big")
    if kind in (SEGMENT, *PER_SEGMENT) and len(key) >= _HEAD_BYTES:
        rest = key[_HEAD_BYTES:]
        if kind == SEGMENT and not rest:
            return f"segment {number}"
        if kind in (EXTENT, INLINED) and len(rest) == _U64.size:
            return f"the extent at offset {int.from_bytes(rest, 'big')} of segment {number}"
        if kind == ATTRIBUTE and len(rest) == UUID_BYTES:
            return f"attribute {rest.hex()} of segment {number}"
        if kind == ENTRY:
            return f"the entry with key {rest.hex()} of table segment {number}"
        if kind == VERSION and len(rest) == _U64.size:
            return f"the entry with version {int.from_bytes(rest, 'big')} of table segment {number}"
    names = {NAME: "the name", GARBAGE: "garbage chunk", PIECE: "the piece", META: "meta value"}
    if kind in names:
        return f"{names[kind]} {key[1:].decode(errors='backslashreplace')}"
    return f"an unknown kind (key {key.hex()})"


# -- small values ---------------------------------------------------------------------------


def id_value(segment: int) -> bytes:
    """Return a segment id as the value of a name."""
    return _U64.pack(segment)


def parse_id_value(value: bytes) -> int:
    """Parse the value of a name: the segment id.  Raises Corrupt."""
    if len(value) != _U64.size:
        raise Corrupt(f"not a segment id: {value.hex()}")
    return int.from_bytes(value, "big")


def log_value(identity: bytes, epoch: int) -> bytes:
    """Return the meta value of the container's log: its identity, and the epoch of its last owner."""
    assert len(identity) == LOG_IDENTITY_BYTES, identity
    return identity + _U64.pack(epoch)


def parse_log_value(value: bytes) -> tuple[bytes, int]:
    """Parse a value of `log_value`: identity and epoch.  Raises Corrupt."""
    if len(value) != LOG_IDENTITY_BYTES + _U64.size:
        raise Corrupt(f"not the identity of a log: {value.hex()}")
    return value[:LOG_IDENTITY_BYTES], int.from_bytes(value[LOG_IDENTITY_BYTES:], "big")


def attribute_value(value: int) -> bytes:
    """Return the int64 of an attribute as a value."""
    return _I64.pack(value)


def parse_attribute_value(value: bytes) -> int:
    """Parse the value of an attribute.  Raises Corrupt."""
    if len(value) != _I64.size:
        raise Corrupt(f"not an attribute value: {value.hex()}")
    return int.from_bytes(value, "big", signed=True)


def entry_value(version: int, value: bytes) -> bytes:
    """Return the value of an entry's record: its version, then its value."""
    return _U64.pack(version) + value


def parse_entry_value(value: bytes) -> tuple[int, bytes]:
    """Parse the value of an entry's record: version and value.  Raises Corrupt."""
    if len(value) < _U64.size:
        raise Corrupt(f"not a table entry: {value.hex()}")
    return int.from_bytes(value[:8], "big"), value[8:]


def piece_value(segment: int, start: int, length: int, pack_length: int) -> bytes:
    """Return the value of a piece's record: the segment and start of its extent, and the lengths of piece and pack."""
    return _PIECE_VALUE.pack(segment, start, length, pack_length)


def parse_piece_value(value: bytes) -> tuple[int, int, int, int]:
    """Parse a value of `piece_value`.  Raises Corrupt."""
    if len(value) != _PIECE_VALUE.size:
        raise Corrupt(f"not a piece of a pack: {value.hex()}")
    segment, start, length, pack_length = _PIECE_VALUE.unpack(value)
    return segment, start, length, pack_length
