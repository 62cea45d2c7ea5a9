"""The bytes of the controller's records: docs/formats/controller-records.md.

Every record begins with a version byte; a newer version is refused (Corrupt), never guessed at.  Streams, groups and
tables have their state in the second byte, so that a listing need not decode.  Numbers are compact where they are small
(core/versioned_objects.py), int64 where a client chose them.  An epoch stores low bounds alone: since it tiles the key
space, each segment ends where the next begins; an epoch after the first stores what it dropped and what it brought.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.controller.limits import CREATION_ID_BYTES
from sarit.controller.model.epochs import Epoch, SegmentRange
from sarit.controller.model.records import (
    CompletedRecord,
    CreationRecord,
    CutRecord,
    GroupRecord,
    MakerRecord,
    ScopeRecord,
    State,
    StreamRecord,
    SubscriberRecord,
    TableRecord,
    TransactionRecord,
    TxnState,
    Work,
    WorkKind,
    WriterRecord,
)
from sarit.core.errors import Corrupt, Invalid
from sarit.core.limits import TRANSACTION_ID_BYTES
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy, StreamConfig
from sarit.core.versioned_objects import Cursor, pack_int, pack_long, pack_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sarit.controller.model.cuts import Cut

T = TypeVar("T")

VERSION: Final = 2
_VERSION: Final = bytes((VERSION,))
# The version of the record of a stream that is a mirror: releases before it refuse the record, and leave it alone.
_MIRROR_VERSION: Final = b"\x03"
# The version of a mirror's row that begins with a cut: how often what was staged for its segments was dropped.
MIRROR_ROW_WITH_DROPS: Final = b"\x02"
_CONFIG: Final = struct.Struct(">BiiiBqqqq")
_GROUP: Final = struct.Struct(">Bqqqiiq?")
_TABLE: Final = struct.Struct(">Bqiiiqq")
_TRANSACTION: Final = struct.Struct(">Biqqqq??q")
_SUBSCRIBER: Final = struct.Struct(">q")
_DOUBLE: Final = struct.Struct(">d")
_INT64: Final = struct.Struct(">q")


def encode_scope(record: ScopeRecord) -> bytes:
    """Encode a scope's record."""
    return _VERSION + record.incarnation + _INT64.pack(record.created_ms)


def decode_scope(data: bytes) -> ScopeRecord:
    """Decode a scope's record.  Raises Corrupt, as all functions here that decode do."""
    return _decode(data, lambda c: ScopeRecord(c.take(8), *_INT64.unpack(c.take(8))))


def encode_stream(record: StreamRecord) -> bytes:
    """Encode a stream's record."""
    work = record.work
    return b"".join(
        (
            _MIRROR_VERSION if record.link else _VERSION,
            bytes((record.state,)),
            _encode_config(record.config),
            pack_long(record.created_ms),
            pack_int(record.first_number),
            _encode_epochs(record.epochs),
            pack_cut(record.head),
            bytes((work.kind,)),
            # The record of a stream without pending work ends here.
            b""
            if work.kind is WorkKind.NONE
            else b"".join(
                (
                    _encode_ids(work.segments),
                    _encode_epochs(work.epochs),
                    pack_int(len(work.transactions)),
                    *(txn.to_bytes(TRANSACTION_ID_BYTES, "big") for txn in work.transactions),
                )
            ),
            pack_text(record.link) if record.link else b"",
        )
    )


def decode_stream(data: bytes) -> StreamRecord:
    """Decode a stream's record."""
    if data[:1] == _MIRROR_VERSION:
        return _decode(_VERSION + data[1:], _mirror)
    return _decode(data, _stream)


def decode_stream_config(data: bytes) -> StreamConfig:
    """Decode only the configuration in a stream's record: the rest takes most of the time."""
    return _decode(_VERSION + data[1:] if data[:1] == _MIRROR_VERSION else data, _config_alone)


def _config_alone(c: Cursor) -> StreamConfig:
    c.take(1)
    config = _decode_config(c)
    c.take_rest()
    return config


def _stream(c: Cursor) -> StreamRecord:
    state, config, created_ms, first = State(c.number(1)), _decode_config(c), c.compact_long(), c.compact_int()
    epochs, head, kind = _decode_epochs(c), take_cut(c), WorkKind(c.number(1))
    if kind is WorkKind.NONE:
        return StreamRecord(state, config, created_ms, first, epochs, head)
    segments, planned = _decode_ids(c), _decode_epochs(c)
    transactions = tuple(c.number(TRANSACTION_ID_BYTES) for _ in range(c.compact_int()))
    return StreamRecord(state, config, created_ms, first, epochs, head, Work(kind, segments, planned, transactions))


