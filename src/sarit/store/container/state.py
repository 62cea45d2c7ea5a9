"""The state of one container: a pure function of the operations applied to it.

Theory of operation.  A method here checks a command against the *assigned* state, moves that state, and
returns the outcome as an operation.  When the operation's frame is durable, `apply` moves the *applied* state
and returns the segments whose waiters must be woken.  Replay after a crash moves both states at once with the
same code.  Nothing here awaits: what a check needs (the segment, a writer's attribute, table entries) has been
loaded into memory before.

A checkpoint is a pair of calls.  `begin_checkpoint` returns a `Snapshot` of everything applied; until
`end_checkpoint`, `apply` copies each segment of the snapshot before its first change (copy-on-write).

Invariants.
1. A name may have two incarnations in memory: the old one is deleted in the assigned state only, the new one
   exists there only.  `names` holds the newest.
2. At most one checkpoint is in progress.  An abandoned checkpoint blocks the next one, which would truncate the log
   above changes that only the log holds.
3. Each block of a tail that no chunk holds is counted in `dirty` exactly once.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, assert_never

from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed, Truncated
from sarit.core.limits import NOT_EXISTS, NULL_ATTRIBUTE_VALUE
from sarit.core.names import is_transient
from sarit.storage.starts import FIRST, NONE
from sarit.store.container.operations import (
    NO_WRITER,
    Append,
    Create,
    Delete,
    Entry,
    Merge,
    Operation,
    Seal,
    SetAttributes,
    SetMirror,
    SetPolicy,
    Truncate,
    UpdateTable,
)
from sarit.store.container.segment import Attribute, Block, Segment, copy_segment
from sarit.store.container.table_feeds import TableFeeds
from sarit.store.flow_control.memory_budget import DirtyBytes
from sarit.store.limits import TABLE_ENTRY_HEADER_BYTES
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Buffer
    from sarit.store.container.segment import SegmentSnapshot


_NOBODY: tuple[Segment, ...] = ()


class WrongEventNumber(Conflict):
    """The writer's stored event number is not the one its session has."""


class Snapshot:
    """The applied state of a container at one frame: what one checkpoint must make the index hold.

    Making a snapshot copies nothing: it takes over the set of changed segments (`uncopied`).  A segment is copied
    when it is about to change (`ContainerState.apply` sees to that), or when the checkpoint asks for the next ones
    (`copy_next`), whichever comes first.  A copy holds references to bytes, never the bytes themselves."""

    __slots__ = ("frame", "garbage", "next_segment_id", "operation_bytes", "segments", "truncated", "uncopied")

    def __init__(
        self,
        frame: int,
        next_segment_id: int,
        changed: dict[int, Segment],
        truncated: dict[int, Segment],
        garbage: set[str],
        operation_bytes: int,
    ) -> None:
        self.frame = frame
        self.next_segment_id = next_segment_id
        self.uncopied = changed
        self.truncated = truncated
        self.garbage = garbage
        # The memory charged for the operations that the snapshot covers: not dirty after the commit.
        self.operation_bytes = operation_bytes
        self.segments: dict[int, SegmentSnapshot] = {}

    def __repr__(self) -> str:
        return f"<Snapshot at frame {self.frame}: {len(self.segments)} segments, {len(self.uncopied)} not copied yet>"

    def copy_next(self, limit: int) -> None:
        """Copy up to `limit` segments that have not changed since the snapshot, and are not copied yet."""
        for segment in list(islice(self.uncopied.values(), limit)):
            self.copy(segment)

    def copy(self, segment: Segment) -> None:
        """Copy a segment before it changes (copy-on-write), if it is in the snapshot and not copied yet."""
        if self.uncopied.pop(segment.id, None) is not None:
            self.segments[segment.id] = copy_segment(segment, truncated=segment.id in self.truncated)


