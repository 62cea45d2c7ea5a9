"""The stream of a reader group's state (`_RG…`), read and begun by a controller without a client.

Its layout is that of `client/sync/synchronizer.py`: entries of one segment, the first whole state at the mark.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from sarit.client.groups import codec
from sarit.client.groups.state import Init, UpdatingConfig, apply
from sarit.client.groups.values import GroupConfig, GroupSegment
from sarit.client.sync.revisioned_stream import MARK_ATTRIBUTE
from sarit.client.sync.synchronizer import decode_entry, encode_initial, encode_updates
from sarit.controller.model import streams
from sarit.core.errors import Conflict, Corrupt, Invalid, SaritError, Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.core.names import READER_GROUP_PREFIX, SegmentId, StreamName
from sarit.mirror.limits import MAX_GROUP_STATE_BYTES, MIRROR_BATCH_BYTES

if TYPE_CHECKING:
    from sarit.client.groups.state import GroupState
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.records import GroupRecord
    from sarit.controller.ports import Segments

_HEADER: Final = struct.Struct(">ii")


class Stored(NamedTuple):
    """A group's state; None: nothing was written yet.  `end`: of its segment.

    `is_unused`: there is nothing but beginnings of generations: no reader has ever joined."""

    segment: str
    end: int
    state: GroupState | None
    is_unused: bool


async def read_state(catalog: Catalog, segments: Segments, scope: str, group: str) -> Stored | None:
    """Return the state of a group; None: it has no stream.  Raises NotFound, Corrupt, Truncated, Invalid (it is too
    long)."""
    name = StreamName(scope, READER_GROUP_PREFIX + group)
    found = await catalog.find(name)
    if found is None:
        return None
    ids = sorted(streams.head(found.record))
    if len(ids) != 1:
        raise Corrupt(f"the stream {name} of a reader group has {len(ids)} segments, not one")
    segment = name.segment(SegmentId.unpack(ids[0]))
    info = await segments.info(segment)
    mark = await segments.get_attribute(segment, MARK_ATTRIBUTE)
    start = info.start_offset if mark == NULL_ATTRIBUTE_VALUE else max(mark, info.start_offset)
    if info.length - start > MAX_GROUP_STATE_BYTES:
        raise Invalid(f"the state of reader group {scope}/{group} has more than {MAX_GROUP_STATE_BYTES} bytes")
    data = b""
    while start + len(data) < info.length:
        wanted = min(MIRROR_BATCH_BYTES, info.length - start - len(data))
        (piece,) = await segments.read_many([(segment, start + len(data), wanted)])
        if isinstance(piece, SaritError):
            raise piece
        if not piece:
            raise Unavailable(f"the state of reader group {scope}/{group} could not be read to its end")
        data += piece
    state, is_unused = _replayed(data)
    # What was truncated was written by readers, or by `begin`, which keeps a beginning.
    return Stored(segment, info.length, state, is_unused and mark == NULL_ATTRIBUTE_VALUE)


def _replayed(data: bytes) -> tuple[GroupState | None, bool]:
    """Return the state that entries lead to, and whether they are beginnings alone.  Raises Corrupt."""
    state, is_unused, at = None, True, 0
    while at < len(data):
        kind, length = _HEADER.unpack_from(data, at) if at + _HEADER.size <= len(data) else (-1, -1)
        at += _HEADER.size
        if kind != 0 or not 0 <= length <= len(data) - at:
            raise Corrupt("the state of a reader group ends in the middle of an entry")
        entry = decode_entry(data[at : at + length])
        at += length
        is_first = isinstance(entry, bytes)
        for value in [entry] if isinstance(entry, bytes) else entry:
            update = codec.decode(value)
            is_unused = is_unused and isinstance(update, Init | UpdatingConfig)
            if is_first or state is not None:  # others belong to what was truncated
                try:
                    state = apply(None if is_first else state, update)
                except Conflict as error:
                    raise Corrupt(f"the state of a reader group is damaged: {error}") from error
    return state, is_unused


def config_of(record: GroupRecord) -> GroupConfig:
    """Return a group's configuration as its readers have it.  Raises Invalid (its id is none)."""
    try:
        group_id = UUID(record.group_id).bytes
    except ValueError:
        raise Invalid("the id of a reader group is none") from None
    return GroupConfig(
        {name: {SegmentId.unpack(s): at for s, at in cut} or None for name, cut in record.starts},
        {name: {SegmentId.unpack(s): at for s, at in cut} or None for name, cut in record.ends},
        record.checkpoint_ms,
        record.refresh_ms,
        record.max_outstanding,
        record.retention,
        record.generation,
        group_id,
    )


async def announce(segments: Segments, stored: Stored) -> int:
    """Tell readers that join from now on that a generation is about to begin.  Returns the end.  Raises Conflict
    (others wrote), Unavailable."""
    return await _append(segments, stored.segment, stored.end, encode_updates([codec.encode(UpdatingConfig(True))]))


async def begin(segments: Segments, segment: str, end: int, record: GroupRecord) -> None:
    """Write the first state of a generation, which starts at the cuts of the record.  Raises Conflict (others wrote),
    Unavailable."""
    config = config_of(record)
    starts = {
        GroupSegment(name, segment_id): at
        for name, cut in config.starts.items()
        for segment_id, at in sorted((cut or {}).items())
    }
    await _append(segments, segment, end, encode_initial(codec.encode(Init(config, starts, config.end_offsets()))))
    # Nobody needs what was before: without this the stream grows as long as the source reads.
    await segments.truncate(segment, end)


async def _append(segments: Segments, segment: str, end: int, entry: bytes) -> int:
    (written,) = await segments.append_at_many([(segment, end, _HEADER.pack(0, len(entry)) + entry)])
    if isinstance(written, SaritError):
        raise written
    return written
