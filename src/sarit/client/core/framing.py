"""Events to the bytes of a segment and back (pure).

A segment of an event stream is a run of `00000000 len data`: an int32 0, the length as int32, both big-endian,
and the event (source: Pravega's `WireCommands.Event`).  Type and length together are one big-endian int64 that
equals the length, which is how both directions treat them.

Per-event cost is the budget of the whole client, so nothing here loops over events in Python when C can:

* writing equal lengths: `header.join(events)` is one pass of memcpy; mixed lengths: one join of headers and
  events interleaved; Arrow arrays: numpy for equal lengths, Arrow's element-wise join otherwise;
* reading: a run of equal-length events is found by comparing all its headers at once, at the stride the first
  header gives; the events come out of one strided array of numpy, or out of `struct` where numpy is not installed.
  Where lengths differ, a tight loop over headers.

A *chunk* is framed bytes with what is needed to place them again when their segment is sealed: the events are found
by their headers, the keys are retained beside them, unhashed.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from sarit.client.limits import MAX_CACHED_HEADER_EVENT_BYTES, MAX_EVENT_BYTES, WRITE_CHUNK_BYTES
from sarit.core.errors import Corrupt, Invalid
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from sarit.env.ports import Buffer

MAX_PLAIN_EVENT_BYTES: Final = MAX_EVENT_BYTES - EVENT_HEADER_BYTES

_HEADER = struct.Struct(">q")
_PROBE_EVENTS: Final = 8
_FEW_EVENTS: Final = 16  # finding a run and setting up an array takes as long as parsing that many events one by one
_LOOP_EVENTS: Final = 256
_LOOP_ENDS: Final = 4096
_TUPLE_EVENTS: Final = 64


class _Headers(dict[int, bytes]):
    """Event length -> its 8-byte header; caches those of short lengths."""

    def __missing__(self, length: int) -> bytes:
        header = _HEADER.pack(length)
        if length < MAX_CACHED_HEADER_EVENT_BYTES:
            self[length] = header
        return header


_HEADERS = _Headers()


class Chunk:
    """Bytes for one segment, in whole events: `length` in bytes, `events` their count.

    `keys` is None when no event has one, else one entry per event.  `plain` is False for bytes that are not framed
    events (byte streams).  `large`: a single event that is too long for an append.
    """

    __slots__ = ("data", "events", "keys", "large", "length", "plain")

    def __init__(
        self, data: Buffer, length: int, events: int, keys: Any = None, *, large: bool = False, plain: bool = False
    ) -> None:
        self.data = data
        self.length = length
        self.events = events
        self.keys = keys
        self.large = large
        self.plain = plain

    def __repr__(self) -> str:
        return f"Chunk({self.events} events, {self.length} bytes{', large' if self.large else ''})"


def frame_events(events: list[bytes]) -> bytes:
    """Return the segment bytes of `events`."""
    return _frame(events, list(map(len, events)))


def _frame(events: list[bytes], lengths: list[int]) -> bytes:
    """`frame_events` where the lengths are known."""
    if lengths and lengths.count(lengths[0]) == len(lengths):
        # The header is the separator; the empty first item puts one before each event.
        return _HEADERS[lengths[0]].join([b"", *events])
    parts: list[bytes] = [b""] * (2 * len(events))
    parts[::2] = map(_HEADERS.__getitem__, lengths)
    parts[1::2] = events
    return b"".join(parts)


def chunks_of(events: list[bytes], keys: Any = None, limit: int = WRITE_CHUNK_BYTES) -> list[Chunk]:
    """Frame `events` into chunks of at most `limit` bytes, longer only for a single long event.

    `keys` is None or a list as long as `events`.  Raises TypeError when an event is not bytes.
    """
    return _chunks(events, list(map(len, events)), keys, limit)


def _chunks(events: list[bytes], lengths: list[int], keys: Any, limit: int) -> list[Chunk]:
    count = len(events)
    length = sum(lengths) + EVENT_HEADER_BYTES * count
    if length <= limit or count == 1:
        large = count == 1 and lengths[0] > MAX_PLAIN_EVENT_BYTES
        return [Chunk(_frame(events, lengths), length, count, keys, large=large)]
    # Equal counts.  A part that is still too long, as lengths differ, is divided again.
    part = max(1, count // -(-length // limit))
    chunks: list[Chunk] = []
    for first in range(0, count, part):
        last = first + part
        chunks += _chunks(events[first:last], lengths[first:last], keys and keys[first:last], limit)
    return chunks


def framed_bytes(events: list[bytes]) -> int:
    """Return the bytes of `events` with their headers.  Raises TypeError when one has no length."""
    return sum(map(len, events)) + EVENT_HEADER_BYTES * len(events)


def split_events(data: Buffer) -> list[bytes]:
    """Return the events of framed bytes that hold whole events.  Raises Corrupt."""
    whole = bytes(data)
    events, used = parse_events(whole, 0)
    if used != len(whole):
        raise Corrupt(f"{len(whole) - used} bytes are left over after the last whole event")
    return events


# -- Arrow in ------------------------------------------------------------------------------------


def binary_array(values: Any) -> pa.Array:
    """`values` (an Arrow array or chunked array of binary or string) as one large-binary array without nulls.

    Raises Invalid."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # no chunks at all, in some releases
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    kinds = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    elif not any(kind(values.type) for kind in kinds):
        raise Invalid(f"an Arrow array of {values.type} holds no events: give binary or string")
    if values.null_count:
        raise Invalid(f"{values.null_count} of {len(values)} events are null: drop or fill them first")
    return (
        values.cast(pa.large_string()).cast(pa.large_binary())
        if _is_text(values.type)
        else values.cast(pa.large_binary())
    )


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _offsets(array: pa.Array) -> Any:
    import numpy as np

    return np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)


