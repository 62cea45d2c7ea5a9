"""Transactions of the official Python client."""

from __future__ import annotations

import time

import pytest

from tests.interop.running import Batch
from tests.nodes import RunningNode

SCENARIOS = [
    "transactions.committed",
    "transactions.aborted",
    "transactions.taken_up_by_id",
    "transactions.side_by_side",
]


@pytest.fixture(scope="module")
def batch(request, tmp_path_factory):
    notes = tmp_path_factory.mktemp("notes")
    endpoint = request.config.getoption("--interop-endpoint", default=None)
    if endpoint is not None:
        yield Batch(SCENARIOS, endpoint, f"transactions-{int(time.time())}", notes)
        return
    with RunningNode(notes / "data") as node:
        running = Batch(SCENARIOS, node.controller, "transactions", notes)
        yield running
        running.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_passes(batch, scenario):
    batch.result(scenario)
