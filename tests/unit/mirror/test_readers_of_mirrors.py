"""Readers of a mirror, by the client of a real node, at every step of its rounds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sarit.controller.assembly import Controller
from sarit.core.keyspace import KeyRange
from sarit.core.names import StreamName
from sarit.mirror.limits import MAX_DIRECT_BYTES
from sarit.mirror.rounds import Copy, Nothing, plan
from sarit.mirror.source import LocalSource
from sarit.mirror.values import FROM_HEAD, FROM_TAIL, LinkIdentity, Write
from tests.limits import HANG_SECONDS, patient
from tests.unit.client.nodes import LocalNode, create_shrinkable, in_keys, local_node
from tests.unit.mirror.interrupted import Calls
from tests.unit.mirror.target_world import target_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.mirror.target import LocalTarget

STREAM = StreamName("s", "t")
LINK = LinkIdentity(b"l" * 16, "up", "edge")
KEYS = 4
READ_SECONDS = 0.4


async def write(node: LocalNode, first: int, end: int) -> None:
    async with node.client.writer("s/t") as writer:
        for n in range(first, end):
            writer.write(f"{n % KEYS}:{n // KEYS}", f"{n % KEYS}")


async def part(node: LocalNode, seconds: float) -> tuple[list[bytes], bool]:
    """What a reader finds up to the tail, and whether it came so far.

    Between the publication of an epoch and the seals of what it replaces, a reader waits."""
    events: list[bytes] = []
    try:
        async with asyncio.timeout(seconds), node.client.reader("s/t", end="tail") as reader:
            async for event in reader:
                events += [event]
    except TimeoutError:
        return events, False
    return events, True


async def carry(source: LocalSource, target: LocalTarget, start_ms: int = FROM_HEAD) -> int:
    """Copy a stream until the mirror has all of it, as a copier does.  Returns how many rounds it took."""
    for number in range(20):
        (facts,) = await source.facts("s", [STREAM], start_ms if number == 0 else FROM_HEAD)
        assert facts is not None
        (state,) = await target.begin(LINK, "s", [facts])
        assert state.position is not None, state.reason
        (offer,) = await source.offers("s", [state.position], 1 << 20)
        assert offer is not None
        step = plan(state, facts, offer, MAX_DIRECT_BYTES)
        if isinstance(step, Nothing):
            return number
        assert isinstance(step, Copy)
        found = await source.read("s", step.ranges)
        staged = step.round is not None
        writes = [Write(STREAM, r.segment, r.offset, data, staged) for r, data in zip(step.ranges, found, strict=True)]
        assert not [one for one in await target.write(LINK, "s", writes) if one.refused or one.reason]
        if step.round is not None:
            await target.finish(LINK, "s", [step.round])
    raise AssertionError("it does not end")


def hooked(node: LocalNode, hook: Callable[[int, bool], Awaitable[None]]) -> tuple[LocalTarget, Calls]:
    """The target of another controller on a node's store."""
    calls = Calls(hook, alone=True)
    stores = node.node.stores
    segments: Any = calls.of(stores.segments)
    controller = Controller(calls.of(stores.tables), segments, node.node.env, ("127.0.0.1", 9))
    return target_of(controller, segments, node.node.env), calls


def test_readers_see_the_source_as_it_was_at_every_step(tmp_path):
    async def test() -> None:
        async with local_node(tmp_path / "edge") as edge, local_node(tmp_path / "core") as core:
            await create_shrinkable(edge.client, "s/t", 2)
            await write(edge, 0, 20)
            cut = await edge.client.stream_cut_tail("s/t")
            seen: list[int] = []
            wait = patient(READ_SECONDS)

            async def reads(number: int, done: bool) -> None:
                if done:
                    return
                events, whole = await part(core, wait)
                for numbers in in_keys(events).values():
                    assert numbers == list(range(len(numbers)))
                if whole:
                    assert not seen or len(events) >= seen[-1], "a mirror never goes back"
                    seen.append(len(events))

            target, calls = hooked(core, reads)
            controller = edge.node.controller
            source = LocalSource(controller.catalog, controller.streams, controller.segments, edge.node.env, "edge")
            assert await carry(source, target) == 1
            assert len(await core.read("s/t")) == 20
            calls.on = True
            await write(edge, 20, 40)
            await edge.client.stream("s/t").scale(3)
            await write(edge, 40, 60)
            await edge.client.stream("s/t").scale(1)
            await write(edge, 60, 80)
            assert await carry(source, target) >= 1
            calls.on = False
            assert len(set(seen)) > 4
            assert seen[0] == 20
            assert await core.read("s/t", start=cut) == await edge.read("s/t", start=cut)
            assert await core.client.stream_cut_tail("s/t") == await edge.client.stream_cut_tail("s/t")
            assert len(await core.read("s/t")) == 80

    asyncio.run(asyncio.wait_for(test(), HANG_SECONDS))


def test_mirror_begins_at_the_end_of_a_stream_whose_segments_are_of_many_epochs(tmp_path):
    async def test() -> None:
        async with local_node(tmp_path / "edge") as edge, local_node(tmp_path / "core") as core:
            controller = edge.node.controller
            await create_shrinkable(edge.client, "s/t", 2)
            await write(edge, 0, 20)
            _, (low, _) = await controller.streams.scale(STREAM, [0], KeyRange(0.0, 0.5).split_evenly(2))
            await write(edge, 20, 40)
            await controller.streams.scale(STREAM, [low.segment], KeyRange(low.low, low.high).split_evenly(2))
            await write(edge, 40, 60)
            cut = await edge.client.stream_cut_tail("s/t")
            target = target_of(core.node.controller, core.node.stores.segments, core.node.env)
            source = LocalSource(controller.catalog, controller.streams, controller.segments, edge.node.env, "edge")
            await carry(source, target, FROM_TAIL)
            assert await core.read("s/t") == []
            await write(edge, 60, 80)
            await edge.client.stream("s/t").scale(1)
            await write(edge, 80, 100)
            await carry(source, target)
            assert len(await core.read("s/t")) == 40
            assert sorted(await core.read("s/t")) == sorted(await edge.read("s/t", start=cut))
            assert await core.client.stream_cut_head("s/t") == cut
            assert await core.client.stream_cut_tail("s/t") == await edge.client.stream_cut_tail("s/t")

    asyncio.run(asyncio.wait_for(test(), HANG_SECONDS))
