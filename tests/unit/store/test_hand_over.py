"""Two stores on one set of logs: hand-overs under load, fences, and the right to answer."""

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sarit.core.errors import Fenced, Moved, Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.env.real import RealNetwork
from sarit.store.hosting import hosted_container as hosted
from sarit.store.hosting.health import HealthState
from sarit.store.server import held_requests
from sarit.store.server.internal_handler import InternalHandler
from sarit.store.server.listener import StoreListener
from sarit.store.store import SegmentStore, container_of
from sarit.wire import commands as wire
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import World, Writer, memory_env, read_all
from tests.unit.store.placements import RecordedPlacement
from tests.unit.store.server.test_connection import SECRET, WRITER, Client, append_end

NAME = "scope/stream/0.#epoch.0"
NUMBER = container_of(NAME, 2)


class Peer:
    """A store that owns what it is given, and its listener."""

    def __init__(self, world, lease=None):
        env = replace(memory_env(), network=RealNetwork())
        self.placement = lease or RecordedPlacement()
        self.released, self.fenced = self.placement.releases, self.placement.fences
        self.store = SegmentStore(
            env, world.logs, world.indexes, world.storage, world.limits, owned=frozenset(), placement=self.placement
        )
        self.listener = StoreListener(self.store, internal=InternalHandler(self.store, SECRET))

    async def start(self):
        await self.store.start()
        self.port = await self.listener.listen("127.0.0.1", 0)

    async def own(self, version=1, number=NUMBER):
        self.store.own(number, version)
        await self.reaches(HealthState.SERVING, number)

    async def reaches(self, state, number=NUMBER):
        await until(lambda: self.store.health()[number].state is state)

    async def client(self, version=17):
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        await client.ask(wire.Hello(version, 5))
        return client

    async def controller(self):
        client = await self.client()
        await client.ask(wire.Introduce(1, SECRET))
        return client


async def until(condition):
    async with asyncio.timeout(HANG_SECONDS):
        while not condition():
            await asyncio.sleep(0)


@asynccontextmanager
async def peers(count=2, world=None, **leases):
    world = world or World()
    made = [Peer(world, leases.get(f"lease_{number}")) for number in range(count)]
    for peer in made:
        await peer.start()
    yield made
    for peer in made:
        await peer.listener.close()
        await peer.store.stop()


def run(test):
    asyncio.run(asyncio.wait_for(test, HANG_SECONDS))


async def writer_at(peer, **options):
    client = await peer.client(**options)
    await peer.store.container(NAME).create(NAME)
    assert isinstance(await client.ask(wire.SetupAppend(2, WRITER, NAME, "")), wire.AppendSetup)
    return client


def test_appends_of_a_hand_over_are_acknowledged_or_sent_away_and_the_connection_stays_open():
    async def main():
        world = World()
        world.logs.delay_seconds = 0.001
        async with peers(world=world) as (a, b):
            await a.own()
            client = await writer_at(a)
            a.store.release(NUMBER, graceful=True)
            acknowledged, number, answer = 0, 0, None
            while not isinstance(answer, wire.WrongHost):
                number += 1
                client.send(append_end(b"%04d" % number, 1, number, request=number))
                await asyncio.sleep(0.001)
                while client.replies or number - acknowledged > 20:
                    answer = await client.reply()
                    if isinstance(answer, wire.WrongHost):
                        break
                    acknowledged = answer.event_number
            assert (answer.request_id, answer.segment) == (acknowledged + 1, NAME), "the first that nobody took"
            assert a.released == [NUMBER]
            client.send(append_end(b"late", 1, number + 1))
            # The client has its answer: this one is dropped, and the connection lives.
            assert await client.ask(wire.KeepAlive()) == wire.KeepAlive()
            await b.own()
            there = await b.client()
            setup = await there.ask(wire.SetupAppend(7, WRITER, NAME, ""))
            assert setup.last_event_number == acknowledged
            assert await read_all(b.store, NAME) == b"".join(b"%04d" % n for n in range(1, acknowledged + 1))

    run(main())


