"""Events of one segment, parsed from its pieces (pure).

Pieces end anywhere.  The partial event at the end of a piece is retained and joined with the following pieces once
enough bytes have come to complete it, so a large event is copied once, not per piece.  `BoundaryWalk` finds event
boundaries from headers alone, without making events.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.framing import arrow_events, missing_bytes, parse_events, run_of
from sarit.core.errors import Corrupt, Invalid
from sarit.core.extras import require
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sarit.core.names import SegmentId
    from sarit.env.ports import Buffer

_HEADER: Final = struct.Struct(">q")


@public
class Events:
    """Events handed out one by one; `position` is always between two events.

    The number of events left comes from the list's iterator itself: handing one out costs nothing here.
    """

    __slots__ = ("_events", "end", "left", "segment", "start")

    def __init__(self, segment: SegmentId, start: int, end: int, events: list[bytes]) -> None:
        self.segment = segment
        self.start = start
        self.end = end
        self._events = events
        self.left: Iterator[bytes] = iter(events)

    def __repr__(self) -> str:
        return f"Events({self.segment}, {self.start} to {self.end}, {self.count_left()} left)"

    def count_left(self) -> int:
        """Return how many are not handed out yet."""
        return int(self.left.__length_hint__())  # type: ignore[attr-defined]

    def position(self) -> int:
        """Return the offset after the last event handed out."""
        left = self.count_left()
        if not left:
            return self.end
        done = len(self._events) - left
        return self.start + sum(map(len, self._events[:done])) + EVENT_HEADER_BYTES * done

    def table(self, schema: pa.Schema) -> pa.RecordBatch | None:
        """Return the events left as a record batch; they count as handed out."""
        import numpy as np
        import pyarrow as pa

        start = self.position()
        events = list(self.left)
        if not events:
            return None
        lengths = np.fromiter(map(len, events), np.int64, len(events)) + EVENT_HEADER_BYTES
        offsets = start + np.cumsum(lengths) - lengths
        return record_batch(schema, pa.array(events, pa.binary()), self.segment, offsets)


def check_most(most: int) -> None:
    """Check a limit of events.  Raises Invalid below 1: an empty result would read as the end."""
    if most < 1:
        raise Invalid(f"the limit of {most} events is too low: give 1 or more")


def record_batch(schema: pa.Schema, events: pa.Array, segment: SegmentId, offsets: Any) -> pa.RecordBatch:
    """Events with their segment and the offset each begins at."""
    import numpy as np
    import pyarrow as pa

    segments = np.full(len(events), segment.packed, np.int64)
    return pa.RecordBatch.from_arrays([events, _int64_array(segments), _int64_array(offsets)], schema=schema)


def _int64_array(values: Any) -> pa.Array:
    """Of a numpy array, whose memory it shares.  `pa.array` would load pandas first, if there is one: half a second."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


@cache
def arrow_schema() -> pa.Schema:
    """event binary, segment int64 (packed id), offset int64 (where the event begins in its segment).

    Raises MissingExtra."""
    require("arrow", "an Arrow record batch")
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("event", pa.binary(), nullable=False),
            pa.field("segment", pa.int64(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
        ]
    )


class EventCursor:
    """`offset` is where the next event begins, and with it the partial event that is retained."""

    __slots__ = ("_missing", "_partial", "_partial_bytes", "offset", "segment")

    def __init__(self, segment: SegmentId, offset: int) -> None:
        self.segment = segment
        self.offset = offset
        self._partial: list[Buffer] = []
        self._partial_bytes = 0
        self._missing = 0

    def __repr__(self) -> str:
        return f"EventCursor({self.segment} at {self.offset}, {self._partial_bytes} bytes of a partial event)"

    @property
    def partial_bytes(self) -> int:
        """Bytes of a partial event."""
        return self._partial_bytes

    def _join_partial(self, piece: Buffer) -> Buffer | None:
        """Return the piece joined to the partial event; None while the event cannot be complete."""
        if not self._partial:
            return piece
        self._partial.append(piece)
        self._partial_bytes += len(piece)
        self._missing -= len(piece)
        if self._missing > 0:
            return None
        whole = b"".join(self._partial)
        self._partial.clear()
        return whole

    def _store_rest(self, data: Buffer, used: int) -> None:
        self.offset += used
        self._partial_bytes = len(data) - used
        if self._partial_bytes:
            # Keep a view instead of a copy: it holds the piece in memory until the event is complete.
            self._partial = [memoryview(data)[used:]]
            self._missing = missing_bytes(data, used)

    def events(self, piece: Buffer) -> Events | None:
        """Return the events that `piece` completes.  Raises Corrupt."""
        data = self._join_partial(piece)
        if data is None:
            return None
        events, used = parse_events(data, 0)
        start = self.offset
        self._store_rest(data, used)
        return Events(self.segment, start, start + used, events) if events else None

    def table(self, piece: Buffer, schema: pa.Schema) -> pa.RecordBatch | None:
        """Return the events that `piece` completes as a record batch.  Raises Corrupt."""
        import numpy as np
        import pyarrow as pa

        whole = self._join_partial(piece)
        if whole is None:
            return None
        data = bytes(whole)
        arrays, begins, used = arrow_events(data, 0)
        start = self.offset
        self._store_rest(data, used)
        if not arrays:
            return None
        events = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        offsets = begins[0] if len(begins) == 1 else np.concatenate(begins)
        return record_batch(schema, events, self.segment, offsets + start)


class BoundaryWalk:
    """`start` is a boundary, offsets in bytes.  `last` is the last boundary before which all events are complete."""

    __slots__ = ("_next", "_partial", "_received_end", "_target", "last")

    def __init__(self, start: int, target: int) -> None:
        self.last = start
        self._next = start
        self._received_end = start
        self._target = target
        self._partial = b""

    def __repr__(self) -> str:
        return f"BoundaryWalk(at {self.last}, to {self._target})"

    @property
    def found(self) -> bool:
        """Whether `last` is at or after the target."""
        return self.last >= self._target

    def feed(self, piece: Buffer) -> bool:
        """Take the bytes that follow.  Returns whether the target was reached.  Raises Corrupt."""
        data = self._partial + bytes(piece)
        base = self._received_end - len(self._partial)
        self._received_end += len(piece)
        while True:
            # `last` advances only when every byte before `_next` has come.
            if self._next <= self._received_end:
                self.last = self._next
            if self.found:
                return True
            at = self._next - base
            # The header has not come.  Bytes of the event before it are skipped, not retained.
            if at + EVENT_HEADER_BYTES > len(data):
                self._partial = data[at:] if at < len(data) else b""
                return False
            count, length = run_of(data, at)
            if not count:
                # Half an event: its header gives the length all the same.
                (length,) = _HEADER.unpack_from(data, at)
            if not 0 <= length < 1 << 31:
                raise Corrupt(f"no event begins at {self._next}")
            stride = EVENT_HEADER_BYTES + length
            # Equal events at once, but not past the first boundary at or after the target.
            self._next += stride * max(min(count, -(-(self._target - self._next) // stride)), 1)
