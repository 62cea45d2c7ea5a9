"""Real nodes, killed with -9 while clients write: nothing acknowledged is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import random

import pytest

from sarit.client.aio import connect
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

STREAM = "faults/numbers"
KEYS = 8


async def write(address, acknowledged, stop):
    """Write numbered events until `stop` is set; note each one only after its flush."""
    async with await connect(address) as client:
        writer = client.writer(STREAM)
        number = 0
        while not stop.is_set():
            batch = range(number, number + 200)
            for n in batch:
                writer.write(f"{n}", key=str(n % KEYS))
            await writer.flush()
            acknowledged.extend(batch)
            number += 200
            await asyncio.sleep(0)
        await writer.close()


async def read(address):
    async with await connect(address) as client:
        return [int(event) async for event in client.reader(STREAM, end="tail")]


@pytest.mark.parametrize("seed", [1, 2])
def test_acknowledged_events_survive_kills(tmp_path, seed):
    node = RunningNode(tmp_path / "data").start()
    rnd = random.Random(seed)

    async def main():
        async with await connect(node.controller) as client:
            await client.create_scope("faults")
            await client.create_stream(STREAM, segments=4)
        acknowledged, stop = [], asyncio.Event()
        writing = asyncio.create_task(write(node.controller, acknowledged, stop))
        for _ in range(4):
            before = len(acknowledged)
            await asyncio.sleep(rnd.uniform(0.3, 1.2))
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.start)
            while len(acknowledged) == before and not writing.done():
                await asyncio.sleep(0.05)
        stop.set()
        await asyncio.wait_for(writing, HANG_SECONDS)
        return acknowledged, await read(node.controller)

    try:
        acknowledged, got = asyncio.run(main())
    finally:
        node.stop()
    assert len(acknowledged) > 1000
    assert sorted(got) == acknowledged
    for key in range(KEYS):
        mine = [n for n in got if n % KEYS == key]
        assert mine == sorted(mine)


def test_second_node_on_same_directory_is_refused(tmp_path):
    with (
        RunningNode(tmp_path / "data"),
        pytest.raises(AssertionError, match="another node runs on"),
    ):
        RunningNode(tmp_path / "data").start()


def test_number_of_containers_of_directory_cannot_change(tmp_path):
    RunningNode(tmp_path / "data", "--containers", "2").start().stop()
    with pytest.raises(AssertionError, match="--containers 2"):
        RunningNode(tmp_path / "data").start()
