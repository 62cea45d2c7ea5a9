"""Mirrors: clients may read them, and change nothing; controllers may."""

from __future__ import annotations

from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.core.names import transient_segment
from sarit.security.permissions import Permission
from sarit.store.server.access import NEEDS
from sarit.store.server.control_handler import FORWARDED
from sarit.wire import commands as wire
from tests.unit.store.server.test_connection import ATTRIBUTE, SEGMENT, WRITER, append_end, ready, run, serving

START = 1000
PARTITION = "s/t_kvtable/0.#epoch.0"
TRANSIENT = transient_segment(SEGMENT, b"t" * 16, b"r" * 16)
KEY = wire.TableKey(b"k", -1)

# Each request of a client that changes something, on a mirror.
CHANGES = {
    wire.SetupAppend: wire.SetupAppend(2, WRITER, SEGMENT, ""),
    wire.CreateTransientSegment: wire.CreateTransientSegment(2, WRITER, SEGMENT, ""),
    wire.MergeSegments: wire.MergeSegments(2, SEGMENT, TRANSIENT, ""),
    wire.UpdateSegmentAttribute: wire.UpdateSegmentAttribute(2, SEGMENT, ATTRIBUTE, 1, NULL_ATTRIBUTE_VALUE, ""),
    wire.TruncateSegment: wire.TruncateSegment(2, SEGMENT, START + 1, ""),
    wire.SealSegment: wire.SealSegment(2, SEGMENT, ""),
    wire.CreateTableSegment: None,  # of a table that exists: refused by that
    wire.DeleteTableSegment: wire.DeleteTableSegment(2, PARTITION, False, ""),
    wire.UpdateTableEntries: wire.UpdateTableEntries(2, PARTITION, "", (wire.TableEntry(b"k", -1, b"v"),), -1),
    wire.RemoveTableKeys: wire.RemoveTableKeys(2, PARTITION, "", (KEY,), -1),
}


async def mirror(server):
    """A mirror of four bytes from START on, a transient segment of it as there was before, and a table."""
    container = server.store.container(SEGMENT)
    await container.create(SEGMENT, offset=START, mirror=True)
    await server.store.container(TRANSIENT).create(TRANSIENT)
    await server.store.tables(PARTITION).create(PARTITION, 0, position=START, mirror=True)
    controller = await server.controller()
    done = await controller.ask(wire.AppendBatch(3, True, (wire.OffsetWrite(SEGMENT, START, b"data"),)))
    assert done == wire.BatchDone(3, (wire.BatchOutcome(0, START + 4, b"", ""),))
    return controller


async def unchanged(server):
    info = await server.store.container(SEGMENT).info(SEGMENT)
    table = await server.store.tables(PARTITION).info(PARTITION)
    return (info.length, info.start_offset, info.sealed, table.length) == (START + 4, START, False, START)


def test_every_change_by_a_client_is_refused():
    assert set(CHANGES) == {command for command, need in NEEDS.items() if need.permission is Permission.READ_UPDATE}

    async def main():
        async with serving() as server:
            await mirror(server)
            for command in filter(None, CHANGES.values()):
                client = await server.client()
                reply = await client.ask(command)
                assert isinstance(reply, wire.AuthTokenCheckFailed), command
                assert "is a mirror of another installation" in reply.stack
                assert (reply.request_id, reply.error_code) == (2, 0)
                assert await unchanged(server), command

    run(main())


def test_clients_read_a_mirror():
    async def main():
        async with serving() as server:
            await mirror(server)
            client = await server.client()
            read = await client.ask(wire.ReadSegment(SEGMENT, START, 100, "", 9))
            assert bytes(read.data) == b"data"
            low = await client.ask(wire.ReadSegment(SEGMENT, 0, 100, "", 9))
            assert low == wire.SegmentIsTruncated(9, SEGMENT, START, "", 0)
            assert (await client.ask(wire.LocateOffset(9, SEGMENT, 0, ""))).offset == START

    run(main())


def test_appends_after_a_refused_set_up_are_not_stored():
    async def main():
        async with serving() as server:
            await mirror(server)
            client = await server.client()
            client.send(wire.SetupAppend(2, WRITER, SEGMENT, ""), append_end(b"x", 1, 1))
            assert isinstance(await client.reply(), wire.AuthTokenCheckFailed)
            client.send(wire.ConditionalAppend(WRITER, 2, START + 4, b"y", 4), wire.KeepAlive())
            assert await client.reply() == wire.KeepAlive()
            assert await unchanged(server)

    run(main())


def test_requests_that_another_store_forwards_for_a_client_are_refused():
    async def main():
        async with serving() as server:
            controller = await mirror(server)
            forwarded = wire.UpdateTableEntries(2, PARTITION, FORWARDED, (wire.TableEntry(b"k", -1, b"v"),), -1)
            assert isinstance(await controller.ask(forwarded), wire.AuthTokenCheckFailed)
            assert await unchanged(server)

    run(main())


def test_controllers_change_a_mirror():
    async def main():
        async with serving() as server:
            controller = await mirror(server)
            changes = [command for kind, command in CHANGES.items() if command and kind is not wire.SetupAppend]
            for command in changes[1:]:  # a controller has no use for transient segments
                assert not isinstance(await controller.ask(command), wire.AuthTokenCheckFailed), command

    run(main())


def test_released_table_is_changed_by_clients():
    async def main():
        async with serving() as server:
            controller = await mirror(server)
            client = await server.client()
            update = CHANGES[wire.UpdateTableEntries]
            assert isinstance(await client.ask(update), wire.AuthTokenCheckFailed)
            await controller.ask(wire.SetMirror(4, PARTITION, False))
            assert await client.ask(update) == wire.TableEntriesUpdated(2, (START,))

    run(main())


def test_other_segments_take_appends():
    async def main():
        async with serving() as server:
            client = await ready(server)
            client.send(append_end(b"x", 1, 1))
            assert isinstance(await client.reply(), wire.DataAppended)

    run(main())
