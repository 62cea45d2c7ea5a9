"""A whole node whose minutes are fractions of a second: streams scale by their load under running clients."""

import asyncio

from sarit.client import aio
from sarit.controller.model.retention import RetentionTimes
from sarit.controller.model.streams import head
from sarit.controller.model.watermarks import WatermarkTimes
from sarit.controller.times import Times
from sarit.core.metering import ScalingTimes
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScaleType, ScalingPolicy
from sarit.env.real import real_env
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import in_keys

NAME = StreamName("s", "t")
FASTER = 800
TIMES = Times(ScalingTimes().shrunk(FASTER), RetentionTimes(interval=0.05), WatermarkTimes(0.05, 0.5))
KEYS = 40


def on_fast_node(test):
    def run(tmp_path):
        async def go():
            config = NodeConfig(str(tmp_path / "node"), controller_port=0, store_port=0, times=TIMES)
            node = await open_node(config.validated(), real_env())
            await node.start()
            try:
                async with (
                    asyncio.timeout(HANG_SECONDS),
                    await aio.connect(f"127.0.0.1:{node.controller_port}") as client,
                ):
                    await client.create_scope("s")
                    await test(node, client)
            finally:
                await node.stop()

        asyncio.run(go())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


class Load:
    """Writers of numbered events by key, at a rate that the test sets."""

    def __init__(self, client, writers: int) -> None:
        self.client = client
        self.per_tick = 0
        self.written = {b"%d.%d" % (w, k): 0 for w in range(writers) for k in range(KEYS)}
        self._going = True
        self._tasks = [asyncio.ensure_future(self._write(name)) for name in range(writers)]

    async def _write(self, name: int) -> None:
        turn = 0
        async with self.client.writer(str(NAME)) as writer:
            while self._going:
                for _ in range(self.per_tick):
                    turn += 1
                    key = b"%d.%d" % (name, turn * 7 % KEYS)
                    writer.write(b"%s:%d" % (key, self.written[key]), key=key.decode())
                    self.written[key] += 1
                await writer.drain()
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._going = False
        await asyncio.gather(*self._tasks)


async def active_rates(controller):
    """The rate of each active segment."""
    active = await controller.streams.active(NAME)
    return await controller.segments.rates([NAME.segment(SegmentId.unpack(s.segment)) for s in active])


async def all_epochs(controller):
    """The epochs of the stream, from the first on."""
    return await controller.catalog.epochs(NAME, await controller.streams.ready(NAME), 0)


async def until(holds, seconds=25.0):
    """Wait until a condition holds; the seconds are for slow machines."""
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.02)


@on_fast_node
async def test_a_stream_grows_under_load_and_shrinks_when_it_is_over(node, client) -> None:
    await client.create_stream("s/t", scaling=ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 500, 4, 2))
    load = Load(client, 2)

    async def segments() -> int:
        return len(await node.controller.streams.active(NAME))

    async def rates() -> float:
        return sum(found.events[0] for found in await active_rates(node.controller))

    seen: list[bytes] = []

    async def read() -> None:
        async with client.reader("s/t") as reader:
            seen.extend([event async for event in reader])

    reading = asyncio.ensure_future(read())
    load.per_tick = 25
    most = 0

    async def grown() -> bool:
        nonlocal most
        most = max(most, await segments())
        return most >= 6

    await until(grown)

    async def measured() -> bool:  # segments made just now have no rate yet
        return await rates() > 0

    await until(measured)
    load.per_tick = 0  # one of the two writers writes nothing at all, and is still there

    async def shrunk() -> bool:
        return await segments() == 2

    await until(shrunk)
    load.per_tick = 1
    await asyncio.sleep(0.1)
    await load.stop()
    await client.seal_stream("s/t")
    await reading
    numbers = in_keys(seen)
    assert {key: len(found) for key, found in numbers.items()} == {k: n for k, n in load.written.items() if n}
    assert all(found == list(range(len(found))) for found in numbers.values())
    epochs = await all_epochs(node.controller)
    assert [epoch.number for epoch in epochs] == list(range(len(epochs)))
    assert max(len(epoch.segments) for epoch in epochs) >= 6


@on_fast_node
async def test_retention_and_watermarks_go_on_by_themselves(node, client) -> None:
    await client.create_stream("s/t", segments=2, retention=RetentionPolicy(RetentionType.SIZE, 4000))
    before = await client.stream_cut_head("s/t")
    async with client.writer("s/t", name="w") as writer:
        for time in range(1, 101):
            for number in range(20):
                writer.write(b"x" * 50, key=str(number))
            await writer.flush()
            await writer.note_time(time)
            await asyncio.sleep(0.005)
            if time == 60:
                await client.stream("s/t").scale(3)

    async def truncated() -> bool:
        info = await client.stream_info("s/t")
        infos = await client.segment_infos("s/t", info.head.positions)
        held = sum(found.end_offset - info.head.positions[segment] for segment, found in infos.items())
        return info.head != before and len(head(await node.controller.streams.ready(NAME))) == 3 and held < 50_000

    await until(truncated)
    windows = client.stream("s/t").time_windows()

    async def marked() -> bool:
        window = await windows.at(await client.stream_cut_tail("s/t"))
        return window.lower == 100

    await until(marked)