def _mirror(c: Cursor) -> StreamRecord:
    record, link = _stream(c), c.text()
    if not link:
        raise Invalid("a mirror names no link")
    return replace(record, link=link)


def encode_chunk(epochs: Sequence[Epoch]) -> bytes:
    """Encode a chunk of epochs that are moved out of a stream's record."""
    return _VERSION + _encode_epochs(epochs)


def decode_chunk(data: bytes) -> tuple[Epoch, ...]:
    """Decode a chunk of epochs."""
    return _decode(data, _decode_epochs)


def encode_group(r: GroupRecord) -> bytes:
    """Encode a reader group's record."""
    fixed = _GROUP.pack(
        r.state,
        r.generation,
        r.refresh_ms,
        r.checkpoint_ms,
        r.max_outstanding,
        r.retention,
        r.rollover_bytes,
        r.pending,
    )
    leaving = pack_int(len(r.leaving)) + b"".join(_encode_name(name) for name in r.leaving)
    return _VERSION + fixed + pack_text(r.group_id) + _encode_cuts(r.starts) + _encode_cuts(r.ends) + leaving


def decode_group(data: bytes) -> GroupRecord:
    """Decode a reader group's record."""
    return _decode(data, _group)


def _group(c: Cursor) -> GroupRecord:
    state, generation, refresh, checkpoint, outstanding, retention, rollover, pending = _GROUP.unpack(
        c.take(_GROUP.size)
    )
    group_id, starts, ends = c.text(), _decode_cuts(c), _decode_cuts(c)
    leaving = tuple(_decode_name(c) for _ in range(c.compact_int()))
    return GroupRecord(
        State(state), group_id, generation, refresh, checkpoint, outstanding, retention, rollover, starts, ends,
        pending, leaving,
    )  # fmt: skip


def encode_maker(record: MakerRecord) -> bytes:
    """Encode the record of who created a reader group."""
    return _VERSION + pack_text(record.group_id) + pack_text(record.user)


def decode_maker(data: bytes) -> MakerRecord:
    """Decode the record of who created a reader group."""
    return _decode(data, lambda c: MakerRecord(c.text(), c.text()))


def encode_table(r: TableRecord) -> bytes:
    """Encode a key-value table's record."""
    return _VERSION + _TABLE.pack(
        r.state, r.first_number, r.partitions, r.primary_key_length, r.secondary_key_length, r.rollover_bytes,
        r.created_ms,
    )  # fmt: skip


def decode_table(data: bytes) -> TableRecord:
    """Decode a key-value table's record."""

    def read(c: Cursor) -> TableRecord:
        state, *rest = _TABLE.unpack(c.take(_TABLE.size))
        return TableRecord(State(state), *rest)

    return _decode(data, read)


def encode_subscriber(record: SubscriberRecord) -> bytes:
    """Encode a subscriber's record."""
    return _VERSION + _SUBSCRIBER.pack(record.generation) + pack_text(record.group_id) + pack_cut(record.cut)


def decode_subscriber(data: bytes) -> SubscriberRecord:
    """Decode a subscriber's record."""
    return _decode(data, lambda c: SubscriberRecord(_int64(c), c.text(), take_cut(c)))


def encode_writer(record: WriterRecord) -> bytes:
    """Encode a writer's note."""
    return _VERSION + _INT64.pack(record.time) + pack_cut(record.position) + bytes((record.leaving,))


def decode_writer(data: bytes) -> WriterRecord:
    """Decode a writer's note."""
    return _decode(data, lambda c: WriterRecord(_int64(c), take_cut(c), c.number(1) != 0))


def encode_cut(record: CutRecord) -> bytes:
    """Encode a recorded cut."""
    return _VERSION + pack_long(record.time_ms) + pack_long(record.size) + pack_cut(record.cut)


def decode_cut(data: bytes) -> CutRecord:
    """Decode a recorded cut."""
    return _decode(data, lambda c: CutRecord(c.compact_long(), c.compact_long(), take_cut(c)))


