"""A node at the edge whose core is away holds no more than it may: its writers wait, or the oldest bytes go.

`make edge`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from sarit.core.limits import MIB
from sarit.core.links import HoldOverflow, LinkDirection
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType
from tests.edge.places import before, node
from tests.limits import HANG_SECONDS
from tests.mirror.nodes import SCOPE, until, until_equal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from sarit.client.writer.writer import EventWriter
    from tests.mirror.nodes import Installation, LinkProxy

NAME = StreamName(SCOPE, "sensor")
EVENT = b"e" * 10_000
FLUSH_SECONDS = 8

pytestmark = pytest.mark.long


def with_full_hold(path: Path, overflow: HoldOverflow, main: Callable[..., Awaitable[None]]) -> None:
    """Run a test with an edge, whose link may hold 1 MiB, its core, and the network, which is down."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            core = await node(stack, path / "core", "--http-port", "off")
            edge = await node(stack, path / "edge", "--profile", "edge", "--retention-interval", "1")
            proxy = await before(stack, core)
            await edge.client.create_scope(SCOPE)
            await edge.client.create_stream(str(NAME))
            async with edge.client.writer(str(NAME)) as writer:
                writer.write(EVENT)
            await edge.link(
                "core", LinkDirection.PUSH, proxy.address, registry=False, hold_bytes=MIB, overflow=overflow
            )
            await until_equal(edge, core, [NAME])
            proxy.go_down()
            await main(edge, core, proxy)

    asyncio.run(asyncio.wait_for(run(), HANG_SECONDS))


async def write(writer: EventWriter[bytes], count: int) -> None:
    for _ in range(count):
        writer.write(EVENT)
    await writer.flush()


def test_writers_wait_until_the_link_has_copied(tmp_path: Path) -> None:
    async def main(edge: Installation, core: Installation, proxy: LinkProxy) -> None:
        async with edge.client.writer(str(NAME)) as writer:
            written = 0
            with pytest.raises(TimeoutError):
                while written < 40 * MIB:
                    async with asyncio.timeout(FLUSH_SECONDS):
                        await write(writer, 20)
                    written += 20 * len(EVENT)
                    await asyncio.sleep(0.5)
            assert written > MIB
            proxy.come_up()
            await writer.flush()
        await until_equal(edge, core, [NAME])
        status = (await edge.status("core")).status
        assert status.lost_bytes == 0

    with_full_hold(tmp_path, HoldOverflow.THROTTLE, main)


def test_the_oldest_bytes_are_dropped_and_counted_on_both_sides(tmp_path: Path) -> None:
    async def main(edge: Installation, core: Installation, proxy: LinkProxy) -> None:
        async with edge.client.writer(str(NAME)) as writer:
            await write(writer, 400)

            async def given_up() -> bool:
                return "may be truncated before they are copied" in edge.node.log()

            await until(given_up)
            policy = RetentionPolicy(RetentionType.SIZE, 100_000)
            await edge.client.update_stream(str(NAME), retention=policy)

            # Retention takes what is given up, though more is written than the link may hold.
            async def truncated() -> bool:
                await write(writer, 1)
                found = await edge.whole(NAME)
                return found is not None and found.size < 2 * MIB

            await until(truncated)
        proxy.come_up()
        await until_equal(edge, core, [NAME])

        async def counted() -> bool:
            return (await edge.status("core")).status.lost_bytes > 0

        await until(counted)

    with_full_hold(tmp_path, HoldOverflow.DROP, main)
