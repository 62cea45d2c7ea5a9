"""What must stay bounded while a node runs, looked at many times a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sarit.store.store import SegmentStore
    from simulation.cluster import Cluster

_LOOK_SECONDS: Final = 0.02
# Blocks of the Python client, and what a merge brings that was flushed before, are not in the workload's own hands.
_LARGEST_BLOCK_BYTES: Final = 256 * 1024


class Bounds:
    """Un-flushed and cached bytes of the node.

    A node that recovers holds again what had reached long-term storage and was not committed: beyond the bound, it may
    hold what it began with, and no more."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._begun: dict[int, tuple[object, int]] = {}
        options = cluster.options
        others = options.stream_writers or options.transaction_writers
        block = options.block_events * (options.event_bytes + 64)
        self._slack = _LARGEST_BLOCK_BYTES if others else max(block, 4096)
        self.highest = 0

    def __repr__(self) -> str:
        return f"<Bounds, highest {self.highest} of {self._cluster.options.max_unflushed_bytes} bytes>"

    async def watch(self) -> None:
        """Until cancelled, or the first violation."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            node = self._cluster.node
            if node is not None and (wrong := self._look(node.store)):
                self._cluster.failures.append(f"bound: {wrong}")
                return

    def _look(self, store: SegmentStore) -> str:
        budget = store.budget
        for opened in store.opened():
            container = opened.container
            if self._begun.get(container.number, (None, 0))[0] is not container:
                self._begun[container.number] = (container, container.state.unflushed_bytes)
        begun = sum(count for _, count in self._begun.values())
        allowed = max(budget.max_unflushed_bytes, begun) + self._slack
        self.highest = max(self.highest, budget.unflushed_bytes)
        if budget.unflushed_bytes > allowed:
            return f"{budget.unflushed_bytes} bytes are not flushed, {allowed} are allowed"
        if budget.cached_bytes > budget.cache_bytes:
            return f"{budget.cached_bytes} bytes are cached, {budget.cache_bytes} are allowed"
        return ""
