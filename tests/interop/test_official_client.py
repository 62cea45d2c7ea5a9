"""The official Python client, unmodified: against a fresh node, and against one that was killed and restarted.

With `--interop-endpoint HOST:PORT` the same scenarios run against a controller that is there already.
"""

from __future__ import annotations

import time

import pytest

from tests.interop.running import Batch
from tests.nodes import RunningNode

# Long ones first, so that they run beside the others.
SCENARIOS = [
    "groups.shared_by_two",
    "groups.vanished",
    "management.listing",
    "events.large",
    "groups.one_goes_offline",
    "groups.deleted",
    "groups.two_streams",
    "management.scopes",
    "management.streams",
    "management.tags",
    "management.sealing",
    "management.deleting",
    "events.keys_and_no_keys",
    "events.awaited",
    "events.several_writers",
    "events.bytes_as_they_are",
    "events.enveloped",
    "events.follow_the_tail",
    "positions.head_and_tail",
    "positions.from_a_cut",
    "positions.byte_stream",
    "positions.byte_stream_truncated",
]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("interop") / "data") as node:
        yield node


@pytest.fixture(scope="module", params=["fresh", "killed"])
def batch(request, tmp_path_factory):
    """All scenarios, running; second on the node of the first after it was killed."""
    endpoint = request.config.getoption("--interop-endpoint", default=None)
    notes, scope = tmp_path_factory.mktemp("notes"), f"{request.param}-{int(time.time())}"
    if endpoint is None:
        scope = request.param  # keys and segments fall the same way in every run
        node = request.getfixturevalue("node")
        if request.param == "killed":
            node.kill()
            node.start()
        endpoint = node.controller
    elif request.param == "killed":
        pytest.skip("the node of --interop-endpoint is not ours to kill")
    running = Batch(SCENARIOS, endpoint, scope, notes)
    yield running
    running.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_passes(batch, scenario):
    batch.result(scenario)
