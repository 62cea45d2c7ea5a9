"""Reading bytes: from memory where they are, else from chunks in aligned blocks with readahead.

Nothing that is not applied is ever readable.  A read that finds its chunk gone reloads the
chunk list: compaction or a merge moved the bytes.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, Invalid, NotFound, Truncated
from sarit.core.limits import MAX_READ_BYTES, MIB, READ_BLOCK_BYTES, READAHEAD_BYTES
from sarit.store.container.segment import Block, Segment, block_offset, slice_blocks

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sarit.env.ports import Buffer
    from sarit.storage.port import ChunkStorage
    from sarit.store.container.container import Container
    from sarit.store.flow_control.read_limiter import ReadRateLimiter

_MAX_RELOADS = 5
# Readers of a segment that are further apart do not share what is cached.
_APART_BYTES = 128 * MIB


@dataclass(slots=True)
class ReadResult:
    """Bytes of a segment, as parts to be sent one after the other."""

    parts: list[Buffer]
    length: int
    at_tail: bool
    end_of_segment: bool


class ChunkReader:
    """Aligned blocks of chunks, cached and read ahead; shared by all containers of a node."""

    def __init__(self, storage: ChunkStorage, cache_bytes: int, limiter: ReadRateLimiter) -> None:
        self._storage = storage
        self._rate_limiter = limiter
        self._limit = cache_bytes
        self._bytes = 0
        self._blocks: OrderedDict[tuple[str, int], asyncio.Task[Buffer]] = OrderedDict()

    async def read(self, chunk: str, chunk_bytes: int, offset: int, length: int, reader: Hashable) -> list[Buffer]:
        """Bytes [offset, offset + length) of a chunk, `length` at most to the end of one block pair.

        `reader` tells those apart that read in different places."""
        out: list[Buffer] = []
        end = min(offset + length, chunk_bytes)
        sequential = (chunk, offset // READ_BLOCK_BYTES - 1) in self._blocks or offset < READ_BLOCK_BYTES
        while offset < end:
            number = offset // READ_BLOCK_BYTES
            task = self._start(chunk, number, chunk_bytes, reader)
            if sequential:
                last = min(number + READAHEAD_BYTES // READ_BLOCK_BYTES, (chunk_bytes - 1) // READ_BLOCK_BYTES)
                for ahead in range(number + 1, last + 1):
                    self._start(chunk, ahead, chunk_bytes, reader)
            try:
                data = await asyncio.shield(task)
            except BaseException:
                self._forget(chunk, number)
                raise
            begin = offset - number * READ_BLOCK_BYTES
            piece = memoryview(data)[begin : begin + end - offset]
            if not piece:
                self._forget(chunk, number)
                raise Corrupt(f"chunk {chunk} was taken to end at {number * READ_BLOCK_BYTES + len(data)}, not {end}")
            out.append(piece)
            offset += len(piece)
        return out

    def _start(self, chunk: str, number: int, chunk_bytes: int, reader: Hashable) -> asyncio.Task[Buffer]:
        key = (chunk, number)
        task = self._blocks.get(key)
        if task is not None:
            self._blocks.move_to_end(key)
            return task
        begin = number * READ_BLOCK_BYTES
        length = min(READ_BLOCK_BYTES, chunk_bytes - begin)
        task = asyncio.ensure_future(self._load(chunk, begin, length, reader))
        self._blocks[key] = task
        self._bytes += READ_BLOCK_BYTES
        task.add_done_callback(
            lambda done: self._forget(chunk, number) if done.cancelled() or done.exception() else None
        )
        while self._bytes > self._limit and len(self._blocks) > 1:
            self._blocks.popitem(last=False)
            self._bytes -= READ_BLOCK_BYTES
        return task

    async def _load(self, chunk: str, begin: int, length: int, reader: Hashable) -> Buffer:
        await self._rate_limiter(length, reader)
        return await self._storage.read(chunk, begin, length)

    def _forget(self, chunk: str, number: int) -> None:
        if self._blocks.pop((chunk, number), None) is not None:
            self._bytes -= READ_BLOCK_BYTES


class Reads:
    """The read side of one container."""

    def __init__(self, container: Container, chunks: ChunkReader) -> None:
        self._container = container
        self._chunks = chunks

    @property
    def alive(self) -> bool:
        """Whether the container still serves."""
        return self._container.failure is None

    def in_memory(self, name: str) -> Segment | None:
        """The newest segment of that name, if it is in memory; it may not be created yet."""
        return self._container.state.names.get(name)

    async def find(self, name: str) -> Segment:
        """The segment to read, applied.  Raises NotFound."""
        segment = await self._container.metadata.require(name)
        if not segment.created:
            await self._container.group_commit.wait_durable()
        return segment

    def from_memory(self, segment: Segment, offset: int, limit: int) -> ReadResult | None:
        """What can be answered at once; None when the bytes stand in chunks alone.

        An empty result that is not the end of the segment means: wait.
        Raises NotFound, Truncated, Invalid (behind the end of a sealed segment)."""
        if segment.deleted:
            raise NotFound(f"segment {segment.name} does not exist")
        if offset < segment.start:
            raise Truncated(f"segment {segment.name} starts at {segment.start}", segment.start)
        if offset >= segment.length:
            if offset > segment.length and segment.sealed:
                raise Invalid(f"offset {offset} is behind the end {segment.length} of sealed segment {segment.name}")
            return ReadResult([], 0, not segment.sealed, segment.sealed)
        limit = min(limit, MAX_READ_BYTES)
        parts: list[Buffer] = []
        if segment.tail and offset >= segment.tail[0].offset:
            parts = slice_blocks(segment.tail, offset, limit)
        else:
            for blocks in segment.cached:
                if blocks[0].offset <= offset < blocks[-1].end:
                    parts = slice_blocks(blocks, offset, limit)
                    break
        return self._result(segment, offset, parts) if parts else None

    async def from_chunks(self, segment: Segment, offset: int, limit: int) -> ReadResult:
        """Like `from_memory`, for bytes that stand in chunks.  Raises Unavailable, Corrupt too."""
        segment.pins += 1
        try:
            for _ in range(_MAX_RELOADS):
                ready = self.from_memory(segment, offset, limit)
                if ready is not None:
                    return ready
                try:
                    return await self._from_chunks(segment, offset, min(limit, MAX_READ_BYTES))
                except NotFound:
                    if segment.deleted:
                        raise
                    await self._container.metadata.reload_chunks(segment)
            raise Corrupt(f"segment {segment.name}: the chunk that holds offset {offset} is missing")
        finally:
            segment.pins -= 1

    async def _from_chunks(self, segment: Segment, offset: int, limit: int) -> ReadResult:
        reader = (segment.name, offset // _APART_BYTES)
        block = _tail_reference(segment, offset)
        if block is not None:
            assert block.chunk is not None
            size = _referenced_bytes(segment, block, offset, limit)
            begin = block.chunk_offset + offset - block.offset
            parts = await self._chunks.read(block.chunk, block.chunk_bytes, begin, size, reader)
            return self._result(segment, offset, parts)
        chunks = await self._container.metadata.chunks(segment)
        extent = chunks.locate(offset)
        if extent is None:
            ready = self.from_memory(segment, offset, limit)
            if ready is not None:
                return ready
            raise Corrupt(f"segment {segment.name}: no extent holds offset {offset}")
        into = offset - extent.start
        size = min(limit, extent.length - into)
        if not extent.chunk:
            return self._result(segment, offset, [memoryview(extent.inline)[into : into + size]])
        begin = extent.chunk_offset + into
        parts = await self._chunks.read(extent.chunk, extent.chunk_offset + extent.length, begin, size, reader)
        return self._result(segment, offset, parts)

    async def event_boundary(self, name: str, target: int) -> int:
        """The smallest known offset >= `target` at which an append began, else the segment's length.

        Raises NotFound."""
        segment = await self.find(name)
        segment.pins += 1
        try:
            chunks = await self._container.metadata.chunks(segment)
        finally:
            segment.pins -= 1
        starts = [extent.start for extent in chunks if extent.start >= target][:1]
        starts += [block.offset for block in segment.tail if block.offset >= target][:1]
        return min(starts, default=segment.length)

    def _result(self, segment: Segment, offset: int, parts: list[Buffer]) -> ReadResult:
        length = sum(len(part) for part in parts)
        reached = offset + length >= segment.length
        return ReadResult(parts, length, reached and not segment.sealed, reached and segment.sealed)


def _tail_reference(segment: Segment, offset: int) -> Block | None:
    """The block of the tail at `offset`, if its bytes stand in a chunk alone.

    It was merged in, or a checkpoint under way has written it."""
    at = bisect_right(segment.tail, offset, key=block_offset) - 1
    if at >= 0:
        block = segment.tail[at]
        if block.parts is None and block.chunk is not None and block.offset <= offset < block.end:
            return block
    return None


def _referenced_bytes(segment: Segment, block: Block, offset: int, limit: int) -> int:
    """How many bytes, up to `limit`, follow in the chunk of `block` from `offset` on as they do in the segment."""
    tail = segment.tail
    at = bisect_right(tail, block.offset, key=block_offset)
    end, into = block.end, block.offset - block.chunk_offset
    while at < len(tail) and end - offset < limit:
        follower = tail[at]
        if follower.chunk != block.chunk or follower.offset - follower.chunk_offset != into:
            break
        end = follower.end
        at += 1
    return min(end - offset, limit)
