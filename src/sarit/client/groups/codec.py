"""The bytes of a reader group's updates, exactly as Pravega's Java client has them (client_behaviour.md par. 6).

Every update is a versioned object of one of several types (naming.md par. 5); numbers are big-endian:

    00, type u8, version u8 = 0, count of revisions u8, then per revision: its number u8, length int32, payload

Golden bytes: vectors.md.  Segments are named in full; a part of the key space that is not known is -1.0, -1.0.

Revision 3 of a whole state is ours: the update by which each reader joined, as a map from its name to the update's
offset, int64, and index, int32.  Java's readers skip revisions they do not know, and leave it out when they compact.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.client.groups.checkpoints import Checkpoints
from sarit.client.groups.state import (
    AcquireSegment,
    AddReader,
    CheckpointPublished,
    CheckpointReader,
    ClearCheckpointsBefore,
    Compact,
    CreateCheckpoint,
    GroupState,
    Init,
    ReleaseSegment,
    RemoveOutstandingCheckpoints,
    RemoveReader,
    SegmentCompleted,
    UpdateDistance,
    UpdatingConfig,
)
from sarit.client.groups.values import GroupConfig, GroupSegment, KeyPart
from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import SegmentId, StreamName, parse_segment_name
from sarit.core.versioned_objects import Cursor, pack_int, pack_long, pack_signed, pack_single, pack_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sarit.client.groups.state import Update
    from sarit.client.groups.values import Cut, Offsets, Ranges

    Payloads = dict[int, bytes]

_INT64: Final = struct.Struct(">q")
_PART: Final = struct.Struct(">dd")
_JOINED_AT: Final = struct.Struct(">qi")
_CONFIG_TIMES: Final = struct.Struct(">qq")
_CUT_VERSION: Final = 1
_NO_PART: Final = (-1.0, -1.0)

K = TypeVar("K")
V = TypeVar("V")


# -- values ---------------------------------------------------------------------------------------


def _map(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    packed = [key + value for key, value in entries]
    return pack_int(len(packed)) + b"".join(packed)


def _list(items: Iterable[bytes]) -> bytes:
    packed = list(items)
    return pack_int(len(packed)) + b"".join(packed)


def _buffer(data: bytes) -> bytes:
    return pack_int(len(data)) + data


def _segment(segment: GroupSegment) -> bytes:
    return pack_text(str(segment))


def _part(part: KeyPart | None) -> bytes:
    return _PART.pack(*(_NO_PART if part is None else part))


def _offsets(offsets: Offsets) -> bytes:
    return _map((_segment(segment), _INT64.pack(offset)) for segment, offset in offsets.items())


def _offsets_with_parts(offsets: Offsets, ranges: Ranges) -> bytes:
    return _map(
        (_segment(segment) + _part(ranges.get(segment)), _INT64.pack(offset)) for segment, offset in offsets.items()
    )


def _ranges(ranges: Ranges) -> bytes:
    return _map((_segment(segment), _part(part)) for segment, part in ranges.items())


def _read_map(cursor: Cursor, key: Callable[[Cursor], K], value: Callable[[Cursor], V]) -> dict[K, V]:
    return {key(cursor): value(cursor) for _ in range(cursor.compact_int())}


def _read_list(cursor: Cursor, item: Callable[[Cursor], V]) -> list[V]:
    return [item(cursor) for _ in range(cursor.compact_int())]


def _read_text(cursor: Cursor) -> str:
    return cursor.text()


def _read_segment(cursor: Cursor) -> GroupSegment:
    return GroupSegment(*parse_segment_name(cursor.text()))


def _read_long(cursor: Cursor) -> int:
    return int(_INT64.unpack(cursor.take(_INT64.size))[0])


def _read_joined_at(cursor: Cursor) -> tuple[int, int]:
    offset, index = _JOINED_AT.unpack(cursor.take(_JOINED_AT.size))
    return offset, index


def _read_part(cursor: Cursor) -> KeyPart | None:
    part = KeyPart(*_PART.unpack(cursor.take(_PART.size)))
    return None if part.low < 0 or part.high < 0 else part


def _read_offsets(cursor: Cursor) -> dict[GroupSegment, int]:
    return _read_map(cursor, _read_segment, _read_long)


def _read_offsets_with_parts(cursor: Cursor) -> tuple[dict[GroupSegment, int], dict[GroupSegment, KeyPart | None]]:
    found = _read_map(cursor, lambda c: (_read_segment(c), _read_part(c)), _read_long)
    return {segment: at for (segment, _), at in found.items()}, dict(found.keys())


def _read_buffer(cursor: Cursor) -> bytes:
    return cursor.take(cursor.compact_int())


# -- configuration and checkpoints ----------------------------------------------------------------


def _cuts(cuts: Mapping[StreamName, Cut | None]) -> bytes:
    return _map((pack_text(str(stream)), _buffer(_cut(stream, cut))) for stream, cut in cuts.items())


def _cut(stream: StreamName, cut: Cut | None) -> bytes:
    """Encode a cut as `core.cuts.to_bytes` does, but with offsets of -1, which stand for the end of a segment."""
    # Java's unbounded cut.
    if cut is None:
        return b""
    pairs = _map((pack_long(segment.packed), pack_signed(offset)) for segment, offset in cut.items())
    return pack_single(_CUT_VERSION, {0: pack_text(str(stream)) + pairs})


def _read_cut(cursor: Cursor) -> dict[SegmentId, int] | None:
    data = _read_buffer(cursor)
    if not data:
        return None
    version, revisions = Cursor(data).single()
    payload = Cursor(_revision(revisions, 0))
    payload.text()  # the stream, which the caller has read as the key
    # Earlier versions cannot hold an offset below 0.
    offset = Cursor.compact_signed if version == _CUT_VERSION else Cursor.compact_long
    return _read_map(payload, lambda c: SegmentId.unpack(c.compact_long()), offset)


def _read_cuts(cursor: Cursor) -> dict[StreamName, dict[SegmentId, int] | None]:
    return _read_map(cursor, lambda c: StreamName.parse(c.text()), _read_cut)


def encode_config(config: GroupConfig) -> bytes:
    """Java's `ReaderGroupConfig`."""
    base = _CONFIG_TIMES.pack(config.checkpoint_ms, config.refresh_ms) + _cuts(config.starts) + _cuts(config.ends)
    identity = pack_int(config.retention) + _INT64.pack(config.generation) + config.group_id
    # Revision 1 repeats revision 0, as Java's does.
    return pack_single(0, {0: base, 1: base + config.max_outstanding.to_bytes(4, "big"), 2: identity})


