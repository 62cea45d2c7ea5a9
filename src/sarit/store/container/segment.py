"""One segment in memory: its state, its record in the index, its snapshot.

A segment has two states.  The *assigned* state includes operations in flight: every check is made against it.  The
*applied* state is durable: every read is served from it.  An operation moves the assigned state when it is accepted and
the applied state when its frame is durable, in the same order.

`tail` holds the bytes that no checkpoint has committed yet: a list of blocks by offset.  The flusher notes in a block
the chunk to which it was written; the next checkpoint commits that to the index.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sortedcontainers import SortedDict

from sarit.core.errors import Conflict, Corrupt, Invalid
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.storage.packs import reference
from sarit.storage.starts import FIRST
from sarit.store.container.operations import Create, Entry
from sarit.store.limits import BLOCK_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Buffer
    from sarit.storage.checksums import ChunkChecksums
    from sarit.storage.layout import Extent

# The attribute that counts the events of a segment: a field of the record, not a row of its own.
EVENT_COUNT = (1 << 63).to_bytes(8, "big") + (1).to_bytes(8, "big")

RECORD_VERSION: Final = 1
# The version of a mirror's record: a version of Sarit that would let clients write to it must not read the record.
MIRROR_RECORD_VERSION: Final = 2
# The fields are those that `Segment.record` packs.
_RECORD = struct.Struct(">BBBbIiqQQQqQqH")
_ENTRY_BYTES = struct.Struct(">q")
_ENTRY_BYTES_AT = _RECORD.size - struct.calcsize(">qH")
_SEALED = 1


class Attribute:
    """The int64 value of an attribute (a 128-bit id): assigned, applied, and the writer session that owns it."""

    __slots__ = ("applied", "assigned", "owner")

    def __init__(self, value: int) -> None:
        self.assigned = value
        self.applied = value
        self.owner: object | None = None


@dataclass(frozen=True, slots=True)
class AttributeUpdate:
    """A conditional change of one attribute; `kind` as in wire.md par. 5.1."""

    attribute: bytes
    kind: int
    value: int
    expected: int


def resolve_attributes(segment: Segment, updates: tuple[AttributeUpdate, ...]) -> tuple[tuple[bytes, int], ...]:
    """Return the values after `updates`, checked against the assigned state.  Raises Conflict, Invalid (over 64 bits).

    The attributes must be in memory."""
    out = []
    for update in updates:
        current = segment.attributes[update.attribute].assigned
        absent = current == NULL_ATTRIBUTE_VALUE
        # Kinds: 0 sets if absent, 2 sets if greater, 3 adds, 4 compares and sets; any other sets.
        value = update.value
        if (
            (update.kind == 0 and not absent)
            or (update.kind == 2 and not absent and value <= current)
            or (update.kind == 4 and current != update.expected)
        ):
            raise Conflict(
                f"attribute {update.attribute.hex()} of {segment.name}", expected=update.expected, actual=current
            )
        if update.kind == 3 and not absent:
            value += current
            # Check sums only: all other values came as int64.
            if not -(1 << 63) <= value < 1 << 63:
                raise Invalid(f"attribute {update.attribute.hex()} of {segment.name} cannot be {value}: it has 64 bits")
        out.append((update.attribute, value))
    return tuple(out)


class Block:
    """A run of a segment's bytes: in memory (`parts`), in a chunk, or both; lengths in bytes.

    `checksums`: the checksums of the chunk, if there is one.  `released`: whether the block was truncated or deleted,
    so that nobody reads it again.  `starts`: the offsets in the block where appends began, packed
    (`storage/starts.py`)."""

    __slots__ = ("checksums", "chunk", "chunk_offset", "length", "offset", "parts", "released", "starts")

    def __init__(
        self, offset: int, length: int, parts: Sequence[Buffer] | None, chunk: str | None = None, chunk_offset: int = 0,
        checksums: ChunkChecksums | None = None, starts: bytes = FIRST,
    ) -> None:  # fmt: skip
        self.offset = offset
        self.length = length
        self.parts = parts
        self.chunk = chunk
        self.chunk_offset = chunk_offset
        self.checksums = checksums
        self.released = False
        self.starts = starts

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + self.length

    @property
    def reference(self) -> str | None:
        """The chunk or piece of a pack that holds the block, which is garbage when no block needs it, or None."""
        return None if self.chunk is None else reference(self.chunk, self.checksums)

    def is_in_chunk_of(self, other: Block) -> bool:
        """Return whether both blocks are in one chunk, and in one piece of the chunk if it is a pack."""
        if self.chunk is None or self.chunk != other.chunk:
            return False
        mine, others = self.checksums, other.checksums
        return mine is others or mine is None or others is None or mine.begin == others.begin


def block_offset(block: Block) -> int:
    """Return the sort key of a list of blocks."""
    return block.offset


def block_end(block: Block) -> int:
    """Sort key of a list of blocks, by their ends."""
    return block.offset + block.length


def slice_blocks(blocks: Sequence[Block], offset: int, limit: int) -> list[Buffer]:
    """Return up to `limit` bytes from `offset` of blocks in memory, without a copy; they end at the first hole."""
    out: list[Buffer] = []
    # Begin with the last block that begins at or before the offset.
    at = bisect_right(blocks, offset, key=block_offset) - 1
    if at < 0:
        return out
    while at < len(blocks) and limit > 0:
        block = blocks[at]
        # Stop at a hole, or at bytes that are only in a chunk.
        if block.parts is None or not block.offset <= offset < block.end:
            break
        skip = offset - block.offset
        for part in block.parts:
            size = len(part)
            if skip >= size:
                skip -= size
                continue
            # Pass on a whole part as it is, since a view would cost an object.
            piece = part if not skip and size <= limit else memoryview(part)[skip : skip + limit]
            skip = 0
            out.append(piece)
            limit -= len(piece)
            if limit <= 0:
                break
        offset = block.end
        at += 1
    return out


class CachedRun:
    """Adjacent flushed blocks of one segment, without a hole, cached until the memory budget evicts them."""

    __slots__ = ("blocks", "bytes", "segment")

    def __init__(self, segment: Segment, blocks: list[Block]) -> None:
        self.segment = segment
        self.blocks = blocks
        self.bytes = blocks[-1].end - blocks[0].offset + len(blocks) * BLOCK_OVERHEAD_BYTES

    def evict(self) -> None:
        """Remove the run from its segment's cache, unless it was removed before."""
        cached = self.segment.cached
        for at, blocks in enumerate(cached):
            if blocks is self.blocks:
                del cached[at]
                break


