"""A snapshot of a container's applied state at one frame, made by copy-on-write.

Making it copies nothing: it takes over the set of changed segments (`uncopied`).  A segment is copied when it
is about to change (`ContainerState.apply` sees to that), or when the checkpoint asks for the next ones
(`copy_next`), whichever comes first.  A copy holds references to bytes, never the bytes themselves.

A copied segment belongs to the checkpoint from then on: it notes in the copy what became of the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from sarit.core.limits import BLOCK_OVERHEAD_BYTES

if TYPE_CHECKING:
    from sarit.storage.layout import Extent
    from sarit.store.container.operations import Entry
    from sarit.store.container.segment import Block, Segment


class BlockSnapshot:
    """A block at the snapshot: its offset and bytes then (until a chunk holds them), and the live block."""

    __slots__ = ("block", "offset", "parts")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.offset = block.offset
        self.parts = block.parts

    @property
    def charged_bytes(self) -> int:
        """What memory holds for the block while its bytes are in memory."""
        return self.block.length + BLOCK_OVERHEAD_BYTES

    def __repr__(self) -> str:
        return f"<BlockSnapshot {self.block.length} bytes at {self.offset}>"


@dataclass(slots=True)
class SegmentSnapshot:
    """One segment as it was at the snapshot's frame; `extents` and `inlined` are filled in by the checkpoint."""

    segment: Segment
    gone: bool
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


class Snapshot:
    """Everything that one checkpoint must make the index hold."""

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
        # Of the operations it covers: no longer dirty once the checkpoint is committed.
        self.operation_bytes = operation_bytes
        self.segments: dict[int, SegmentSnapshot] = {}

    def __repr__(self) -> str:
        return f"<Snapshot at frame {self.frame}: {len(self.segments)} segments, {len(self.uncopied)} not copied yet>"

    def copy_next(self, limit: int) -> None:
        """Copy up to `limit` segments that have not changed since."""
        for segment in list(islice(self.uncopied.values(), limit)):
            self.copy(segment)

    def copy(self, segment: Segment) -> None:
        """The copy-on-write hook: copy a segment before it changes, if it is in the snapshot and not copied yet."""
        if self.uncopied.pop(segment.id, None) is None:
            return
        gone = segment.deleted
        attributes: dict[bytes, int] = {}
        entries: dict[bytes, Entry] = {}
        if not gone:
            attributes = {key: segment.attributes[key].applied for key in segment.dirty_attributes}
            segment.flushing_attributes = segment.dirty_attributes
            segment.dirty_attributes = set()
            if segment.table is not None:
                entries = segment.table.flushing = segment.table.dirty
                segment.table.dirty = {}
        self.segments[segment.id] = SegmentSnapshot(
            segment, gone, segment.merged_into is not None, b"" if gone else segment.record(),
            segment.length, segment.start, list(map(BlockSnapshot, segment.tail)),
            attributes, entries, segment.id in self.truncated,
        )  # fmt: skip
