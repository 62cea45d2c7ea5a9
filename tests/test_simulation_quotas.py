"""The simulation with quotas that come and go while a node serves, is killed and recovers."""

from __future__ import annotations

from dataclasses import replace

from simulation.options import draw
from simulation.run import run_seed

SEED = 6


def test_quotas_that_come_and_go_lose_and_stop_nothing() -> None:
    found = run_seed(SEED, options=replace(draw(SEED), quotas=True))
    assert not found.violations
    assert found.acked_events > 0