class TableState:
    """Entries of a table segment that are newer than the index, newest first.

    `pending`: the entries in flight.  `dirty`: those applied since the last snapshot.  `flushing`: those in the
    checkpoint in progress.  Removals are entries with value None."""

    __slots__ = ("dirty", "flushing", "pending")

    def __init__(self) -> None:
        self.pending: dict[bytes, Entry] = {}
        # `dirty` and `flushing` are in order of key, so that a page of a scan takes only the few that it needs.
        self.dirty: SortedDict[bytes, Entry] = SortedDict()
        self.flushing: SortedDict[bytes, Entry] = SortedDict()


class Segment:
    """The state of one segment; a segment that is created again with the same name gets another `id`."""

    __slots__ = (
        "assigned_deleted",
        "assigned_entries",
        "assigned_events",
        "assigned_length",
        "assigned_sealed",
        "assigned_start",
        "attributes",
        "cached",
        "committed",
        "compacting",
        "created",
        "deleted",
        "dirty_attributes",
        "entries",
        "entry_bytes",
        "events",
        "extents",
        "flushed",
        "flushing_attributes",
        "id",
        "in_flight",
        "key_length",
        "kind",
        "length",
        "merged_into",
        "mirror",
        "modified_ms",
        "name",
        "pins",
        "rollover_bytes",
        "saved",
        "scale_type",
        "sealed",
        "start",
        "table",
        "tail",
        "target_rate",
        "waiters",
    )

    def __init__(self, create: Create, modified_ms: int) -> None:
        self.id = create.segment
        self.name = create.name
        self.kind = create.kind
        self.key_length = create.key_length
        self.scale_type = create.scale_type
        self.target_rate = create.target_rate
        self.rollover_bytes = create.rollover_bytes
        # Whether the segment is a copy of another installation's: clients may only read it.
        self.mirror = create.mirror
        self.modified_ms = modified_ms
        # The assigned state.
        self.assigned_length = self.assigned_start = create.offset
        self.assigned_events = self.assigned_entries = 0
        self.assigned_sealed = self.assigned_deleted = False
        # The applied state.
        self.length = self.start = self.events = self.entries = 0
        self.created = self.sealed = self.deleted = False
        self.merged_into: int | None = None
        # The bytes below `flushed` are in chunks (or inlined), and a checkpoint has committed that.
        self.flushed = 0
        # Whether a record of this segment is in the index.
        self.committed = False
        # The bytes of a table's entries in the index.
        self.entry_bytes = 0
        # Whether the record in the index holds everything applied so far.
        self.saved = False
        # `tail`: blocks that no checkpoint has committed, by offset, without holes.  `cached`: flushed runs in memory.
        self.tail: list[Block] = []
        self.cached: list[list[Block]] = []
        # All extents with their bytes while a merge of this segment needs them, otherwise None; checkpoints add theirs.
        self.extents: list[Extent] | None = None
        self.compacting = False
        self.attributes: dict[bytes, Attribute] = {}
        self.dirty_attributes: set[bytes] = set()
        self.flushing_attributes: set[bytes] = set()
        self.table = TableState() if create.kind else None
        # `in_flight`: operations assigned and not applied.  `pins`: tasks that await and need the segment in memory.
        self.in_flight = 0
        self.pins = 0
        # Callbacks to call once, after the next operation that is applied to the segment.
        self.waiters: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        state = "deleted" if self.deleted else "sealed" if self.sealed else "open"
        return f"<Segment {self.id} {self.name!r} {state} [{self.start}, {self.length}) flushed {self.flushed}>"

    @property
    def is_table(self) -> bool:
        """Whether the segment holds entries rather than bytes."""
        return self.table is not None

    @property
    def idle(self) -> bool:
        """Whether the segment may leave memory, since the index can restore all of it."""
        # Any of these conditions keeps the segment in memory: the index lacks some state, or a task uses this object.
        return not (
            not self.saved or self.in_flight or self.pins or self.tail or self.waiters or self.dirty_attributes
            or self.flushing_attributes or not self.committed or self.assigned_deleted
            or (self.table is not None and (self.table.pending or self.table.dirty or self.table.flushing))
        )  # fmt: skip

    def cache_flushed(self, blocks: Sequence[Block]) -> list[CachedRun]:
        """Cache the blocks that are still in memory, as runs without holes, and return the runs."""
        runs: list[list[Block]] = []
        run: list[Block] = []
        end = -1
        for block in blocks:
            if block.parts is None or block.released:
                end = -1
                continue
            # Begin a new run at a gap, which a read must not cross.
            if block.offset != end:
                run = []
                runs.append(run)
            run.append(block)
            end = block.offset + block.length
        self.cached += runs
        return [CachedRun(self, run) for run in runs]

    def check(self) -> None:
        """Assert the invariants of one segment."""
        assert 0 <= self.start <= self.length <= self.assigned_length, self
        assert self.start <= self.assigned_start <= self.assigned_length, self
        assert self.assigned_sealed or not self.sealed, self
        if self.table is None:
            # The blocks of the tail are adjacent, up to the applied length.
            at = None
            for block in self.tail:
                assert at is None or block.offset == at, self
                at = block.end
            assert not self.tail or (at == self.length and self.tail[0].offset <= max(self.flushed, self.start)), self

    def record(self) -> bytes:
        """Return the applied state as stored in the index (docs/formats/sqlite-index.md)."""
        assert self.start <= self.length, self  # `load_segment` checks the same after the read
        name = self.name.encode()
        version = MIRROR_RECORD_VERSION if self.mirror else RECORD_VERSION
        return (
            _RECORD.pack(
                version, self.kind, _SEALED if self.sealed else 0, self.scale_type, self.key_length,
                self.target_rate, self.rollover_bytes, self.start, self.length, self.events, self.modified_ms,
                self.entries, self.entry_bytes, len(name),
            )
            + name
        )  # fmt: skip


