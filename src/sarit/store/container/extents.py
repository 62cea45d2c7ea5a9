"""Looks up the extents of a container's segments in the index, by offset.

Theory of operation.  A segment may have hundreds of thousands of extents, so they are never in memory as a whole.  A
read asks the index for the extent at its offset.  Extents in chunks are loaded with the next ones and cached in runs,
within a bound in bytes.  Inlined extents are read when they are asked for, with those that follow: their bytes are
never cached here.

A committed extent stays valid, since the bytes of a segment at an offset never change.  So a cached run needs no update
when extents are added.  Compaction and truncation delete the chunk of an extent: the reader that finds the chunk gone
drops the runs of the segment and asks again.  A lookup takes several reads of the index.  If a commit ends in between,
the lookup may find nothing, and is repeated.

Only a merge needs all extents of its source, with their bytes, while it is in flight (`Segment.extents`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt
from sarit.index import keys
from sarit.index.scans import scan_page, scan_readable
from sarit.storage.layout import Extent, load_chunk_extent, load_inlined_extent
from sarit.storage.starts import first_at_or_after
from sarit.store.limits import EXTENT_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sarit.index.port import Index

_RUN_ROWS: Final = 64
# How many extents `readable` returns beyond its bound: a chunk that one of them shares with those below is in use.
_NEIGHBOURS: Final = 2


class Commits:
    """The commits of checkpoints and compaction: whether one is in progress, and how many the index has completed."""

    def __init__(self) -> None:
        self.generation = 0
        self._in_progress = 0
        self._none = asyncio.Event()
        self._none.set()

    def __repr__(self) -> str:
        return f"<Commits: {self.generation} ended, {self._in_progress} in progress>"

    def begin(self) -> None:
        """Record that a commit begins."""
        self._in_progress += 1
        self._none.clear()

    def returned(self) -> None:
        """Record that the index has committed a batch, or may have: a failed commit counts as well."""
        self.generation += 1

    def end(self) -> None:
        """Record that a commit has ended: memory reflects it."""
        self._in_progress -= 1
        if not self._in_progress:
            self._none.set()

    def none_since(self, generation: int) -> bool:
        """Return whether no commit was in progress since `generation`, so that reads since then are of one moment."""
        return not self._in_progress and generation == self.generation

    async def wait_for_none(self) -> int:
        """Wait until no commit is in progress.  Returns the generation at that moment."""
        await self._none.wait()
        return self.generation


def _start(extent: Extent) -> int:
    return extent.start


def extent_bytes(extent: Extent) -> int:
    """Return about how many bytes an extent takes in memory."""
    checksums = 0 if extent.checksums is None else len(extent.checksums.crcs)
    return EXTENT_OVERHEAD_BYTES + len(extent.chunk) + checksums + len(extent.inline) + len(extent.starts)


class ExtentCache:
    """A cache of runs of extents in chunks, by segment and offset, bounded in bytes; the least recently used leave."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.bytes = 0
        # The extents of a run are in order of offset, perhaps with gaps where extents are inlined.
        self._runs: OrderedDict[tuple[int, int], list[Extent]] = OrderedDict()
        self._starts: dict[int, list[int]] = {}

    def __repr__(self) -> str:
        return f"<ExtentCache of {len(self._runs)} runs, {self.bytes} of {self.limit} bytes>"

    def locate(self, segment: int, offset: int) -> Extent | None:
        """Return the extent that holds an offset, if it is cached."""
        starts = self._starts.get(segment, ())
        at = bisect_right(starts, offset) - 1
        if at < 0:
            return None
        key = segment, starts[at]
        run = self._runs[key]
        extent = run[bisect_right(run, offset, key=_start) - 1]
        if offset >= extent.end:
            return None
        self._runs.move_to_end(key)
        return extent

    def put(self, segment: int, run: list[Extent]) -> None:
        """Cache a run of extents of the index, which are in order of offset."""
        key = segment, run[0].start
        if key in self._runs:
            self._discard(key)
        self._runs[key] = run
        insort(self._starts.setdefault(segment, []), run[0].start)
        self.bytes += sum(map(extent_bytes, run))
        while self.bytes > self.limit and self._runs:
            coverage_probe("extents_evicted")
            self._discard(next(iter(self._runs)))

    def drop(self, segment: int) -> None:
        """Remove all cached runs of a segment."""
        for start in list(self._starts.get(segment, ())):
            self._discard((segment, start))

    def _discard(self, key: tuple[int, int]) -> None:
        self.bytes -= sum(map(extent_bytes, self._runs.pop(key)))
        segment, start = key
        starts = self._starts[segment]
        del starts[bisect_left(starts, start)]
        if not starts:
            del self._starts[segment]


