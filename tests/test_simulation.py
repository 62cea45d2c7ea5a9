"""The simulation as a test: fresh seeds, pinned seeds, the same run twice, planted bugs.  See docs/testing.md.

Here the seeds are the same in every run, so that a red run means a change; SARIT_SEED moves them, and
`python -m simulation prove` draws fresh ones.  A failure names its seed and how to replay it.
Open: seed 1247284 (54 kills, 61 power cuts) ends with a time-out and gaps at the head of three writers; whether the
judge misreads a truncation or the node loses its place is not known yet.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.mutants import MUTANTS
from simulation.run import run_seed

ROOT = Path(__file__).parent.parent
FRESH = 25
FIRST = int(os.environ.get("SARIT_SEED", 1))
# Seeds that found a bug, and what it was.
PINNED = {
    8: "a table read missed keys that a checkpoint moved to the index meanwhile",
    17: "a stop during a checkpoint lost what that checkpoint had captured",
    24: "as 8, on chunks in a directory",
}
CAUGHT_BY = {"ack-before-fsync": 5}
TWICE = (3, 6, 20)


def explain(result) -> str:
    lines = [*result.options.lines(), *result.trace.last, *result.violations[:10]]
    return "\n".join([*lines, f"replay: python -m simulation --seed {result.options.seed}"])


@pytest.mark.timeout(600)
def test_seeds() -> None:
    marks: set[str] = set()
    acked = 0
    for seed in range(FIRST, FIRST + FRESH):
        result = run_seed(seed)
        assert not result.violations, explain(result)
        marks |= set(result.trace.marks)
        acked += result.acked_events
    assert acked > 1000
    assert {"kill", "power_cut", "ack_learned_at_setup"} <= marks, marks


@pytest.mark.parametrize("seed", PINNED)
def test_pinned_seeds(seed) -> None:
    result = run_seed(seed)
    assert not result.violations, explain(result)


def test_one_seed_is_one_run_in_any_process_and_hash_seed() -> None:
    digests = []
    for hash_seed in ("1", "2"):
        digests.append(  # noqa: PERF401 - a comprehension of a comprehension reads worse
            [
                subprocess.run(
                    [sys.executable, "-m", "simulation", "--seed", str(seed)],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONHASHSEED": hash_seed},
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.splitlines()[-1]
                for seed in TWICE
            ]
        )
    assert digests[0] == digests[1]
    assert all(line.startswith("digest ") for line in digests[0])


@pytest.mark.parametrize("mutant", CAUGHT_BY)
def test_planted_bugs_are_caught(mutant) -> None:
    assert run_seed(CAUGHT_BY[mutant], [mutant]).violations


def test_a_planted_bug_leaves_no_trace() -> None:
    from sarit.log.writer import LogWriter

    before = LogWriter._commit
    for mutant in MUTANTS.values():
        with mutant():
            pass
    assert LogWriter._commit is before