def chunks_of_arrow(array: pa.Array, keys: pa.Array | None = None, limit: int = WRITE_CHUNK_BYTES) -> Iterator[Chunk]:
    """Frame a large-binary array (of `binary_array`) into chunks of at most `limit` bytes each."""
    import numpy as np

    count = len(array)
    if not count:
        return
    offsets = _offsets(array)
    # Where each event ends once it is framed, in bytes from the first.
    ends = offsets[1:] - offsets[0] + EVENT_HEADER_BYTES * np.arange(1, count + 1)
    first = 0
    while first < count:
        base = int(ends[first - 1]) if first else 0
        # As many as fit, but one at least.
        last = max(int(np.searchsorted(ends, base + limit, "right")), first + 1)
        length = int(ends[last - 1]) - base
        data = _frame_arrow(array.slice(first, last - first))
        part = None if keys is None else keys.slice(first, last - first)
        large = last == first + 1 and length - EVENT_HEADER_BYTES > MAX_PLAIN_EVENT_BYTES
        yield Chunk(data, length, last - first, part, large=large)
        first = last


def _frame_arrow(array: pa.Array) -> memoryview:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(array)
    offsets = _offsets(array)
    lengths = np.diff(offsets)
    size = int(lengths[0])
    if (lengths == size).all():
        # Equal lengths: rows of a header and an event.
        out = np.empty((count, EVENT_HEADER_BYTES + size), np.uint8)
        out[:, :EVENT_HEADER_BYTES] = np.frombuffer(_HEADERS[size], np.uint8)
        if size:
            values = np.frombuffer(array.buffers()[2], np.uint8, count * size, int(offsets[0]))
            out[:, EVENT_HEADER_BYTES:] = values.reshape(count, size)
        return out.data.cast("B")
    # Mixed lengths: the headers as an array of 8-byte values, joined to the events one by one.
    heads = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        count,
        [
            None,
            pa.py_buffer(np.arange(0, EVENT_HEADER_BYTES * (count + 1), EVENT_HEADER_BYTES, dtype=np.int64)),
            pa.py_buffer(lengths.astype(">i8")),
        ],
    )
    # The last argument is the separator.
    joined = pc.binary_join_element_wise(heads, array, pa.scalar(b"", pa.large_binary()))
    ends = _offsets(joined)
    return memoryview(joined.buffers()[2])[int(ends[0]) : int(ends[-1])]


