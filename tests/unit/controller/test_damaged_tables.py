"""A controller starts although records of its own are damaged, and serves what does not need them."""

import copy
from dataclasses import replace

import pytest

from sarit.controller import keys
from sarit.controller.assembly import Controller
from sarit.core.errors import Corrupt
from sarit.core.names import StreamName
from tests.unit.controller.world import STREAM, World, config, run, stream_with


def test_a_damaged_table_of_the_controller_does_not_keep_it_away():
    """Found by the simulation (seed 6 of its first run with damaged records): the node did not start."""

    async def main():
        world = World()
        before = await world.controller()
        await stream_with(before)
        tables = copy.copy(world.tables)

        async def create(table):
            if table == keys.WORK_TABLE:
                raise Corrupt("the index record of the name _system/_tables/work is damaged")
            await world.tables.create(table)

        tables.create = create
        controller = Controller(tables, world.segments, world.env, ("127.0.0.1", 9090))
        await controller.start()
        assert await controller.streams.active(STREAM)
        await controller.stop()

    run(main())


def test_a_record_of_another_version_is_an_error_for_its_stream_alone():
    async def main():
        world = World()
        c = await world.controller()
        await stream_with(c)
        other = StreamName(STREAM.scope, "other")
        await c.streams.create(other, config())
        entries = world.scopes()[STREAM.scope]
        (key,) = [key for key in entries if key == keys.stream_key(STREAM.stream)]
        assert entries[key][0] < 99
        _replace(world, key, b"\x63" + entries[key][1:])
        c = await world.controller()
        assert await c.streams.active(other)
        for call in (c.streams.active(STREAM), c.streams.seal(STREAM)):
            with pytest.raises(Corrupt, match=r"of version \S+; this release of Sarit reads version"):
                await call
        await c.streams.seal(other)

    run(main())


def _replace(world, key, value):
    for table in world.tables.tables.values():
        if key in table:
            table[key] = replace(table[key], value=value)