def encode_transaction(r: TransactionRecord) -> bytes:
    """Encode a transaction's record."""
    fixed = _TRANSACTION.pack(
        r.state, r.epoch, r.lease_ms, r.renewal, r.created_ms, r.deadline_ms, r.graced,
        r.timestamp is not None, r.timestamp or 0,
    )  # fmt: skip
    return _VERSION + fixed + pack_text(r.writer)


def decode_transaction(data: bytes) -> TransactionRecord:
    """Decode a transaction's record."""

    def read(c: Cursor) -> TransactionRecord:
        state, epoch, lease, renewal, created, deadline, graced, noted, time = _TRANSACTION.unpack(
            c.take(_TRANSACTION.size)
        )
        return TransactionRecord(
            TxnState(state), epoch, lease, renewal, created, deadline, graced, c.text(), time if noted else None
        )

    return _decode(data, read)


def encode_completed(record: CompletedRecord) -> bytes:
    """Encode a completed transaction's record."""
    return _VERSION + bytes((record.state,)) + _INT64.pack(record.ended_ms)


def decode_completed(data: bytes) -> CompletedRecord:
    """Decode a completed transaction's record."""
    return _decode(data, lambda c: CompletedRecord(TxnState(c.number(1)), _int64(c)))


def encode_number(number: int) -> bytes:
    """Encode the first segment number that a new stream of a name may use."""
    return _VERSION + pack_long(number)


def decode_number(data: bytes) -> int:
    """Decode the first segment number that a new stream of a name may use."""
    return _decode(data, lambda c: c.compact_long())


def encode_creation(record: CreationRecord) -> bytes:
    """Encode the record of a creation id."""
    return _VERSION + pack_long(record.first_number) + record.creation_id


