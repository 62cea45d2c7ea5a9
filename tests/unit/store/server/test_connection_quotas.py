"""Quotas at a connection of a store: bytes wait, and nothing is refused."""

from __future__ import annotations

import asyncio

from sarit.core.limits import KIB, MIB
from sarit.security.quotas import Quota, Quotas
from sarit.store.server import transient_segments
from sarit.wire import commands as wire
from tests.limits import patient
from tests.unit.store.harness import World
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
            (connection,) = server.server._connections
            assert connection._take_append == connection._appends.append
            limit(server, bytes_in=64 * KIB)
            assert connection._take_append != connection._appends.append, "an open connection asks the quotas, too"
            await append(client, 2 * MIB, 1)
            client.send(append_end(b"x", 1, 2))
            while not await stopped(server):
                await asyncio.sleep(0)
            limit(server)
            assert isinstance(await client.reply(), wire.DataAppended)
            assert not await stopped(server)
            await append(client, 10, 3)
            assert connection._take_append == connection._appends.append, "without quotas nobody is asked"

    # Well below the wait that the quota asks for, 32 s.
    asyncio.run(asyncio.wait_for(main(), min(20.0, patient(5.0))))


def test_full_scope_takes_no_appends_until_it_is_not_full():
    async def main():
        async with serving() as server:
            client = await ready(server)
            await append(client, 10, 1)
            limit(server, SCOPE, storage_bytes=1)
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
            client.send(append_end(b"x", 1, 2))
            while not await stopped(server):
                await asyncio.sleep(0)
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


async def length(client: Client) -> int:
    return (await client.ask(wire.GetStreamSegmentInfo(9, SEGMENT, ""))).write_offset


async def writer(server: Server, number: int) -> Client:
    client = await server.client()
    assert isinstance(await client.ask(wire.SetupAppend(2, bytes([number]) * 16, SEGMENT, "")), wire.AppendSetup)
    return client


def test_who_connects_again_pays_for_what_was_sent_before():
    async def main():
        async with serving() as server:
            await ready(server)
            limit(server, bytes_in=MIB)
            other = await server.client()
            for number in range(1, 6):
                client = await writer(server, number)
                client.send(append_end(b"x" * (4 * MIB), 1, 1, writer=bytes([number]) * 16))
                if number == 1:
                    assert isinstance(await client.reply(), wire.DataAppended)
                while sum(connection.quotas.stopped for connection in server.server._connections) < number:
                    await asyncio.sleep(0)
                client.writer.transport.abort()
            # One append, which a connection may always bring; the others were never taken.
            assert await length(other) == 4 * MIB
            assert 2 < server.store.quotas.write_delay(SCOPE, "") < 4
            waiting = [connection._appends.unacked_bytes for connection in server.server._connections]
            assert max(waiting) < MIB  # no more of them than one read brought

    run(main())


def test_full_scope_takes_nothing_from_a_new_connection():
    async def main():
        async with serving() as server:
            await ready(server)
            limit(server, SCOPE, storage_bytes=1)
            client = await server.client()
            # Set-up and appends in one read: the appends wait for the set-up first.
            client.send(
                wire.SetupAppend(2, b"n" * 16, SEGMENT, ""),
                *(append_end(b"x" * MIB, 1, number, writer=b"n" * 16) for number in range(1, 9)),
            )
            assert isinstance(await client.reply(), wire.AppendSetup)
            while not await stopped(server):
                await asyncio.sleep(0)
            assert await length(await server.client()) == 0
            limit(server)
            last = 0
            while last < 8:
                last = (await client.reply()).event_number
            assert await length(await server.client()) == 8 * MIB

    run(main())