# -- reading -------------------------------------------------------------------------------------


def run_of(data: Buffer, start: int) -> tuple[int, int]:
    """(events, event length) of the longest run of equal-length whole events at `start`; (0, length) when the
    first is not whole.  Raises Corrupt for a header that is none."""
    end = len(data)
    if end - start < EVENT_HEADER_BYTES:
        return 0, 0
    (length,) = _HEADER.unpack_from(data, start)
    # Type 0 and length as one int64: more than 31 bits mean another type, or a negative length.
    if not 0 <= length < 1 << 31:
        raise Corrupt(f"no event begins here: its header is {data[start : start + 8].hex(' ')}")
    stride = EVENT_HEADER_BYTES + length
    most = (end - start) // stride
    if most <= 1:
        return most, length
    # Mixed lengths mostly show within a few headers, without numpy.
    for probe in range(1, min(most, _PROBE_EVENTS)):
        if _HEADER.unpack_from(data, start + probe * stride)[0] != length:
            return probe, length
    if most <= _PROBE_EVENTS:
        return most, length
    np = _numpy()
    if np is None:
        return _equal_headers(data, start, stride, most), length
    # A strided view of all headers.  Past the first difference it hits no headers: only that one counts.
    heads = np.ndarray((most,), ">i8", data, start, (stride,))
    same = heads == length
    return (most if same.all() else int(same.argmin())), length


@cache
def _numpy() -> Any:
    """Return the module numpy; None where it is not installed, as clients do without it (docs/decisions/0801)."""
    try:
        import numpy as np
    except ImportError:
        return None
    return np


def _equal_headers(data: Buffer, start: int, stride: int, count: int) -> int:
    """Return how many of `count` headers, one each `stride` bytes from `start`, equal the first without a gap."""
    # One byte of all headers at a time, from the lowest on, where differences are.
    for place in range(start + EVENT_HEADER_BYTES - 1, start - 1, -1):
        column = bytes(data[place : start + count * stride : stride])
        count -= len(column.lstrip(column[:1]))
    return count


def _equal_events(data: Buffer, start: int, length: int, count: int) -> Iterable[bytes]:
    """Return `count` events of one length, with their headers from `start` on."""
    np = _numpy()
    stride = EVENT_HEADER_BYTES + length
    if np is not None:
        # `V` cells become bytes of that very length; `S` cells would lose zeros at the end.
        cells: list[bytes] = np.ndarray((count,), f"V{length}", data, start + EVENT_HEADER_BYTES, (stride,)).tolist()
        return cells
    # A tuple of many events each time: that is twice as fast as a tuple for each event.
    cell = f"{EVENT_HEADER_BYTES}x{length}s"
    view = memoryview(data)
    middle = start + count // _TUPLE_EVENTS * _TUPLE_EVENTS * stride
    tuples = struct.iter_unpack(cell * _TUPLE_EVENTS, view[start:middle])
    return chain.from_iterable(chain(tuples, struct.iter_unpack(cell, view[middle : start + count * stride])))


