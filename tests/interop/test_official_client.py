"""The official Python client, unmodified: against a fresh node, and against one that was killed and restarted.

With `--interop-endpoint HOST:PORT` the same scenarios run against a controller that is there already.
"""

from __future__ import annotations

import time
from pathlib import Path

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


# Their readers poll for seconds of processor time.
OF_GROUPS = [name for name in SCENARIOS if name.startswith("groups.")]


@pytest.fixture(scope="module")
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
    asked = {item.callspec.params["scenario"] for item in request.session.items if in_life(item, request.param)}
    running = Batch([name for name in SCENARIOS if name in asked], endpoint, scope, notes)
    yield running
    running.close()


def in_life(item, life: str) -> bool:
    """Whether a test that was asked for is a scenario in this life of the node."""
    return item.path == Path(__file__) and item.callspec.params.get("batch") == life


@pytest.mark.parametrize("batch", ["fresh", pytest.param("killed", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize("scenario", OF_GROUPS)
def test_scenario_of_groups_passes(batch, scenario):
    """On a node that was killed: in `make interop-processes`."""
    batch.result(scenario)


@pytest.mark.parametrize("batch", ["fresh", "killed"], indirect=True)
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in OF_GROUPS])
def test_scenario_passes(batch, scenario):
    batch.result(scenario)