def test_appends_that_wait_for_a_quota_keep_their_order():
    async def main():
        async with serving() as server:
            client = await ready(server)
            limit(server, bytes_in=MIB)
            server.store.quotas.received(SCOPE, "", MIB)
            client.send(*(append_end(bytes([number]) * (64 * KIB), 1, number) for number in range(1, 9)))
            numbers = []
            while not numbers or numbers[-1] < 8:
                numbers.append((await client.reply()).event_number)
            assert numbers == sorted(numbers)
            read = await client.ask(wire.ReadSegment(SEGMENT, 0, MIB, "", 9))
            assert list(dict.fromkeys(bytes(read.data))) == list(range(1, 1 + len(read.data) // (64 * KIB)))
            assert all(connection._appends.unacked_bytes == 0 for connection in server.server._connections)

    run(main())


def test_tables_that_clients_make_are_counted_and_refused_beyond_the_quota():
    async def main():
        async with serving() as server:
            client = await server.client()
            limit(server, segments=2)

            async def make(number: int) -> wire.Command:
                return await client.ask(wire.CreateTableSegment(9, f"{SCOPE}/g{number}_kvtable/0.#epoch.0", ""))

            assert isinstance(await make(1), wire.SegmentCreated)
            assert isinstance(await make(1), wire.SegmentAlreadyExists)
            assert isinstance(await make(2), wire.SegmentCreated)
            refused = await make(3)
            assert isinstance(refused, wire.ErrorMessage)
            assert "as many segments in scope s as its quota allows" in refused.message
            again = await server.client()  # a new connection has no quota of its own
            assert isinstance(
                await again.ask(wire.CreateTableSegment(9, f"{SCOPE}/g3_kvtable/0.#epoch.0", "")),
                wire.ErrorMessage,
            )
            deletion = wire.DeleteTableSegment(9, f"{SCOPE}/g1_kvtable/0.#epoch.0", False, "")
            assert isinstance(await client.ask(deletion), wire.SegmentDeleted)
            assert isinstance(await make(3), wire.SegmentCreated)

    run(main())


def test_tables_of_before_the_quota_and_before_the_start_count():
    async def main():
        world = World()
        for first in (True, False):
            async with serving(world) as server:
                client = await server.client()
                name = f"{SCOPE}/g_kvtable/0.#epoch.0"
                if first:
                    assert isinstance(await client.ask(wire.CreateTableSegment(9, name, "")), wire.SegmentCreated)
                limit(server, segments=1)
                more = name.replace("/g", "/h")
                assert isinstance(await client.ask(wire.CreateTableSegment(9, more, "")), wire.ErrorMessage)

    run(main())


def test_update_of_a_table_is_charged_and_waits_for_a_full_scope_and_a_removal_does_not():
    async def main():
        async with serving() as server:
            client, table = await server.client(), f"{SCOPE}/g_kvtable/0.#epoch.0"
            await client.ask(wire.CreateTableSegment(9, table, ""))
            put = wire.UpdateTableEntries(9, table, "", (wire.TableEntry(b"k", -(1 << 63), b"v"),), -1)
            limit(server, bytes_in=MIB)
            await client.ask(put)
            assert sum(size for _, direction, size, _ in server.store.quotas.scopes_charged() if direction == "in")
            limit(server, SCOPE, storage_bytes=1)
            client.send(put, wire.RemoveTableKeys(8, table, "", (wire.TableKey(b"k" * 2000, -(1 << 63)),), -1))
            assert (await client.reply()).request_id == 8
            assert not client.replies

    run(main())


def test_transient_segments_of_a_connection_are_bounded(monkeypatch):
    monkeypatch.setattr(transient_segments, "MAX_TRANSIENT_SEGMENTS", 2)

    async def main():
        async with serving() as server:
            client = await ready(server)
            made = [await client.ask(wire.CreateTransientSegment(9, WRITER, SEGMENT, "")) for _ in range(3)]
            assert isinstance(made[2], wire.ErrorMessage)
            assert "at most 2 transient segments" in made[2].message
            merged = await client.ask(wire.MergeSegments(9, SEGMENT, made[0].segment, ""))
            assert isinstance(merged, wire.SegmentsMerged)
            again = await client.ask(wire.CreateTransientSegment(9, WRITER, SEGMENT, ""))
            assert isinstance(again, wire.SegmentCreated)

    run(main())
