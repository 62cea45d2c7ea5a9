"""The short form of `make bookkeeper-kills`."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.run import Plan
from tests.components.bookkeeper_kills import run
from tests.limits import HANG_SECONDS

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * HANG_SECONDS)]


def test_node_survives_the_kills_of_what_it_stands_on(bookkeeper, tmp_path):
    plan = Plan(seed=1, faults=4, classes=("bookie 2", "zookeeper", "node and bookie", "two bookies"), official=False)
    result = asyncio.run(run(tmp_path, bookkeeper, plan))
    assert result.violations == [], result.last_words
    assert result.struck.total() == plan.faults
    assert result.acked_events > 100