class ContainerState:
    """All segments of a container that are in memory, assigned and applied."""

    def __init__(self) -> None:
        self.names: dict[str, Segment] = {}
        self.segments: dict[int, Segment] = {}
        # Segments with a damaged record whose operations could not be replayed, with the reason.
        self.unreadable: dict[int, str] = {}
        # How many attributes, and bytes of names, the segments in memory have.
        self.attributes = 0
        self.name_bytes = 0
        self.next_segment_id = 1
        self.applied_frame = 0
        self.dirty = DirtyBytes()
        # Since the last snapshot: segments whose applied state changed, those that were truncated, and
        # chunks that nothing refers to any more.
        self.changed: dict[int, Segment] = {}
        self.truncated: dict[int, Segment] = {}
        self.garbage: set[str] = set()
        self.feeds = TableFeeds()
        self._snapshot: Snapshot | None = None

    # -- what is in memory -----------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Add a segment, new or loaded from the index."""
        assert segment.id not in self.segments, segment
        self.segments[segment.id] = segment
        self.names[segment.name] = segment
        self.name_bytes += len(segment.name)
        self.attributes += len(segment.attributes)

    def forget(self, segment: Segment) -> None:
        """Remove a segment from memory; the caller has checked that it is idle, or that its deletion is committed."""
        if self.segments.pop(segment.id, None) is not None:
            self.name_bytes -= len(segment.name)
            self.attributes -= len(segment.attributes)
        if self.names.get(segment.name) is segment:
            del self.names[segment.name]

    def attribute(self, segment: Segment, key: bytes, value: int) -> Attribute:
        """Return an attribute of a segment; it is added with `value` if it was not in memory."""
        found = segment.attributes.get(key)
        if found is None:
            found = segment.attributes[key] = Attribute(value)
            self.attributes += segment.id in self.segments
        return found

    # -- checkpoints -----------------------------------------------------------------------

    def begin_checkpoint(self) -> Snapshot:
        """Snapshot everything applied so far.  The caller copies it segment by segment (`Snapshot.copy_next`)."""
        assert self._snapshot is None, "a checkpoint was abandoned: the next would truncate the log above its changes"
        snapshot = Snapshot(
            self.applied_frame, self.next_segment_id, self.changed, self.truncated, self.garbage,
            self.dirty.begin_checkpoint(),
        )  # fmt: skip
        self.changed, self.truncated, self.garbage = {}, {}, set()
        self._snapshot = snapshot
        return snapshot

    def end_checkpoint(self, snapshot: Snapshot) -> None:
        """End the checkpoint: the snapshot is committed to the index."""
        assert snapshot is self._snapshot, (snapshot, self._snapshot)
        assert not snapshot.uncopied, snapshot
        assert snapshot.frame <= self.applied_frame, snapshot  # the log is truncated up to there
        self.dirty.end_checkpoint(snapshot.operation_bytes)
        self._snapshot = None  # drops the references to inlined bytes, which only the cache may hold now

    # -- checks against the assigned state: each returns the outcome -----------------------

    def create(
        self, name: str, *, kind: int, key_length: int, scale_type: int, target_rate: int, rollover: int,
        offset: int = 0, mirror: bool = False,
    ) -> Create:  # fmt: skip
        """Create a segment.  The caller has checked that the index has none of that name.  Raises Exists."""
        present = self.names.get(name)
        if present is not None and not present.assigned_deleted:
            raise Exists(f"segment {name} exists")
        operation = Create(
            self.next_segment_id, name, kind, key_length, scale_type, target_rate, rollover, offset, mirror
        )
        self.next_segment_id += 1
        self.add(Segment(operation, 0))
        return operation

    def append(
        self,
        segment: Segment,
        attribute: Attribute,
        owner: object,
        previous: int,
        writer: bytes,
        number: int,
        events: int,
        parts: Sequence[Buffer],
        length: int,
        expected_offset: int | None = None,
    ) -> Append:
        """Append bytes to the end of a segment.  Raises NotFound, Sealed, WrongEventNumber, Conflict (offset)."""
        if segment.assigned_deleted:
            raise NotFound(f"segment {segment.name} does not exist")
        if segment.assigned_sealed:
            raise Sealed(f"segment {segment.name} is sealed")
        # Check the owner besides the number, which an older session has right until the newer session appends.
        if attribute.assigned != previous or attribute.owner is not owner:
            raise WrongEventNumber(
                f"writer {writer.hex()} on {segment.name}: its session has event {previous}, "
                f"stored is {attribute.assigned}",
                expected=previous,
                actual=attribute.assigned,
            )
        offset = segment.assigned_length
        if expected_offset is not None and expected_offset != offset:
            raise Conflict(f"{segment.name} ends at {offset}", expected=expected_offset, actual=offset)
        # Nothing raises from here on, since the caller queues the operation in the same step.
        segment.assigned_length = offset + length
        segment.assigned_events += events
        attribute.assigned = number
        self.dirty.add_block(length)
        segment.in_flight += 1
        return Append(segment.id, offset, parts, length, writer, number, events)

    def seal(self, segment: Segment) -> Seal:
        """Seal a segment.  Raises NotFound, Sealed (it is sealed already)."""
        _require(segment)
        if segment.assigned_sealed:
            raise Sealed(f"segment {segment.name} is sealed")
        segment.assigned_sealed = True
        segment.in_flight += 1
        return Seal(segment.id)

    def truncate(self, segment: Segment, offset: int) -> Truncate:
        """Truncate a segment below `offset`.  Raises NotFound, Truncated (`offset` is outside [start, length])."""
        _require(segment)
        if not segment.assigned_start <= offset <= segment.assigned_length:
            raise Truncated(
                f"{segment.name} holds [{segment.assigned_start}, {segment.assigned_length}], not {offset}",
                segment.assigned_start,
            )
        segment.assigned_start = offset
        segment.in_flight += 1
        return Truncate(segment.id, offset)

    def delete(self, segment: Segment) -> Delete:
        """Delete a segment.  Raises NotFound."""
        _require(segment)
        segment.assigned_deleted = True
        segment.in_flight += 1
        return Delete(segment.id)

    def merge(
        self, target: Segment, source: Segment, attributes: tuple[tuple[bytes, int], ...], offset: int | None = None
    ) -> Merge:
        """Move the source, whose extents are in memory, to the end of the target.  `offset`: where the target must end.

        Raises NotFound, Sealed, Invalid (the source is truncated, or one of them is a table), Conflict (`offset`)."""
        _require(target)
        _require(source)
        if target.assigned_sealed:
            raise Sealed(f"segment {target.name} is sealed")
        # Refuse a truncated source: the target would have a hole in place of the truncated bytes.
        if source.assigned_start:
            raise Invalid(f"segment {source.name} was truncated and cannot be merged")
        if target.is_table or source.is_table:
            raise Invalid("table segments cannot be merged")
        if offset is not None:
            require_end(target, offset)
        assert source.extents is not None or not source.flushed, source
        assert not source.compacting, source
        length = source.assigned_length
        operation = Merge(target.id, source.id, target.assigned_length, length, source.assigned_events, attributes)
        # Seal the source, so that its length is final when the merge is applied.
        source.assigned_sealed = source.assigned_deleted = True
        target.assigned_length += length
        target.assigned_events += source.assigned_events
        self._assign_attributes(target, attributes)
        source.in_flight += 1
        target.in_flight += 1
        return operation

    def set_attributes(self, segment: Segment, attributes: tuple[tuple[bytes, int], ...]) -> SetAttributes:
        """Set attributes that are in memory to values already decided.  Raises NotFound."""
        _require(segment)
        self._assign_attributes(segment, attributes)
        segment.in_flight += 1
        return SetAttributes(segment.id, attributes)

    def set_policy(self, segment: Segment, scale_type: int, target_rate: int) -> SetPolicy:
        """Set the scaling policy of a segment.  Raises NotFound."""
        _require(segment)
        segment.in_flight += 1
        return SetPolicy(segment.id, scale_type, target_rate)

    def update_table(
        self,
        segment: Segment,
        changes: Sequence[tuple[bytes, bytes | None, int]],
        current: Callable[[bytes], Entry | None],
        expected_length: int | None,
    ) -> UpdateTable:
        """Apply changes of a table, each (key, value or None for a removal, expected version), atomically.

        All versions are checked before the first change.  `current` returns the newest entry of a key.  Raises
        NotFound, Conflict (`expected`/`actual` versions; NOT_EXISTS for an absent key), Sealed, Truncated
        (`expected_length` is not the table's position)."""
        _require(segment)
        if segment.assigned_sealed:
            raise Sealed(f"table {segment.name} is sealed")
        if expected_length is not None and expected_length != segment.assigned_length:
            raise Truncated(f"table {segment.name} is at {segment.assigned_length}", segment.assigned_length)
        assert segment.table is not None
        for key, _, expected in changes:
            if expected != NO_VERSION:
                entry = current(key)
                actual = NOT_EXISTS if entry is None or entry.value is None else entry.version
                if actual != expected:
                    raise Conflict(f"table {segment.name}: key {key[:64]!r}", expected=expected, actual=actual)
        position = segment.assigned_length
        outcome = []
        for key, value, _ in changes:
            # Look in `pending` first, since a batch may name a key twice, and the first change is there by now.
            before = segment.table.pending.get(key) or current(key)
            existed = before is not None and before.value is not None
            if value is None and not existed:
                continue
            entry = Entry(key, value, position)
            position += TABLE_ENTRY_HEADER_BYTES + len(key) + len(value or b"")
            segment.assigned_entries += (value is not None) - existed
            segment.table.pending[key] = entry
            outcome.append(entry)
        segment.assigned_length = position
        segment.in_flight += 1
        return UpdateTable(segment.id, position, segment.assigned_entries, tuple(outcome))

    def _assign_attributes(self, segment: Segment, attributes: tuple[tuple[bytes, int], ...]) -> None:
        for key, value in attributes:
            self.attribute(segment, key, NULL_ATTRIBUTE_VALUE).assigned = value

    # -- applying --------------------------------------------------------------------------

    def apply(self, operation: Operation, wall_ms: int) -> tuple[Segment, ...]:
        """Move the applied state by an operation whose frame is durable.

        Returns the segments whose waiters must be woken; for an append without waiters no object is allocated."""
        # The segment is in memory: `Segment.idle` is false while an operation is in flight or it is not committed.
        segment = self.segments[operation.segment]
        if self._snapshot is not None:
            self._snapshot.copy(segment)
        self.changed[segment.id] = segment
        segment.saved = False
        segment.modified_ms = wall_ms
        if isinstance(operation, Append):
            self._apply_append(segment, operation)
        elif isinstance(operation, UpdateTable):
            self._apply_table(segment, operation)
        elif isinstance(operation, Create):
            segment.created = True
            segment.start = segment.length = segment.flushed = operation.offset
            return _NOBODY  # a new segment has no waiters, and its creation does not count as in flight
        elif isinstance(operation, Seal):
            segment.sealed = True
        elif isinstance(operation, Truncate):
            self._apply_truncate(segment, operation.offset)
        elif isinstance(operation, Delete):
            self._apply_delete(segment)
        elif isinstance(operation, Merge):
            return self._apply_merge(segment, operation)
        elif isinstance(operation, SetAttributes):
            self._apply_attributes(segment, operation.attributes)
        elif isinstance(operation, SetPolicy):
            segment.scale_type = operation.scale_type
            segment.target_rate = operation.target_rate
        elif isinstance(operation, SetMirror):
            segment.mirror = operation.mirror
        else:
            assert_never(operation)
        segment.in_flight -= 1
        return (segment,) if segment.waiters else _NOBODY

    def replay(self, operation: Operation, wall_ms: int) -> None:
        """Move both states by an operation read from the log; the segments that it refers to are in memory."""
        if isinstance(operation, Create):
            segment = Segment(operation, wall_ms)
            self.add(segment)
            self.next_segment_id = max(self.next_segment_id, segment.id + 1)
        else:
            segment = self.segments[operation.segment]
            # Count the operation as in flight, since `apply` subtracts it.
            segment.in_flight += 1
            if isinstance(operation, Append):
                self._replay_append(segment, operation)
            elif isinstance(operation, UpdateTable):
                segment.assigned_length = operation.length
                segment.assigned_entries = operation.live
            elif isinstance(operation, Seal):
                segment.assigned_sealed = True
            elif isinstance(operation, Truncate):
                segment.assigned_start = operation.offset
            elif isinstance(operation, Delete):
                segment.assigned_deleted = True
            elif isinstance(operation, Merge):
                source = self.segments[operation.source]
                source.assigned_sealed = source.assigned_deleted = True
                source.in_flight += 1
                segment.assigned_length += operation.length
                segment.assigned_events += operation.events
                self._assign_attributes(segment, operation.attributes)
            elif isinstance(operation, SetAttributes):
                self._assign_attributes(segment, operation.attributes)
        self.apply(operation, wall_ms)

    def _replay_append(self, segment: Segment, operation: Append) -> None:
        assert operation.offset == segment.assigned_length, (operation.offset, segment)
        segment.assigned_length += operation.length
        segment.assigned_events += operation.events
        self.dirty.add_block(operation.length)
        if operation.event_number != NULL_ATTRIBUTE_VALUE:
            self.attribute(segment, operation.writer, NULL_ATTRIBUTE_VALUE).assigned = operation.event_number

    def _apply_append(self, segment: Segment, operation: Append) -> None:
        assert operation.offset == segment.length, (operation.offset, segment)
        # An append without bytes makes no block (as in `DirtyBytes.add_block`), but moves the event number.
        if operation.length:
            segment.tail.append(Block(operation.offset, operation.length, operation.parts))
        segment.length = operation.offset + operation.length
        segment.events += operation.events
        attribute = segment.attributes.get(operation.writer)
        if attribute is None:
            # An append without a writer, or of one that has no number, leaves no attribute.
            if operation.event_number == NULL_ATTRIBUTE_VALUE:
                if operation.length and not operation.events:
                    segment.tail[-1].starts = NONE
                return
            # The attribute was evicted, so its assigned value had this number and its session is closed.
            attribute = self.attribute(segment, operation.writer, operation.event_number)
        attribute.applied = operation.event_number
        segment.dirty_attributes.add(operation.writer)

    def _apply_attributes(self, segment: Segment, attributes: tuple[tuple[bytes, int], ...]) -> None:
        for key, value in attributes:
            self.attribute(segment, key, value).applied = value  # an evicted one had this value assigned
            segment.dirty_attributes.add(key)

    def _apply_table(self, segment: Segment, operation: UpdateTable) -> None:
        table = segment.table
        assert table is not None
        for entry in operation.entries:
            table.dirty[entry.key] = entry
            # Leave a newer entry of the key that is in flight.
            if table.pending.get(entry.key) is entry:
                del table.pending[entry.key]
        segment.length = operation.length
        segment.entries = operation.live
        if self.feeds:
            self.feeds.note(operation)

    def _apply_truncate(self, segment: Segment, offset: int) -> None:
        segment.start = offset
        # Drop whole blocks only: a block across the new start stays until a checkpoint.
        dropped = [block for block in segment.tail if block.end <= offset]
        if dropped:
            segment.flushed = dropped[-1].end
            del segment.tail[: len(dropped)]
            self._release(dropped, segment.tail[0].reference if segment.tail else None)
        self.truncated[segment.id] = segment

    def _apply_delete(self, segment: Segment) -> None:
        segment.deleted = True
        self._release(segment.tail, None)
        segment.tail = []

    def _apply_merge(self, target: Segment, operation: Merge) -> tuple[Segment, ...]:
        source = self.segments[operation.source]
        if self._snapshot is not None:
            self._snapshot.copy(source)
        self.changed[source.id] = source
        source.saved = False
        assert source.extents is not None or not source.flushed, source
        # All appends to a transient segment are pieces of one event, which begins at the first of them.  Those to a
        # mirror's are pieces of any size, of which the first one alone is known to begin with an event.
        in_pieces = is_transient(source.name) or source.mirror
        # Take over chunks by name, without a copy.  Inlined bytes become dirty: the next checkpoint stores them again.
        for extent in source.extents or ():
            parts = None if extent.chunk else (extent.inline,)
            at, chunk = operation.offset + extent.start, extent.chunk or None
            starts = extent.starts if not in_pieces else NONE if extent.start else FIRST
            target.tail.append(Block(at, extent.length, parts, chunk, extent.chunk_offset, extent.checksums, starts))
            if not extent.chunk:
                self.dirty.add_block(extent.length)
        source.extents = None
        for block in source.tail:
            block.starts = NONE if in_pieces and block.offset else block.starts
            # Move the live block: a checkpoint in progress has the old offset in its `BlockSnapshot`.
            block.offset += operation.offset
            target.tail.append(block)
        source.tail = []
        source.deleted = True
        source.merged_into = target.id
        source.in_flight -= 1
        target.in_flight -= 1
        target.length = operation.offset + operation.length
        target.events += operation.events
        self._apply_attributes(target, operation.attributes)
        return tuple(segment for segment in (source, target) if segment.waiters)

    def _release(self, blocks: Sequence[Block], kept: str | None) -> None:
        """Free the bytes of blocks that nobody reads again, and note their uncommitted chunks as garbage.

        `kept`: the reference of a chunk that is no garbage, as it also holds a block that stays."""
        for block in blocks:
            block.released = True
            if (held := block.reference) is None:
                self.dirty.remove_blocks(1, block.length)
            elif held != kept:
                self.garbage.add(held)
            block.parts = None


