"""The simulation as a test: fresh seeds, pinned seeds, determinism, mutants.  See docs/testing.md.

The seeds are drawn from the sources: every change runs other seeds, and the same sources run the same ones on any
machine.  A failure prints its seed, the full report, and the command to replay it.  SARIT_SEED=N runs seeds from N on.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from collections import Counter
from itertools import zip_longest
from pathlib import Path

import pytest

from simulation.batch import Totals, stores_of_proof, summaries, summarize
from simulation.mutants import MUTANTS
from simulation.run import run_seed
from simulation.table import PAGE, Catch, catch, fails_its_test, row, rows_of

ROOT = Path(__file__).parent.parent
# `make prove` runs 500.  More than FRESH only until each required probe was reached.
FRESH, MOST_FRESH, FRESH_STEP = 40, 120, 8
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
CAUGHT_BY = ("ack-before-fsync", "append-after-seal", "merge-drops-last-block")
TWICE = (3, 11, 20, 26)
# Coverage probes of rare work in the node (`sarit.core.coverage_probes`), and faults.
MUST_REACH = {
    "kill", "power_cut", "connection_broken", "storage_outage", "sync_error", "ack_learned_at_setup",
    "log_rolled", "log_file_recycled", "torn_tail_found", "tail_carried_over", "container_failed",
    "appends_throttled", "segment_evicted", "cache_evicted", "checkpoint_committed", "chunk_write_retried",
    "extents_joined", "garbage_deleted", "orphans_swept", "scaled", "transaction_merged", "sealed",
    "auto_scaled", "stream_transaction_committed", "retention_truncated", "watermark", "state_compacted",
    "table_user_conflict", "group_checkpoint", "group_reader_crashed",
}  # fmt: skip
# With several stores on one set of logs.
MUST_REACH_WITH_STORES = {
    "kill", "power_cut", "store_frozen", "controller_frozen", "store_cut_off", "move_commanded", "container_revoked",
    "container_assigned", "container_moved",
    "lease_suspended", "lease_lost", "map_conflict", "opener_not_named", "wrong_host",
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
    seeds, after = [*PINNED, *range(FIRST, FIRST + FRESH)], FIRST + FRESH
    while seeds:
        for summary in summaries(seeds, processes=PROCESSES):
            assert not summary.violations, summary.explanation
            totals.add(summary)
        seeds = []
        if MUST_REACH - set(totals.probes) and after < FIRST + MOST_FRESH:
            seeds, after = [*range(after, after + FRESH_STEP)], after + FRESH_STEP
    assert totals.acked_events > 10_000
    assert set(totals.probes) >= MUST_REACH, (
        f"SARIT_SEED={FIRST}: never reached {sorted(MUST_REACH - set(totals.probes))}"
    )


def _trace(seed: int, hash_seed: str, path: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "simulation", "--seed", str(seed), "--trace", str(path), "--quiet"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
        capture_output=True,
    )
    return path


@pytest.mark.parametrize("seed", TWICE)
def test_seed_gives_same_trace_in_any_process_and_hash_seed(seed, tmp_path) -> None:
    """Every step, message, disk effect and log record, line by line."""
    with _trace(seed, "1", tmp_path / "one").open() as one, _trace(seed, "2", tmp_path / "two").open() as two:
        count = 0
        for count, (left, right) in enumerate(zip_longest(one, two), 1):
            assert left == right, f"line {count} differs: python -m simulation --seed {seed} --trace FILE"
    assert count > 1000


def test_share_of_a_proof_has_several_stores() -> None:
    assert Counter(stores_of_proof(seed) for seed in range(500)) == {0: 375, 2: 63, 3: 62}


def test_seed_with_several_stores_has_no_violations_and_repeats() -> None:
    first, again = (summarize(2, stores=3) for _ in range(2))
    assert not first.violations, first.explanation
    assert (first.steps, first.acked_events, first.probes) == (again.steps, again.acked_events, again.probes)


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


@functools.cache
def caught(mutant: str) -> Catch | None:
    """A few tests need the first seed that catches a mutant."""
    return catch(mutant, 10)


@pytest.mark.parametrize("mutant", CAUGHT_BY)
def test_mutants_are_caught_by_seeds(mutant) -> None:
    assert caught(mutant) is not None


@pytest.mark.parametrize("mutant", [name for name, mutant in MUTANTS.items() if mutant.found_by])
def test_rare_mutants_are_caught_by_their_tests(mutant) -> None:
    assert fails_its_test(mutant)


def test_mutant_is_removed_completely_afterwards() -> None:
    from sarit.log.writer import LogWriter
    from sarit.store.container.container import Container
    from sarit.store.container.state import ContainerState

    def attributes_of_owners():
        return [dict(vars(owner)) for owner in (LogWriter, Container, ContainerState)]

    before = attributes_of_owners()
    for mutant in MUTANTS.values():
        with mutant.apply():
            pass
    assert attributes_of_owners() == before


def test_every_mutant_is_in_the_table_and_was_caught() -> None:
    rows = rows_of(PAGE.read_text())
    by_seeds = [name for name, mutant in MUTANTS.items() if not mutant.found_by]
    assert len(by_seeds) >= 24
    assert set(rows) == set(MUTANTS), "python -m simulation mutants --mutant NAME writes the row"
    assert [name for name in by_seeds if rows[name] == row(name, None)] == []


def test_failed_seed_prints_its_replay_command() -> None:
    result = caught("ack-before-fsync")
    assert result is not None
    summary = summarize(result.seeds, ["ack-before-fsync"])
    assert f"python -m simulation --seed {result.seeds} --mutant ack-before-fsync" in summary.explanation
    assert "kills = " in summary.explanation


def test_digests_of_different_seeds_differ() -> None:
    assert run_seed(3).digest != run_seed(4).digest
