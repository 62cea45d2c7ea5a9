"""The simulation as a test: fresh seeds and pinned seeds.  See docs/testing.md.

The seeds are drawn from the sources: every change runs other seeds, and the same sources run the same ones on any
machine.  A failure prints its seed, the full report, and the command to replay it.  SARIT_SEED=N runs seeds from N on.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path

import pytest

from simulation.batch import Totals, stores_of_proof, summaries, summarize

ROOT = Path(__file__).parent.parent
# `make prove` runs 500.  More than FRESH only until each required probe was reached, and events enough.
FRESH, MOST_FRESH = 20, 120
ACKED_EVENTS = 10_000
FRESH_WITH_STORES = 80


def seed_of_sources() -> int:
    """A number derived from all sources of the product and the simulation."""
    digest = hashlib.sha256()
    for folder in ("src", "simulation", "checkers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big")


FIRST = int(os.environ.get("SARIT_SEED") or seed_of_sources())
PROCESSES = 2
# Seeds that found a bug when it existed, and the bug.
PINNED = {
    8: "a table read missed keys that a checkpoint moved to the index meanwhile",
    17: "a stop during a checkpoint lost the segments in its snapshot",
    30: "a note of time was refused in the middle of a scale",
    2891700047: "a lost call of the controller left its task counted as cancelled",
    1247284: "a cancelled scan was checked as if it were complete",
}
# The same with several stores: seed and stores.
PINNED_WITH_STORES = {
    (13, 3): "a controller's request was repeated without a pause for ever when rounding left a rest of its time",
}
# Coverage probes of rare work in the node (`sarit.core.coverage_probes`), and faults.
MUST_REACH = {
    "kill", "power_cut", "connection_broken", "storage_outage", "sync_error", "ack_learned_at_setup",
    "log_rolled", "log_file_recycled", "torn_tail_found", "tail_carried_over", "container_failed",
    "appends_throttled", "segment_evicted", "cache_evicted", "checkpoint_committed", "chunk_write_retried",
    "extents_joined", "garbage_deleted", "orphans_swept", "scaled", "transaction_merged", "sealed",
    "auto_scaled", "stream_transaction_committed", "retention_truncated", "watermark", "state_compacted",
    "table_user_conflict", "group_checkpoint", "group_reader_crashed", "backup_restored", "deletion_held_for_a_backup",
}  # fmt: skip
# With several stores on one set of logs.
MUST_REACH_WITH_STORES = {
    "kill", "power_cut", "store_frozen", "controller_frozen", "store_cut_off", "move_commanded", "container_revoked",
    "container_assigned", "container_moved",
    "lease_suspended", "lease_lost", "map_conflict", "opener_not_named", "wrong_host",
    "store_of_earlier_version", "backup_restored",
    "scaled", "auto_scaled", "stream_transaction_committed", "sealed", "retention_truncated", "watermark",
}  # fmt: skip


def test_every_required_probe_is_in_the_code() -> None:
    paths = [path for folder in ("src", "simulation") for path in sorted((ROOT / folder).rglob("*.py"))]
    sources = "".join(path.read_text() for path in paths)
    assert [name for name in sorted(MUST_REACH | MUST_REACH_WITH_STORES) if f'"{name}"' not in sources] == []


@pytest.mark.timeout(1500)
def test_pinned_and_fresh_seeds_have_no_violations() -> None:
    print(f"seeds {FIRST} to {FIRST + FRESH - 1}: to repeat: SARIT_SEED={FIRST}")
    totals = Totals()
    seeds = [*PINNED, *range(FIRST, FIRST + MOST_FRESH)]
    for summary in summaries(seeds, processes=PROCESSES):
        assert not summary.violations, summary.explanation
        totals.add(summary)
        enough = set(totals.probes) >= MUST_REACH and totals.acked_events > ACKED_EVENTS
        if enough and totals.seeds >= len(PINNED) + FRESH:
            break
    assert totals.acked_events > ACKED_EVENTS
    assert set(totals.probes) >= MUST_REACH, (
        f"SARIT_SEED={FIRST}: never reached {sorted(MUST_REACH - set(totals.probes))}"
    )


def test_share_of_a_proof_has_several_stores() -> None:
    assert Counter(stores_of_proof(seed) for seed in range(500)) == {0: 375, 2: 63, 3: 62}


@pytest.mark.parametrize(("seed", "stores"), PINNED_WITH_STORES)
def test_pinned_seeds_with_several_stores_have_no_violations(seed, stores) -> None:
    summary = summarize(seed, stores=stores)
    assert not summary.violations, summary.explanation


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_fresh_seeds_with_several_stores_have_no_violations() -> None:
    totals = Totals()
    for summary in summaries(range(FIRST, FIRST + FRESH_WITH_STORES), processes=PROCESSES, stores=-1):
        assert not summary.violations, summary.explanation
        totals.add(summary)
    assert set(totals.probes) >= MUST_REACH_WITH_STORES