def test_writers_wait_until_the_map_names_the_next_owner():
    """The controllers sent them back: after five wrong answers in a row Pravega's clients paused for 10 s and more."""

    async def main():
        async with peers() as (a, b):
            await a.own()
            client = await writer_at(a)
            named = asyncio.Event()
            a.placement.on_released = lambda number: named
            a.store.release(NUMBER, graceful=True)
            await a.reaches(HealthState.ABSENT)
            a.store.release(NUMBER, graceful=True)  # by the next map, in which another container has moved
            await b.own()
            # Both a writer that was set up, and one that comes from a controller that has not seen the change yet.
            client.send(append_end(b"x", 1, 1, request=9))
            other = await a.client()
            other.send(wire.SetupAppend(7, WRITER, NAME, ""))
            for each in (client, other):
                assert await each.ask(wire.KeepAlive()) == wire.KeepAlive()
            named.set()
            assert await client.reply() == wire.WrongHost(9, NAME, "")
            assert await other.reply() == wire.WrongHost(7, NAME, "")

    run(main())


def test_writers_are_sent_away_when_the_map_cannot_be_changed(monkeypatch):
    async def main():
        monkeypatch.setattr(hosted, "RELEASE_REPORT_SECONDS", 0.01)
        async with peers(1) as (a,):
            await a.own()
            client = await writer_at(a)
            a.placement.on_released = lambda number: asyncio.Event()
            a.store.release(NUMBER, graceful=True)
            await a.reaches(HealthState.ABSENT)
            assert await client.ask(append_end(b"x", 1, 1, request=9)) == wire.WrongHost(9, NAME, "")

    run(main())


def test_idle_writer_is_sent_away_by_its_next_append():
    async def main():
        async with peers() as (a, _):
            await a.own()
            client = await writer_at(a)
            a.store.release(NUMBER, graceful=True)
            await a.reaches(HealthState.ABSENT)
            assert await client.ask(append_end(b"x", 1, 1, request=9)) == wire.WrongHost(9, NAME, "")

    run(main())


def test_throttled_appends_are_sent_away():
    async def main():
        async with peers() as (a, _):
            await a.own()
            client = await writer_at(a)
            a.store.budget.disk_full = True  # the append gate closes
            client.send(append_end(b"x", 1, 1, request=8), append_end(b"y", 1, 2, request=9))
            await until(lambda: a.store.serving()[0].throttled == 2)
            a.store.release(NUMBER, graceful=True)
            assert await client.reply() == wire.WrongHost(8, NAME, "")
            assert await client.ask(wire.KeepAlive()) == wire.KeepAlive()

    run(main())


def test_parked_read_is_answered_empty_and_the_next_one_is_sent_away():
    async def main():
        async with peers() as (a, _):
            await a.own()
            await writer_at(a)
            reader = await a.client()
            reader.send(wire.ReadSegment(NAME, 0, 100, "", 9))
            assert await reader.ask(wire.KeepAlive()) == wire.KeepAlive()
            a.store.release(NUMBER, graceful=True)
            read = await reader.reply()
            assert (bytes(read.data), read.at_tail, read.request_id) == (b"", True, 9)
            assert await reader.ask(wire.ReadSegment(NAME, 0, 100, "", 10)) == wire.WrongHost(10, NAME, "")

    run(main())


REQUESTS = [
    wire.SetupAppend(5, WRITER, NAME, ""),
    wire.ReadSegment(NAME, 0, 100, "", 5),
    wire.GetStreamSegmentInfo(5, NAME, ""),
    wire.CreateTransientSegment(5, b"t" * 16, NAME, ""),
]


@pytest.mark.parametrize("command", REQUESTS, ids=lambda command: type(command).__name__)
def test_requests_wait_while_their_container_opens(command):
    async def main():
        async with peers(1) as (a,):
            await a.own()
            writer = await writer_at(a)
            await writer.ask(append_end(b"abc", 1, 1))
            gate = asyncio.Event()
            right = a.store.parts.logs.claim

            async def claim(number):
                await gate.wait()
                return await right(number)

            a.store.parts.logs.claim = claim
            a.store.release(NUMBER, graceful=True)
            await a.reaches(HealthState.ABSENT)
            a.store.own(NUMBER, 2)
            client = await a.client()
            client.send(command)
            assert await client.ask(wire.KeepAlive()) == wire.KeepAlive()
            with pytest.raises(Unavailable):
                a.store.container(NAME)
            gate.set()
            reply = await client.reply()
            assert reply.request_id == 5
            assert not isinstance(reply, wire.WrongHost)

    run(main())