def parse_events(data: Buffer, start: int) -> tuple[list[bytes], int]:
    """Return the whole events of `data` from `start`, and where the first half one begins.  Raises Corrupt.

    A view is copied only where events are parsed one by one, which is faster on bytes."""
    events: list[bytes] = []
    end = len(data)
    unpack = _HEADER.unpack_from
    add = events.append
    one_by_one = 0
    if end - start >= EVENT_HEADER_BYTES and end - start <= _FEW_EVENTS * (EVENT_HEADER_BYTES + unpack(data, start)[0]):
        one_by_one = _FEW_EVENTS
    while True:
        if one_by_one and type(data) is not bytes:
            data = bytes(data)
        for _ in range(one_by_one):
            if end - start < EVENT_HEADER_BYTES:
                return events, start
            (length,) = unpack(data, start)
            begin = start + EVENT_HEADER_BYTES
            stop = begin + length
            if stop > end or length < 0:
                break  # half an event, or garbage: run_of distinguishes them
            add(data[begin:stop])  # type: ignore[arg-type]  # they are bytes by now
            start = stop
        count, length = run_of(data, start)
        if not count:
            return events, start
        one_by_one = _LOOP_EVENTS
        if count >= _PROBE_EVENTS and length:
            events += _equal_events(data, start, length, count)
            start += count * (EVENT_HEADER_BYTES + length)
            one_by_one = 0


def missing_bytes(data: Buffer, start: int) -> int:
    """Return how many bytes the half event at `start` still lacks, at least; 8 when even its header is not whole."""
    rest = len(data) - start
    if rest < EVENT_HEADER_BYTES:
        return EVENT_HEADER_BYTES - rest
    (length,) = _HEADER.unpack_from(data, start)
    return max(int(length) + EVENT_HEADER_BYTES - rest, 0)


def arrow_events(data: bytes, start: int) -> tuple[list[pa.Array], list[Any], int]:
    """Return the whole events of `data` from `start` as Arrow binary arrays, for each the numpy int64 array of where
    its events begin in `data`, and where the first half event begins.  Raises Corrupt."""
    import numpy as np
    import pyarrow as pa

    arrays: list[pa.Array] = []
    begins: list[Any] = []
    while True:
        count, length = run_of(data, start)
        if not count:
            return arrays, begins, start
        stride = EVENT_HEADER_BYTES + length
        if count >= _PROBE_EVENTS:
            flat = np.frombuffer(data, np.uint8, count * stride, start).reshape(count, stride)
            values = np.ascontiguousarray(flat[:, EVENT_HEADER_BYTES:])
            bounds = (
                np.arange(0, (count + 1) * length, length, dtype=np.int32) if length else np.zeros(count + 1, np.int32)
            )
            arrays.append(
                pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(values)])
            )
            begins.append(np.arange(start, start + count * stride, stride, dtype=np.int64))
            start += count * stride
            continue
        ends = _loop_ends(data, start)
        bounds = np.array([start, *ends], np.int64)
        arrays.append(_without_headers(data, bounds))
        begins.append(bounds[:-1])
        start = ends[-1]


def _loop_ends(data: bytes, start: int) -> list[int]:
    """Return where whole events from `start` on end (at least one): some hundreds, or all up to half an event."""
    ends: list[int] = []
    last = len(data) - EVENT_HEADER_BYTES
    unpack = _HEADER.unpack_from
    add = ends.append
    for _ in range(_LOOP_ENDS):
        if start > last:
            break
        (length,) = unpack(data, start)
        if length < 0:
            break
        start += EVENT_HEADER_BYTES + length
        add(start)
    # Half an event.  The first is whole: `run_of` has found it.
    if ends[-1] > len(data):
        ends.pop()
    return ends


def _without_headers(data: bytes, bounds: Any) -> pa.Array:
    """Return the events between `bounds` (int64 offsets of headers in `data`, and the end of the last)."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(bounds) - 1
    longest = int(np.diff(bounds).max())
    if len(data) >= 1 << 31:  # after a large event; offsets are int32
        begins = (bounds[:-1] + EVENT_HEADER_BYTES).tolist()
        return pa.array([data[a:b] for a, b in zip(begins, bounds[1:].tolist(), strict=True)], pa.binary())
    # Events with their headers, which `binary_slice` cuts off.
    framed = pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    )
    return pc.binary_slice(framed, EVENT_HEADER_BYTES, longest + 1)
