"""Promotions between two real nodes, and the way back: planned, and after writers went on at the old source."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from sarit.client import aio
from sarit.core.errors import NotFound, Sealed
from sarit.core.links import LinkDirection, LinkSettings, LinkState
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

STREAM = "s/t"
POLL_SECONDS = 0.2


@asynccontextmanager
async def two_nodes(tmp_path):
    """Clients of the nodes `edge` and `core`, with their addresses."""
    async with AsyncExitStack() as stack:
        pairs = []
        for name in ("edge", "core"):
            node = stack.enter_context(RunningNode(tmp_path / name))
            client = await stack.enter_async_context(await aio.connect(node.controller))
            pairs.append((client, node.controller))
        yield pairs


async def write(client, kind: str, count: int) -> list[bytes]:
    events = [f"{kind} {n}".encode() for n in range(count)]
    async with client.writer(STREAM) as writer:
        for n, event in enumerate(events):
            writer.write(event, key=str(n % 7))
    return events


async def content(client, stream: str = STREAM) -> list[bytes]:
    try:
        async with client.reader(stream, end="tail") as reader:
            return sorted([event async for event in reader])
    except NotFound:
        return []


async def until(check) -> None:
    while not await check():
        await asyncio.sleep(POLL_SECONDS)


async def copied(source, target) -> None:
    """Wait until the mirror has all that its source has."""

    async def equal() -> bool:
        return await content(source) == await content(target)

    await until(equal)


async def filled(client) -> list[bytes]:
    await client.create_scope("s")
    await client.create_stream(STREAM, segments=2)
    events = await write(client, "before", 60)
    assert await client.stream(STREAM).scale(3)
    return events + await write(client, "after", 60)


def pull(peer: str, **more) -> LinkSettings:
    return LinkSettings(LinkDirection.PULL, peer, include=("s/*",), **more)


def push(peer: str, **more) -> LinkSettings:
    return LinkSettings(LinkDirection.PUSH, peer, include=("s/*",), **more)


@pytest.mark.timeout(180)
def test_a_planned_promotion_loses_nothing_and_the_old_source_becomes_the_mirror(tmp_path) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG_SECONDS), two_nodes(tmp_path) as ((edge, at_edge), (core, at_core)):
            events = await filled(edge)
            await edge.links.create("up", push(at_core))
            await edge.links.promote("up", planned=True)

            async def promoted() -> bool:
                return (await edge.links.get("up")).state is LinkState.PROMOTED

            await until(promoted)
            assert await content(core) == sorted(events)
            events += await write(core, "at the core", 30)
            with pytest.raises(Sealed, match="sealed"):
                await write(edge, "refused", 1)
            await edge.links.create("back", pull(at_core))
            await copied(core, edge)
            assert await content(edge) == sorted(events)
            epochs = [epoch.number for epoch in await edge.stream(STREAM).epochs()]
            assert epochs == [0, 1, 1_000_001]

    asyncio.run(main())


@pytest.mark.timeout(180)
def test_what_the_old_source_alone_has_is_refused_by_its_bytes_and_exported_if_it_is_given_up(tmp_path) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG_SECONDS), two_nodes(tmp_path) as ((edge, at_edge), (core, at_core)):
            events = await filled(edge)
            await edge.links.create("up", push(at_core))
            await copied(edge, core)
            await edge.links.pause("up")
            lost = await write(edge, "never copied", 20)
            while (await core.links.promote("up", planned=False)).left:
                pass
            events += await write(core, "at the core", 30)
            # Nobody fenced the edge: it hears of the promotion from the link back.
            await edge.links.delete("up")
            await edge.links.create("back", pull(at_core))

            async def refused() -> bool:
                problems = (await edge.links.get("back")).status.problems
                return any("bytes that were not copied when its mirror was promoted" in each.text for each in problems)

            await until(refused)
            with pytest.raises(Sealed, match="sealed"):
                await write(edge, "refused", 1)
            await edge.links.change("back", pull(at_core, discard_divergent=True))
            await copied(core, edge)
            assert await content(edge) == sorted(events)
            (export,) = [str(name) async for name in edge.list_streams("s") if "divergent" in str(name)]
            assert await content(edge, export) == sorted(lost)

    asyncio.run(main())
