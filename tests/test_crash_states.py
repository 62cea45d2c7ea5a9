"""Crash states of a container: log, chunks and checkpoints together.  See docs/testing.md."""

from __future__ import annotations

import pytest

from simulation.crashes.container import crash_container
from simulation.crashes.run import with_replay_call
from simulation.mutants import MUTANTS

STATES = 1_000  # with those of the log (tests/unit/log/test_crash_states.py) more than 3,000; `make prove`: 200,000
SEEDS = (1,)
PER_STEP = 1


@pytest.mark.timeout(1500)
def test_every_crash_state_of_container_recovers_acknowledged_operations() -> None:
    counts = []
    for seed in SEEDS:
        states = with_replay_call(crash_container, seed, most_per_step=PER_STEP)
        counts.append(states.count)
        assert states.torn > 100
        assert states.ahead > 100
        assert {"pwrite", "datasync", "rename", "sync_dir", "remove", "commit"} <= set(states.steps), states.steps
    print(counts)
    assert sum(counts) > STATES, counts


@pytest.mark.parametrize(
    "mutant",
    [
        "ack-before-fsync",
        "recovery-drops-last-frame",
        "truncation-not-saved",
        "seal-not-saved",
    ],
)
def test_mutants_are_caught_by_crash_states(mutant) -> None:
    with MUTANTS[mutant].apply(), pytest.raises(AssertionError, match="crash_container"):
        for seed in range(1, 6):
            with_replay_call(crash_container, seed, most_per_step=2)
