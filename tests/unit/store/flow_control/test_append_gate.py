"""Throttled appends: they end with their connection, and none is accepted that would have been refused at once."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from sarit.store.container.writer_session import WriterSession
from sarit.wire import commands as wire
from simulation.mutants.patching import patched
from tests.limits import HANG_SECONDS
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
async def over_limit():
    """A server over its append limit."""
    async with serving(World(limits=LIMITS)) as server:
        container = server.store.container(SEGMENT)
        for name in (SEGMENT, OTHER):
            await container.create(name)
        container.state.dirty.add_operation(100_000)
        container.account()
        yield server, container


async def until(true):
    async with asyncio.timeout(HANG_SECONDS):
        while not true():
            await asyncio.sleep(0)


async def throttled_client(server, container, *segments):
    """A client whose appends to `segments`, one after the other by the same writer, are throttled."""
    client = await server.client()
    before = container.throttled
    for number, segment in enumerate(segments, 1):
        await client.ask(wire.SetupAppend(2, WRITER, segment, ""))
        client.send(append_end(b"x" * 1000, 1, 1))
        while container.throttled < before + number:
            await asyncio.sleep(0)
    return client


def test_throttled_appends_of_a_closed_connection_are_refused():
    """A client that reconnects sends the append again: the queue grew with each connection, without a bound."""

    async def main():
        async with over_limit() as (server, container):
            for _ in range(5):
                client = await throttled_client(server, container, SEGMENT)
                assert container.throttled == 1
                client.writer.close()
                await until(lambda: container.throttled == 0)

    run(main())


def test_throttled_appends_of_a_replaced_session_are_refused_with_the_connection():
    async def main():
        async with over_limit() as (server, container):
            client = await throttled_client(server, container, SEGMENT, OTHER)
            client.writer.close()
            await until(lambda: container.throttled == 0)

    run(main())


def test_sweep_keeps_the_order_of_open_sessions():
    async def main():
        async with over_limit() as (server, container):
            writer = Writer(server.store, SEGMENT, b"o" * 16)
            await writer.set_up()
            writer.append(b"first", 1)
            client = await throttled_client(server, container, SEGMENT)
            writer.append(b"second", 2)
            client.writer.close()
            await until(lambda: container.throttled == 2)
            container.state.dirty.add_operation(-100_000)
            container.account()
            assert [number for number, *_ in (await writer.wait_for_replies()).acknowledgements] == [1, 2]
            assert container.state.names[SEGMENT].length == len(b"firstsecond")

    run(main())


def test_decreasing_event_number_among_throttled_appends_ends_the_connection():
    """When it was received, the append before it had no number yet: the events that both contain were stored twice."""

    async def main():
        async with over_limit() as (server, container):
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


def test_many_closed_connections_cause_one_sweep():
    """Each end scanned the whole queue: with a million throttled appends, the node stalled when many clients gave
    up."""

    async def main():
        async with over_limit() as (server, container):
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


def test_throttled_connections_take_turns():
    """A connection with many throttled appends comes after one with a single one, though it was first."""

    async def main():
        async with over_limit() as (server, container):
            noisy, quiet = await server.client(), await server.client()
            await noisy.ask(wire.SetupAppend(2, WRITER, SEGMENT, ""))
            await quiet.ask(wire.SetupAppend(2, b"q" * 16, OTHER, ""))
            noisy.send(*(append_end(b"x" * 1000, 1, number) for number in range(1, 21)))
            await until(lambda: container.throttled == 20)
            quiet.send(append_end(b"y", 1, 1, writer=b"q" * 16))
            await until(lambda: container.throttled == 21)
            submitted = []
            submit = WriterSession.submit

            def noted(session, append, expected_offset):
                submitted.append((session.writer, append.last_event_number))
                submit(session, append, expected_offset)

            with patched(WriterSession, WriterSession.submit, noted):
                container.state.dirty.add_operation(-100_000)
                container.account()
                await until(lambda: container.throttled == 0)
            assert submitted.index((b"q" * 16, 1)) == 1
            assert [number for writer, number in submitted if writer == WRITER] == list(range(1, 21))

    run(main())
