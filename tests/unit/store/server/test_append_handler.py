"""Writers whose segment is deleted or merged, and unknown writers: their sessions and their answers."""

import itertools

from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.server import append_handler
from sarit.store.store import container_of
from sarit.wire import commands as wire
from tests.unit.store.flow_control.test_append_gate import OTHER, over_limit, until
from tests.unit.store.server.test_connection import SEGMENT, WRITER, append_end, ready, run, serving


def transaction(number):
    return f"{SEGMENT}#transaction.{number:032x}"


def writer_of(number):
    return b"%016d" % number


async def in_transactions(server, client, numbers):
    """Write an event to each of some transaction segments, as the Java client does: with a writer of its own."""
    for number in numbers:
        await server.create(transaction(number))
        await client.ask(wire.SetupAppend(2, writer_of(number), transaction(number), ""))
        client.send(append_end(b"x", 1, 1, writer=writer_of(number)))
        await client.reply()


def test_sessions_end_when_their_transaction_segments_end():
    """Each session pinned its segment in memory until the client closed its connection."""

    async def main():
        async with serving() as server:
            client, controller = await ready(server), await server.controller()
            await in_transactions(server, client, range(4))
            (connection,) = [one for one in server.server._connections if len(one._appends)]
            assert len(connection._appends) == 5
            await controller.ask(wire.MergeSegments(3, SEGMENT, transaction(0), ""))
            await controller.ask(wire.MergeSegmentsBatch(3, SEGMENT, (transaction(1), transaction(2)), ""))
            await controller.ask(wire.DeleteSegment(4, transaction(3), ""))
            assert len(connection._appends) == 1
            for opened in server.store.opened():
                assert all(segment.pins == (name == SEGMENT) for name, segment in opened.container.state.names.items())
            client.send(append_end(b"x", 1, 1))
            assert (await client.reply()).segment_write_offset == 4
            client.send(*(append_end(b"x", 1, 2, writer=writer_of(number)) for number in (0, 3)))
            assert await client.reply() == wire.NoSuchSegment(5, transaction(0), "", -1)
            assert await client.reply() == wire.NoSuchSegment(5, transaction(3), "", -1)

    run(main())


def test_writer_of_a_deleted_segment_can_be_set_up_on_another():
    async def main():
        async with serving() as server:
            client = await ready(server)
            await in_transactions(server, client, [7])
            await (await server.controller()).ask(wire.DeleteSegment(4, transaction(7), ""))
            setup = await client.ask(wire.SetupAppend(2, writer_of(7), SEGMENT, ""))
            assert setup.last_event_number == NULL_ATTRIBUTE_VALUE
            client.send(append_end(b"x", 1, 1, writer=writer_of(7)))
            assert isinstance(await client.reply(), wire.DataAppended)

    run(main())


def test_throttled_appends_are_answered_once_when_their_segment_is_deleted():
    async def main():
        async with over_limit() as (server, container):
            client = await server.client()
            await client.ask(wire.SetupAppend(2, WRITER, SEGMENT, ""))
            client.send(append_end(b"x", 1, 1), append_end(b"y", 1, 2))
            await until(lambda: container.throttled == 2)
            await container.delete(SEGMENT)
            (connection,) = server.server._connections
            assert len(connection._appends) == 1
            container.state.dirty.add_operation(-100_000)
            container.account()
            assert await client.reply() == wire.NoSuchSegment(5, SEGMENT, "", -1)
            assert len(connection._appends) == 0
            assert connection._appends.unacked_bytes == 0
            assert await client.ask(wire.KeepAlive()) == wire.KeepAlive()  # one answer is enough
            assert container.state.names[OTHER].pins == 0

    run(main())


def test_append_of_an_unknown_writer_ends_the_connection(caplog):
    """If it were dropped, its client would wait for the answer for ever."""

    async def main():
        async with serving() as server:
            client = await ready(server)
            client.send(append_end(b"x", 1, 1, writer=b"n" * 16))
            await client.closed()

    run(main())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "an append came of writer 6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e, which was never set up" in line


def test_appends_sent_before_the_refusal_was_read_are_dropped():
    async def main():
        async with serving() as server:
            client = await ready(server)
            client.send(wire.SetupAppend(2, writer_of(1), "s/gone/0.#epoch.0", ""))
            client.send(append_end(b"x", 1, 1, writer=writer_of(1)))
            assert isinstance(await client.reply(), wire.NoSuchSegment)
            client.send(append_end(b"x", 1, 2, writer=writer_of(1)))
            assert await client.ask(wire.KeepAlive()) == wire.KeepAlive()

    run(main())


def test_writers_per_connection_are_bounded(monkeypatch, caplog):
    monkeypatch.setattr(append_handler, "MAX_WRITERS_PER_CONNECTION", 3)

    async def main():
        async with serving() as server:
            client = await ready(server)
            for number in range(10):  # of refused ones the latest are retained
                await client.ask(wire.SetupAppend(2, writer_of(number), "s/gone/0.#epoch.0", ""))
            (connection,) = server.server._connections
            assert len(connection._appends._ended) == 3
            for number in (1, 2, 1):
                assert isinstance(
                    await client.ask(wire.SetupAppend(2, writer_of(number), SEGMENT, "")), wire.AppendSetup
                )
            client.send(wire.SetupAppend(2, writer_of(3), SEGMENT, ""))
            await client.closed()

    run(main())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("it has set up 3 writers, which is the limit")


