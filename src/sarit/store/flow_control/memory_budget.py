"""The memory budget that all containers of a node share: dirty bytes, cached bytes, and whether the disk is full.

Dirty bytes are always in memory.  There are three limits, in this order:

| limit | above it |
|---|---|
| soft, half of `max_dirty_bytes` | flushes are not rate limited; compaction is postponed |
| append, `max_dirty_bytes` | appends are throttled: their acknowledgements wait, so writers slow down |
| control, a quarter more | control operations wait, except those that free memory (`control_limit.py`) |

Nothing is refused and nothing is lost while long-term storage is slow or unavailable.  A disk with less free space
than its reserve also throttles appends: the reserve is for seals, truncations, deletions, the controller's tables and
the index.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from sarit.core.coverage_probes import coverage_probe
from sarit.store.limits import BLOCK_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class DirtyBytes:
    """The dirty bytes of one container: its charge on the memory budget.

    Appends have two counts.  `append_bytes` is their payload, which triggers the flusher.  `charged_bytes` includes the
    memory that their blocks take besides, which throttles appends: a block of few bytes costs many times as much as its
    payload.  All other operations count by their encoded size plus the overhead of one block for each entry, from when
    they are accepted until a checkpoint that covers them is committed."""

    __slots__ = (
        "_applied_operation_bytes",
        "append_blocks",
        "append_bytes",
        "charged_bytes",
        "operation_bytes",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.append_bytes = 0
        self.append_blocks = 0
        # The memory of blocks that are in chunks already, until the checkpoint of their segment is committed.
        self.written_bytes = 0
        self.operation_bytes = 0
        # The container's whole charge on the memory budget: a counter, since it is read twice for each append.
        self.charged_bytes = 0
        # The part of `operation_bytes` that is applied, which a checkpoint that begins now covers.
        self._applied_operation_bytes = 0

    def __repr__(self) -> str:
        return f"<DirtyBytes of {self.append_blocks} blocks: {self.append_bytes}, operations: {self.operation_bytes}>"

    def add_block(self, length: int) -> None:
        """Charge a block of accepted bytes that no chunk holds; an append of 0 bytes makes no block."""
        if length:
            self.append_bytes += length
            self.append_blocks += 1
            self.charged_bytes += length + BLOCK_OVERHEAD_BYTES

    def remove_blocks(self, blocks: int, length: int) -> None:
        """Remove the charge of blocks that are in a chunk or in the index, or will not be read again.

        `length`: the bytes of all of them."""
        self.append_bytes -= length
        self.append_blocks -= blocks
        self.charged_bytes -= length + blocks * BLOCK_OVERHEAD_BYTES
        assert self.append_bytes >= 0, self  # each block is added once and removed once

    def add_operation(self, charged_bytes: int) -> None:
        """Charge an accepted operation other than an append."""
        self.operation_bytes += charged_bytes
        self.charged_bytes += charged_bytes

    def operations_applied(self, charged_bytes: int) -> None:
        """Record that operations charged with `charged_bytes` are applied, so that the next checkpoint covers them."""
        self._applied_operation_bytes += charged_bytes

    def check(self) -> None:
        """Assert that the charge is the sum of its parts."""
        blocks = self.append_bytes + self.append_blocks * BLOCK_OVERHEAD_BYTES
        assert self.charged_bytes == blocks + self.operation_bytes, self

    def begin_checkpoint(self) -> int:
        """Return the operation bytes that this checkpoint covers; pass them to `end_checkpoint`."""
        covered, self._applied_operation_bytes = self._applied_operation_bytes, 0
        return covered

    def end_checkpoint(self, covered: int) -> None:
        """Remove the charge `covered` by a checkpoint that is committed."""
        assert 0 <= covered <= self.operation_bytes, (covered, self)
        self.check()
        self.operation_bytes -= covered
        self.charged_bytes -= covered
        # The cache counts the written blocks from here on; `Flusher._after_commit` adds those of the next checkpoint.
        self.written_bytes = 0


class CacheEntry(Protocol):
    """A cached run of flushed bytes of one segment."""

    @property
    def segment(self) -> object:
        """The segment of the bytes."""

    @property
    def bytes(self) -> int:
        """The memory held for the bytes."""

    def evict(self) -> None:
        """Remove the bytes from memory."""


def _ignore() -> None:
    """Do nothing: the default of the callbacks of `MemoryBudget`."""


class MemoryBudget:
    """The memory limits of one node, and the dirty and cached bytes of all its containers."""

    def __init__(
        self, max_dirty_bytes: int, cache_bytes: int,
        on_over_append_limit: Callable[[], None] = _ignore, on_below_append_limit: Callable[[], None] = _ignore,
    ) -> None:  # fmt: skip
        """`on_over_append_limit`, `on_below_append_limit`: called each time the node crosses that limit."""
        self.max_dirty_bytes = max_dirty_bytes
        self.cache_bytes = cache_bytes
        self.cached_bytes = 0
        # Whether appends must wait: an attribute that `_changed` sets, since it is read before each append.
        self.over_append_limit = False
        self._disk_full = False
        self._on_over_append_limit = on_over_append_limit
        self._on_below_append_limit = on_below_append_limit
        # The callbacks to call once each, in order.  Dicts are ordered sets: a callback added twice is called once.
        self._below_append_limit: dict[Callable[[], None], None] = {}
        self._below_control_limit: dict[Callable[[], None], None] = {}
        # The sum of the charges that the containers last reported.
        self.charged_bytes = 0
        self._charged: dict[int, int] = {}
        self._users: dict[int, DirtyBytes] = {}
        self._cache: deque[CacheEntry] = deque()

    def __repr__(self) -> str:
        return f"<MemoryBudget {self.charged_bytes} of {self.max_dirty_bytes} bytes, {self.cached_bytes} cached>"

    @property
    def dirty_bytes(self) -> int:
        """The bytes of appends of all containers that are only in memory and in the log."""
        return sum(user.append_bytes for user in self._users.values())

    def may_cache_written(self, charged_bytes: int) -> bool:
        """Return whether bytes that are in a chunk may stay in memory until their checkpoint is committed.

        They go to the cache then, so they may take as much: a checkpoint of a thousand segments takes seconds."""
        written = sum(user.written_bytes for user in self._users.values())
        return written + charged_bytes <= self.cache_bytes

    @property
    def over_soft_limit(self) -> bool:
        """Whether flushes are not rate limited and compaction is postponed, before appends must be throttled."""
        return self.charged_bytes * 2 >= self.max_dirty_bytes

    @property
    def over_control_limit(self) -> bool:
        """Whether control operations must wait, as appends do already."""
        return self.charged_bytes >= self.max_dirty_bytes + self.max_dirty_bytes // 4

    @property
    def disk_full(self) -> bool:
        """Whether the disk has less free space than its reserve, so that appends wait."""
        return self._disk_full

    @disk_full.setter
    def disk_full(self, full: bool) -> None:
        self._disk_full = full
        self._changed(fell=not full)

    def notify_below_append_limit(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, at the next release of memory that leaves the node below its append limit.

        The call comes from inside an operation: the callback may schedule a task, but must not append or report."""
        self._below_append_limit[callback] = None

    def notify_below_control_limit(self, callback: Callable[[], None]) -> None:
        """Call `callback` as `notify_below_append_limit` does, but for the control limit."""
        self._below_control_limit[callback] = None

    def report(self, container: int, user: DirtyBytes) -> None:
        """Record that the charge of a container has changed."""
        charged = user.charged_bytes
        change = charged - self._charged.get(container, 0)
        self._charged[container] = charged
        self._users[container] = user
        self.charged_bytes = total = self.charged_bytes + change
        # Skip `_changed` if the charge has not fallen and no limit is crossed, as for nearly every append.
        if change < 0 or self.over_append_limit is not (total >= self.max_dirty_bytes or self._disk_full):
            self._changed(fell=change < 0)

    def forget(self, container: int) -> None:
        """Remove the charge of a container that ended."""
        self.charged_bytes -= self._charged.pop(container, 0)
        self._users.pop(container, None)
        self._changed(fell=True)

    def _changed(self, *, fell: bool) -> None:
        was_over = self.over_append_limit
        self.over_append_limit = self._disk_full or self.charged_bytes >= self.max_dirty_bytes
        if self.over_append_limit and not was_over:
            self._on_over_append_limit()
        if was_over and not self.over_append_limit:
            self._on_below_append_limit()
        # Notify waiters of each release that ends below the limit, not only of the crossing, so that a caller that
        # began to wait between two reports is notified.
        if fell and not self.over_append_limit:
            # Replace the dict before the calls: a callback may ask to be notified again.
            waiting, self._below_append_limit = self._below_append_limit, {}
            for callback in waiting:
                callback()
        if fell and not self.over_control_limit:
            waiting, self._below_control_limit = self._below_control_limit, {}
            for callback in waiting:
                callback()

    def cache(self, entries: Iterable[CacheEntry]) -> None:
        """Count bytes that have just been flushed and cached; evict the oldest beyond `cache_bytes`."""
        for entry in entries:
            self._cache.append(entry)
            self.cached_bytes += entry.bytes
        # Evict in the order of insertion: a read does not move a run to the end.
        while self.cached_bytes > self.cache_bytes and self._cache:
            oldest = self._cache.popleft()
            coverage_probe("cache_evicted")
            self.cached_bytes -= oldest.bytes
            oldest.evict()

    def forget_cached(self, segments: set[int]) -> None:
        """Remove the cached bytes of segment objects, given by `id()`, that were evicted from memory."""
        retained: deque[CacheEntry] = deque()
        # An id is still unique, since the cache entries refer to the segment objects.
        for entry in self._cache:
            if id(entry.segment) in segments:
                self.cached_bytes -= entry.bytes
            else:
                retained.append(entry)
        self._cache = retained
