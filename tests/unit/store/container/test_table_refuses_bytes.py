"""A table segment refuses writers and truncations: they are for streams."""

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Invalid
from sarit.store.container.operations import Append
from sarit.store.tiering.checkpoint import FlushLimits
from sarit.wire import commands as wire
from tests.unit.store.harness import SMALL, WRITER, World, Writer
from tests.unit.store.server.test_connection import append_end, run, serving

BY_HAND = replace(SMALL, containers=1, flush=FlushLimits(interval_seconds=1000, inline_below_bytes=10))
TABLE = "s/_tables/t"
UNCONDITIONAL = -(1 << 63)


async def with_a_table(world):
    store = await world.start()
    tables = store.tables(TABLE)
    await tables.create(TABLE, 0)
    await tables.update(TABLE, [(b"k", b"v", UNCONDITIONAL)])
    return store


def test_table_refuses_writers_and_truncation():
    async def main():
        world = World(BY_HAND)
        store = await with_a_table(world)
        with pytest.raises(Invalid):
            await Writer(store, TABLE).set_up()
        with pytest.raises(Invalid):
            await store.container(TABLE).truncate(TABLE, 3)
        segment = store.container(TABLE).state.names[TABLE]
        assert (segment.pins, segment.assigned_start) == (0, 0)
        store = await world.crash(store)
        assert (await store.tables(TABLE).get(TABLE, [b"k"]))[0].value == b"v"

    asyncio.run(main())


def test_table_append_gets_illegal_argument_and_connection_survives():
    table = "s/table/0.#epoch.0"  # by its name a stream's

    async def main():
        async with serving() as server:
            client = await server.client()
            await server.store.tables(table).create(table, 0)
            client.send(wire.SetupAppend(2, WRITER, table, ""), append_end(b"for a table", 1, 1))
            reply = await client.reply()
            assert isinstance(reply, wire.ErrorMessage)
            assert (reply.request_id, reply.segment) == (2, table)
            reply = await client.ask(wire.TruncateSegment(3, table, 0, ""))
            assert isinstance(reply, wire.ErrorMessage)
            assert (reply.request_id, reply.segment) == (3, table)
            await server.create("s/t/0")
            assert isinstance(await client.ask(wire.SetupAppend(5, WRITER, "s/t/0", "")), wire.AppendSetup)

    run(main())


def test_chunks_of_old_table_are_deleted_with_it():
    """Versions before this one let a writer append to a table."""

    async def main():
        world = World(BY_HAND)
        store = await with_a_table(world)
        container, flusher = store.opened()[0].container, store.opened()[0].flusher
        segment = container.state.names[TABLE]
        await container.metadata.attribute(segment, WRITER)
        offset = segment.assigned_length
        segment.assigned_length += 100
        container.state.dirty.add_block(100)
        segment.in_flight += 1
        await container.submit(Append(segment.id, offset, [b"x" * 100], 100, WRITER, 1, 1))
        await flusher.checkpoint()
        assert len(world.storage.chunks) == 1
        await store.tables(TABLE).delete(TABLE, must_be_empty=False)
        await flusher.checkpoint()
        await flusher.garbage.collect()
        assert not world.storage.chunks

    asyncio.run(main())
