"""A stream as indexers read it: on a node, over scales and truncations."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from sarit.client.aio import connect
from sarit.core.cuts import StreamCut
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.process.jobs import event_source
from sarit.process.jobs.event_source import StreamEvents
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tests.limits import HANG_SECONDS

NAME = StreamName("shop", "orders")


def on_stream(path, work, segments=1):
    async def main():
        env = real_env()
        node = await open_node(NodeConfig(str(path), controller_port=0, store_port=0).validated(), env)
        await node.start()
        try:
            async with asyncio.timeout(HANG_SECONDS), connect(f"127.0.0.1:{node.controller_port}") as client:
                await client.create_scope("shop")
                await client.create_stream(str(NAME), segments=segments)
                await work(client, StreamEvents(client.session, NAME, env.clock))
        finally:
            await node.stop()

    asyncio.run(main())


async def write(client, *events: bytes) -> None:
    async with client.writer(str(NAME)) as writer:
        for number, event in enumerate(events):
            writer.write(event, f"key {number}")
        await writer.flush()


async def rest(source, start):
    """Return the slices behind a cut, up to the first moment without any."""
    found = []
    async with aclosing(source.follow(start)) as slices:
        async for part in slices:
            if part is None:
                return found
            found.append(part)


async def placed(client) -> set[tuple[int, int, bytes]]:
    found = set()
    async with client.reader(str(NAME), start="head", end="tail", skip_truncated=True) as reader:
        while (batch := await reader.read_arrow()) is not None:
            found |= set(zip(*(batch[name].to_pylist() for name in ("segment", "offset", "event")), strict=True))
    return found


def flat(slices) -> set[tuple[int, int, bytes]]:
    return {
        (part.segment, offset, event)
        for part in slices
        for offset, event in zip(part.offsets, part.events, strict=True)
    }


def test_events_come_with_their_places_over_scales(tmp_path):
    async def work(client, source):
        head = await source.edge("head")
        await write(client, *(b"event %d" % number for number in range(20)))
        first = await rest(source, head)
        assert first[-1].end == await source.edge("tail")
        assert await client.stream(str(NAME)).scale(3)
        await write(client, *(b"later %d" % number for number in range(20)))
        second = await rest(source, first[-1].end)
        assert flat(first) | flat(second) == await placed(client)
        assert len(flat(first)) == len(flat(second)) == 20
        assert not any(part.lost_bytes for part in (*first, *second))
        assert await source.bytes_behind(second[-1].end) == 0
        # Each slice ends at a cut from which the rest can be read.
        assert flat(await rest(source, second[0].end)) == flat(second[1:])
        assert not await source.is_finished(second[-1].end)
        await client.seal_stream(str(NAME))
        assert await source.is_finished(second[-1].end)
        assert await rest(source, second[-1].end) == []

    on_stream(tmp_path / "node", work)


def test_cuts_are_in_order_beside_a_segment_that_a_scale_left_alone(tmp_path):
    async def work(client, source):
        first, second = sorted((await source.edge("tail")).positions)
        await write(client, *(b"event %d" % number for number in range(20)))
        old = await source.edge("tail")
        assert await client.stream(str(NAME)).split(second, 2)
        new = await source.edge("tail")
        assert new.positions[first] == old.positions[first]
        ahead = StreamCut(NAME, {**new.positions, first: old.positions[first] + 1})
        behind = StreamCut(NAME, {**new.positions, first: old.positions[first] - 1})
        assert [await source.is_before(old, cut) for cut in (old, new, ahead, behind)] == [True, True, True, False]
        assert [await source.is_before(cut, old) for cut in (old, new, ahead, behind)] == [True, False, False, False]

    on_stream(tmp_path / "node", work, segments=2)


def test_truncated_bytes_are_passed_over_and_counted(tmp_path):
    async def work(client, source):
        head = await source.edge("head")
        await write(client, *[b"before the cut"] * 10)
        cut = await source.edge("tail")
        await write(client, *[b"after the cut"] * 10)
        await client.truncate_stream(str(NAME), cut=cut)
        found = await rest(source, head)
        assert flat(found) == await placed(client)
        assert sum(part.lost_bytes for part in found) == 10 * (8 + len(b"before the cut"))

    on_stream(tmp_path / "node", work)


def test_cut_is_truncated_when_nothing_before_it_is_left(tmp_path):
    async def work(client, source):
        head = await source.edge("head")
        await write(client, *[b"one"] * 10)
        one = await source.edge("tail")
        assert await client.stream(str(NAME)).scale(3)
        begun = await source.edge("tail")
        await write(client, *[b"two"] * 30)
        two = await source.edge("tail")
        assert await client.stream(str(NAME)).scale(1)
        await write(client, *[b"three"] * 10)
        three = await source.edge("tail")
        cuts = (one, begun, two, three)
        assert await source.is_truncated(head)
        assert [await source.is_truncated(cut) for cut in cuts] == [False] * 4
        (first,) = one.positions
        await client.truncate_stream(str(NAME), cut=StreamCut(NAME, {first: 11}))
        assert [await source.is_truncated(cut) for cut in cuts] == [False] * 4
        for number, cut in enumerate(cuts):
            await client.truncate_stream(str(NAME), cut=cut)
            # What begins where the stream begins now has nothing before it either.
            known = [await source.is_truncated(one) for one in cuts]
            assert known[: number + 1] == [True] * (number + 1), number
            assert known[2:] == [number >= 2, number >= 3]

    on_stream(tmp_path / "node", work, segments=1)


def test_who_has_something_due_waits_no_longer_for_events(tmp_path, monkeypatch):
    monkeypatch.setattr(event_source, "EVENT_POLL_SECONDS", 10 * HANG_SECONDS)

    async def work(client, source):
        source._max_poll_seconds = 10 * HANG_SECONDS
        waits = [0.0, 0.02, -1.0]
        async with aclosing(
            source.follow(await source.edge("head"), lambda: waits.pop() if waits else 600.0)
        ) as slices:
            assert [await anext(slices) for _ in range(3)] == [None] * 3
            await write(client, b"event")
            found = await anext(slices)
        assert found is not None
        assert found.events == [b"event"]

    on_stream(tmp_path / "node", work)