def decode_config(data: bytes) -> GroupConfig:
    """Return the inverse.  Raises Corrupt."""
    revisions = _only_version(Cursor(data))
    cursor = Cursor(revisions.get(1) or _revision(revisions, 0))
    checkpoint_ms, refresh_ms = _CONFIG_TIMES.unpack(cursor.take(_CONFIG_TIMES.size))
    found = GroupConfig(_read_cuts(cursor), _read_cuts(cursor), checkpoint_ms, refresh_ms)
    most = cursor.number(4) if 1 in revisions else found.max_outstanding
    if 2 not in revisions:
        return replace(found, max_outstanding=most)
    cursor = Cursor(revisions[2])
    retention, generation = cursor.compact_int(), _read_long(cursor)
    return replace(found, max_outstanding=most, retention=retention, generation=generation, group_id=cursor.take(16))


def _encode_checkpoints(checkpoints: Checkpoints) -> bytes:
    base = (
        _list(map(pack_text, checkpoints.names))
        + _map((pack_text(name), _list(map(pack_text, readers))) for name, readers in checkpoints.pending.items())
        + _map((pack_text(name), _offsets(at)) for name, at in checkpoints.positions.items())
        + _offsets(checkpoints.last or {})
    )
    return pack_single(0, {0: base, 1: bytes([checkpoints.published])})


def _decode_checkpoints(data: bytes) -> Checkpoints:
    revisions = _only_version(Cursor(data))
    cursor = Cursor(_revision(revisions, 0))
    names = tuple(_read_list(cursor, _read_text))
    pending = _read_map(cursor, _read_text, lambda c: tuple(_read_list(c, _read_text)))
    positions = _read_map(cursor, _read_text, _read_offsets)
    last = _read_offsets(cursor)
    # Older clients store no revision 1: nothing is to be reported of their checkpoints.
    published = revisions.get(1, b"\1") != b"\0"
    return Checkpoints(names, pending, positions, last or None, published)


# -- updates --------------------------------------------------------------------------------------


def _encode_init(update: Init) -> Payloads:
    config = _buffer(encode_config(update.config))
    return {
        0: config + _offsets(update.start) + _offsets(update.ends),
        1: _offsets_with_parts(update.start, update.ranges),
        2: bytes([update.updating]),
    }


