"""Reader groups against a whole node: readers join, leave, die and scale; every event is read once."""

import asyncio

from sarit.client.groups.reader import GroupEvent
from tests.unit.client.nodes import on_node


async def fill(local, stream: str, count: int, first: int = 0) -> list[bytes]:
    events = [f"{number}" for number in range(first, first + count)]
    async with local.client.writer(stream) as writer:
        for event in events:
            writer.write(event, key=event)
    return [event.encode() for event in events]


async def read_for(reader, into: list[bytes], done: asyncio.Event) -> None:
    while not done.is_set():
        found = await reader.read(0.05)
        if isinstance(found, GroupEvent):
            into.append(found.event)
        elif found is None and reader.at_end:
            return


@on_node
async def test_readers_share_the_segments_and_read_every_event_once(local):
    await local.client.create_stream("s/t", segments=4)
    events = await fill(local, "s/t", 1000)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=0.1)
    found, done = [], asyncio.Event()
    readers = [await group.reader(f"r{number}") for number in range(3)]
    tasks = [asyncio.create_task(read_for(reader, found, done)) for reader in readers]
    while len(found) < len(events):
        await asyncio.sleep(0.01)
    while sorted(len(reader.segments) for reader in readers) != [1, 1, 2]:
        await asyncio.sleep(0.01)
    await local.client.seal_stream("s/t")
    await asyncio.gather(*tasks)
    assert sorted(found) == sorted(events)
    assert await group.online_readers() == ["r0", "r1", "r2"]
    for reader in readers:
        await reader.close()
    assert await group.online_readers() == []