def append_at(
    state: ContainerState, segment: Segment, data: bytes, offset: int, *, begins_event: bool = True
) -> Append:
    """Append bytes without a writer to a segment that ends at `offset`.  `begins_event`: an event begins there.

    Raises NotFound, Sealed, Conflict (it ends elsewhere), Invalid (a table)."""
    _require(segment)
    if segment.is_table:
        raise Invalid(f"segment {segment.name} is a table segment")
    if segment.assigned_sealed:
        raise Sealed(f"segment {segment.name} is sealed")
    require_end(segment, offset)
    segment.assigned_length = offset + len(data)
    segment.assigned_events += begins_event
    state.dirty.add_block(len(data))
    segment.in_flight += 1
    # The number of events says whether one begins here: how many there are is not known.
    return Append(segment.id, offset, (data,), len(data), NO_WRITER, NULL_ATTRIBUTE_VALUE, int(begins_event))


def set_mirror(segment: Segment, mirror: bool) -> SetMirror:
    """Let clients change a segment, or only read it (`mirror`).  Raises NotFound."""
    _require(segment)
    segment.in_flight += 1
    return SetMirror(segment.id, mirror)


def require_end(segment: Segment, offset: int) -> None:
    """Check that a segment ends at an offset.  Raises Conflict, with the actual end."""
    if segment.assigned_length != offset:
        actual = segment.assigned_length
        raise Conflict(f"segment {segment.name} ends at {actual}", expected=offset, actual=actual)


def _require(segment: Segment) -> None:
    if segment.assigned_deleted:
        raise NotFound(f"segment {segment.name} does not exist")