def _decode_init(revisions: Payloads) -> Init:
    cursor = Cursor(_revision(revisions, 0))
    config, start, ends = decode_config(_read_buffer(cursor)), _read_offsets(cursor), _read_offsets(cursor)
    ranges: dict[GroupSegment, KeyPart | None] = {}
    # The same offsets again, with the parts of the key space beside them.
    if 1 in revisions:
        start, ranges = _read_offsets_with_parts(Cursor(revisions[1]))
    return Init(config, start, ends, ranges, revisions.get(2) == b"\1")


def _encode_compact(update: Compact) -> Payloads:
    state = update.state
    waits = ((_segment(s), _list(_INT64.pack(p.segment.packed) for p in sorted(w))) for s, w in state.future.items())
    base = (
        _buffer(encode_config(state.config))
        + _buffer(_encode_checkpoints(state.checkpoints))
        + _map((pack_text(reader), _INT64.pack(distance)) for reader, distance in state.distances.items())
        + _map(waits)
        + _map((pack_text(reader), _offsets(owned)) for reader, owned in state.assigned.items())
        + _offsets(state.unassigned)
        + _offsets(state.ends)
    )
    # In a fixed order, without repetition: the same state gives the same bytes in every process.
    named = [*state.future, *state.unassigned, *(s for owned in state.assigned.values() for s in owned)]
    ranges = {segment: state.ranges.get(segment) for segment in dict.fromkeys([*named, *state.last_read])}
    payloads = {0: base, 1: _offsets(state.last_read) + _ranges(ranges), 2: bytes([state.updating])}
    # Ours; absent when empty, as in Java's bytes.
    if state.joined:
        payloads[3] = _map((pack_text(reader), _JOINED_AT.pack(*at)) for reader, at in state.joined.items())
    return payloads


def _decode_compact(revisions: Payloads) -> Compact:
    cursor = Cursor(_revision(revisions, 0))
    config = decode_config(_read_buffer(cursor))
    checkpoints = _decode_checkpoints(_read_buffer(cursor))
    distances = _read_map(cursor, _read_text, _read_long)
    waits = _read_map(cursor, _read_segment, lambda c: _read_list(c, _read_long))
    assigned = _read_map(cursor, _read_text, _read_offsets)
    unassigned, ends = _read_offsets(cursor), _read_offsets(cursor)
    last_read: dict[GroupSegment, int] = {}
    ranges: dict[GroupSegment, KeyPart | None] = {}
    if 1 in revisions:
        cursor = Cursor(revisions[1])
        last_read, ranges = _read_offsets(cursor), _read_map(cursor, _read_segment, _read_part)
    state = GroupState(
        config,
        unassigned,
        ends,
        ranges,
        assigned,
        {segment: _predecessors(segment, numbers) for segment, numbers in waits.items()},
        distances,
        last_read,
        checkpoints,
        revisions.get(2) == b"\1",
        joined=_read_map(Cursor(revisions[3]), _read_text, _read_joined_at) if 3 in revisions else {},
    )
    return Compact(state)


def _predecessors(segment: GroupSegment, numbers: Iterable[int]) -> frozenset[GroupSegment]:
    # Stored by number alone; a predecessor is always of the same stream.
    return frozenset(GroupSegment(segment.stream, SegmentId.unpack(number)) for number in numbers)


def _encode_distance(update: UpdateDistance) -> Payloads:
    base = pack_text(update.reader) + _INT64.pack(update.distance)
    return {0: base, 1: _offsets_with_parts(update.last_read, update.ranges)}


def _decode_distance(revisions: Payloads) -> UpdateDistance:
    cursor = Cursor(_revision(revisions, 0))
    reader, distance = cursor.text(), _read_long(cursor)
    if 1 not in revisions:
        return UpdateDistance(reader, distance)
    return UpdateDistance(reader, distance, *_read_offsets_with_parts(Cursor(revisions[1])))


def _encode_completed(update: SegmentCompleted) -> Payloads:
    successors = (
        (_segment(segment), _list(_INT64.pack(p.segment.packed) for p in sorted(predecessors)))
        for segment, predecessors in update.successors.items()
    )
    ranges = {segment: update.ranges.get(segment) for segment in (update.segment, *update.successors)}
    return {0: pack_text(update.reader) + _segment(update.segment) + _map(successors), 1: _ranges(ranges)}


