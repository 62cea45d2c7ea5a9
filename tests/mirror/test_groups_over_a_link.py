"""A reader group over a link between two real nodes: its readers go on at the promoted mirror where they were."""

import asyncio

from sarit.client.groups.reader import GroupEvent
from sarit.core.names import StreamName
from sarit.mirror.links import Direction
from tests.limits import HANG_SECONDS
from tests.mirror.nodes import SCOPE, two_nodes, until, until_equal

STREAM = StreamName(SCOPE, "sensors")
GROUP = f"{SCOPE}/analysis"
EVENTS = 100


async def read(group, name, count):
    """Read so many events, and leave the group."""
    found = []
    async with await group.reader(name) as reader:
        while len(found) < count:
            event = await reader.read(30)
            assert event is not None, f"{name} got {len(found)} events of {count}"
            if isinstance(event, GroupEvent):  # the other kind is a checkpoint
                found.append(bytes(event.event))
    return found


def test_readers_go_on_at_the_promoted_mirror_where_they_were(tmp_path):
    async def main():
        async with two_nodes(tmp_path) as (edge, core, proxy):
            await edge.client.create_scope(SCOPE)
            await edge.client.create_stream(str(STREAM), segments=2)
            group = await edge.client.reader_groups.create(GROUP, str(STREAM))
            async with edge.client.writer(str(STREAM)) as writer:
                for number in range(EVENTS):
                    writer.write(b"%03d" % number, key=str(number % 7))
            before = await read(group, "edge", EVENTS // 2)
            there = {(one.stream, one.segment): one.position for one in await group.progress()}
            await edge.link("north", Direction.PUSH, proxy.address, registry=False, tables=False, groups=True)
            await until_equal(edge, core, [STREAM])

            async def copied():
                try:
                    mirror = await core.client.reader_groups.open(GROUP)
                except LookupError:
                    return None
                here = {(one.stream, one.segment): one.position for one in await mirror.progress()}
                return here == there and mirror

            mirror = await until(copied)
            await core.client.links.promote("north", planned=False)
            after = await read(mirror, "core", EVENTS - len(before))
            assert sorted(before + after) == [b"%03d" % number for number in range(EVENTS)]
            assert len(before) == EVENTS // 2

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
