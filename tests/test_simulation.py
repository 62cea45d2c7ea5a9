"""The simulation as a test: fresh seeds, pinned seeds, the same run twice, planted bugs.  See docs/testing.md.

The seeds are drawn from the sources: every change tries others, and who sees a failure sees the same one at home.  It
tells its seed, all about it, and the command that shows it again.  SARIT_SEED=N runs those from N on.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest

from simulation.batch import Totals, summaries, summarize
from simulation.mutants import MUTANTS
from simulation.run import run_seed
from simulation.table import PAGE, catch, fails_its_test, row, rows_of

ROOT = Path(__file__).parent.parent
FRESH = 80


def seed_of_sources() -> int:
    """A number that any change of the product or of the simulation changes."""
    digest = hashlib.sha256()
    for folder in ("src", "simulation", "checkers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big")


FIRST = int(os.environ.get("SARIT_SEED") or seed_of_sources())
PROCESSES = 2
# Seeds that found a bug when it was there, and what it was.
PINNED = {
    8: "a table read missed keys that a checkpoint moved to the index meanwhile",
    17: "a stop during a checkpoint lost what that checkpoint had captured",
    30: "a note of time was refused in the middle of a scale",
    2891700047: "a lost call of the controller left its task counted as cancelled",
    1247284: "a scan given up in the middle was judged as if it were whole",
}
CAUGHT_BY = ("ack-before-fsync", "append-after-seal", "merge-drops-last-block")
TWICE = (3, 11, 20, 26)
# Places that the node's rarer work begins at (`sarit.core.coverage_probes`), and faults.
MUST_REACH = {
    "kill", "power_cut", "connection_broken", "storage_outage", "sync_error", "ack_learned_at_setup",
    "log_rolled", "log_file_recycled", "torn_tail_found", "tail_carried_over", "container_failed",
    "appends_throttled", "segment_evicted", "cache_evicted", "checkpoint_committed", "chunk_write_retried",
    "extents_joined", "garbage_deleted", "orphans_swept", "scaled", "transaction_merged", "sealed",
    "auto_scaled", "stream_transaction_committed", "retention_truncated", "watermark", "state_compacted",
    "table_user_conflict", "group_checkpoint", "group_reader_crashed",
}  # fmt: skip


@pytest.mark.timeout(1500)
def test_pinned_and_fresh_seeds() -> None:
    print(f"seeds {FIRST} to {FIRST + FRESH - 1}: the same again with SARIT_SEED={FIRST}")
    totals = Totals()
    for summary in summaries([*PINNED, *range(FIRST, FIRST + FRESH)], processes=PROCESSES):
        assert not summary.violations, summary.explanation
        totals.add(summary)
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
def test_one_seed_is_one_run_in_any_process_and_hash_seed(seed, tmp_path) -> None:
    """Every step, message, disk effect and log record, line by line."""
    with _trace(seed, "1", tmp_path / "one").open() as one, _trace(seed, "2", tmp_path / "two").open() as two:
        count = 0
        for count, (left, right) in enumerate(zip_longest(one, two), 1):
            assert left == right, f"line {count} differs: python -m simulation --seed {seed} --trace FILE"
    assert count > 1000


@pytest.mark.parametrize("mutant", CAUGHT_BY)
def test_planted_bugs_are_caught(mutant) -> None:
    caught = catch(mutant, 10)
    assert caught is not None


@pytest.mark.parametrize("mutant", [name for name, mutant in MUTANTS.items() if mutant.found_by])
def test_planted_bugs_that_seeds_seldom_find_are_found_by_their_tests(mutant) -> None:
    assert fails_its_test(mutant)


def test_a_planted_bug_leaves_no_trace() -> None:
    from sarit.log.writer import LogWriter
    from sarit.store.container.container import Container
    from sarit.store.container.state import ContainerState

    def all_of_them():
        return [dict(vars(owner)) for owner in (LogWriter, Container, ContainerState)]

    before = all_of_them()
    for mutant in MUTANTS.values():
        with mutant.apply():
            pass
    assert all_of_them() == before


def test_every_planted_bug_is_in_the_table_and_was_caught() -> None:
    rows = rows_of(PAGE.read_text())
    by_seeds = [name for name, mutant in MUTANTS.items() if not mutant.found_by]
    assert len(by_seeds) >= 24
    assert set(rows) == set(MUTANTS), "python -m simulation mutants --mutant NAME writes the row"
    assert [name for name in by_seeds if rows[name] == row(name, None)] == []


def test_a_broken_seed_tells_how_to_see_it_again() -> None:
    result = catch("ack-before-fsync", 10)
    assert result is not None
    summary = summarize(result.seeds, ["ack-before-fsync"])
    assert f"python -m simulation --seed {result.seeds} --mutant ack-before-fsync" in summary.explanation
    assert "kills = " in summary.explanation


def test_the_digest_tells_two_seeds_apart() -> None:
    assert run_seed(3).digest != run_seed(4).digest