def _decode_completed(revisions: Payloads) -> SegmentCompleted:
    cursor = Cursor(_revision(revisions, 0))
    reader, segment = cursor.text(), _read_segment(cursor)
    successors = _read_map(cursor, _read_segment, lambda c: _read_list(c, _read_long))
    ranges = _read_map(Cursor(revisions[1]), _read_segment, _read_part) if 1 in revisions else {}
    following = {successor: _predecessors(successor, numbers) for successor, numbers in successors.items()}
    return SegmentCompleted(reader, segment, following, ranges)


def _simple(
    encode: Callable[[Any], bytes], decode: Callable[[Cursor], Update]
) -> tuple[Callable[[Any], Payloads], Callable[[Payloads], Update]]:
    """Return the codec of an update of one revision."""
    return (lambda update: {0: encode(update)}), (lambda revisions: decode(Cursor(_revision(revisions, 0))))


_Codec = tuple["Callable[[Any], Payloads]", "Callable[[Payloads], Update]"]
_CODECS: Final[dict[type, tuple[int, _Codec]]] = {
    Init: (0, (_encode_init, _decode_init)),
    Compact: (1, (_encode_compact, _decode_compact)),
    AddReader: (2, _simple(lambda u: pack_text(u.reader), lambda c: AddReader(c.text()))),
    RemoveReader: (
        3,
        _simple(
            lambda u: pack_text(u.reader) + _offsets(u.owned),
            lambda c: RemoveReader(c.text(), _read_offsets(c)),
        ),
    ),
    ReleaseSegment: (
        4,
        _simple(
            lambda u: pack_text(u.reader) + _segment(u.segment) + _INT64.pack(u.offset),
            lambda c: ReleaseSegment(c.text(), _read_segment(c), _read_long(c)),
        ),
    ),
    AcquireSegment: (
        5,
        _simple(
            lambda u: pack_text(u.reader) + _segment(u.segment),
            lambda c: AcquireSegment(c.text(), _read_segment(c)),
        ),
    ),
    UpdateDistance: (6, (_encode_distance, _decode_distance)),
    SegmentCompleted: (7, (_encode_completed, _decode_completed)),
    CheckpointReader: (
        8,
        _simple(
            lambda u: pack_text(u.checkpoint) + pack_text(u.reader) + _offsets(u.positions),
            lambda c: CheckpointReader(c.text(), c.text(), _read_offsets(c)),
        ),
    ),
    CreateCheckpoint: (
        9,
        _simple(lambda u: pack_text(u.checkpoint), lambda c: CreateCheckpoint(c.text())),
    ),
    ClearCheckpointsBefore: (
        10,
        _simple(lambda u: pack_text(u.checkpoint), lambda c: ClearCheckpointsBefore(c.text())),
    ),
    CheckpointPublished: (
        11,
        _simple(lambda u: bytes([u.published]), lambda c: CheckpointPublished(bool(c.number(1)))),
    ),
    UpdatingConfig: (
        12,
        _simple(lambda u: bytes([u.updating]), lambda c: UpdatingConfig(bool(c.number(1)))),
    ),
    RemoveOutstandingCheckpoints: (
        13,
        _simple(lambda _: b"", lambda _: RemoveOutstandingCheckpoints()),
    ),
}
_BY_ID: Final = {number: codec for number, codec in _CODECS.values()}


def encode(update: Update) -> bytes:
    """Java's bytes of an update.  Raises Invalid (a name too long)."""
    number, (payloads, _) = _CODECS[type(update)]
    # A versioned object with the type between its first byte and its version.
    return bytes((0, number)) + pack_single(0, payloads(update))[1:]


def decode(data: bytes) -> Update:
    """Return the inverse.  Raises Corrupt."""
    try:
        if len(data) < 2 or data[0] != 0 or data[1] not in _BY_ID:
            raise Corrupt(f"this is no update of a reader group; it begins with {data[:2].hex()}")
        return _BY_ID[data[1]][1](_only_version(Cursor(data[:1] + data[2:])))
    # What `Cursor` refuses in a user's bytes is damage here: the group wrote them.
    except Invalid as error:
        raise Corrupt(f"this update of a reader group cannot be decoded: {error}") from None


def _only_version(cursor: Cursor) -> Payloads:
    version, revisions = cursor.single()
    if version != 0:
        raise Corrupt(f"a reader group's object has version {version}; version 0 is known")
    return revisions


def _revision(revisions: Payloads, number: int) -> bytes:
    if number not in revisions:
        raise Corrupt(f"a reader group's object has no revision {number}")
    return revisions[number]
