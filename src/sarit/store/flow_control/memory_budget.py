"""What all containers of a node share: un-flushed bytes, the cache of flushed bytes, free disk.

Un-flushed bytes are always in memory.  When what memory holds for them reaches its bound (long-term
storage is slow or away) appends wait, and so their acknowledgements do: writers are slowed, never
refused, and nothing is lost.  The same happens while the disk has less room than its
reserve, which belongs to the controller's tables, seals, truncations, deletions and the
index.  Other changes wait somewhat later than appends (`held_back.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.store.container.dirty_bytes import BLOCK_OVERHEAD_BYTES

if TYPE_CHECKING:
    from sarit.store.container.dirty_bytes import DirtyBytes
    from sarit.store.container.segment import Block, Segment


class CachedRun:
    """Adjacent flushed blocks of one segment, kept in memory until evicted."""

    __slots__ = ("blocks", "bytes", "segment")

    def __init__(self, segment: Segment, blocks: list[Block]) -> None:
        self.segment = segment
        self.blocks = blocks
        self.bytes = sum(block.length for block in blocks) + len(blocks) * BLOCK_OVERHEAD_BYTES


class MemoryBudget:
    """Bounds of one node."""

    def __init__(self, max_dirty_bytes: int, cache_bytes: int) -> None:
        self.max_dirty_bytes = max_dirty_bytes
        self.cache_bytes = cache_bytes
        self.cached_bytes = 0
        self.disk_full = False
        # What memory holds for un-flushed bytes, over all containers, as they told it.
        self.charged_bytes = 0
        self._held: dict[int, int] = {}
        self._counts: dict[int, DirtyBytes] = {}
        self._runs: deque[CachedRun] = deque()

    def __repr__(self) -> str:
        return f"<Budget held {self.charged_bytes} of {self.max_dirty_bytes}, cached {self.cached_bytes}>"

    @property
    def dirty_bytes(self) -> int:
        """Bytes of appends that stand in memory and log alone, over all containers."""
        return sum(counts.dirty_bytes for counts in self._counts.values())

    def may_cache_written(self, charged_bytes: int) -> bool:
        """Whether bytes that stand in a chunk may stay in memory until their checkpoint is committed.

        As many as the cache may hold, which they go to then: a checkpoint of a thousand segments takes seconds."""
        written = sum(counts.written_bytes for counts in self._counts.values())
        return written + charged_bytes <= self.cache_bytes

    @property
    def over_soft_limit(self) -> bool:
        """Whether memory runs short, before appends must wait: flushes do not wait, and what can be done later does."""
        return self.charged_bytes * 2 >= self.max_dirty_bytes

    @property
    def over_append_limit(self) -> bool:
        """Whether appends must wait."""
        return self.disk_full or self.charged_bytes >= self.max_dirty_bytes

    @property
    def over_control_limit(self) -> bool:
        """Whether changes that are no appends must wait, too: they may use a quarter more."""
        return self.charged_bytes >= self.max_dirty_bytes + self.max_dirty_bytes // 4

    def report(self, container: int, unflushed: DirtyBytes) -> None:
        """A container tells what it holds."""
        held = unflushed.charged_bytes
        self.charged_bytes += held - self._held.get(container, 0)
        self._held[container] = held
        self._counts[container] = unflushed

    def forget(self, container: int) -> None:
        """A container ended: it holds nothing."""
        self.charged_bytes -= self._held.pop(container, 0)
        self._counts.pop(container, None)

    def keep(self, segment: Segment, blocks: list[Block]) -> None:
        """Cache blocks that have just been flushed; evict the oldest beyond the bound."""
        adjacent: list[Block] = []
        for block in blocks:
            if block.parts is None or block.released or (adjacent and adjacent[-1].end != block.offset):
                self._keep_run(segment, adjacent)
                adjacent = []
            if block.parts is not None and not block.released:
                adjacent.append(block)
        self._keep_run(segment, adjacent)
        while self.cached_bytes > self.cache_bytes and self._runs:
            self._evict(self._runs.popleft())

    def _keep_run(self, segment: Segment, blocks: list[Block]) -> None:
        if not blocks:
            return
        run = CachedRun(segment, blocks)
        segment.cached.append(run.blocks)
        self._runs.append(run)
        self.cached_bytes += run.bytes

    def drop(self, container_segments: set[int]) -> None:
        """Forget runs of segment objects (by `id()`) that have left memory."""
        kept: deque[CachedRun] = deque()
        for run in self._runs:
            if id(run.segment) in container_segments:
                self.cached_bytes -= run.bytes
            else:
                kept.append(run)
        self._runs = kept

    def _evict(self, run: CachedRun) -> None:
        coverage_probe("cache_evicted")
        self.cached_bytes -= run.bytes
        cached = run.segment.cached
        for at, blocks in enumerate(cached):
            if blocks is run.blocks:
                del cached[at]
                break
