"""A whole node in the test's own process and loop: real sockets and disks, and access to all of its parts."""

import asyncio
from contextlib import asynccontextmanager

from sarit.client import aio
from sarit.core.policies import ScaleType, ScalingPolicy
from sarit.env.real import real_env
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tests.limits import HANG_SECONDS


class LocalNode:
    """`client` is connected to `node`; scope `s` exists."""

    def __init__(self, node, client) -> None:
        self.node = node
        self.client = client

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.node.controller_port}"

    async def read(self, stream: str, **bounds) -> list[bytes]:
        """Everything that is there."""
        async with self.client.reader(stream, end="tail", **bounds) as reader:
            return [event async for event in reader]

    def cut_connections(self) -> None:
        """End every connection of the client to the store, as a broken network does."""
        for task in list(self.client.session.connections._open.values()):
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().abort("cut by the test")


@asynccontextmanager
async def local_node(directory):
    node = await open_node(NodeConfig(str(directory), controller_port=0, store_port=0).validated(), real_env())
    await node.start()
    client = await aio.connect(f"127.0.0.1:{node.controller_port}")
    try:
        await client.create_scope("s")
        yield LocalNode(node, client)
    finally:
        await client.close()
        await node.stop()


def on_node(test):
    """Run an async test with a local node; a hang fails it."""

    def run(tmp_path):
        async def go():
            async with asyncio.timeout(HANG_SECONDS), local_node(tmp_path / "node") as made:
                await test(made)

        asyncio.run(go())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def in_keys(events: list[bytes]) -> dict[bytes, list[int]]:
    """Events `key:number` as numbers by key, in the order found."""
    found: dict[bytes, list[int]] = {}
    for event in events:
        key, _, number = event.partition(b":")
        found.setdefault(key, []).append(int(number))
    return found


async def create_shrinkable(client, stream, segments):
    """A stream that has `segments` segments and may have fewer: its policy asks for one."""
    await client.create_stream(stream, segments=segments)
    await client.update_stream(stream, scaling=ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 1_000_000, 2, 1))
