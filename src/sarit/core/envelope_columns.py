"""Envelopes by whole columns: no Python object per event.

*Encoding.*  The heads are one numpy array of records.  Arrow joins heads, keys, headers and payloads element by
element.  The headers of an event stand one after the other in the flat arrays of a list column, so their bytes are
slices: only offsets are computed.

*Decoding.*  The parts of an event lie one after the other, and so do the events of an array: an array of parts needs
new offsets over the same bytes, and no copy (`_parts`).  What is taken out of it is copied once.

An event that is no sound envelope is *bad*: its row is null, and `bad` names it.  `Envelope.parse` says what is wrong
with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sarit.core.envelope_layout import HAS_KEY, HAS_TIME, HEAD, MAGIC, MAX_HEADERS, SIZES, VERSION
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Collection

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TIME_TYPE: Final = pa.timestamp("us", tz="UTC")
COLUMNS: Final = {
    "key": pa.string(),
    "event_time": TIME_TYPE,
    "headers": pa.list_(HEADER_TYPE),
    "payload": pa.binary(),
}

_HEAD: Final = np.dtype(
    [
        ("magic", "S3"), ("version", "u1"), ("headers", ">u2"), ("flags", "u1"), ("zero", "u1"),
        ("time", ">i8"), ("key_size", ">u4"), ("headers_size", ">u4"),
    ]
)  # fmt: skip
_LARGE: Final = pa.large_binary()


def _no_separator() -> pa.Scalar:
    # Made on use, not at import: to make a scalar pyarrow imports pandas, and Spark starts a Python process per call.
    return pa.scalar(b"", _LARGE)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The wanted columns, by name; `bad[i]`: event i is no sound envelope, so its row is null."""

    columns: dict[str, pa.Array]
    bad: Any  # numpy bool

    def batch(self) -> pa.RecordBatch:
        """Return the columns as one batch."""
        return pa.RecordBatch.from_arrays(list(self.columns.values()), names=list(self.columns))


# -- encoding -------------------------------------------------------------------------------------


def encode(payloads: Any, keys: Any = None, times: Any = None, headers: Any = None) -> pa.Array:
    """Return events as a large-binary array, with nulls of payloads; see `Envelope.encode_many`.  Raises Invalid."""
    payload = _binary(payloads)
    count = len(payload)
    key = _column("keys", keys, pa.string(), count)
    time = _column("event_times", times, TIME_TYPE, count).cast(pa.int64())
    header_counts, blobs = _encoded_headers(_column("headers", headers, COLUMNS["headers"], count))
    heads = np.zeros(count, _HEAD)
    heads["magic"], heads["version"] = MAGIC, VERSION
    heads["headers"] = header_counts
    heads["flags"] = HAS_KEY * _is_valid(key) + HAS_TIME * _is_valid(time)
    heads["time"] = _integers(time)
    heads["key_size"] = _integers(pc.binary_length(key))
    heads["headers_size"] = _integers(pc.binary_length(blobs))
    head = _slices(heads.view(np.uint8), np.arange(count + 1, dtype=np.int64) * HEAD.size)
    return pc.binary_join_element_wise(head, _large(pc.fill_null(key, "")), blobs, payload, _no_separator())


def _encoded_headers(lists: pa.Array) -> tuple[Any, pa.Array]:
    """Return how many headers each event has, and their bytes."""
    if lists.null_count:
        lists = pc.if_else(pc.is_null(lists), pa.scalar([], lists.type), lists)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    counts = np.diff(offsets)
    if len(counts) and counts.max() > MAX_HEADERS:
        raise Invalid(f"event {counts.argmax()} has {counts.max()} headers: an envelope has at most {MAX_HEADERS}")
    flat = lists.values
    if not counts.any():
        return counts, pa.array([b""], _LARGE).take(pa.array(np.zeros(len(counts), np.int8)))
    names, values = _large(flat.field(0)), _large(flat.field(1))
    used = slice(int(offsets[0]), int(offsets[-1]))
    nulls = pc.or_(pc.is_null(names), pc.or_(pc.is_null(values), pc.is_null(flat)))[used]
    if pc.any(nulls).as_py():
        raise Invalid("a header without a name or a value: drop it, or give an empty one")
    sizes = np.empty((len(flat), 2), ">u4")
    sizes[:, 0], sizes[:, 1] = _integers(pc.binary_length(names)), _integers(pc.binary_length(values))
    pairs = pc.binary_join_element_wise(names, values, _no_separator())
    ends = _offsets(pairs)
    bodies = pa.LargeBinaryArray.from_buffers(
        _LARGE, len(counts), [None, pa.py_buffer(ends[offsets]), pairs.buffers()[2]]
    )
    tables = _slices(sizes.reshape(-1).view(np.uint8), offsets * SIZES.size)
    return counts, pc.binary_join_element_wise(tables, bodies, _no_separator())


