"""All metrics of Sarit, each declared once: what docs/operations/metrics.md says of them is checked against this table.

Names follow Prometheus' rules: a unit last, `_total` for counters.  A counter begins at 0 with the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """The kind of a metric, which says what may be computed from it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.  `unit`: seconds, bytes, or empty for a number of things."""

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()


def _counter(name: str, help_text: str, *labels: str) -> Metric:
    unit = next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}_total")), "")
    return Metric(name, Kind.COUNTER, unit, help_text, labels)


def _gauge(name: str, help_text: str, *labels: str) -> Metric:
    unit = next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")
    return Metric(name, Kind.GAUGE, unit, help_text, labels)


def _histogram(name: str, help_text: str, *labels: str) -> Metric:
    unit = next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")
    return Metric(name, Kind.HISTOGRAM, unit, help_text, labels)


_OF_QUOTAS: Final = ("scope", "direction")

# By what they are about.
SECTIONS: Final = {
    "Writes": (
        _counter("sarit_appends_total", "Appends that became durable: the blocks of events that clients send at once"),
        _counter("sarit_append_events_total", "Events in these appends"),
        _counter("sarit_append_bytes_total", "Bytes of events in these appends"),
        _histogram(
            "sarit_append_latency_seconds",
            "From the read of the connection that completed an append to its acknowledgement; of one append in a "
            "millisecond at most, and those beside it count with its latency, up to the moment of the scrape",
        ),
        _counter("sarit_throttled_appends_total", "Appends that had to wait because memory or disk was at its bound"),
        _counter("sarit_throttled_seconds_total", "Time during which appends had to wait"),
        _gauge("sarit_throttled_appends", "Appends that wait now"),
        _histogram(
            "sarit_group_commit_operations",
            "Operations that became durable together, in a frame; of one frame in a millisecond at most, and those "
            "beside it count like it, up to the moment of the scrape",
        ),
        _histogram("sarit_group_commit_bytes", "Size of a frame, of the same ones"),
        _histogram(
            "sarit_group_commit_latency_seconds",
            "From the first operation of a frame until it is durable, of the same ones",
        ),
    ),
    "The durable log": (
        _counter("sarit_log_frames_total", "Frames that became durable"),
        _histogram("sarit_log_sync_seconds", "One write of the log with its sync, local logs only"),
        _histogram("sarit_log_group_bytes", "Bytes of one write of the log, local logs only"),
        _gauge("sarit_log_backlog_bytes", "Log that a recovery would read", "container"),
    ),
    "Reads": (
        _counter("sarit_reads_total", "Reads answered with bytes, or at the end of a segment"),
        _counter("sarit_read_bytes_total", "Bytes in the answers of reads"),
        _counter("sarit_chunk_reads_total", "Reads that were answered from chunks, not from memory"),
        _histogram("sarit_chunk_read_latency_seconds", "A read from chunks, with the wait for its rate"),
        _counter("sarit_chunk_cache_hits_total", "Blocks of chunks found in memory"),
        _counter("sarit_chunk_cache_misses_total", "Blocks of chunks that had to be read"),
        _counter("sarit_metadata_cache_hits_total", "Segments whose metadata was found in memory"),
        _counter("sarit_metadata_cache_misses_total", "Segments whose metadata had to be read from the index"),
    ),
    "Memory": (
        _gauge("sarit_dirty_bytes", "Memory of what no chunk holds yet; appends wait above sarit_dirty_limit_bytes"),
        _gauge("sarit_dirty_limit_bytes", "Bound of sarit_dirty_bytes"),
        _gauge("sarit_cached_bytes", "Bytes of flushed events that are still in memory"),
        _gauge("sarit_cached_limit_bytes", "Bound of sarit_cached_bytes"),
        _gauge("sarit_segments_in_memory", "Segments whose metadata is in memory", "container"),
    ),
    "Connections": (
        _gauge("sarit_connections", "Open connections of the wire protocol"),
        _counter("sarit_connections_accepted_total", "Connections of the wire protocol that were accepted"),
        _counter("sarit_connections_refused_total", "Connections that were closed at once, because too many are open"),
        _counter("sarit_received_bytes_total", "Bytes received from clients of the wire protocol"),
        _counter("sarit_sent_bytes_total", "Bytes sent to clients of the wire protocol"),
    ),
    "Quotas": (
        _counter("sarit_quota_bytes_total", "Bytes of scopes with a quota; 20 scopes, and (others)", *_OF_QUOTAS),
        _counter("sarit_quota_throttled_seconds_total", "Time that their connections waited", *_OF_QUOTAS),
        _gauge("sarit_quota_full_scopes", "Scopes whose appends wait: their quota is used up, or a link's hold"),
        _counter("sarit_quota_connections_refused_total", "Connections beyond the quota of their user"),
    ),
    "Tier 2": (
        _histogram("sarit_checkpoint_seconds", "A checkpoint of a container: chunks, index, truncation of the log"),
        _counter("sarit_chunk_writes_total", "Objects that checkpoints wrote to long-term storage", "container"),
        _counter("sarit_chunk_write_bytes_total", "Bytes in these objects", "container"),
        _counter("sarit_chunk_write_errors_total", "Writes of chunks that failed; they are repeated", "container"),
        _gauge("sarit_compaction_backlog", "Segments with small extents enough to be joined", "container"),
        _counter("sarit_compacted_bytes_total", "Bytes that compaction has joined"),
        _counter("sarit_scrubbed_bytes_total", "Bytes of chunks that the scrub has verified"),
        _counter("sarit_damage_found_total", "Chunks and records of extents found damaged"),
    ),
    "Long-term storage": (
        _histogram("sarit_storage_request_seconds", "Requests by kind, waits for a rate limit included", "kind"),
        _counter("sarit_storage_errors_total", "Requests that failed; a missing chunk is no failure", "kind"),
        _counter("sarit_storage_bytes_total", "Bytes written or read by requests that succeeded", "kind"),
        _counter("sarit_index_requests_total", "Requests of the indexes, if they are on an object store", "kind"),
    ),
    "Disks": (
        _gauge("sarit_disk_free_bytes", "Free space: data, and chunks if they are on a disk", "disk"),
        _gauge("sarit_disk_reserve_bytes", "Below that the disk counts as full, and appends wait", "disk"),
        _gauge("sarit_disk_full", "1: it counts as full", "disk"),
    ),
    "Rates": (
        _gauge("sarit_stream_append_bytes_per_second", "The 50 busiest streams, and (others)", "stream"),
        _gauge("sarit_stream_append_events_per_second", "The same streams", "stream"),
        _gauge("sarit_scope_append_bytes_per_second", "The 20 busiest scopes, and (others)", "scope"),
        _gauge("sarit_scope_append_events_per_second", "The same scopes", "scope"),
    ),
    "Containers": (
        _gauge("sarit_containers", "Containers by state: absent, opening, serving, draining, failed", "state"),
        _gauge("sarit_container_serving", "1: it serves here; no series for one that is elsewhere", "container"),
        _histogram("sarit_recovery_seconds", "Opening a container: fence the log, read the index, replay"),
        _counter("sarit_recovery_failures_total", "Attempts to open a container that failed and are repeated"),
    ),
    "Backups": (
        _counter("sarit_backups_failed_total", "Attempts of a backup that ended before they were complete"),
        _gauge("sarit_backup_last_complete_timestamp_seconds", "When a backup was complete, since 1970; 0: none yet"),
        _gauge("sarit_backup_last_failure_timestamp_seconds", "When an attempt failed, since 1970; 0: none yet"),
    ),
    "The log on BookKeeper": (
        _counter("sarit_bookkeeper_entries_total", "Entries that were sent"),
        _counter("sarit_bookkeeper_entry_bytes_total", "Bytes in these entries"),
        _histogram("sarit_bookkeeper_entry_latency_seconds", "From sending an entry until enough bookies have it"),
        _counter("sarit_bookkeeper_ledgers_total", "Ledgers that were begun"),
        _counter("sarit_bookkeeper_ledgers_recovered_total", "Ledgers in use that BookKeeper's own recovery closed"),
        _counter("sarit_bookkeeper_bookies_replaced_total", "Bookies of a ledger that were replaced by others"),
        _gauge("sarit_bookkeeper_writable_bookies", "Bookies that are registered as writable"),
    ),
    "The cluster": (
        _gauge("sarit_cluster_map_version", "Version of the container map that the process knows"),
        _gauge("sarit_cluster_map_age_seconds", "Since the map was last read; it is read every second"),
        _gauge("sarit_cluster_moving_containers", "Containers that the map moves now"),
        _gauge("sarit_cluster_stores", "Stores in the map that are usable"),
        _gauge("sarit_cluster_lease_left_seconds", "Until the lease of the store ends if no heartbeat is answered"),
        _counter("sarit_cluster_containers_moved_total", "Containers that left this store as the map demanded"),
        _counter("sarit_cluster_containers_fenced_total", "Containers that another store took"),
    ),
    "The controller": (
        _counter("sarit_controller_calls_total", "Calls of the controller API that ended", "method", "status"),
        _histogram("sarit_controller_call_seconds", "Calls of the controller API", "method"),
        _gauge("sarit_controller_connections", "Open connections of the controller API"),
        _counter("sarit_scales_total", "Scalings of streams by cause: call, rate", "cause"),
        _counter("sarit_scaling_requests_total", "Segments whose rates made a store ask for scaling"),
        _gauge("sarit_pending_work", "Unfinished changes of all controllers, as the last sweep found them"),
        _counter("sarit_recovery_sweeps_total", "Sweeps over the unfinished changes"),
        _counter("sarit_background_rounds_postponed_total", "Sweeps that failed and are repeated"),
    ),
    "The schema registry": (
        _counter("sarit_registry_requests_total", "Requests that were answered, by API: confluent, pravega",
                 "api", "call", "status"),
        _histogram("sarit_registry_request_seconds", "From a request to its answer", "api", "call"),
        _counter("sarit_registry_registrations_total",
                 "Registrations by outcome: new, known, incompatible, invalid, read_only, failed", "outcome"),
        _gauge("sarit_registry_schemas", "Schemas that got an id, as this process last saw it"),
        _gauge("sarit_registry_groups", "Groups (subjects), as this process last saw it"),
    ),
    "Background jobs": (
        _gauge("sarit_jobs", "Jobs of streams that this process has taken on, by state: running; failing: the last run "
               "failed, and none has made progress since; waiting: for another holder, or for its next run",
               "kind", "state"),
        _counter("sarit_job_runs_total", "Runs of jobs that were begun", "kind"),
        _counter("sarit_job_failures_total", "Runs of jobs that ended with an error", "kind"),
    ),
    "Iceberg tables": (
        _gauge("sarit_iceberg_lag_bytes", "Bytes of a stream that are not in its table; 100 tables at most", "stream"),
        _gauge("sarit_iceberg_lag_seconds", "Age of the oldest of them, to about a minute", "stream"),
        _gauge("sarit_iceberg_last_commit_timestamp_seconds", "When the last commit to the table was made", "stream"),
        _gauge("sarit_iceberg_stopped", "1 while nothing is committed, and by which problem", "stream", "problem"),
        _counter("sarit_iceberg_commits_total", "Commits to the table by this process", "stream"),
        _counter("sarit_iceberg_conflicts_total", "Commits that failed because another came first", "stream"),
        _counter("sarit_iceberg_rows_total", "Rows that were committed", "stream"),
        _counter("sarit_iceberg_files_total", "Data files that were committed", "stream"),
        _counter("sarit_iceberg_dead_letters_total", "Events that could not become rows", "stream"),
        _counter("sarit_iceberg_gap_bytes_total", "Bytes that were truncated before they were committed", "stream"),
        _gauge("sarit_iceberg_tables_not_measured", "Tables of this process beyond the bound, which have no series"),
    ),
    "Full-text search": (
        _gauge("sarit_search_lag_bytes", "Bytes of a stream that are not in its index; 100 indexes at most", "stream"),
        _gauge("sarit_search_lag_seconds", "Age of the oldest of them, about", "stream"),
        _gauge("sarit_search_last_commit_timestamp_seconds", "When events were last added to the index", "stream"),
        _gauge("sarit_search_stopped", "1: nothing is indexed, because of a problem; 0: it is", "stream"),
        _counter("sarit_search_commits_total", "Commits to the index by this process", "stream"),
        _counter("sarit_search_events_total", "Events that were indexed", "stream"),
        _counter("sarit_search_partly_total", "Events of them of which a part is not searched", "stream"),
        _counter("sarit_search_gap_bytes_total", "Bytes that were truncated before they were indexed", "stream"),
        _gauge("sarit_search_shards", "Shards of the index", "stream"),
        _gauge("sarit_search_index_bytes", "Bytes of the files of the index", "stream"),
        _gauge("sarit_search_indexes_not_measured", "Indexes of this process beyond the bound, without series"),
        _gauge("sarit_searches_running", "Searches of this controller that are under way"),
        _counter("sarit_searches_total", "Searches that this controller has ended, by how", "outcome"),
        _counter("sarit_searches_seconds_total", "Seconds that all of them took"),
        _gauge("sarit_searches_copies_bytes", "Bytes of parts of indexes that this controller keeps on its disk"),
        _counter("sarit_searches_copied_bytes_total", "Bytes of parts of indexes that came to its disk"),
    ),
    "Continuous queries": (
        _gauge("sarit_continuous_queries", "Queries of a stream that hold; 100 streams at most", "stream"),
        _gauge("sarit_continuous_suspended", "Queries that do not hold: a right or an output is missing", "stream"),
        _gauge("sarit_continuous_lag_bytes", "Bytes of the stream about which no query was asked yet", "stream"),
        _gauge("sarit_continuous_lag_seconds", "For how long there have been such bytes", "stream"),
        _gauge("sarit_continuous_stopped", "1: the last run ended with an error, and no query is asked", "stream"),
        _counter("sarit_continuous_events_total", "Events about which all queries were asked", "stream"),
        _counter("sarit_continuous_matches_total", "Matches that were written to outputs", "stream"),
        _counter(
            "sarit_continuous_query_matches_total",
            "The same by query, since the job began here: of the 10 queries of a stream with the most",
            "stream",
            "query",
        ),
        _counter("sarit_continuous_repeated_total", "Transactions that were aborted, and written again", "stream"),
    ),
    "Links to other installations": (
        _gauge("sarit_link_up", "1: the peer answers; no series while the link is paused", "link"),
        _gauge("sarit_link_lag_bytes", "Bytes that the source has and the mirrors have not", "link"),
        _gauge("sarit_link_lag_seconds", "Age of the oldest of them", "link"),
        _counter("sarit_link_copied_bytes_total", "Bytes of streams that were copied, since the link exists", "link"),
        _counter("sarit_link_lost_bytes_total", "Bytes that the source dropped before they were copied, since then",
                 "link"),
        _gauge("sarit_link_failing_streams", "Streams and tables that are not copied because of a problem", "link"),
    ),
    "Transactions": (
        _counter("sarit_transactions_begun_total", "Transactions that were begun"),
        _counter("sarit_transactions_committed_total", "Transactions whose events became visible"),
        _counter("sarit_transactions_aborted_total", "Transactions that were aborted, expired ones included"),
        _counter("sarit_transactions_expired_total", "Transactions aborted because their lease ended"),
        _gauge("sarit_transactions_live", "Not ended, of all controllers, as the last sweep found them"),
    ),
    "Reader groups": (
        _gauge("sarit_reader_group_lag_bytes", "Bytes that a group has not read; 100 groups at most", "group"),
        _gauge("sarit_reader_group_readers", "Readers in a group", "group"),
        _gauge("sarit_reader_groups_not_measured", "Groups beyond the bound, which have no series"),
    ),
    "Queries of the console": (
        _counter("sarit_console_queries_total", "Queries by outcome: done, failed, timeout, cancelled", "outcome"),
        _counter("sarit_console_query_read_bytes_total", "Bytes of streams that ended queries have read"),
        _gauge("sarit_console_queries_running", "Queries under way, each a process"),
    ),
    "The process": (
        _histogram("sarit_loop_delay_seconds", "How late the event loop runs what is due; 10 probes a second"),
        _gauge("sarit_loop_longest_delay_seconds", "The longest of these delays in the last half minute"),
        _histogram("sarit_gc_pause_seconds", "What a tick of the garbage collector took of the event loop"),
        _counter("sarit_gc_full_collections_total", "Collections of all objects"),
        _gauge("sarit_build_info", "Always 1; the labels say what runs", "version", "role"),
    ),
}  # fmt: skip

METRICS: Final = tuple(metric for metrics in SECTIONS.values() for metric in metrics)

BY_NAME: Final = {metric.name: metric for metric in METRICS}
