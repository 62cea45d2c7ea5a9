"""What an operator chose is what the node does."""

import dataclasses

from sarit.config import NodeConfig
from sarit.store.store import StoreLimits


def test_the_number_of_containers_reaches_the_store():
    assert NodeConfig("data", containers=7).validated().limits.containers == 7


def test_other_limits_stay():
    limits = StoreLimits(cache_bytes=1234)
    got = NodeConfig("data", containers=2, limits=limits).validated().limits
    assert got == dataclasses.replace(limits, containers=2)
