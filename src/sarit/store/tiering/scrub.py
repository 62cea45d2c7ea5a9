"""The scrub: reads all chunks of a container again and again, slowly, to find damage while a backup has the bytes.

Theory of operation.  The scrub goes through the extents in the index, a page at a time, and verifies each of them as
`sarit verify` does (`storage/verified_reads.py`).  Its position is in memory only: after a start it begins at a random
segment, so that a node that is often restarted does not always read the same chunks.  After a pass over all extents it
pauses for an interval.  All scrubs of a node share one rate (`ScrubRateLimiter`), far below what would delay clients.
While the memory budget is over its soft limit, flushes need the disk, and the scrub is slower still.

An extent may be replaced while it is verified, and its chunk deleted.  So its record is read again before damage is
reported.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, Moved, Unavailable
from sarit.core.limits import MIB
from sarit.index import keys
from sarit.index.scans import scan_page
from sarit.storage.checksums import DamagedChunk
from sarit.storage.layout import Extent, load_chunk_extent
from sarit.storage.verified_reads import verify_extent
from sarit.store.container.damage_report import note_damage
from sarit.store.container.segment import load_segment
from sarit.store.limits import MAX_NOTED_DAMAGED_CHUNKS, SCRUB_RETRY_SECONDS, SCRUB_START_SECONDS

if TYPE_CHECKING:
    from sarit.env.ports import Clock
    from sarit.store.container.container import Container

_log = logging.getLogger("sarit.store")

_PAGE_ROWS: Final = 64


class ScrubRateLimiter:
    """The rate of all scrubs of a node, in bytes per second; 0 switches them off."""

    def __init__(self, clock: Clock, bytes_per_second: int) -> None:
        self._clock = clock
        self.bytes_per_second = bytes_per_second
        self._free_at = clock.monotonic()
        self._enabled = asyncio.Event()
        self.change(bytes_per_second)

    def change(self, bytes_per_second: int) -> None:
        """Change the rate from the next read on."""
        self.bytes_per_second = bytes_per_second
        if bytes_per_second:
            self._enabled.set()
        else:
            self._enabled.clear()

    async def enabled(self) -> None:
        """Wait until the rate is above 0."""
        await self._enabled.wait()

    async def __call__(self, size: int) -> None:
        """Wait until `size` bytes may be read."""
        await self.enabled()
        now = self._clock.monotonic()
        # Queue the reads: each takes the time of its bytes, from the end of the one before.
        begin = max(now, self._free_at)
        self._free_at = begin + size / self.bytes_per_second
        await asyncio.sleep(self._free_at - now)


class Scrub:
    """The scrub of one container, with counters since it was opened; `container.damage` counts damaged chunks."""

    def __init__(self, container: Container, limiter: ScrubRateLimiter, interval_seconds: float) -> None:
        self._container = container
        self._rate_limiter = limiter
        self._interval_seconds = interval_seconds
        self._damaged_records: set[bytes] = set()
        self.passes = 0
        self.chunk_bytes = 0

    def __repr__(self) -> str:
        return f"<Scrub of {self._container!r}: {self.chunk_bytes} bytes in {self.passes} passes>"

    async def run(self) -> None:
        """Scrub until it is cancelled, in passes; wait while the rate is 0."""
        try:
            await self._rate_limiter.enabled()
            # Wait at first, since a node that recovers has more urgent reads.
            await asyncio.sleep(min(SCRUB_START_SECONDS, self._interval_seconds))
            low, high = keys.kind_range(keys.EXTENT)
            begin = self._anywhere()
            await self._pass(begin, high)
            await self._pass(low, begin)
            while True:
                self.passes += 1
                await asyncio.sleep(self._interval_seconds)
                await self._pass(low, high)
        except Exception:  # a bug: the container serves on
            _log.critical("container %d: the scrub ended: internal error", self._container.number, exc_info=True)

    def _anywhere(self) -> bytes:
        number = int(self._container.env.random.random() * self._container.state.next_segment_id)
        return keys.segment_range(keys.EXTENT, number)[0]

    async def _pass(self, at: bytes, end: bytes) -> None:
        clock, began, before = self._container.env.clock, self._container.env.clock.monotonic(), self.chunk_bytes
        while at < end:
            try:
                rows, damaged = await scan_page(self._container.index, at, end, _PAGE_ROWS)
            except Unavailable:
                await asyncio.sleep(SCRUB_RETRY_SECONDS)
                continue
            for key, value in rows:
                await self._examine(key, value)
            if damaged is not None:
                self._report_record(damaged.key, damaged)
                at = damaged.resume
            elif len(rows) < _PAGE_ROWS:
                break
            else:
                at = keys.after(rows[-1][0])
        coverage_probe("scrubbed")
        if self.chunk_bytes > before:
            _log.info(
                "container %d: scrubbed %d MiB of chunks in %.0f s; %d damaged chunks are known",
                self._container.number, (self.chunk_bytes - before) // MIB, clock.monotonic() - began,
                len(self._container.damage.chunks),
            )  # fmt: skip

    async def _examine(self, key: bytes, value: bytes) -> None:
        segment, start = keys.parse_extent_key(key)
        try:
            extent = load_chunk_extent(start, value)
        except Corrupt as error:  # the record is of another format
            self._report_record(key, error)
            return
        while True:
            try:
                size = await verify_extent(self._container.storage, extent, self._wait)
                self.chunk_bytes += size
                self._container.statistics.scrubbed_bytes += size
                return
            except DamagedChunk as error:
                if await self._is_stored(key, value):
                    await self._report(segment, extent, error)
                return
            except Unavailable:
                # Retry while long-term storage is unavailable, which the flusher reports.
                await asyncio.sleep(SCRUB_RETRY_SECONDS)
                if not await self._is_stored(key, value):
                    return

    async def _wait(self, size: int) -> None:
        if self._container.budget.over_soft_limit:
            await asyncio.sleep(SCRUB_RETRY_SECONDS)  # before each piece, so that the scrub slows down without a stop
        await self._rate_limiter(size)

    async def _is_stored(self, key: bytes, value: bytes) -> bool:
        try:
            return await self._container.index.get([key]) == [value]
        except (Unavailable, Corrupt):
            return False  # the next pass tries again

    async def _report(self, segment: int, extent: Extent, error: DamagedChunk) -> None:
        name = f"number {segment}"
        try:
            (row,) = await self._container.index.get([keys.segment_key(segment)])
            if row is not None:
                name = load_segment(segment, row).name
        except (Unavailable, Corrupt):
            pass  # report the segment's number instead of its name
        offset = extent.start + max(0, error.offset - extent.object_offset)
        with suppress(Unavailable, Moved):  # another store owns the container by now
            await note_damage(self._container, name, offset, error)

    def _report_record(self, key: bytes, error: Corrupt) -> None:
        if key not in self._damaged_records and len(self._damaged_records) < MAX_NOTED_DAMAGED_CHUNKS:
            self._damaged_records.add(key)
            self._container.statistics.damage_found += 1
            _log.error("container %d: an extent cannot be read: %s", self._container.number, error)
