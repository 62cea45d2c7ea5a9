"""Memory bounds of the running node, checked many times a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.store.limits import BLOCK_OVERHEAD_BYTES

if TYPE_CHECKING:
    from sarit.store.hosting.container_opening import Opened
    from sarit.store.store import SegmentStore
    from simulation.cluster import Cluster
    from simulation.options import Options

_POLL_SECONDS: Final = 0.05
# The most that the Python client sends in one block, transactions included.
_CLIENT_BYTES: Final = 128 * 1024
# The most that merges bring into memory at once from inlined extents of the index.
_MERGED_BYTES: Final = 128 * 1024
# Segments that requests of the actors use at the same time in one container, but for the timeline's.
_IDLE_SEGMENTS: Final = 8
# The most active segments of the stream that reader groups, event time, retention or a byte stream have.
_SCALED_SEGMENTS: Final = 4
# The scales by hand of the stream of the Python client; each adds one segment at most.
_SCALES: Final = 4


class Bounds:
    """Checks dirty bytes, cached bytes and metadata of the node.

    A container that recovers holds again what had reached long-term storage but was not committed, while others have
    used the memory it had left.  So the node may exceed the bound by what its containers recovered with, not by
    more."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._begun: dict[int, tuple[object, int]] = {}
        options = cluster.options
        self._slack = max(4096, options.block_events * (options.event_bytes + 64)) + BLOCK_OVERHEAD_BYTES
        by_client = (
            options.stream_writers, options.retention, options.event_time_writers, options.byte_streams,
            options.group_readers, options.recreations, options.table_jobs, options.searched,
        )  # fmt: skip
        self._slack += _CLIENT_BYTES * sum(map(bool, by_client))
        self._slack += _MERGED_BYTES if options.transaction_writers else 0
        self._idle_segments = _most_idle_segments(options)
        self.highest = 0

    def __repr__(self) -> str:
        return f"<Bounds, highest {self.highest} of {self._cluster.options.max_dirty_bytes} bytes>"

    async def watch(self) -> None:
        """Until cancelled, or the first violation."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            node = self._cluster.node
            if node is not None and (wrong := self._violation(node.store)):
                self._cluster.failures.append(f"bound: {wrong}")
                return

    def _violation(self, store: SegmentStore) -> str:
        budget = store.budget
        serving = store.opened()
        if len(serving) < self._cluster.options.containers:
            return ""  # a recovering container charges its bytes already, but reports them only when it serves
        for opened in serving:
            container = opened.container
            if self._begun.get(container.number, (None, 0))[0] is not container:
                state = container.state
                self._begun[container.number] = (container, state.dirty.charged_bytes - state.dirty.operation_bytes)
        begun = sum(count for _, count in self._begun.values())
        allowed = budget.max_dirty_bytes + begun + self._slack
        # Operations of the controller have no bound of their own.
        held = budget.charged_bytes - sum(opened.container.state.dirty.operation_bytes for opened in serving)
        self.highest = max(self.highest, held)
        if held > allowed:
            return f"{held} dirty bytes are charged, {allowed} are allowed"
        if budget.cached_bytes > budget.cache_bytes:
            return f"{budget.cached_bytes} bytes are cached, {budget.cache_bytes} are allowed"
        written = sum(opened.container.state.dirty.written_bytes for opened in serving)
        if written > budget.cache_bytes:
            return f"{written} written bytes are still in memory, {budget.cache_bytes} are allowed"
        return next(filter(None, (_metadata_violation(opened, self._idle_segments) for opened in serving)), "")


def _most_idle_segments(options: Options) -> int:
    """How many idle segments may be in memory above the bound.

    Every load of a segment evicts idle ones before it adds its own.  So those that are idle above the bound were in
    use at the last load: as many as requests have in use at once.  The timeline of cuts reads the lengths of all
    active segments of up to 16 streams at the same time.  All of them may be in one container."""
    of_the_client = (options.segments + _SCALES) * (2 if options.scaling_rate else 1) if options.stream_writers else 0
    others = (
        options.event_time_writers,
        options.retention,
        options.byte_streams,
        options.group_readers,
        options.recreations,
    )
    return _IDLE_SEGMENTS + of_the_client + _SCALED_SEGMENTS * sum(map(bool, others))


def _metadata_violation(opened: Opened, most_idle: int) -> str:
    metadata = opened.container.metadata
    if metadata.extents.cache.bytes > metadata.extents.cache.limit:
        return f"{metadata.extents.cache!r}"
    # Those in use stay; an idle one stays until the next is loaded or a checkpoint ends.
    idle = sum(segment.idle for segment in opened.container.state.segments.values())
    if idle > most_idle and metadata.segment_bytes > metadata.max_segment_bytes:
        return f"{metadata.segment_bytes} bytes of segments, {metadata.max_segment_bytes} are allowed; {idle} are idle"
    return ""
