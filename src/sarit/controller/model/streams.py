"""Decides on streams: a state machine over the stored record.

A *command* (create, update, scale, roll, truncate, seal, delete, promote) turns a record into one that states pending
work.  A *step* has the effects of that work, in stages (the effects of one stage may run at once, stages run in order),
and the record to store after them, or None to remove the record.  Commands require a record without pending work; the
caller (`controller/streams.py`) executes pending steps first.  The steps by state and work:

    CREATING  create segments                                        → ACTIVE
    SCALE     create the new segments                                → publish, SEAL
    ROLL      create copies of the past epoch's and the present segments; merge the transactions into the former;
              seal these                                             → publish both epochs, SEAL
    PROMOTE   create the new segments                                → publish, no longer a mirror, SEAL
    SEAL      seal what was replaced                                 → nothing
    TRUNCATE  truncate to the head; delete what lies before          → nothing
    POLICY    set the policy of the active segments                  → nothing
    SEALING   end all transactions; seal all segments                → SEALED
    DELETING  delete the watermark stream and all segments           → removed

Publishing comes before sealing.  So a writer whose segment is sealed always finds successors; if it finds none, the
stream is sealed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sarit.controller.model import cuts
from sarit.controller.model.effects import (
    CreateMirror,
    CreateSegment,
    DeleteSegment,
    MergeSegments,
    RemoveMark,
    SealSegment,
    SetPolicy,
    Stages,
    TruncateSegment,
)
from sarit.controller.model.epochs import (
    Epoch,
    created_in,
    even_replacement,
    first_epoch,
    highest_number,
    known_segments,
    next_epoch,
    promoted_epoch,
    replaced_by,
    rolled_epochs,
)
from sarit.controller.model.records import NO_WORK, State, StreamRecord, Work, WorkKind
from sarit.core.errors import Conflict, Forbidden, Invalid, Sealed
from sarit.core.keyspace import snapped
from sarit.core.names import MARK_PREFIX, SegmentId, StreamName, transaction_segment
from sarit.core.policies import ScaleType, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sarit.controller.model.epochs import SegmentRange
    from sarit.core.keyspace import KeyRange

# When a record has more epochs than this, or more segments in all its epochs, its earlier epochs move to a chunk.
EPOCHS_PER_CHUNK = 64
SEGMENTS_PER_CHUNK = 16_384


@dataclass(frozen=True, slots=True)
class Step:
    """The effects to execute now, and the record to store after them (`then`; None: remove the record).

    `drain`: end all transactions before the stages.  `spilled`: epochs to store as a chunk with the record.
    `committed`: the transactions that end when the record is stored."""

    stages: Stages
    then: StreamRecord | None
    drain: bool = False
    spilled: tuple[Epoch, ...] = ()
    committed: tuple[int, ...] = ()


# -- commands -------------------------------------------------------------------------------------


def create(config: StreamConfig, first_number: int, now_ms: int) -> StreamRecord:
    """Return the record of a new stream whose segments are numbered from `first_number`.  Raises Invalid."""
    config.scaling.check()
    config.retention.check()
    epoch = first_epoch(config.scaling.min_segments, first_number, now_ms)
    return StreamRecord(State.CREATING, config, now_ms, first_number, (epoch,))


def update(record: StreamRecord, config: StreamConfig, now_ms: int) -> StreamRecord:
    """Replace the configuration, and all segments when it requires another number of them.

    Raises Sealed, Invalid, Forbidden (a mirror has a retention of its own, and everything else from its source)."""
    _require_active(record)
    config.scaling.check()
    config.retention.check()
    if record.link and replace(config, retention=record.config.retention) == record.config:
        return replace(record, config=config)
    require_writable(record)
    count, wanted = len(record.current.segments), config.scaling.min_segments
    changed = replace(record, config=config)
    # Keep segments above the minimum, which scaling made, unless their number is fixed.
    if count < wanted or (config.scaling.type is ScaleType.FIXED and count != wanted):
        return _plan(changed, even_replacement(record.current, wanted, now_ms))
    if _metering(config) != _metering(record.config):
        return replace(changed, work=Work(WorkKind.POLICY))
    return changed


def scale(record: StreamRecord, replaced: Sequence[int], ranges: Sequence[KeyRange], now_ms: int) -> StreamRecord:
    """Replace segments by segments of new key ranges.  Returns the same record if the last scale did exactly this.

    Raises Sealed, Invalid (the ranges do not cover exactly what they replace), Conflict (segments that are not active,
    or fewer than the policy's minimum would remain), Forbidden (a mirror)."""
    _require_active(record)
    require_writable(record)
    ranges = snapped(((asked.low, asked.high) for asked in ranges), (s.low for s in record.current.segments))
    if _is_repeated_scale(record, replaced, ranges):
        return record
    epoch = next_epoch(record.current, replaced, ranges, now_ms)
    count, least = len(epoch.segments), record.config.scaling.min_segments
    # A stream that has too few segments may still get more.
    if count < least and count < len(record.current.segments):
        raise Conflict(f"{count} segments would remain, and the stream's policy asks for {least} or more")
    return _plan(record, epoch)


def roll(record: StreamRecord, past: Epoch, transactions: Iterable[int], now_ms: int) -> StreamRecord:
    """Merge transactions of a past epoch, in the order given; also while the stream is being sealed.

    Raises Sealed."""
    if record.state is State.SEALED:
        raise Sealed("the stream is sealed")
    assert record.work.kind is WorkKind.NONE, "a command on a stream with pending work"
    epochs = rolled_epochs(record.current, past, now_ms)
    past_ids = tuple(s.segment for s in past.segments)
    return replace(record, work=Work(WorkKind.ROLL, past_ids, epochs, tuple(transactions)))


def truncate(record: StreamRecord, epochs: Sequence[Epoch], cut: Mapping[int, int]) -> StreamRecord:
    """Make a cut the head of the stream.  `epochs`: all epochs from the earliest segment of the present head on.

    Raises Sealed, Invalid (it is no cut of the stream, or before the present head)."""
    _require_active(record)
    known = known_segments(epochs)
    if not cuts.is_cut(known, cut):
        raise Invalid("the segments of the cut do not cover the stream exactly once, or begin before its head")
    before = head(record)
    if not cuts.follows(known, before, cut):
        raise Invalid("the stream is already truncated beyond this cut")
    # Segments before the present head were deleted by earlier truncations.
    alive = set(known) - set(cuts.segments_before(known, before))
    deleted = [segment for segment in cuts.segments_before(known, cut) if segment in alive]
    return replace(record, head=dict(cut), work=Work(WorkKind.TRUNCATE, tuple(deleted)))


def seal(record: StreamRecord) -> StreamRecord:
    """Seal the stream.  Returns the same record if it is sealed.  Raises Forbidden (a mirror)."""
    require_writable(record)
    return record if record.state is State.SEALED else replace(record, state=State.SEALING)


def promote(record: StreamRecord, epoch: int, now_ms: int) -> StreamRecord:
    """Make a mirror a stream that anybody may write, in a new epoch of this number.  A sealed one stays sealed.

    Raises Invalid (a number that no record can hold)."""
    assert not record.pending, "a command on a stream with pending work"
    assert record.mirrored, "only a mirror is promoted"
    if record.state is State.SEALED:
        return replace(record, link="")
    planned = promoted_epoch(record.current, epoch - record.current.number, now_ms)
    return replace(record, work=Work(WorkKind.PROMOTE, (), (planned,)))


def delete(record: StreamRecord) -> StreamRecord:
    """Delete the stream.  Raises Conflict when it is not sealed.  A mirror need not be: only its link could seal it."""
    if record.state is not State.SEALED and not record.link:
        raise Conflict("the stream is not sealed: seal it before you delete it")
    return replace(record, state=State.DELETING)


def force_delete(record: StreamRecord) -> StreamRecord:
    """Delete the stream whatever its state: for internal streams."""
    return replace(record, state=State.DELETING)


# -- queries ------------------------------------------------------------------------------------


def head(record: StreamRecord) -> cuts.Cut:
    """Return the cut at which the stream begins."""
    return dict(record.head) or {s.segment: 0 for s in record.epochs[0].segments}


def next_number(record: StreamRecord) -> int:
    """Return the first segment number of a later stream of this name."""
    # Include planned epochs: their segments may exist although the epoch was never published.
    planned = [highest_number(epoch) for epoch in record.work.epochs]
    return max([highest_number(record.current), *planned]) + 1


def require_unsealed(record: StreamRecord) -> None:
    """Check that a stream is neither sealed nor being sealed.  Raises Sealed."""
    if record.state in (State.SEALED, State.SEALING):
        raise Sealed("the stream is sealed")


def require_writable(record: StreamRecord) -> None:
    """Check that a stream is no mirror, which only its link changes.  Raises Forbidden."""
    if record.link:
        raise Forbidden(
            f"the stream is a mirror, and read-only: link {record.link} writes it; to write it here, make it a stream "
            f"of its own by `sarit link promote {record.link}`"
        )


# -- steps ----------------------------------------------------------------------------------------


def step(name: StreamName, record: StreamRecord, epochs: Sequence[Epoch]) -> Step | None:
    """Return the next step of the record's pending work; None: there is no pending work.

    `epochs`: needed for a stream that is being deleted: all epochs from the earliest segment of its head on."""
    work, current = record.work, record.current
    if record.state is State.CREATING:
        made = mirror_creations(name, record, current.segments) if record.link else _creations(name, record, [current])
        return Step((made,), replace(record, state=State.ACTIVE))
    # Check for a deletion before any work: it deletes the segments of planned epochs, too.
    if record.state is State.DELETING:
        return Step(_deletions(name, record, epochs), None)
    done = replace(record, work=NO_WORK)
    if work.kind is WorkKind.SCALE:
        return _publish((_creations(name, record, work.epochs),), record)
    if work.kind is WorkKind.PROMOTE:
        return _publish((_creations(name, record, work.epochs),), replace(record, link=""))
    if work.kind is WorkKind.ROLL:
        return _publish(_rolling(name, record), record)
    if work.kind is WorkKind.SEAL:
        return Step((tuple(SealSegment(_segment(name, s)) for s in work.segments),), done)
    if work.kind is WorkKind.TRUNCATE:
        truncations = tuple(TruncateSegment(_segment(name, s), offset) for s, offset in record.head.items() if offset)
        return Step((truncations + tuple(DeleteSegment(_segment(name, s)) for s in work.segments),), done)
    if work.kind is WorkKind.POLICY:
        policy = _metering(record.config)
        return Step((tuple(SetPolicy(_segment(name, s.segment), *policy) for s in current.segments),), done)
    # Seal only after other work: a roll during the seal is published before the active segments are sealed.
    if record.state is State.SEALING:
        seals = tuple(SealSegment(_segment(name, s.segment)) for s in current.segments)
        return Step((seals,), replace(record, state=State.SEALED), drain=True)
    return None


def _publish(stages: Stages, record: StreamRecord) -> Step:
    """Make the planned epochs the latest ones; sealing what they replace is the next work."""
    planned = record.work.epochs
    # Seal the replaced segments only after the new epoch is current, so that a writer that meets the seal finds
    # successors.
    old = replaced_by(record.current, planned[-1])
    epochs: tuple[Epoch, ...] = record.epochs + planned
    spilled: tuple[Epoch, ...] = ()
    if len(epochs) > EPOCHS_PER_CHUNK or sum(len(e.segments) for e in epochs) > SEGMENTS_PER_CHUNK:
        # The caller stores the chunk in one batch with this record, so that no epoch is ever missing.
        epochs, spilled = planned[-1:], epochs[:-1]
    # An empty head means the start of the record's first epoch.  When that epoch changes, store the head explicitly.
    begins = head(record) if spilled else record.head
    published = replace(record, epochs=epochs, work=Work(WorkKind.SEAL, tuple(old)), head=begins)
    return Step(stages, published, spilled=spilled, committed=record.work.transactions)


def mirror_creations(
    name: StreamName, record: StreamRecord, segments: Iterable[SegmentRange], starts: Mapping[int, int] | None = None
) -> tuple[CreateMirror, ...]:
    """Return the effects that create segments of a mirror where they begin.

    `starts`: by segment, where that is not 0; None: at the stream's head.  A mirror is not measured, as it scales only
    with its source."""
    begins = head(record) if starts is None else starts
    rollover = record.config.rollover_bytes
    return tuple(CreateMirror(_segment(name, s.segment), begins.get(s.segment, 0), rollover) for s in segments)


def publish(record: StreamRecord, epochs: tuple[Epoch, ...]) -> Step:
    """Make epochs whose segments exist the latest ones; sealing what they replace is the next work."""
    return _publish((), replace(record, work=Work(WorkKind.SCALE, (), epochs)))


def _creations(name: StreamName, record: StreamRecord, epochs: Iterable[Epoch]) -> tuple[CreateSegment, ...]:
    scale_type, rate = _metering(record.config)
    return tuple(
        CreateSegment(_segment(name, s.segment), scale_type, rate, record.config.rollover_bytes)
        for epoch in epochs
        for s in created_in(epoch)
    )


def _rolling(name: StreamName, record: StreamRecord) -> Stages:
    """Return the stages that create the planned segments, merge transactions into those of the first planned epoch, and
    seal the copies among these."""
    work = record.work
    targets = {SegmentId.unpack(s.segment).number: s.segment for s in work.epochs[0].segments}
    merges = tuple(merge(name, p, work.transactions, targets[SegmentId.unpack(p).number]) for p in work.segments)
    seals = tuple(SealSegment(_segment(name, copy.segment)) for copy in created_in(work.epochs[0]))
    # Create the targets before the merges, and seal them after all merges: a sealed target means that all are merged.
    return (_creations(name, record, work.epochs), merges, seals)


def merge(name: StreamName, past: int, transactions: Iterable[int], target: int) -> MergeSegments:
    """Return the effect that appends the segments that transactions wrote for segment `past` to `target`, in order."""
    parent = _segment(name, past)
    return MergeSegments(_segment(name, target), tuple(transaction_segment(parent, txn) for txn in transactions))


def _deletions(name: StreamName, record: StreamRecord, epochs: Sequence[Epoch]) -> Stages:
    known = known_segments((*epochs, *record.work.epochs))
    gone = set(cuts.segments_before(known, head(record)))
    segments = tuple(DeleteSegment(_segment(name, s)) for s in sorted(known) if s not in gone)
    return ((RemoveMark(name),), segments) if has_mark(name.stream) else (segments,)


def has_mark(stream: str) -> bool:
    """Return whether a stream of this name has a watermark stream: user streams do, internal ones do not."""
    return not stream.startswith("_")


def mark_of(name: StreamName) -> StreamName:
    """Return the name of a stream's watermark stream."""
    return StreamName(name.scope, MARK_PREFIX + name.stream)


def _plan(record: StreamRecord, epoch: Epoch) -> StreamRecord:
    return replace(record, work=Work(WorkKind.SCALE, (), (epoch,)))


def _is_repeated_scale(record: StreamRecord, replaced: Sequence[int], ranges: Sequence[KeyRange]) -> bool:
    """Return whether the last scale was exactly this one, as when a client repeats it after a lost reply."""
    if len(record.epochs) < 2:
        return False
    before, after = record.epochs[-2:]
    brought = sorted(created_in(after), key=lambda s: s.segment)
    return set(replaced_by(before, after)) == set(replaced) and [(s.low, s.high) for s in brought] == [
        (r.low, r.high) for r in ranges
    ]


def _require_active(record: StreamRecord) -> None:
    assert record.state in (State.ACTIVE, State.SEALED), "a command on a stream with pending work"
    require_unsealed(record)


def _metering(config: StreamConfig) -> tuple[int, int]:
    return int(config.scaling.type), config.scaling.target_rate


def _segment(name: StreamName, segment: int) -> str:
    return name.segment(SegmentId.unpack(segment))