@pytest.mark.parametrize("command", REQUESTS, ids=lambda command: type(command).__name__)
def test_requests_that_waited_too_long_end_their_connection(command, monkeypatch):
    monkeypatch.setattr(held_requests, "OPENING_WAIT_SECONDS", 0.05)

    async def main():
        async with peers(1, lease_0=RecordedPlacement(mine=False)) as (a,):
            a.store.own(NUMBER, 1)  # and the newest map gives it to another store: no attempt begins
            client = await a.client()
            client.send(command)
            await client.closed()

    run(main())


def test_rust_client_is_sent_away_after_a_delay(monkeypatch):
    async def main():
        async with peers(1) as (a,):
            loop, client = asyncio.get_running_loop(), await a.client(version=15)
            for request in range(3):
                before = loop.time()
                assert isinstance(await client.ask(wire.SetupAppend(request, WRITER, NAME, "")), wire.WrongHost)
                assert loop.time() - before >= 0.09

    run(main())


@pytest.mark.parametrize(("version", "forwarded"), [(15, True), (17, False)])
def test_request_on_a_table_that_moved_is_forwarded_for_the_rust_client_alone(version, forwarded):
    async def main():
        async with peers(1) as (a,):
            asked = []

            async def ask_owner(command):
                asked.append(command)
                return wire.TableRead(command.request_id, command.segment, ())

            a.listener._control._ask_owner = ask_owner
            client = await a.client(version=version)
            read = wire.ReadTable(5, NAME, "", ())
            reply = await client.ask(read)
            assert isinstance(reply, wire.TableRead if forwarded else wire.WrongHost)
            assert bool(asked) is forwarded
            info = wire.GetStreamSegmentInfo(6, NAME, "")
            assert isinstance(await client.ask(info), wire.WrongHost), "it asks the controller again"

    run(main())


def test_two_owners_end_after_one_recovery_each_fault():
    """Two stores that opened every container that was fenced took them from each other without end."""

    async def main():
        async with peers() as (a, b):
            await a.own(1)
            writer = Writer(a.store, NAME)
            await a.store.container(NAME).create(NAME)
            await writer.set_up()
            epoch = a.store.container(NAME).log.epoch
            await b.own(1)  # the fault: both believe to own it
            opened = b.store.container(NAME).log.epoch
            writer.append(b"lost", 1)
            await until(lambda: a.fenced)
            await a.reaches(HealthState.ABSENT)
            assert a.fenced == [(NUMBER, 1)]
            assert isinstance(writer.replies.errors[0], Unavailable)
            for _ in range(3):  # late watches
                a.store.own(NUMBER, 1)
                for _ in range(100):
                    await asyncio.sleep(0)
            with pytest.raises(Moved):
                a.store.container(NAME)
            again = Writer(b.store, NAME)
            assert await again.set_up() == NULL_ATTRIBUTE_VALUE
            again.append(b"kept", 1)
            await again.wait_for_replies()
            assert not again.replies.errors
            assert b.store.container(NAME).log.epoch == opened > epoch
            # The map's next version gives it back: one more opening, and that is all.
            await a.own(2)
            assert await read_all(a.store, NAME) == b"kept"
            with pytest.raises(Unavailable):
                await b.store.container(NAME).seal(NAME)
            await b.reaches(HealthState.ABSENT)
            assert (a.fenced, b.fenced) == ([(NUMBER, 1)], [(NUMBER, 1)])
            await read_all(a.store, NAME)

    run(main())


def test_container_fenced_while_it_opens_ends_absent(monkeypatch):
    async def main():
        async with peers(1) as (a,):

            async def claim(number):
                raise Fenced("made to fail")

            monkeypatch.setattr(a.store.parts.logs, "claim", claim)
            a.store.own(NUMBER, 7)
            await until(lambda: a.fenced)
            await a.reaches(HealthState.ABSENT)
            assert a.fenced == [(NUMBER, 7)]

    run(main())


def test_lost_membership_ends_every_container_at_once():
    async def main():
        world = World()
        async with peers(world=world) as (a, _):
            await a.own(1, 0)
            await a.own(1, 1)
            client = await writer_at(a)
            world.logs.hold_appends = True
            client.send(append_end(b"x", 1, 1))
            await until(lambda: not a.store.container(NAME).group_commit.idle)
            commits = world.indexes.commits(NUMBER)
            a.store.lost()
            with pytest.raises(Unavailable):
                a.store.container(NAME)
            await client.closed()  # nobody knows whether the append is stored
            world.logs.hold_appends = False
            await a.reaches(HealthState.ABSENT, 0)
            await a.reaches(HealthState.ABSENT, 1)
            assert world.indexes.commits(NUMBER) == commits

    run(main())