def test_merged_transient_segments_are_forgotten_and_unmerged_ones_deleted():
    async def main():
        async with serving() as server:
            client = await ready(server)
            (connection,) = server.server._connections
            made = (await client.ask(wire.CreateTransientSegment(3, WRITER, SEGMENT, ""))).segment
            assert len(connection._transients) == 1
            await client.ask(wire.MergeSegments(7, SEGMENT, made, ""))
            assert not connection._transients
            logs = [opened.container.log for opened in server.store.opened()]
            waiting = hold(logs)
            client.send(wire.CreateTransientSegment(3, WRITER, SEGMENT, ""))
            await until(lambda: waiting)
            client.writer.transport.abort()
            await until(lambda: not server.server._connections)
            for log in logs:
                del log.append
            for log, frame in waiting:
                log.append(*frame)
            containers = [opened.container for opened in server.store.opened()]
            await until(
                lambda: not any("#transient" in name and not segment.deleted
                                for container in containers for name, segment in container.state.names.items())
                and all(container.group_commit.idle for container in containers)
            )  # fmt: skip

    run(main())


def test_merge_of_segments_in_different_containers_is_refused_with_the_reason():
    """The source seemed to be missing: NoSuchSegment, or, in a batch, success without a merge."""

    async def main():
        async with serving() as server:
            client = await ready(server)
            client.send(append_end(b"target", 1, 1))
            await client.reply()
            containers = len(server.store.opened())
            names = (f"s/t/{number}.#epoch.0" for number in itertools.count(1))
            other = next(n for n in names if container_of(n, containers) != container_of(SEGMENT, containers))
            await server.create(other)
            controller = await server.controller()
            for request in (
                wire.MergeSegments(7, SEGMENT, other, ""),
                wire.MergeSegmentsBatch(7, SEGMENT, (other,), ""),
            ):
                refused = await controller.ask(request)
                assert type(refused) is wire.ErrorMessage, refused
                assert "in different containers and cannot be merged" in refused.message
            missing = await controller.ask(wire.MergeSegments(7, SEGMENT, f"{other}0", ""))
            assert missing == wire.NoSuchSegment(7, f"{other}0")
            for name, length in ((SEGMENT, 6), (other, 0)):
                info = await client.ask(wire.GetStreamSegmentInfo(8, name, ""))
                assert (info.write_offset, info.is_sealed) == (length, False)

    run(main())


def hold(logs):
    """Delay frames to the logs: a list of (log, arguments)."""
    waiting = []
    for log in logs:
        log.append = lambda number, parts, done, log=log: waiting.append((log, (number, list(parts), done)))
    return waiting


def test_segment_deletion_ends_the_session_that_owns_the_writer():
    """The connection that set it up before is notified by the reply to its next append."""

    async def main():
        async with serving() as server:
            first = await ready(server)
            await in_transactions(server, first, [1])
            second = await server.client()
            await second.ask(wire.SetupAppend(2, writer_of(1), transaction(1), ""))
            await (await server.controller()).ask(wire.DeleteSegment(4, transaction(1), ""))
            counts = sorted(len(one._appends) for one in server.server._connections)
            assert counts == [0, 0, 2]
            first.send(append_end(b"x", 1, 2, writer=writer_of(1)))
            assert await first.reply() == wire.NoSuchSegment(5, transaction(1), "", -1)

    run(main())


def test_latency_of_one_append_counts_for_those_that_came_since_the_one_before_it(monkeypatch):
    async def main():
        async with serving() as server:
            counted = server.store.statistics.append_seconds
            client = await ready(server)

            async def append(number):
                client.send(append_end(b"x", 1, number))
                await client.reply()

            monkeypatch.setattr(append_handler, "SAMPLE_SECONDS", 1000.0)
            await append(1)
            assert counted.count == 1
            for number in range(2, 5):
                await append(number)
            assert counted.count == 1
            monkeypatch.setattr(append_handler, "SAMPLE_SECONDS", 0.0)
            server.store.statistics.append_sampling.renew()
            refused = await client.ask(wire.ConditionalBlockEnd(WRITER, 9, 0, b"x", 8))
            assert refused == wire.ConditionalCheckFailed(WRITER, 9, 8)
            assert counted.count == 1, "one that is refused has no latency"
            await append(10)
            assert counted.count == 5, "and those before it count all the same"
            assert server.store.statistics.appends == 5
            server.store.statistics.append_sampling.due = False
            await append(11)
            server.store.statistics.complete_samples()
            assert counted.count == 6, "a reader counts the last one, too"
            server.store.statistics.complete_samples()
            assert counted.count == 6

    run(main())