def _binary(values: Any) -> pa.Array:
    array = _arrow(values, None)
    try:
        return _large(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise Invalid(f"payloads of type {array.type}: give binary or string") from None


def _column(name: str, values: Any, wanted: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, wanted)
    array = _arrow(values, wanted)
    if len(array) != count:
        raise Invalid(f"{count} payloads and {len(array)} {name}: give one (or None) per payload")
    try:
        if pa.types.is_list(wanted):
            return _headers_as(array, wanted)
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Invalid(f"{name} of type {array.type}: give {wanted}; {error}") from None


def _headers_as(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a list column of structs of any two fields, a name and a value, or a map column, as `wanted`."""
    kind = array.type
    if pa.types.is_map(kind):
        pairs, missing = [array.keys, array.items], None
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2:
        pairs, missing = [array.values.field(0), array.values.field(1)], pc.is_null(array.values)
    else:
        raise pa.ArrowTypeError("not lists of structs of a name and bytes")
    # Arrow's own cast would match the fields by their names.
    parts = [pair.cast(wanted.value_type.field(at).type) for at, pair in enumerate(pairs)]
    named = pa.StructArray.from_arrays(parts, fields=list(wanted.value_type), mask=missing)
    # Copies the offsets: a slice of them takes no mask.
    offsets = pa.array(array.offsets.to_numpy())
    return pa.ListArray.from_arrays(offsets, named, mask=pc.is_null(array) if array.null_count else None)


def _arrow(values: Any, kind: pa.DataType | None) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, str | bytes):
        raise Invalid("give a list or an Arrow array; `Envelope(...)` makes a single one")
    listed = list(values)
    try:
        if kind is None:
            return pa.array([value.encode() if isinstance(value, str) else value for value in listed], _LARGE)
        return pa.array(listed, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"a column of an envelope: {error}") from None


# -- decoding -------------------------------------------------------------------------------------


def decode(events: Any, wanted: Collection[str] = tuple(COLUMNS)) -> Decoded:
    """Return the wanted columns of events (an Arrow array, or a list).  Keeps the order of `COLUMNS`."""
    array = _arrow(events, None)
    if len(array) == 0:
        return Decoded(
            {name: pa.array([], kind) for name, kind in COLUMNS.items() if name in wanted}, np.zeros(0, bool)
        )
    array = _large(array)
    heads, bad = _heads(array)
    sizes = np.zeros((len(array), 4), np.int64)
    sizes[:, 0] = np.where(bad, 0, HEAD.size)
    sizes[:, 1] = np.where(bad, 0, heads["key_size"])
    sizes[:, 2] = np.where(bad, 0, heads["headers_size"])
    sizes[:, 3] = np.diff(_offsets(array)) - sizes[:, :3].sum(1)
    parts = _parts(array, sizes)
    counts = np.where(bad, 0, heads["headers"]).astype(np.int64)
    keys = _texts(_part(parts, 4, 1), bad)
    headers = _decoded_headers(_part(parts, 4, 2), counts, bad)
    found: dict[str, pa.Array] = {}
    if "key" in wanted:
        found["key"] = pc.if_else(pa.array(bad | (heads["flags"] & HAS_KEY == 0)), pa.scalar(None, pa.string()), keys)
    if "event_time" in wanted:
        missing = bad | (heads["flags"] & HAS_TIME == 0)
        found["event_time"] = pa.array(heads["time"].astype(np.int64), mask=missing).cast(TIME_TYPE)
    if "headers" in wanted:
        found["headers"] = pc.if_else(pa.array(bad), pa.scalar(None, headers.type), headers) if bad.any() else headers
    if "payload" in wanted:
        payload = _part(parts, 4, 3)
        found["payload"] = _small(pc.if_else(pa.array(bad), pa.scalar(None, _LARGE), payload) if bad.any() else payload)
    return Decoded(found, bad)


def first_of(events: Any, bad: Any) -> bytes | None:
    """Return the first event that `bad` names; None when it names none."""
    if not bad.any():
        return None
    event = events[int(bad.argmax())]
    found: bytes = event.as_py() if isinstance(event, pa.Scalar) else event
    return found


def _heads(array: pa.Array) -> tuple[Any, Any]:
    """Return the heads, and for each whether it is wrong."""
    lengths = np.diff(_offsets(array))
    short = lengths < HEAD.size
    cut = pc.binary_slice(array, 0, HEAD.size)
    if short.any():
        cut = pc.if_else(pa.array(short), pa.scalar(bytes(HEAD.size), _LARGE), cut)
    begin = int(_offsets(cut)[0])
    heads = np.frombuffer(cut.buffers()[2], _HEAD, len(array), begin)
    flags, key, headers = heads["flags"], heads["key_size"].astype(np.int64), heads["headers_size"].astype(np.int64)
    bad = (heads["magic"] != MAGIC) | (heads["version"] != VERSION) | (heads["zero"] != 0)
    bad |= flags > HAS_KEY | HAS_TIME
    bad |= (flags & HAS_TIME == 0) & (heads["time"] != 0)
    bad |= (flags & HAS_KEY == 0) & (key != 0)
    bad |= (key + headers > lengths - HEAD.size) | (headers < heads["headers"].astype(np.int64) * SIZES.size)
    return heads, bad | short


def _decoded_headers(regions: pa.Array, counts: Any, bad: Any) -> pa.Array:
    """Return the header lists of all events; adds to `bad` the events whose headers are damaged."""
    kind = COLUMNS["headers"]
    lengths = np.diff(_offsets(regions))
    wrong = (lengths != 0) & (counts == 0)
    _mark(bad, wrong)
    if not counts.any():
        return pa.ListArray.from_arrays(pa.array(np.zeros(len(counts) + 1, np.int32)), _no_headers())
    regions, counts = _without(regions, counts, wrong)
    table = _header_sizes(regions, counts)
    wrong = _total_by_event(table.sum(1), counts) != np.diff(_offsets(regions)) - counts * SIZES.size
    _mark(bad, wrong)
    if wrong.any():
        regions, counts = _without(regions, counts, wrong)
        table = _header_sizes(regions, counts)
    # Parts of an event: its table of sizes, then a name and a value for each header.
    ends = np.concatenate(([0], np.cumsum(counts)))
    place = np.arange(len(table)) * 2 + np.repeat(np.arange(len(counts)), counts) + 1
    sizes = np.zeros(len(counts) + 2 * len(table), np.int64)
    sizes[np.arange(len(counts)) + 2 * ends[:-1]] = counts * SIZES.size
    sizes[place], sizes[place + 1] = table[:, 0], table[:, 1]
    parts = _parts(regions, sizes)
    event_of = np.repeat(np.arange(len(counts)), counts)
    wrong_names = np.zeros(len(table), bool)
    names = _texts(parts.take(pa.array(place)), wrong_names)
    if wrong_names.any():
        bad[event_of[wrong_names]] = True
    flat = pa.StructArray.from_arrays([names, _small(parts.take(pa.array(place + 1)))], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), flat)


def _header_sizes(regions: pa.Array, counts: Any) -> Any:
    """Return (bytes of the name, bytes of the value) of every header, in order."""
    begins = np.repeat(_offsets(regions)[:-1], counts)
    number = np.arange(len(begins)) - np.repeat(np.cumsum(counts) - counts, counts)
    data = np.frombuffer(regions.buffers()[2], np.uint8)
    places = (begins + number * SIZES.size)[:, None] + np.arange(SIZES.size)
    return data[places].view(">u4").astype(np.int64).reshape(-1, 2)


def _total_by_event(values: Any, counts: Any) -> Any:
    sums = np.concatenate(([0], np.cumsum(values)))
    ends = np.cumsum(counts)
    return sums[ends] - sums[ends - counts]


def _without(regions: pa.Array, counts: Any, wrong: Any) -> tuple[pa.Array, Any]:
    if not wrong.any():
        return regions, counts
    return pc.if_else(pa.array(wrong), pa.scalar(b"", _LARGE), regions), np.where(wrong, 0, counts)


def _mark(bad: Any, wrong: Any) -> None:
    bad |= wrong


def _no_headers() -> pa.Array:
    return pa.array([], HEADER_TYPE)


def _texts(values: pa.Array, bad: Any) -> pa.Array:
    """Cast values to strings; those that are not UTF-8 are empty, and added to `bad`."""
    try:
        return _small(values).cast(pa.string())
    except pa.ArrowInvalid:
        wrong = np.array([not is_text(value) for value in values.to_pylist()])
        bad |= wrong
        return _small(pc.if_else(pa.array(wrong), pa.scalar(b"", _LARGE), values)).cast(pa.string())


def is_text(value: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- arrays ---------------------------------------------------------------------------------------


def _large(array: pa.Array) -> pa.Array:
    return array.cast(_LARGE) if not _is_string(array.type) else array.cast(pa.large_string()).cast(_LARGE)


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _small(array: pa.Array) -> pa.Array:
    return array.cast(pa.binary())


def _offsets(array: pa.Array) -> Any:
    return np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)


def _integers(array: pa.Array) -> Any:
    return pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def _is_valid(array: pa.Array) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)


def _slices(data: Any, offsets: Any) -> pa.Array:
    """Return `data` (numpy bytes) cut at `offsets`, as binary values."""
    return pa.LargeBinaryArray.from_buffers(
        _LARGE, len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    )


def _parts(array: pa.Array, sizes: Any) -> pa.Array:
    """Return the values of `array` cut into parts of `sizes`, in order and without a copy; the sizes add up."""
    flat = np.concatenate(([0], np.cumsum(sizes.reshape(-1)))) + _offsets(array)[0]
    return pa.LargeBinaryArray.from_buffers(_LARGE, len(flat) - 1, [None, pa.py_buffer(flat), array.buffers()[2]])


def _part(parts: pa.Array, of: int, which: int) -> pa.Array:
    return parts.take(pa.array(np.arange(which, len(parts), of)))
