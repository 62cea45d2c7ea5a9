"""The short form of the chaos runs: a few faults on a real node, both clients, all checks."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.node import can_inject
from tests.chaos.run import Plan, run_round

# The official client waits up to 10 s when the node was down for more than one: with it, only shorter faults.
SHORT = Plan(seed=1, faults=4, classes=("kill", "reset", "half_open", "pause"), writers=1, parts=False, short=True)
AWAY = Plan(
    seed=1, faults=3, classes=("kill_twice", "pause_and_kill", "sync_fails"), official=False, parts=False, short=True
)
# A stream that scales, transactions, a reader that is killed, a table, a shared state; and the writers of the others.
CONTRACT = Plan(seed=1, faults=3, classes=("kill", "half_open", "pause"), writers=1, official=False, short=True)


@pytest.mark.parametrize("plan", [SHORT, AWAY, CONTRACT], ids=["both clients", "away for longer", "whole contract"])
def test_node_survives_a_few_faults(tmp_path, plan):
    result = asyncio.run(run_round(tmp_path, plan))
    assert result.violations == [], result.last_words
    assert result.struck.total() == plan.faults
    assert result.acked_events > 100
    assert not plan.parts or (result.scales and result.reader_kills)
    assert "sync_fails" not in plan.classes or result.struck["sync_fails"] or not can_inject()
