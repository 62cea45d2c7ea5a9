"""The official Python client on streams that scale."""

from __future__ import annotations

import time

import pytest

from tests.interop.running import Batch
from tests.nodes import RunningNode

SCENARIOS = [
    "scaling.two_readers",
    "scaling.while_it_writes_and_reads",
    "scaling.by_its_own_policy",
    "scaling.by_itself",
    "scaling.transactions",
    "scaling.scaled_before_anybody_reads",
]
# Streams that scale by themselves do within seconds.
HASTE = ("--scaling-windows", "1", "2", "4", "8", "--scaling-cool-down", "1")


@pytest.fixture(scope="module")
def batch(request, tmp_path_factory):
    notes = tmp_path_factory.mktemp("notes")
    endpoint = request.config.getoption("--interop-endpoint", default=None)
    if endpoint is not None:
        yield Batch(SCENARIOS, endpoint, f"scaling-{int(time.time())}", notes)
        return
    with RunningNode(notes / "data", *HASTE) as node:
        running = Batch(SCENARIOS, node.controller, "scaling", notes)
        yield running
        running.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_passes(batch, scenario):
    batch.result(scenario)
