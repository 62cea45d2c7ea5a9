"""Read what the parts of a process have counted, as samples of the metrics in `metric_table.py`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sarit.store.health import HealthState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.admin.exposition import Sample
    from sarit.log.statistics import LogStatistics
    from sarit.store.server.listener import StoreListener
    from sarit.store.statistics import StoreStatistics
    from sarit.store.store import SegmentStore

_NONE: tuple[str, ...] = ()


def store_samples(store: SegmentStore) -> Iterator[Sample]:
    """What a store has counted, and what its containers hold now."""
    counted = store.statistics
    yield from _writes_and_reads(counted)
    yield "sarit_throttled_seconds_total", _NONE, counted.seconds_throttled(store.env.clock.monotonic())
    budget = store.budget
    yield "sarit_dirty_bytes", _NONE, budget.charged_bytes
    yield "sarit_dirty_limit_bytes", _NONE, budget.max_dirty_bytes
    yield "sarit_cached_bytes", _NONE, budget.cached_bytes
    yield "sarit_cached_limit_bytes", _NONE, budget.cache_bytes
    throttled = 0
    for opened in store.opened():
        container, label = opened.container, (str(opened.container.number),)
        throttled += container.throttled
        flushed = opened.flusher.statistics
        yield "sarit_log_backlog_bytes", label, container.log.backlog_bytes()
        yield "sarit_segments_in_memory", label, len(container.state.segments)
        yield "sarit_chunk_writes_total", label, flushed.chunks
        yield "sarit_chunk_write_bytes_total", label, flushed.chunk_bytes
        yield "sarit_chunk_write_errors_total", label, flushed.storage_errors
        yield "sarit_compaction_backlog", label, opened.flusher.compactor.backlog
    yield "sarit_throttled_appends", _NONE, throttled
    health = store.health()
    by_state = Counter(each.state for each in health)
    for state in HealthState:
        yield "sarit_containers", (state.value,), by_state[state]
    for each in health:
        if each.state is not HealthState.ABSENT:
            yield "sarit_container_serving", (str(each.number),), float(each.state is HealthState.SERVING)


def _writes_and_reads(counted: StoreStatistics) -> Iterator[Sample]:
    yield "sarit_appends_total", _NONE, counted.appends
    yield "sarit_append_events_total", _NONE, counted.append_events
    yield "sarit_append_bytes_total", _NONE, counted.append_bytes
    yield "sarit_append_latency_seconds", _NONE, counted.append_seconds
    yield "sarit_throttled_appends_total", _NONE, counted.throttled_appends
    yield "sarit_group_commit_operations", _NONE, counted.frame_operations
    yield "sarit_group_commit_bytes", _NONE, counted.frame_bytes
    yield "sarit_group_commit_latency_seconds", _NONE, counted.frame_seconds
    yield "sarit_reads_total", _NONE, counted.reads
    yield "sarit_read_bytes_total", _NONE, counted.read_bytes
    yield "sarit_chunk_reads_total", _NONE, counted.reads_from_chunks
    yield "sarit_chunk_read_latency_seconds", _NONE, counted.read_seconds
    yield "sarit_chunk_cache_hits_total", _NONE, counted.cache_block_hits
    yield "sarit_chunk_cache_misses_total", _NONE, counted.cache_block_misses
    yield "sarit_metadata_cache_hits_total", _NONE, counted.metadata_hits
    yield "sarit_metadata_cache_misses_total", _NONE, counted.metadata_misses
    yield "sarit_connections_accepted_total", _NONE, counted.connections_accepted
    yield "sarit_connections_refused_total", _NONE, counted.connections_refused
    yield "sarit_received_bytes_total", _NONE, counted.received_bytes
    yield "sarit_sent_bytes_total", _NONE, counted.sent_bytes
    yield "sarit_checkpoint_seconds", _NONE, counted.checkpoint_seconds
    yield "sarit_compacted_bytes_total", _NONE, counted.compacted_bytes
    yield "sarit_scrubbed_bytes_total", _NONE, counted.scrubbed_bytes
    yield "sarit_damage_found_total", _NONE, counted.damage_found
    yield "sarit_recovery_seconds", _NONE, counted.recovery_seconds
    yield "sarit_recovery_failures_total", _NONE, counted.recovery_failures


def listener_samples(listener: StoreListener) -> Iterator[Sample]:
    """The connections of a store."""
    yield "sarit_connections", _NONE, listener.connections


def log_samples(counted: LogStatistics) -> Iterator[Sample]:
    """What the logs of a process have counted."""
    yield "sarit_log_frames_total", _NONE, counted.frames
    yield "sarit_log_sync_seconds", _NONE, counted.sync_seconds
    yield "sarit_log_group_bytes", _NONE, counted.group_bytes
