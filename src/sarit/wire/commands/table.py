"""Commands about table segments, which hold versioned key-value entries (wire.md par. 6).

A key is sent with a version: the one that it has or must have, NO_VERSION (any) or NOT_EXISTS (absent).
"""

import struct
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from sarit.env.ports import Buffer
from sarit.wire.commands.registry import Command, command
from sarit.wire.errors import ProtocolError
from sarit.wire.limits import NO_VERSION
from sarit.wire.primitives import BYTES, Blob, Flag, Int, ListCodec, Long, Longs, Name, Text, read_count

_TWO_INTS: Final = struct.Struct(">ii")
_VERSION: Final = struct.Struct(">q")


class TableKey(NamedTuple):
    """A key and its version."""

    key: Buffer
    version: int = NO_VERSION


class TableEntry(NamedTuple):
    """A key, its version and its value."""

    key: Buffer
    version: int
    value: Buffer


class _KeyCodec:
    """A key as int32 4+len+8, int32 len, key, int64 version.  For an empty key Java writes only 12 and 0."""

    def write(self, value: TableKey, out: list[Buffer]) -> None:
        key, version = value
        out.append(_TWO_INTS.pack(4 + len(key) + _VERSION.size, len(key)))
        if len(key) == 0:
            return
        out.append(key)
        try:
            out.append(_VERSION.pack(version))
        except struct.error as error:
            raise ProtocolError(f"version {version}: {error}") from None

    def read(self, payload: Buffer, at: int) -> tuple[TableKey, int]:
        size, at = read_count(payload, at)
        key, end = BYTES.read(payload, at)
        if size != 4 + len(key) + _VERSION.size:
            raise ProtocolError(f"a key of {len(key)} bytes does not fill {size}")
        if len(key) == 0:
            return TableKey(b""), end
        if len(payload) < end + _VERSION.size:
            raise ProtocolError("the version of a key is cut short")
        return TableKey(key, _VERSION.unpack_from(payload, end)[0]), end + _VERSION.size


class _EntryCodec:
    """A key as by `_KeyCodec`, then int32 4+len, int32 len, value."""

    def write(self, value: TableEntry, out: list[Buffer]) -> None:
        _KEY.write(TableKey(value.key, value.version), out)
        out.append(_TWO_INTS.pack(4 + len(value.value), len(value.value)))
        out.append(value.value)

    def read(self, payload: Buffer, at: int) -> tuple[TableEntry, int]:
        key, at = _KEY.read(payload, at)
        size, at = read_count(payload, at)
        value, end = BYTES.read(payload, at)
        if size != 4 + len(value):
            raise ProtocolError(f"a value of {len(value)} bytes does not fill {size}")
        return TableEntry(key.key, key.version, value), end


@dataclass(frozen=True, slots=True)
class IteratorArgs:
    """The place where an iteration continues: a token (hash layout), or inclusive bounds (keys of fixed length)."""

    continuation_token: Buffer = b""
    from_key: Buffer = b""
    to_key: Buffer = b""


class _ArgsCodec:
    """Four byte fields: token, prefix filter (always empty), from, to.  Rust clients send only the first."""

    def write(self, value: IteratorArgs, out: list[Buffer]) -> None:
        for part in (value.continuation_token, b"", value.from_key, value.to_key):
            BYTES.write(part, out)

    def read(self, payload: Buffer, at: int) -> tuple[IteratorArgs, int]:
        parts: list[Buffer] = [b""] * 4
        for place in range(4):
            if at == len(payload):
                break
            parts[place], at = BYTES.read(payload, at)
        token, _prefix, first, last = parts
        return IteratorArgs(token, first, last), at


_KEY: Final = _KeyCodec()

Keys = Annotated[tuple[TableKey, ...], ListCodec(_KEY)]
Entries = Annotated[tuple[TableEntry, ...], ListCodec(_EntryCodec())]
Args = Annotated[IteratorArgs, _ArgsCodec()]


@command(68)
class GetTableSegmentInfo(Command):
    """A request for the properties of a table segment.  Answer: TableSegmentInfo."""

    request_id: Long
    segment: Name
    token: Text


@command(69)
class TableSegmentInfo(Command):
    """The properties of a table segment.  `key_length`: in bytes; 0: keys of any length (hash layout)."""

    request_id: Long
    segment: Text
    start_offset: Long
    length: Long
    entry_count: Long
    key_length: Int


@command(70)
class CreateTableSegment(Command):
    """A request to create a table segment.  `key_length`: of all keys, in bytes, which are sorted then; 0: any length.
    Answer: SegmentCreated."""

    request_id: Long
    segment: Name
    token: Text
    sorted_deprecated: Flag = False
    key_length: Int = 0
    rollover_size_bytes: Long = 0


@command(71)
class DeleteTableSegment(Command):
    """A request to delete a table segment.  Answer: SegmentDeleted."""

    request_id: Long
    segment: Name
    must_be_empty: Flag
    token: Text


@command(74)
class UpdateTableEntries(Command):
    """A request to update entries atomically.  `table_segment_offset`: the length that the table must have; -1: any.
    Answer: TableEntriesUpdated."""

    request_id: Long
    segment: Name
    token: Text
    entries: Entries
    table_segment_offset: Long = -1


@command(75)
class TableEntriesUpdated(Command):
    """Answer to an update: the new version of each entry of the request."""

    request_id: Long
    versions: Longs


@command(76)
class RemoveTableKeys(Command):
    """A request to remove keys atomically.  Answer: TableKeysRemoved."""

    request_id: Long
    segment: Name
    token: Text
    keys: Keys
    table_segment_offset: Long = -1


@command(77)
class TableKeysRemoved(Command):
    """Answer to RemoveTableKeys."""

    request_id: Long
    segment: Text


@command(78)
class ReadTable(Command):
    """A request for the entries of keys, whose versions are ignored.  Answer: TableRead."""

    request_id: Long
    segment: Name
    token: Text
    keys: Keys


@command(79)
class TableRead(Command):
    """Answer to ReadTable: an entry for each requested key; a missing one has version NOT_EXISTS and no value."""

    request_id: Long
    segment: Text
    entries: Entries


@command(83)
class ReadTableKeys(Command):
    """A request for a page of keys.  Answer: TableKeysRead."""

    request_id: Long
    segment: Name
    token: Text
    suggested_key_count: Int
    args: Args


@command(84)
class TableKeysRead(Command):
    """A page of keys.  An empty page ends the iteration, whatever the token is."""

    request_id: Long
    segment: Text
    keys: Keys
    continuation_token: Blob


@command(85)
class ReadTableEntries(Command):
    """A request for a page of entries.  Answer: TableEntriesRead."""

    request_id: Long
    segment: Name
    token: Text
    suggested_entry_count: Int
    args: Args


@command(86)
class TableEntriesRead(Command):
    """A page of entries.  An empty page ends the iteration, whatever the token is."""

    request_id: Long
    segment: Text
    entries: Entries
    continuation_token: Blob


@command(88)
class ReadTableEntriesDelta(Command):
    """A request for the entries that changed since a position.  Answer: TableEntriesDeltaRead."""

    request_id: Long
    segment: Name
    token: Text
    from_position: Long
    suggested_entry_count: Int


@command(87)
class TableEntriesDeltaRead(Command):
    """A page of changed entries, without removals, and the position to continue at."""

    request_id: Long
    segment: Text
    entries: Entries
    should_clear: Flag
    reached_end: Flag
    last_position: Long
