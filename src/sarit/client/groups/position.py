"""The position of a group's reader, and checkpoints, as values to store: Java's bytes (naming.md par. 5).

    position    v0 r0: {segment name: offset as compact long}, r1: {segment name: low float64, high float64}
    checkpoint  v0 r0: name, {stream: stream cut}

An offset of -1, the end of a deleted segment, is stored as the largest compact long.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sarit.client.groups.values import GroupSegment, KeyPart
from sarit.core import cuts
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid
from sarit.core.names import StreamName, parse_segment_name
from sarit.core.public import public
from sarit.core.versioned_objects import Cursor, pack_int, pack_long, pack_single, pack_text

_END: Final = (1 << 62) - 2  # Java's COMPACT_LONG_MAX less one: see vectors.md
_ENDS: Final = (_END, _END + 1)
_PART: Final = struct.Struct(">dd")
_NO_PART: Final = (-1.0, -1.0)


@public
@dataclass(frozen=True, slots=True)
class Position:
    """The offsets of a reader in its segments, after the last event it handed out.

    Store `to_bytes()` with the results of the events; pass it to `reader_offline` when the reader is lost."""

    offsets: Mapping[GroupSegment, int]
    ranges: Mapping[GroupSegment, KeyPart | None] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Java's `Position`."""
        offsets = sorted(self.offsets.items())
        # A compact long is not negative.
        first = [pack_text(str(segment)) + pack_long(_END if at < 0 else at) for segment, at in offsets]
        parts = ((segment, self.ranges.get(segment)) for segment, _ in offsets)
        second = [pack_text(str(segment)) + _PART.pack(*(part or _NO_PART)) for segment, part in parts]
        return pack_single(0, {number: pack_int(len(m)) + b"".join(m) for number, m in ((0, first), (1, second))})

    @staticmethod
    def from_bytes(data: bytes) -> Position:
        """Return the inverse.  Raises Invalid."""
        revisions = _revisions(data, "position")
        cursor = Cursor(revisions[0])
        offsets: dict[GroupSegment, int] = {}
        for _ in range(cursor.compact_int()):
            segment, offset = _segment(cursor), cursor.compact_long()
            offsets[segment] = -1 if offset in _ENDS else offset
        ranges: dict[GroupSegment, KeyPart | None] = {}
        cursor = Cursor(revisions.get(1, pack_int(0)))
        for _ in range(cursor.compact_int()):
            segment, part = _segment(cursor), KeyPart(*_PART.unpack(cursor.take(_PART.size)))
            ranges[segment] = None if part.low < 0 or part.high < 0 else part
        return Position(offsets, ranges)


@public
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A consistent cut of all that a group reads: `group.reset(checkpoint)` reads everything after it again."""

    name: str
    cuts: Mapping[StreamName, StreamCut]

    def to_bytes(self) -> bytes:
        """Java's `Checkpoint`."""
        pairs = [pack_text(str(stream)) + cuts.to_bytes(cut) for stream, cut in sorted(self.cuts.items())]
        return pack_single(0, {0: pack_text(self.name) + pack_int(len(pairs)) + b"".join(pairs)})

    @staticmethod
    def from_bytes(data: bytes) -> Checkpoint:
        """Return the inverse.  Raises Invalid."""
        cursor = Cursor(_revisions(data, "checkpoint")[0])
        name = cursor.text()
        found: dict[StreamName, StreamCut] = {}
        for _ in range(cursor.compact_int()):
            cursor.text()  # the stream, which the cut names, too
            cut = cuts.read_cut(cursor)
            found[cut.stream] = cut
        return Checkpoint(name, found)


CutLike: TypeAlias = Checkpoint | Mapping[StreamName, StreamCut] | StreamCut | str | None
"""How callers name the position of a group: as `Cut`, or the cuts of several streams, or a checkpoint."""


def _segment(cursor: Cursor) -> GroupSegment:
    return GroupSegment(*parse_segment_name(cursor.text()))


def _revisions(data: bytes, what: str) -> dict[int, bytes]:
    cursor = Cursor(data)
    version, revisions = cursor.single()
    if version != 0 or 0 not in revisions or not cursor.at_end:
        raise Invalid(f"these bytes are not a {what} of a reader group")
    return revisions
