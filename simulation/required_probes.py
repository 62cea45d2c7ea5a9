"""What seeds must reach to be a proof: coverage probes of rare work (`sarit.core.coverage_probes`), and faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# How many seeds reach all of them, whatever they are: as many as a proof has.
ENOUGH_SEEDS: Final = 200

MUST_REACH: Final = {
    "kill", "power_cut", "connection_broken", "storage_outage", "sync_error", "ack_learned_at_setup",
    "log_rolled", "log_file_recycled", "torn_tail_found", "tail_carried_over", "container_failed",
    "appends_throttled", "segment_evicted", "cache_evicted", "checkpoint_committed", "chunk_write_retried",
    "extents_joined", "garbage_deleted", "orphans_swept", "scaled", "transaction_merged", "sealed",
    "auto_scaled", "stream_transaction_committed", "retention_truncated", "watermark", "state_compacted",
    "table_user_conflict", "group_checkpoint", "group_reader_crashed", "backup_restored", "deletion_held_for_a_backup",
    "schema_deleted", "schema_call_uncertain", "table_dead_letters", "table_compacted", "table_commit_late",
    "job_counted", "job_deleted", "mirror_seen", "mirror_promoted", "peer_died",
}  # fmt: skip
# With several stores on one set of logs.
MUST_REACH_WITH_STORES: Final = {
    "kill", "power_cut", "store_frozen", "controller_frozen", "store_cut_off", "move_commanded", "container_revoked",
    "container_assigned", "container_moved",
    "lease_suspended", "lease_lost", "map_conflict", "opener_not_named", "wrong_host",
    "store_of_earlier_version", "backup_restored",
    "scaled", "auto_scaled", "stream_transaction_committed", "sealed", "retention_truncated", "watermark",
    "job_counted", "job_fenced",
}  # fmt: skip


def missed_probes(seeds: int, reached: Iterable[str]) -> list[str]:
    """Return what so many seeds on one node should have reached and have not; fewer than ENOUGH_SEEDS need not."""
    return sorted(MUST_REACH.difference(reached)) if seeds >= ENOUGH_SEEDS else []