def segment_of(container, kind):
    names = (f"scope/{kind}{number}{'_kvtable' if kind == 'table' else ''}/0.#epoch.0" for number in itertools.count())
    return next(name for name in names if container_of(name, 2) == container)


TABLE, OTHER = segment_of(NUMBER, "table"), segment_of(NUMBER, "other")
CHANGES = [
    (wire.UpdateTableEntries(5, TABLE, "", (wire.TableEntry(b"new", -1, b"v"),), -1), wire.TableEntriesUpdated),
    (wire.RemoveTableKeys(5, TABLE, "", (wire.TableKey(b"k"),), -1), wire.TableKeysRemoved),
    (wire.UpdateSegmentAttribute(5, NAME, b"k" * 16, 7, NULL_ATTRIBUTE_VALUE, ""), wire.SegmentAttributeUpdated),
    (wire.CreateSegment(5, segment_of(NUMBER, "new"), 0, 0, "", 0), wire.SegmentCreated),
    (wire.DeleteSegment(5, OTHER, ""), wire.SegmentDeleted),
    (wire.MergeSegments(5, NAME, OTHER, ""), wire.SegmentsMerged),
]


@pytest.mark.parametrize(("command", "made"), CHANGES, ids=lambda command: type(command).__name__)
def test_change_that_becomes_durable_as_its_container_leaves_is_answered_as_made(command, made):
    async def main():
        world = World()
        # Without a lease an answer that rests on a read waits for a proof, and the container leaves meanwhile.
        async with peers(1, world=world, lease_0=RecordedPlacement(valid=False)) as (a,):
            await a.own()
            await writer_at(a)
            client = await a.controller()
            await client.ask(wire.CreateSegment(1, OTHER, 0, 0, "", 0))
            await client.ask(wire.CreateTableSegment(1, TABLE, "", False, 0, 0))
            await client.ask(wire.UpdateTableEntries(1, TABLE, "", (wire.TableEntry(b"k", -1, b"v"),), -1))
            if isinstance(command, wire.MergeSegments):
                await client.ask(wire.SealSegment(1, OTHER, ""))
            container = a.store.container(NAME)
            world.logs.hold_appends = True
            client.send(command)
            await until(lambda: not container.group_commit.idle)
            a.store.release(NUMBER, graceful=True)
            await until(lambda: a.store.health()[NUMBER].state is HealthState.DRAINING)
            world.logs.hold_appends = False
            reply = await client.reply()
            assert isinstance(reply, made), reply
            assert getattr(reply, "success", True)

    run(main())


def test_release_reports_after_log_and_index_are_closed():
    async def main():
        async with peers(1) as (a,):
            await a.own()
            container, closed = a.store.serving()[0], []
            for part in ("log", "index"):
                right = getattr(container, part).close

                async def close(part=part, right=right):
                    await right()
                    closed.append(part)

                getattr(container, part).close = close
            a.placement.on_released = lambda number: closed.append(number)
            a.store.release(NUMBER, graceful=True)
            await a.reaches(HealthState.ABSENT)
            assert closed == ["log", "index", NUMBER]
            a.store.release(NUMBER, graceful=True)
            assert closed[3:] == [NUMBER], "each command gets its report"

    run(main())


def test_graceful_release_flushes_while_it_serves():
    async def main():
        world = World()
        async with peers(world=world) as (a, _):
            await a.own()
            await a.store.container(NAME).create(NAME)
            writer = Writer(a.store, NAME)
            await writer.set_up()
            opened = a.store.opened()[0]
            storage, gate = world.storage.write, asyncio.Event()

            async def slow(*arguments):
                await gate.wait()
                await storage(*arguments)

            world.storage.write = slow
            writer.append(bytes(5 << 20), 1)
            await writer.wait_for_replies()
            a.store.release(NUMBER, graceful=True)
            for _ in range(50):
                await asyncio.sleep(0)
            assert a.store.health()[NUMBER].state is HealthState.SERVING
            writer.append(b"on", 2)
            await writer.wait_for_replies()
            gate.set()
            await a.reaches(HealthState.ABSENT)
            assert opened.container.state.dirty.append_bytes < 4 << 20
            assert [number for number, _, _ in writer.replies.acknowledgements] == [1, 2]

    run(main())
