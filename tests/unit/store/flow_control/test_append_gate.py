"""Appends held back for room: they go with their connection, and none passes that would not have passed at once."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from sarit.wire import commands as wire
from tests.unit.store.harness import SMALL, World, Writer
from tests.unit.store.server.test_connection import SEGMENT, WRITER, append_end, run, serving

OTHER = "s/other/0.#epoch.0"
LIMITS = replace(
    SMALL,
    containers=1,
    max_dirty_bytes=100_000,
    flush=replace(SMALL.flush, interval_seconds=1000, trigger_bytes=1 << 40),
)


@asynccontextmanager
async def exhausted():
    """A server without room for appends."""
    async with serving(World(limits=LIMITS)) as server:
        container = server.store.container(SEGMENT)
        for name in (SEGMENT, OTHER):
            await container.create(name)
        container.state.dirty.add_operation(100_000)
        container.account()
        yield server, container


async def until(true):
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0)


async def held_back(server, container, *segments):
    """A client whose appends to `segments`, one after the other by the same writer, are held back."""
    client = await server.client()
    before = container.throttled
    for number, segment in enumerate(segments, 1):
        await client.ask(wire.SetupAppend(2, WRITER, segment, ""))
        client.send(append_end(b"x" * 1000, 1, 1))
        while container.throttled < before + number:
            await asyncio.sleep(0)
    return client


def test_what_a_client_left_is_not_kept():
    """One that reconnects sends it again: what waited grew with each connection, without a bound."""

    async def main():
        async with exhausted() as (server, container):
            for _ in range(5):
                client = await held_back(server, container, SEGMENT)
                assert container.throttled == 1
                client.writer.close()
                await until(lambda: container.throttled == 0)

    run(main())


def test_nor_what_its_writer_had_left_before_for_another_segment():
    async def main():
        async with exhausted() as (server, container):
            client = await held_back(server, container, SEGMENT, OTHER)
            client.writer.close()
            await until(lambda: container.throttled == 0)

    run(main())


def test_what_others_have_waiting_stays_in_its_order():
    async def main():
        async with exhausted() as (server, container):
            writer = Writer(server.store, SEGMENT, b"o" * 16)
            await writer.set_up()
            writer.append(b"first", 1)
            client = await held_back(server, container, SEGMENT)
            writer.append(b"second", 2)
            client.writer.close()
            await until(lambda: container.throttled == 2)
            container.state.dirty.add_operation(-100_000)
            container.account()
            assert [number for number, *_ in (await writer.settled()).acknowledgements] == [1, 2]
            assert container.state.names[SEGMENT].length == len(b"firstsecond")

    run(main())


def test_an_event_number_that_goes_back_among_those_held_back_ends_the_connection():
    """Nothing had a number yet when it came: what it repeats of the one before was stored twice."""

    async def main():
        async with exhausted() as (server, container):
            client = await server.client()
            await client.ask(wire.SetupAppend(2, WRITER, SEGMENT, ""))
            client.send(append_end(b"five", 1, 5), append_end(b"four", 1, 4))
            await until(lambda: container.throttled == 2)
            container.state.dirty.add_operation(-100_000)
            container.account()
            assert (await client.reply()).event_number == 5
            assert isinstance(await client.reply(), wire.InvalidEventNumber)
            await client.closed()
            assert await container.get_attribute(SEGMENT, WRITER) == 5

    run(main())


def test_many_connections_that_end_look_through_what_is_held_back_once():
    """Each looked through all of it: with a million held back, the node stood still when many clients gave up."""

    async def main():
        async with exhausted() as (server, container):
            clients = []
            for number in range(20):
                clients.append(await server.client())
                writer = b"%016d" % number
                await clients[-1].ask(wire.SetupAppend(2, writer, SEGMENT, ""))
                clients[-1].send(append_end(b"x", 1, 1, writer=writer))
            await until(lambda: container.throttled == 20)
            reader = await server.client()
            reader.writer.transport.abort()
            await until(lambda: len(server.server._connections) == 20)
            assert not container.append_gate._sweep_scheduled
            for client in clients:
                client.writer.transport.abort()
            await until(lambda: not server.server._connections)
            assert container.append_gate._sweep_scheduled
            assert container.throttled == 20
            await until(lambda: container.throttled == 0)
            assert not container.append_gate._sweep_scheduled

    run(main())
