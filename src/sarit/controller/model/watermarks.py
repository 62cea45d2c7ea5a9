"""Decides on watermarks, and encodes them.

A writer notes periodically: "I have written everything up to this time, and my position is this".  A watermark states
about a cut: a reader that has read up to it has all events of the writers before the time `lower`.  `upper` is the
latest time noted so far; events before the cut may have a later time.

A watermark is made when every active writer has noted a time above `lower` of the last watermark: `lower` is the least
of these times, `upper` the highest, and the cut the upper bound of their positions and of the last watermark's cut.

A writer is active while it makes progress.  An idle writer delays all watermarks for the timeout of the stream and is
then removed.  The last position of a removed writer is included first.  Each controller measures timeouts by its own
monotonic clock.

Entry of the mark stream `_MARK<stream>` (naming.md par. 4 and 5; the golden bytes are in the tests):

    int32 0, int32 length, versioned object:  int64 lower, int64 upper,
        compact count of { versioned object: int64 segment id, double low, double high } -> int64 offset

Source: client_behaviour.md par. 8; Pravega `PeriodicWatermarking`, `Watermark`, `SegmentWithRange`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.controller.model.cuts import upper_bound
from sarit.controller.model.epochs import SegmentRange, known_segments
from sarit.core.errors import Corrupt, Invalid
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.core.versioned_objects import Cursor, pack_int, pack_single

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.model.epochs import Epoch
    from sarit.controller.model.records import WriterRecord

# The attribute with the offset where readers of the mark stream begin: "RevisionStreamClientMark" (naming.md par. 3).
MARK_ATTRIBUTE: Final = bytes.fromhex("7df9a874246cc9d69397cdd19ead68c5")

_TIMES: Final = struct.Struct(">qq")
_RANGE: Final = struct.Struct(">qdd")
_OFFSET: Final = struct.Struct(">q")
_EVENT: Final = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class WatermarkTimes:
    """Intervals of watermarks in seconds.  `interval`: from one evaluation of a stream to the next.  `writer_time_out`:
    after which an idle writer is removed, if the stream's configuration has no timeout."""

    interval: float = 10.0
    writer_time_out: float = 30.0


@dataclass(frozen=True, slots=True)
class Watermark:
    """A watermark.  `lower`, `upper`: in the writers' unit of time.  `cut`: segments with offsets, by range."""

    lower: int
    upper: int
    cut: tuple[tuple[SegmentRange, int], ...]


@dataclass(frozen=True, slots=True)
class Noted:
    """A writer's last note.  `idle`: for how many seconds it has been unchanged."""

    writer: str
    record: WriterRecord
    idle: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The next watermark (None: not due yet), and the writers to remove."""

    mark: Watermark | None
    gone: tuple[str, ...]


def verdict(last: Watermark | None, writers: Sequence[Noted], time_out: float, epochs: Sequence[Epoch]) -> Verdict:
    """Decide from the writers' notes.  `epochs`: all epochs from the first segment of the positions on."""
    ahead = [w for w in writers if last is None or w.record.time > last.lower]
    behind = [w for w in writers if w not in ahead]
    gone = tuple(w.writer for w in behind if w.record.leaving or w.idle >= time_out)
    # A writer that is behind, and neither idle nor leaving, holds the watermark back.
    if not ahead or len(gone) < len(behind):
        return Verdict(None, gone)
    known = known_segments(epochs)
    # Ignore unknown segments: if the stream was recreated, a position may be older than it.
    positions = [{s: offset for s, offset in w.record.position.items() if s in known} for w in ahead]
    if last is not None:
        positions.append({s.segment: offset for s, offset in last.cut if s.segment in known})
    if not any(positions):
        return Verdict(None, gone)
    # Include the cut of the last watermark, so that cuts never go back.
    cut = upper_bound(epochs, positions)
    times = [w.record.time for w in ahead]
    ordered = sorted((known[segment], offset) for segment, offset in cut.items())
    return Verdict(Watermark(min(times), max(times), tuple(ordered)), gone)


# -- bytes ----------------------------------------------------------------------------------------


def encode_entry(mark: Watermark) -> bytes:
    """Return a watermark as an entry of the mark stream."""
    payload = encode(mark)
    return _EVENT.pack(0, len(payload)) + payload


def encode(mark: Watermark) -> bytes:
    """Encode a watermark."""
    pairs = (
        pack_single(0, {0: _RANGE.pack(s.segment, s.low, s.high)}) + _OFFSET.pack(offset) for s, offset in mark.cut
    )
    return pack_single(0, {0: _TIMES.pack(mark.lower, mark.upper) + pack_int(len(mark.cut)) + b"".join(pairs)})


def decode(data: bytes) -> Watermark:
    """Decode a watermark.  Raises Corrupt."""
    try:
        payload = _revision(Cursor(data))
        lower, upper = _TIMES.unpack(payload.take(_TIMES.size))
        cut = []
        for _ in range(payload.compact_int()):
            segment, low, high = _RANGE.unpack(_revision(payload).take(_RANGE.size))
            cut.append((SegmentRange(low, high, segment), _OFFSET.unpack(payload.take(_OFFSET.size))[0]))
    except (Invalid, struct.error) as error:
        raise Corrupt(f"a watermark cannot be read: {error}") from error
    return Watermark(lower, upper, tuple(sorted(cut)))


def _revision(cursor: Cursor) -> Cursor:
    version, revisions = cursor.single()
    if version != 0 or 0 not in revisions:
        raise Invalid(f"a watermark of version {version}; this release of Sarit reads version 0")
    return Cursor(revisions[0])


def last_entry(data: bytes) -> tuple[int, Watermark] | None:
    """Return the last whole entry in `data`, and where it begins.  Raises Corrupt."""
    at, found = 0, None
    while at + EVENT_HEADER_BYTES <= len(data):
        kind, length = _EVENT.unpack_from(data, at)
        if kind != 0 or length <= 0:
            raise Corrupt("a mark stream holds something that is not an entry")
        end = at + EVENT_HEADER_BYTES + length
        # The last entry was not read to its end.
        if end > len(data):
            break
        found = at, decode(data[at + EVENT_HEADER_BYTES : end])
        at = end
    return found