class Extents:
    """The extents of the segments of one container, in its index."""

    def __init__(self, index: Index, commits: Commits, cache_bytes: int) -> None:
        self._index = index
        self._commits = commits
        self.cache = ExtentCache(cache_bytes)

    def __repr__(self) -> str:
        return f"<Extents, {self.cache!r}>"

    async def locate(self, segment: int, offset: int, limit: int) -> list[Extent]:
        """Return the extent that holds an offset; if it is inlined, also the next ones, about `limit` bytes in all.

        Returns none when no extent holds the offset.  Raises Corrupt when the extent's record cannot be read."""
        cached = self.cache.locate(segment, offset)
        if cached is not None:
            return [cached]
        generation = self._commits.generation
        while True:
            found = await self._inlined(segment, offset, limit) or await self._in_chunk(segment, offset)
            # A found extent is valid whenever it was read.  To find none proves nothing if a commit changed the kind of
            # the extent between the two reads.
            if found or self._commits.none_since(generation):
                return found
            coverage_probe("extents_read_during_commit")
            generation = await self._commits.wait_for_none()

    async def next_start(self, segment: int, offset: int) -> tuple[int | None, int]:
        """Return the first known offset at or after `offset` where an append began, None if no extent records one, and
        the end of the last extent that was searched.  Raises Corrupt."""
        at = offset
        while found := await self.locate(segment, at, 1):
            for extent in found:
                start = first_at_or_after(extent.starts, offset - extent.start)
                if start is not None:
                    return extent.start + start, extent.end
                at = extent.end
        return None, at

    async def load_all(self, segment: int) -> list[Extent]:
        """Return all extents of a segment by offset, with their bytes.  Raises Corrupt when one cannot be read."""
        while True:
            generation = await self._commits.wait_for_none()
            extents = [
                *await self._rows(segment, keys.EXTENT, load_chunk_extent),
                *await self._rows(segment, keys.INLINED, load_inlined_extent),
            ]
            if self._commits.none_since(generation):
                return sorted(extents, key=_start)
            coverage_probe("extents_read_during_commit")

    async def readable(self, segment: int, below: int = keys.MAX_OFFSET) -> tuple[list[Extent], dict[bytes, Corrupt]]:
        """Return the extents that begin below an offset and their next neighbours, by offset, inlined ones without
        their bytes; and the errors of the records that are damaged or of another format, by key."""
        out: list[Extent] = []
        unreadable: dict[bytes, Corrupt] = {}
        rows, damaged = await scan_readable(self._index, *keys.offset_range(keys.EXTENT, segment, 0, below))
        beyond = keys.offset_range(keys.EXTENT, segment, below, keys.MAX_OFFSET)
        page, error = await scan_page(self._index, *beyond, _NEIGHBOURS)
        unreadable.update((one.key, one) for one in (*damaged, error) if one is not None)
        for key, value in (*rows, *page):
            try:
                out.append(load_chunk_extent(keys.number_of(key), value))
            except Corrupt as wrong:
                unreadable[key] = wrong
        at, end = keys.offset_range(keys.INLINED, segment, 0, below)
        while sizes := await self._index.scan_sizes(at, end, _RUN_ROWS * 16):
            out.extend(Extent(keys.number_of(key), size) for key, size in sizes)
            at = keys.after(sizes[-1][0])
        out.sort(key=_start)
        return out, unreadable

    async def _inlined(self, segment: int, offset: int, limit: int) -> list[Extent]:
        span = keys.offset_range(keys.INLINED, segment, 0, offset + 1)
        for key, size in await self._index.scan_sizes(*span, 1, reverse=True):
            end = keys.number_of(key) + size
            if offset >= end:
                break
            rows = 1 + min(_RUN_ROWS, max(0, limit - (end - offset)) // size)
            end_of_kind = keys.segment_range(keys.INLINED, segment)[1]
            page, error = await scan_page(self._index, key, end_of_kind, rows)
            # Find nothing if compaction has replaced the extent since its key was read.
            if not page or page[0][0] != key:
                if error is not None:
                    raise error
                break
            return _adjacent(load_inlined_extent(keys.number_of(key), value) for key, value in page)
        return []

    async def _in_chunk(self, segment: int, offset: int) -> list[Extent]:
        span = keys.offset_range(keys.EXTENT, segment, 0, offset + 1)
        for key, _ in await self._index.scan_sizes(*span, 1, reverse=True):
            page, error = await scan_page(
                self._index, key, keys.segment_range(keys.EXTENT, segment)[1], _RUN_ROWS
            )  # fmt: skip
            if not page or page[0][0] != key:
                if error is not None:
                    raise error
                break
            run = [load_chunk_extent(keys.number_of(page[0][0]), page[0][1])]
            for row in page[1:]:
                try:
                    run.append(load_chunk_extent(keys.number_of(row[0]), row[1]))
                except Corrupt:  # a read at this extent raises the error
                    break
            if offset < run[0].end:
                self.cache.put(segment, run)
                return run[:1]
        return []

    async def _rows(self, segment: int, kind: bytes, load: Callable[[int, bytes], Extent]) -> list[Extent]:
        rows, damaged = await scan_readable(self._index, *keys.segment_range(kind, segment))
        for error in damaged:
            raise error
        return [load(keys.number_of(key), value) for key, value in rows]


def _adjacent(extents: Iterable[Extent]) -> list[Extent]:
    """Return the first extents that follow each other without a gap."""
    out: list[Extent] = []
    for extent in extents:
        if out and extent.start != out[-1].end:
            break
        out.append(extent)
    return out
