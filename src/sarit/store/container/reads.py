"""The read side of a container: bytes come from memory if they are there, otherwise from chunks.

Theory of operation.  The bytes of a segment are in up to four places, and a read tries them in this order:
1. The tail: blocks that no checkpoint has committed yet, in memory.
2. Cached runs: blocks that have been flushed and are still in memory.
3. The chunk of a block of the tail: written, not committed, and no longer in memory.
4. The extents in the index: in a chunk, or inlined in the index itself.

Chunks are read in aligned blocks, which all containers of a node cache together, with readahead for sequential
reads.  Only applied bytes are readable.  A missing chunk may mean that compaction or a merge has moved its bytes, so
the read looks the extent up again.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, Fenced, Invalid, Moved, NotFound, SaritError, Truncated
from sarit.env.background import shielded
from sarit.env.limits import READ_BLOCK_BYTES
from sarit.storage.checksums import DamagedChunk, missing
from sarit.storage.starts import first_at_or_after
from sarit.storage.verified_reads import read_blocks, read_verified
from sarit.store.container.damage_report import note_damage
from sarit.store.container.segment import Block, Segment, block_offset, slice_blocks
from sarit.store.limits import MAX_READ_BYTES, READAHEAD_BYTES, READER_LOCALITY_BYTES
from sarit.store.statistics import StoreStatistics

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sarit.env.ports import Buffer
    from sarit.storage.checksums import ChunkChecksums
    from sarit.storage.layout import Extent
    from sarit.storage.port import ChunkStorage
    from sarit.store.container.container import Container
    from sarit.store.flow_control.read_limiter import ReadRateLimiter

_MAX_RELOADS = 5


@dataclass(slots=True)
class ReadResult:
    """Bytes of a segment, in parts that follow each other; `length` is the sum of their bytes.

    `at_tail`: the read asked for more bytes than there are yet.  `end_of_segment`: the same of a sealed segment.  A
    read that got all it asked for has neither, also when it stops at the last byte (as in Pravega)."""

    parts: list[Buffer]
    length: int
    at_tail: bool
    end_of_segment: bool


class ChunkReader:
    """A cache of aligned blocks of chunks, with readahead, shared by all containers of a node."""

    def __init__(
        self, storage: ChunkStorage, cache_bytes: int, limiter: ReadRateLimiter,
        statistics: StoreStatistics | None = None,
    ) -> None:  # fmt: skip
        self._statistics = statistics or StoreStatistics()
        self._storage = storage
        self._rate_limiter = limiter
        self._limit = cache_bytes
        self._bytes = 0
        # Keys: the chunk, the offset where the piece begins if the chunk is a pack, the number of the block.
        self._blocks: OrderedDict[tuple[str, int, int], asyncio.Task[Buffer]] = OrderedDict()

    async def read(
        self, chunk: str, checksums: ChunkChecksums, offset: int, length: int, reader: Hashable
    ) -> list[Buffer]:
        """Return bytes [offset, offset + length) of a chunk, without a copy.  Checksums were verified at the load.

        The result may be shorter, but is not empty: it ends before a damaged block.  `reader` identifies the reader and
        its place, for the rate limiter.  Raises DamagedChunk, and what long-term storage raises."""
        out: list[Buffer] = []
        chunk_bytes = checksums.length
        end = min(offset + length, chunk_bytes)
        # Read ahead only at the beginning or after a cached block: only a sequential reader profits from it.
        before = (chunk, checksums.begin, offset // READ_BLOCK_BYTES - 1)
        sequential = before in self._blocks or offset < READ_BLOCK_BYTES
        while offset < end:
            number = offset // READ_BLOCK_BYTES
            if (chunk, checksums.begin, number) in self._blocks:
                self._statistics.cache_block_hits += 1
            else:
                self._statistics.cache_block_misses += 1
            task = self._start(chunk, number, checksums, reader)
            # Start the next blocks without awaiting them: the next reads find them loaded or on their way.
            if sequential:
                last = min(number + READAHEAD_BYTES // READ_BLOCK_BYTES, (chunk_bytes - 1) // READ_BLOCK_BYTES)
                for ahead in range(number + 1, last + 1):
                    self._start(chunk, ahead, checksums, reader)
            try:
                # Readers share the task of a block: a reader whose connection ends must not cancel it for the others.
                data = await shielded(task)
            except DamagedChunk:
                self._forget((chunk, checksums.begin, number))
                # Serve the bytes before the damaged block; the next read raises the error.
                return out or [await self._one_block(chunk, checksums, offset, end)]
            except BaseException:
                self._forget((chunk, checksums.begin, number))
                raise
            begin = offset - number * READ_BLOCK_BYTES
            piece = memoryview(data)[begin : begin + end - offset]
            assert piece, (chunk, number, len(data))  # storage returns as much as was asked for
            out.append(piece)
            offset += len(piece)
        return out

    async def _one_block(self, chunk: str, checksums: ChunkChecksums, offset: int, end: int) -> Buffer:
        """Return the bytes from `offset` to the end of its checksum's block: the damage may be elsewhere in the larger
        block that was read at once."""
        _, last = checksums.blocks_of(offset, 1)
        return await read_verified(self._storage, chunk, checksums, offset, min(end, last) - offset)

    def _start(self, chunk: str, number: int, checksums: ChunkChecksums, reader: Hashable) -> asyncio.Task[Buffer]:
        key = (chunk, checksums.begin, number)
        task = self._blocks.get(key)
        if task is not None:
            self._blocks.move_to_end(key)
            return task
        begin = number * READ_BLOCK_BYTES
        length = min(READ_BLOCK_BYTES, checksums.length - begin)
        task = asyncio.ensure_future(self._load(chunk, begin, length, checksums, reader))
        self._blocks[key] = task
        # Charge the last block of a chunk as a whole one.
        self._bytes += READ_BLOCK_BYTES
        task.add_done_callback(lambda done: self._forget(key) if done.cancelled() or done.exception() else None)
        # Evict the least recently used first, but never the block just started.  Who awaits an evicted block gets it.
        while self._bytes > self._limit and len(self._blocks) > 1:
            self._blocks.popitem(last=False)
            self._bytes -= READ_BLOCK_BYTES
        return task

    async def _load(self, chunk: str, begin: int, length: int, checksums: ChunkChecksums, reader: Hashable) -> Buffer:
        await self._rate_limiter(length, reader)
        # A block begins at a checksum: READ_BLOCK_BYTES is a multiple of the bytes of one (`load_chunk_extent`).
        return await read_blocks(self._storage, chunk, checksums, begin, length)

    def _forget(self, key: tuple[str, int, int]) -> None:
        if self._blocks.pop(key, None) is not None:
            self._bytes -= READ_BLOCK_BYTES


class Reads:
    """The read side of one container."""

    def __init__(self, container: Container, chunks: ChunkReader) -> None:
        self._container = container
        self._chunks = chunks

    @property
    def alive(self) -> bool:
        """Whether the container has not failed."""
        return self._container.failure is None

    @property
    def left(self) -> bool:
        """Whether the container was handed over, given up, or fenced, so that another store owns it now or will."""
        return isinstance(self._container.failure, Moved | Fenced)

    def may_answer(self, error: SaritError) -> bool:
        """Return whether a read may be refused with `error` before `confirm` has proved the ownership."""
        container = self._container
        if isinstance(container.failure, Moved):  # the error may be that of a closed index
            return False
        # Confirm the ownership before any report of damage, unless no other store can own the container: to a fenced
        # owner, the chunks that the next owner has deleted seem to be damaged.
        return container.lease is None if isinstance(error, Corrupt) else container.may_answer

    async def confirm(self) -> None:
        """Wait until facts that were read before this call may be answered.  Raises Unavailable, Moved."""
        await self._container.group_commit.prove_ownership()

    def in_memory(self, name: str) -> Segment | None:
        """Return the newest segment of a name if it is in memory; its creation may not be durable yet."""
        return self._container.state.names.get(name)

    async def find(self, name: str) -> Segment:
        """Return the segment of a name, once its creation is durable.  Raises NotFound."""
        segment = await self._container.metadata.require(name)
        if not segment.created:
            await self._container.group_commit.wait_durable()
        return segment

    def from_memory(self, segment: Segment, offset: int, limit: int) -> ReadResult | None:
        """Return up to `limit` bytes from `offset`; None when they are not in memory.

        An empty result that is not the end of the segment means that the reader must wait.
        Raises NotFound, Truncated, Invalid (after the end of a sealed segment)."""
        if segment.deleted:
            raise NotFound(f"segment {segment.name} does not exist")
        # Check the start before the end: a reader below the start must skip to the start, not wait.
        if offset < segment.start:
            raise Truncated(f"segment {segment.name} starts at {segment.start}", segment.start)
        if offset >= segment.length:
            if offset > segment.length and segment.sealed:
                raise Invalid(f"offset {offset} is after the end {segment.length} of sealed segment {segment.name}")
            return ReadResult([], 0, not segment.sealed, segment.sealed)
        limit = min(limit, MAX_READ_BYTES)
        parts: list[Buffer] = []
        # All bytes from the tail's first block on are in the tail; cached runs are below it.
        if segment.tail and offset >= segment.tail[0].offset:
            parts = slice_blocks(segment.tail, offset, limit)
        else:
            for blocks in segment.cached:
                if blocks[0].offset <= offset < blocks[-1].end:
                    parts = slice_blocks(blocks, offset, limit)
                    break
        return self._result(segment, offset, parts, limit) if parts else None

    async def from_chunks(self, segment: Segment, offset: int, limit: int) -> ReadResult:
        """Read as `from_memory` does, also bytes that are in chunks.  Raises Unavailable, Moved and Corrupt besides."""
        segment.pins += 1
        try:
            # Try memory in each round, because appends, checkpoints, truncations and deletions come during the awaits.
            absent: DamagedChunk | None = None
            for _ in range(_MAX_RELOADS):
                ready = self.from_memory(segment, offset, limit)
                if ready is not None:
                    return ready
                try:
                    return await self._from_chunks(segment, offset, min(limit, MAX_READ_BYTES))
                except DamagedChunk as error:
                    # The chunks of a deleted segment are garbage: answer NotFound.
                    if segment.deleted:
                        raise NotFound(f"segment {segment.name} does not exist") from None
                    # Look the extent up again: compaction or a merge may have moved the bytes.
                    absent = error
                    self._container.metadata.extents.cache.drop(segment.id)
            assert absent is not None, segment
            raise await note_damage(self._container, segment.name, offset, absent)
        finally:
            segment.pins -= 1

    async def _from_chunks(self, segment: Segment, offset: int, limit: int) -> ReadResult:
        block = _tail_reference(segment, offset)
        if block is not None:
            assert block.chunk is not None
            size = _referenced_bytes(segment, block, offset, limit)
            begin = block.chunk_offset + offset - block.offset
            return await self._from_chunk(segment, offset, block.chunk, block.checksums, begin, size, limit)
        # The bytes are below the tail, so a checkpoint has committed their extent.
        found = await self._container.metadata.extents.locate(segment.id, offset, limit)
        # Try memory again: `from_memory` raises if the segment was truncated or deleted during the lookup.
        if not found:
            ready = self.from_memory(segment, offset, limit)
            if ready is not None:
                return ready
            raise Corrupt(f"segment {segment.name}: no extent holds offset {offset}")
        extent = found[0]
        into = offset - extent.start
        if not extent.chunk:
            return self._result(segment, offset, _inlined_parts(found, into, limit), limit)
        size = min(limit, extent.length - into)
        begin = extent.chunk_offset + into
        return await self._from_chunk(segment, offset, extent.chunk, extent.checksums, begin, size, limit)

    async def _from_chunk(
        self, segment: Segment, offset: int, chunk: str, checksums: ChunkChecksums | None, begin: int, size: int,
        limit: int,
    ) -> ReadResult:  # fmt: skip
        """Return `size` bytes or fewer from `begin` of a chunk, for a read of `limit` bytes.

        Raises DamagedChunk when the chunk is missing, Corrupt when it is damaged."""
        assert checksums is not None, (segment, chunk)
        reader = (segment.name, offset // READER_LOCALITY_BYTES)
        try:
            parts = await self._chunks.read(chunk, checksums, begin, size, reader)
        except NotFound:
            raise missing(chunk, checksums.begin + begin) from None
        except DamagedChunk as error:
            damaged = offset + max(0, error.offset - checksums.begin - begin)
            raise await note_damage(self._container, segment.name, damaged, error) from None
        return self._result(segment, offset, parts, limit)

    async def event_boundary(self, name: str, target: int) -> int:
        """Return the smallest known offset >= `target` where an append began, else the segment's length.

        Such an offset is known at least every BOUNDARY_STEP_BYTES, or for each append that is longer.  In a segment of
        events it is an event boundary.  Raises NotFound, Corrupt (the index is damaged there)."""
        segment = await self.find(name)
        segment.pins += 1
        try:
            for _ in range(_MAX_RELOADS):
                if segment.deleted:
                    raise NotFound(f"segment {name} does not exist")
                at = max(target, segment.start)
                tail = segment.tail
                # Search the extents for offsets below the tail: a checkpoint has committed those bytes.
                if at < (tail[0].offset if tail else segment.length) and not segment.is_table:
                    stored, at = await self._container.metadata.extents.next_start(segment.id, at)
                    if stored is not None:
                        return stored
                    # Search again if blocks left the tail meanwhile: they are in extents now.
                    tail = segment.tail
                    if segment.deleted or at < (tail[0].offset if tail else segment.length):
                        continue
                return self._boundary_in_tail(segment, at)
            raise Corrupt(f"segment {name}: no extent holds offset {at}")
        finally:
            segment.pins -= 1

    @staticmethod
    def _boundary_in_tail(segment: Segment, target: int) -> int:
        """Return the event boundary for a target in the tail."""
        tail = segment.tail
        at = max(bisect_right(tail, target, key=block_offset) - 1, 0)
        # Mostly the first or second block has a boundary; the pieces of a large event have none.
        for number in range(at, len(tail)):
            block = tail[number]
            start = first_at_or_after(block.starts, target - block.offset)
            if start is not None:
                return block.offset + start
        return segment.length

    def _result(self, segment: Segment, offset: int, parts: list[Buffer], limit: int) -> ReadResult:
        length = sum(len(part) for part in parts)
        reached = length < limit and offset + length >= segment.length
        return ReadResult(parts, length, reached and not segment.sealed, reached and segment.sealed)


def _inlined_parts(extents: list[Extent], skip: int, limit: int) -> list[Buffer]:
    """Return up to `limit` bytes of inlined extents that follow each other, without the first `skip`."""
    parts: list[Buffer] = []
    for extent in extents:
        if limit <= 0:
            break
        parts.append(memoryview(extent.inline)[skip : skip + limit])
        limit -= len(parts[-1])
        skip = 0
    return parts


def _tail_reference(segment: Segment, offset: int) -> Block | None:
    """Return the block of the tail at `offset`, if its bytes are only in a chunk.

    Such a block came from a merged segment, or the checkpoint in progress has written it."""
    at = bisect_right(segment.tail, offset, key=block_offset) - 1
    if at >= 0:
        block = segment.tail[at]
        if block.parts is None and block.chunk is not None and block.offset <= offset < block.end:
            return block
    return None


def _referenced_bytes(segment: Segment, block: Block, offset: int, limit: int) -> int:
    """Return how many bytes from `offset` on, at most `limit`, are adjacent in the chunk of `block`, too."""
    tail = segment.tail
    at = bisect_right(tail, block.offset, key=block_offset)
    end, into = block.end, block.offset - block.chunk_offset
    while at < len(tail) and end - offset < limit:
        follower = tail[at]
        # Stop at a block in another chunk, or not adjacent in this one.
        if not follower.is_in_chunk_of(block) or follower.offset - follower.chunk_offset != into:
            break
        end = follower.end
        at += 1
    return min(end - offset, limit)