def decode_creation(data: bytes) -> CreationRecord:
    """Decode the record of a creation id."""
    return _decode(data, lambda c: CreationRecord(c.compact_long(), c.take(CREATION_ID_BYTES)))


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode the properties of a stream."""
    parts = (pack_text(name) + pack_text(value) for name, value in sorted(properties.items()))
    return _VERSION + pack_int(len(properties)) + b"".join(parts)


def decode_properties(data: bytes) -> dict[str, str]:
    """Decode the properties of a stream."""
    return _decode(data, lambda c: {c.text(): c.text() for _ in range(c.compact_int())})


def is_deleting(value: bytes) -> bool:
    """Return whether the record of a stream, group or table is in state DELETING."""
    # Read only the second byte, the state: a page of names checks a thousand records.
    return value[1:2] == bytes((State.DELETING,))


# -- pieces ---------------------------------------------------------------------------------------


def _decode(data: bytes, read: Callable[[Cursor], T]) -> T:
    if data[:1] != _VERSION:
        found = data[:1].hex() or "none"
        raise Corrupt(f"a controller record is of version {found}; this release of Sarit reads version {VERSION}")
    cursor = Cursor(data)
    cursor.take(1)
    try:
        value = read(cursor)
    except (Invalid, ValueError, struct.error, IndexError) as error:
        raise Corrupt(f"a controller record cannot be read: {error}") from error
    # Refuse a record with more fields, which another release wrote: to write it again would lose them.
    if not cursor.at_end:
        raise Corrupt("a controller record has bytes after its end")
    return value


def _int64(c: Cursor) -> int:
    value: int = _INT64.unpack(c.take(8))[0]
    return value


def _encode_config(config: StreamConfig) -> bytes:
    scaling, retention = config.scaling, config.retention
    fixed = _CONFIG.pack(
        scaling.type, scaling.target_rate, scaling.scale_factor, scaling.min_segments,
        retention.type, retention.limit, retention.maximum, config.timestamp_aggregation_ms, config.rollover_bytes,
    )  # fmt: skip
    return fixed + pack_int(len(config.tags)) + b"".join(pack_text(tag) for tag in config.tags)


def _decode_config(c: Cursor) -> StreamConfig:
    fixed = c.take(_CONFIG.size)
    return _config(fixed, tuple(c.text() for _ in range(c.compact_int())))


@lru_cache(maxsize=256)
def _config(fixed: bytes, tags: tuple[str, ...]) -> StreamConfig:
    """Return a configuration, cached: most streams share a few, and then share the objects."""
    scale, rate, factor, least, retention, limit, maximum, aggregation, rollover = _CONFIG.unpack(fixed)
    return StreamConfig(
        ScalingPolicy(ScaleType(scale), rate, factor, least),
        RetentionPolicy(RetentionType(retention), limit, maximum),
        tags,
        aggregation,
        rollover,
    )


def _encode_epochs(epochs: Sequence[Epoch]) -> bytes:
    parts = [pack_int(len(epochs))]
    # Encode all segments of the first epoch, so that a chunk can be read without the chunk before it.
    before: frozenset[int] = frozenset()
    for epoch in epochs:
        ids = epoch.ids
        brought = [s for s in epoch.segments if s.segment not in before]
        parts += (pack_int(epoch.number), pack_long(epoch.created_ms), _encode_ids(sorted(before - ids)))
        parts.append(pack_int(len(brought)))
        parts += (pack_long(s.segment) + _DOUBLE.pack(s.low) for s in brought)
        before = ids
    return b"".join(parts)


def _decode_epochs(c: Cursor) -> tuple[Epoch, ...]:
    out: list[Epoch] = []
    alive: dict[int, SegmentRange] = {}
    for _ in range(c.compact_int()):
        number, created_ms = c.compact_int(), c.compact_long()
        for gone in _decode_ids(c):
            alive.pop(gone, None)
        lows = {segment: s.low for segment, s in alive.items()}
        for _ in range(c.compact_int()):
            segment = c.compact_long()
            # Refuse a segment that is there twice, which the encoder never writes: it would have two low bounds.
            if segment in lows:
                raise Invalid(f"epoch {number} brings segment {segment}, which is there")
            lows[segment] = _DOUBLE.unpack(c.take(8))[0]
        alive = _tile(lows, alive)
        out.append(Epoch(number, tuple(alive.values()), created_ms))
    return tuple(out)


def _tile(lows: Mapping[int, float], known: Mapping[int, SegmentRange]) -> dict[int, SegmentRange]:
    """Return the segments by low bound, each ending where the next begins.  Objects in `known` are reused."""
    order = sorted(lows, key=lows.__getitem__)
    bounds = [lows[segment] for segment in order] + [1.0]
    if bounds[0] != 0.0 or not all(low < high for low, high in itertools.pairwise(bounds)):  # "not": a bound may be NaN
        raise Invalid("an epoch does not tile the key space")
    out = {}
    for at, segment in enumerate(order):
        # Reuse the objects of the segments that the epoch before had, too: an epoch changes only a few.
        before = known.get(segment)
        same = before is not None and before.high == bounds[at + 1]
        out[segment] = before if before is not None and same else SegmentRange(bounds[at], bounds[at + 1], segment)
    return out


def _encode_ids(ids: Sequence[int]) -> bytes:
    return pack_int(len(ids)) + b"".join(map(pack_long, ids))


def _decode_ids(c: Cursor) -> tuple[int, ...]:
    return tuple(c.compact_long() for _ in range(c.compact_int()))


def pack_cut(cut: Mapping[int, int]) -> bytes:
    """Encode a cut as a part of a record."""
    pairs = (_INT64.pack(segment) + _INT64.pack(offset) for segment, offset in sorted(cut.items()))
    return pack_int(len(cut)) + b"".join(pairs)


def take_cut(c: Cursor) -> Cut:
    """Decode a cut that is a part of a record.  Raises Invalid."""
    count = c.compact_int()
    numbers = struct.unpack(f">{2 * count}q", c.take(16 * count))
    return dict(sorted(zip(numbers[::2], numbers[1::2], strict=True)))


def drops_of_mirror(row: bytes) -> Cut:
    """Return how often what was staged for each segment was dropped, of those with any, by a mirror's row."""
    c = Cursor(row)
    return take_cut(c) if c.take(1) == MIRROR_ROW_WITH_DROPS else {}


Cuts = tuple[tuple[StreamName, tuple[tuple[int, int], ...]], ...]


def _encode_cuts(cuts: Cuts) -> bytes:
    return pack_int(len(cuts)) + b"".join(_encode_name(name) + pack_cut(dict(cut)) for name, cut in cuts)


def _decode_cuts(c: Cursor) -> Cuts:
    return tuple((_decode_name(c), tuple(take_cut(c).items())) for _ in range(c.compact_int()))


def _encode_name(name: StreamName) -> bytes:
    return pack_text(name.scope) + pack_text(name.stream)


def _decode_name(c: Cursor) -> StreamName:
    return StreamName(c.text(), c.text())
