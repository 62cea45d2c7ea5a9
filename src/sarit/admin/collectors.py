"""Read what the parts of a process have counted, as samples of the metrics in `metric_table.py`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sarit.store.hosting.health import HealthState
from sarit.store.limits import MAX_METRIC_SCOPES
from sarit.store.metering.stream_rates import OTHERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.admin.exposition import Sample
    from sarit.controller.assembly import Controller
    from sarit.index.statistics import IndexStatistics
    from sarit.log.statistics import LogStatistics
    from sarit.rpc.grpc_server import GrpcListener
    from sarit.storage.metered_storage import StorageStatistics
    from sarit.store.metering.load_meters import LoadMeters
    from sarit.store.metering.tenant_quotas import TenantQuotas
    from sarit.store.server.listener import StoreListener
    from sarit.store.statistics import StoreStatistics
    from sarit.store.store import SegmentStore

_NONE: tuple[str, ...] = ()


def store_samples(store: SegmentStore) -> Iterator[Sample]:
    """Return samples of what a store has counted, and of what its containers hold now."""
    counted = store.statistics
    counted.complete_samples()  # otherwise those of before this scrape are counted by the next one
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
    for name, space in store.disks().items():
        if space.free is not None:
            yield "sarit_disk_free_bytes", (name,), space.free
            yield "sarit_disk_reserve_bytes", (name,), space.reserve
            yield "sarit_disk_full", (name,), space.full
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
    yield "sarit_backups_failed_total", _NONE, counted.backups_failed
    yield "sarit_backup_last_complete_timestamp_seconds", _NONE, counted.backup_completed_ms / 1000
    yield "sarit_backup_last_failure_timestamp_seconds", _NONE, counted.backup_failed_ms / 1000


def quota_samples(quotas: TenantQuotas) -> Iterator[Sample]:
    """Scopes with a quota of bytes, those that waited longest, and what all others did together."""
    found = sorted(quotas.scopes_charged(), key=lambda each: each[3], reverse=True)
    shown = list(dict.fromkeys(scope for scope, *_ in found))[:MAX_METRIC_SCOPES]
    totals = {(OTHERS, direction): (0, 0.0) for direction in ("in", "out")}
    for scope, direction, size, seconds in found:
        key = scope if scope in shown else OTHERS, direction
        before = totals.get(key, (0, 0.0))
        totals[key] = before[0] + size, before[1] + seconds
    for labels, (size, seconds) in totals.items():
        yield "sarit_quota_bytes_total", labels, size
        yield "sarit_quota_throttled_seconds_total", labels, seconds
    yield "sarit_quota_full_scopes", _NONE, quotas.full_scopes
    yield "sarit_quota_connections_refused_total", _NONE, quotas.connections_refused


def listener_samples(listener: StoreListener) -> Iterator[Sample]:
    """Yield how many connections a store has."""
    yield "sarit_connections", _NONE, listener.connections


def storage_samples(counted: StorageStatistics) -> Iterator[Sample]:
    """Yield samples of the requests to long-term storage."""
    for kind, counts in counted.kinds.items():
        yield "sarit_storage_request_seconds", (kind,), counts.seconds
        yield "sarit_storage_errors_total", (kind,), counts.errors
        if kind in ("write", "read"):
            yield "sarit_storage_bytes_total", (kind,), counts.bytes


def index_samples(counted: IndexStatistics) -> Iterator[Sample]:
    """Yield samples of the requests that the indexes send to an object store: none for indexes that are files."""
    for kind, count in counted.requests().items():
        yield "sarit_index_requests_total", (kind,), count


def rate_samples(meters: LoadMeters) -> Iterator[Sample]:
    """Yield the append rates of the busiest streams and scopes, and those of all others together."""
    for label, busiest in (("stream", meters.busiest_streams), ("scope", meters.busiest_scopes)):
        for name, (events, size) in (*busiest.rates(), (OTHERS, busiest.others)):
            yield f"sarit_{label}_append_events_per_second", (name,), events
            yield f"sarit_{label}_append_bytes_per_second", (name,), size


def log_samples(counted: LogStatistics) -> Iterator[Sample]:
    """Return samples of what the logs of a process have counted."""
    yield "sarit_log_frames_total", _NONE, counted.frames
    bookies = counted.bookies()
    if bookies is None:
        yield "sarit_log_sync_seconds", _NONE, counted.sync_seconds
        yield "sarit_log_group_bytes", _NONE, counted.group_bytes
        return
    yield "sarit_bookkeeper_entries_total", _NONE, counted.entries
    yield "sarit_bookkeeper_entry_bytes_total", _NONE, counted.entry_bytes
    yield "sarit_bookkeeper_entry_latency_seconds", _NONE, counted.entry_seconds
    yield "sarit_bookkeeper_ledgers_total", _NONE, counted.ledgers
    yield "sarit_bookkeeper_ledgers_recovered_total", _NONE, counted.ledgers_recovered
    yield "sarit_bookkeeper_bookies_replaced_total", _NONE, counted.bookies_replaced
    yield "sarit_bookkeeper_writable_bookies", _NONE, bookies.writable


def controller_samples(controller: Controller) -> Iterator[Sample]:
    """Return samples of what a controller has counted."""
    calls, counted = controller.calls, controller.statistics
    for labels, count in calls.calls.items():
        yield "sarit_controller_calls_total", labels, count
    for method, seconds in calls.seconds.items():
        yield "sarit_controller_call_seconds", (method,), seconds
    yield "sarit_scales_total", ("call",), counted.scales_by_call
    yield "sarit_scales_total", ("rate",), counted.scales_by_rate
    yield "sarit_scaling_requests_total", _NONE, counted.scaling_requests
    yield "sarit_pending_work", _NONE, counted.pending_work
    yield "sarit_recovery_sweeps_total", _NONE, counted.sweeps
    yield "sarit_background_rounds_postponed_total", _NONE, counted.rounds_postponed
    yield "sarit_transactions_begun_total", _NONE, counted.transactions_begun
    yield "sarit_transactions_committed_total", _NONE, counted.transactions_committed
    yield "sarit_transactions_aborted_total", _NONE, counted.transactions_aborted
    yield "sarit_transactions_expired_total", _NONE, counted.transactions_expired
    yield "sarit_transactions_live", _NONE, counted.pending_transactions


def api_samples(listener: GrpcListener) -> Iterator[Sample]:
    """Yield how many connections a controller has."""
    yield "sarit_controller_connections", _NONE, listener.connections