def with_entry_bytes(record: bytes, entry_bytes: int) -> bytes:
    """Replace the number of bytes of entries in a segment's record."""
    return record[:_ENTRY_BYTES_AT] + _ENTRY_BYTES.pack(entry_bytes) + record[_ENTRY_BYTES_AT + _ENTRY_BYTES.size :]


def load_segment(segment_id: int, record: bytes) -> Segment:
    """Return the segment that an index record describes.  Raises Corrupt."""
    if len(record) < _RECORD.size or record[0] not in (RECORD_VERSION, MIRROR_RECORD_VERSION):
        raise Corrupt(f"the index record of segment {segment_id} is of an unknown format")
    (
        _,
        kind,
        flags,
        scale_type,
        key_length,
        rate,
        rollover,
        start,
        length,
        events,
        modified,
        entries,
        entry_bytes,
        size,
    ) = _RECORD.unpack_from(record)
    try:
        name = record[_RECORD.size :].decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"the index record of segment {segment_id} holds a name that is not UTF-8") from error
    if len(record) != _RECORD.size + size or start > length:
        raise Corrupt(f"the index record of segment {segment_id} is damaged: {record[:80].hex()}")
    mirror = record[0] == MIRROR_RECORD_VERSION
    create = Create(segment_id, name, kind, key_length, scale_type, rate, rollover, mirror=mirror)
    segment = Segment(create, modified)
    segment.assigned_start = segment.start = start
    # All bytes below `length` are in chunks or inlined, since the commit of the record also committed the extents.
    segment.assigned_length = segment.length = segment.flushed = length
    segment.assigned_events = segment.events = events
    segment.assigned_entries = segment.entries = entries
    segment.entry_bytes = entry_bytes
    segment.assigned_sealed = segment.sealed = bool(flags & _SEALED)
    segment.created = segment.committed = segment.saved = True
    return segment


