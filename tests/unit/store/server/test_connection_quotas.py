"""Quotas at a connection of a store: bytes wait, and nothing is refused."""

from __future__ import annotations

import asyncio

from sarit.core.limits import KIB, MIB
from sarit.security.quotas import Quota, Quotas
from sarit.wire import commands as wire
from tests.unit.store.server.test_connection import SEGMENT, WRITER, Client, Server, append_end, ready, run, serving

SCOPE = SEGMENT.partition("/")[0]


def limit(server: Server, *full: str, **limits: int) -> None:
    server.store.quotas.use(Quotas({f"scope:{SCOPE}": Quota(**limits)} if limits else {}, full), 1)


def throttled_seconds(server: Server) -> float:
    return sum(seconds for *_, seconds in server.store.quotas.scopes_charged())


async def append(client: Client, size: int, number: int) -> None:
    client.send(append_end(b"x" * size, 1, number))
    reply = await client.reply()
    assert isinstance(reply, wire.DataAppended)


async def stopped(server: Server) -> bool:
    return any(connection.quotas.stopped for connection in server.server._connections)


def test_connection_over_its_quota_is_not_read_from_until_it_has_paid():
    async def main():
        async with serving() as server:
            client = await ready(server)
            limit(server, bytes_in=8 * MIB)
            await append(client, 6 * MIB, 1)  # half a second of it is a burst
            await append(client, 10, 2)
            assert throttled_seconds(server) > 0.2

    run(main())


def test_connection_below_its_quota_and_other_scopes_do_not_wait():
    async def main():
        async with serving() as server:
            client = await ready(server)
            server.store.quotas.use(Quotas({"scope:other": Quota(bytes_in=64 * KIB)}), 1)
            await append(client, 2 * MIB, 1)
            assert not await stopped(server)
            limit(server, bytes_in=64 * MIB)
            await append(client, 2 * MIB, 2)
            assert throttled_seconds(server) == 0

    run(main())


def test_stop_ends_when_the_quota_is_removed():
    async def main():
        async with serving() as server:
            client = await ready(server)
            limit(server, bytes_in=64 * KIB)
            await append(client, 2 * MIB, 1)
            assert await stopped(server)
            limit(server)
            await asyncio.sleep(0)
            await append(client, 10, 2)
            assert not await stopped(server)

    # Well below the wait that the quota asks for.
    asyncio.run(asyncio.wait_for(main(), 5))


def test_full_scope_takes_no_appends_until_it_is_not_full():
    async def main():
        async with serving() as server:
            client = await ready(server)
            limit(server, SCOPE, storage_bytes=1)
            await append(client, 10, 1)  # it came before the stop
            client.send(append_end(b"x", 1, 2))
            while not await stopped(server):
                await asyncio.sleep(0)
            other = await server.client()
            assert (await other.ask(wire.ReadSegment(SEGMENT, 0, 100, "", 9))).data == b"x" * 10
            limit(server, storage_bytes=1)
            assert isinstance(await client.reply(), wire.DataAppended)

    run(main())


def test_replies_to_reads_wait_for_those_before_them():
    async def main():
        async with serving() as server:
            client = await ready(server)
            await append(client, 10, 1)
            limit(server, bytes_out=8 * MIB)
            server.store.quotas.sent(SCOPE, "", 6 * MIB)  # by another connection: a quarter of a second of debt
            reply = await client.ask(wire.ReadSegment(SEGMENT, 0, MIB, "", 9))
            assert reply.data == b"x" * 10
            assert server.store.quotas.read_delay(SCOPE, "") < 0.01
            charged = {direction: size for _, direction, size, _ in server.store.quotas.scopes_charged()}
            assert charged["out"] == 6 * MIB + 10
            assert throttled_seconds(server) > 0

    run(main())


def test_connection_that_ends_while_it_waits_is_forgotten():
    async def main():
        async with serving() as server:
            client = await ready(server)
            limit(server, bytes_in=64 * KIB)
            await append(client, 2 * MIB, 1)
            for connection in list(server.server._connections):
                connection.close()
            while server.server.connections:
                await asyncio.sleep(0.001)
            assert not server.store.quotas._waiting
            limit(server)

    run(main())


def test_writer_that_is_refused_elsewhere_does_not_pay_for_a_scope():
    async def main():
        async with serving() as server:
            client = await server.client()
            limit(server, bytes_in=64 * KIB)
            setup = await client.ask(wire.SetupAppend(2, WRITER, f"{SCOPE}/none/0.#epoch.0", ""))
            assert isinstance(setup, wire.NoSuchSegment)
            client.send(append_end(b"x" * MIB, 1, 1))
            await client.ask(wire.KeepAlive())
            assert not await stopped(server)

    run(main())
