"""The short form of the chaos runs: a few kills, resets and failing syncs on a real node, both clients, all checks."""

from __future__ import annotations

import asyncio

from tests.chaos.run import Plan, run_round


def test_a_few_faults(tmp_path):
    classes = ("kill", "pause_and_kill", "reset", "half_open", "sync_fails")
    result = asyncio.run(run_round(tmp_path, Plan(seed=1, faults=5, classes=classes, writers=2, short=True)))
    assert result.violations == [], result.last_words
    assert result.struck.total() == 5
    assert result.acked_events > 300