class BlockSnapshot:
    """A block of a snapshot: its offset and bytes at that moment (until a chunk holds them), and the live block."""

    __slots__ = ("block", "offset", "parts")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.offset = block.offset
        self.parts = block.parts

    @property
    def end(self) -> int:
        """Where the block ended at the snapshot."""
        return self.offset + self.block.length

    @property
    def charged_bytes(self) -> int:
        """The memory that is charged for the block while its bytes are in memory."""
        return self.block.length + BLOCK_OVERHEAD_BYTES

    def __repr__(self) -> str:
        return f"<BlockSnapshot {self.block.length} bytes at {self.offset}>"


@dataclass(slots=True)
class SegmentSnapshot:
    """One segment as it was at the snapshot's frame.

    The checkpoint notes in `extents` and `inlined` where it has stored the bytes of `blocks`, and in `entry_bytes` the
    bytes of the entries of a table."""

    segment: Segment
    deleted: bool
    merged: bool
    record: bytes
    length: int
    start: int
    blocks: list[BlockSnapshot]
    attributes: dict[bytes, int]
    entries: dict[bytes, Entry]
    truncated: bool
    extents: list[Extent] = field(default_factory=list)
    inlined: list[Block] = field(default_factory=list)
    entry_bytes: int = 0


def copy_segment(segment: Segment, truncated: bool) -> SegmentSnapshot:
    """Copy a segment for a checkpoint, and move its dirty attributes and entries to the flushing ones.

    `truncated`: whether the segment was truncated since the last snapshot."""
    deleted = segment.deleted
    attributes: dict[bytes, int] = {}
    entries: dict[bytes, Entry] = {}
    if not deleted:
        # Copy the values, because later frames change the attributes while the checkpoint goes on.
        attributes = {key: segment.attributes[key].applied for key in segment.dirty_attributes}
        # `flushing_attributes` is empty: the flusher clears it after each commit.
        segment.flushing_attributes = segment.dirty_attributes
        segment.dirty_attributes = set()
        if segment.table is not None:
            # Keep the entries readable in `flushing` until the commit: no other place has them meanwhile.
            entries = segment.table.flushing = segment.table.dirty
            segment.table.dirty = SortedDict()
    return SegmentSnapshot(
        segment, deleted, segment.merged_into is not None, b"" if deleted else segment.record(),
        segment.length, segment.start, list(map(BlockSnapshot, segment.tail)),
        attributes, entries, truncated,
    )  # fmt: skip
