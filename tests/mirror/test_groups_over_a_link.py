"""A reader group over a link between two real nodes: its readers go on at the promoted mirror where they were."""

import asyncio

import pytest

from sarit.client.groups.reader import GroupEvent
from sarit.core.links import LinkDirection, LinkState
from sarit.core.names import StreamName
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


async def positions(group):
    return {(one.stream, one.segment): one.position for one in await group.progress()}


async def copied(group, client):
    """Return whether a group is where the source's is."""
    try:
        mirror = await client.reader_groups.open(GROUP)
    except LookupError:
        return False
    return await positions(mirror) == await positions(group)


async def is_promoted(client):
    """Return whether the link has ended."""
    return (await client.links.get("north")).state is LinkState.PROMOTED


@pytest.mark.parametrize("planned", [False, pytest.param(True, marks=pytest.mark.long)], ids=["unplanned", "planned"])
def test_readers_go_on_at_the_promoted_mirror_where_they_were(tmp_path, planned):
    async def main():
        async with two_nodes(tmp_path) as (edge, core, proxy):
            await edge.client.create_scope(SCOPE)
            await edge.client.create_stream(str(STREAM), segments=2)
            group = await edge.client.reader_groups.create(GROUP, str(STREAM))
            async with edge.client.writer(str(STREAM)) as writer:
                for number in range(EVENTS):
                    writer.write(b"%03d" % number, key=str(number % 7))
            before = await read(group, "first", EVENTS // 4)
            await edge.link("north", LinkDirection.PUSH, proxy.address, registry=False, tables=False, groups=True)
            await until_equal(edge, core, [STREAM])
            await until(lambda: copied(group, core.client))
            before += await read(group, "second", EVENTS // 4)
            if planned:  # the last positions are copied by the promotion
                await edge.client.links.promote("north", planned=True)
                await until(lambda: is_promoted(edge.client))
            else:
                await until(lambda: copied(group, core.client))
                await core.client.links.promote("north", planned=False)
            mirror = await core.client.reader_groups.open(GROUP)
            after = await read(mirror, "third", EVENTS - len(before))
            assert sorted(before + after) == [b"%03d" % number for number in range(EVENTS)]
            assert len(before) == EVENTS // 2

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
