"""Links between a node and a cluster, whose store and controller are killed; real processes."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.links import LinkDirection
from sarit.core.names import StreamName
from tests.cluster.processes import ClusterProcess, RunningCluster
from tests.limits import HANG_SECONDS
from tests.mirror.nodes import SCOPE, Installation, until_equal
from tests.mirror.test_two_nodes import write
from tests.nodes import SARIT, RunningNode

pytestmark = pytest.mark.long


@pytest.mark.parametrize("direction", list(LinkDirection), ids=lambda direction: direction.value)
def test_mirror_in_a_cluster_is_equal_after_kills(tmp_path, direction):
    async def main(node, cluster):
        edge, core = Installation(node), Installation(cluster)
        await edge.open()
        await core.open()
        names = [StreamName(SCOPE, "sensors"), StreamName(SCOPE, "alarms")]
        await edge.client.create_scope(SCOPE)
        for name in names:
            await edge.client.create_stream(str(name), segments=2)
        if direction is LinkDirection.PUSH:
            await edge.link("north", direction, cluster.controllers[0].address, registry=False)
        else:
            # A controller or the worker runs it.
            await core.link("north", direction, node.controller, registry=False)
        await write(edge.client, str(names[0]), 0, 200)
        await until_equal(edge, core, names)
        await asyncio.to_thread(cluster.stores["s1"].kill)
        await write(edge.client, str(names[0]), 200, 200)
        await write(edge.client, str(names[1]), 0, 200)
        await asyncio.to_thread(cluster.controllers[0].kill)
        await edge.client.stream(str(names[0])).scale(3)
        await write(edge.client, str(names[0]), 400, 200)
        await asyncio.to_thread(lambda: cluster.controllers[0].begin().wait())
        await until_equal(edge, core, names)
        await edge.close()
        await core.close()

    pulls = direction is LinkDirection.PULL
    with (
        RunningCluster(tmp_path / "cluster", 2, 2, containers=4) as cluster,
        RunningNode(tmp_path / "edge") as node,
    ):
        command = [SARIT, "worker", "--cluster", cluster.url, "--machine", "w1"]
        worker = ClusterProcess("w1", cluster.directory, command, cluster.environ)
        if pulls:
            worker.begin().wait()
        try:
            asyncio.run(asyncio.wait_for(main(node, cluster), HANG_SECONDS))
        finally:
            if pulls:
                worker.kill()
