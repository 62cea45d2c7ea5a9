"""Key-value tables over a link between two real nodes: equal, read-only, and under other versions, until promoted."""

import asyncio

import pytest

from sarit.core.errors import Conflict, Forbidden
from sarit.core.links import LinkDirection
from tests.limits import HANG_SECONDS
from tests.mirror.nodes import SCOPE, two_nodes, until

TABLE = f"{SCOPE}/places"


async def rows(client):
    try:
        return {entry.key: bytes(entry.value) async for entry in client.table(TABLE).scan()}
    except LookupError:
        return None


async def until_equal(edge, core):
    async def equal():
        there = await rows(edge)
        return there is not None and there == await rows(core)

    await until(equal)


@pytest.mark.parametrize(
    "direction", [LinkDirection.PUSH, pytest.param(LinkDirection.PULL, marks=pytest.mark.long)], ids=["push", "pull"]
)
def test_table_is_equal_after_cuts_and_kills_and_writable_once_promoted(tmp_path, direction):
    async def main():
        async with two_nodes(tmp_path) as (edge, core, proxy):
            await edge.client.create_scope(SCOPE)
            await edge.client.tables.create(TABLE, primary_key_bytes=2, partitions=2)
            source, mirror = edge.client.table(TABLE), core.client.table(TABLE)
            version = await source.put(b"aa", b"0")
            if direction is LinkDirection.PULL:
                proxy.target = edge.node.controller
            runs = edge if direction is LinkDirection.PUSH else core
            await runs.link("north", direction, proxy.address, registry=False)
            await until_equal(edge.client, core.client)
            for number in range(2):
                await source.put_many([(b"%02d" % key, b"%d" % number) for key in range(50)])
                await source.remove(b"%02d" % number)
                assert proxy.cut()
                await until_equal(edge.client, core.client)
            await edge.restart(killed=True)
            await source.put_many([(b"%02d" % key, b"again") for key in range(10)])
            await until_equal(edge.client, core.client)
            with pytest.raises(Forbidden):
                await mirror.put(b"aa", b"mine")
            await core.client.links.promote("north", planned=False)
            await mirror.put(b"aa", b"mine")
            # A version from the source is none of the mirror, whatever it was.
            with pytest.raises(Conflict):
                await mirror.replace(b"aa", b"stale", version)
            assert (await rows(core.client))[b"aa"] == b"mine"
            assert (await rows(edge.client))[b"aa"] == b"0"

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
