"""Three nodes at the edge push to one core over networks that break; the core is mirrored, dies, and is replaced.

`make edge`."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from sarit.core.links import LinkDirection, LinkState
from sarit.core.names import StreamName
from tests.edge.places import before, node
from tests.limits import HANG_SECONDS
from tests.mirror.nodes import SCOPE, until, until_equal

if TYPE_CHECKING:
    from pathlib import Path

    from sarit.client import aio
    from tests.mirror.nodes import LinkProxy

EDGES = 3
SENSORS = 4
BREAKS = 12
SEED = 46

pytestmark = pytest.mark.long


async def sense(client: aio.Client, name: StreamName, ended: asyncio.Event) -> int:
    """Write an event now and then, until it is to end.  Returns how many were acknowledged."""
    count = 0
    async with client.writer(str(name)) as writer:
        while not ended.is_set():
            for _ in range(20):
                writer.write(b"%s %08d " % (str(name).encode(), count) * 8)
                count += 1
            await writer.flush()
            await asyncio.sleep(0.05)
    return count


async def numbers(client: aio.Client, name: StreamName, count: int) -> list[int]:
    """Read so many events of a stream, and return the numbers of its sensor."""
    async with client.reader(str(name)) as reader:
        return [int((await asyncio.wait_for(reader.read(), 60)).split()[1]) for _ in range(count)]


async def break_networks(proxies: list[LinkProxy], choice: random.Random) -> None:
    """Cut, delay and take down networks, in turn."""
    for turn in range(BREAKS):
        proxy = proxies[turn % len(proxies)]
        proxy.delay_seconds = choice.choice([0.0, 0.005, 0.05])
        proxy.cut()
        if choice.random() < 0.5:
            proxy.go_down()
            await asyncio.sleep(choice.random())
            proxy.come_up()
        await asyncio.sleep(choice.random())


def test_nothing_is_missing_at_a_core_that_dies(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            core = await node(stack, tmp_path / "core", "--http-port", "off")
            standby = await node(stack, tmp_path / "standby", "--http-port", "off")
            edges, proxies, names = [], [], []
            for number in range(EDGES):
                edge = await node(stack, tmp_path / f"edge-{number}", "--profile", "edge")
                proxies.append(await before(stack, core))
                await edge.client.create_scope(SCOPE)
                own = [StreamName(SCOPE, f"edge-{number}-sensor-{sensor}") for sensor in range(SENSORS)]
                for name in own:
                    await edge.client.create_stream(str(name))
                peer = proxies[-1].address
                await edge.link(f"edge-{number}", LinkDirection.PUSH, peer, registry=False, hold_bytes=1 << 26)
                edges.append(edge)
                names.append(own)
            between = await before(stack, standby)
            await core.link("standby", LinkDirection.PUSH, between.address, registry=False)
            ended = asyncio.Event()
            sensors = [
                asyncio.create_task(sense(edge.client, name, ended))
                for edge, own in zip(edges, names, strict=True)
                for name in own
            ]
            await break_networks([*proxies, between], random.Random(SEED))
            ended.set()
            written = await asyncio.gather(*sensors)
            assert all(written)
            every = [name for own in names for name in own]
            for edge, own in zip(edges, names, strict=True):
                await until_equal(edge, core, own)
            for name, count in zip(every, written, strict=True):
                assert await numbers(core.client, name, count) == list(range(count))
            await until_equal(core, standby, every)

            # The core dies for good: its mirror is promoted, has all of it, and takes events.
            await asyncio.to_thread(core.node.kill)

            async def promoted() -> bool:
                done = await standby.client.links.promote("standby", planned=False)
                return not done.left and not done.problems and done.link.state is LinkState.PROMOTED

            await until(promoted)
            for name, count in zip(every, written, strict=True):
                async with standby.client.writer(str(name)) as writer:
                    writer.write(b"%s %08d " % (str(name).encode(), count))
                assert await numbers(standby.client, name, count + 1) == list(range(count + 1))

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
