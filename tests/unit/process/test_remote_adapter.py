"""Requests to stores of other processes: where they go, what is repeated, and what is left unknown."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sarit.client.core.connection import Connection
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Conflict, Unavailable
from sarit.core.metering import ScaleAdvice
from sarit.env.real import RealNetwork
from sarit.process.store_calls.remote import RemoteSegments, RemoteTables
from sarit.process.store_calls.scale_request_watch import ScaleRequestWatch
from sarit.process.store_calls.store_connections import FixedRouter, StoreConnections
from sarit.store.server import connection
from sarit.store.server.internal_handler import InternalHandler
from sarit.store.server.listener import StoreListener
from sarit.store.store import SegmentStore, container_of
from sarit.wire import commands as wire
from sarit.wire.limits import NO_VERSION
from tests.limits import HANG_SECONDS
from tests.unit.store.harness import SMALL, World, memory_env

SECRET = b"of this installation"
SEGMENTS = [f"s/t/{number}.#epoch.0" for number in range(8)]


class Store:
    """One store of several, with a listener."""

    def __init__(self, world, owned, secret=SECRET):
        self.env = replace(memory_env(), network=RealNetwork())
        self.store = SegmentStore(self.env, world.logs, world.indexes, world.storage, SMALL, owned=frozenset(owned))
        self.handler = InternalHandler(self.store, secret)
        self.listener = StoreListener(self.store, internal=self.handler)

    async def start(self):
        await self.store.start()
        self.address = ("127.0.0.1", await self.listener.listen("127.0.0.1", 0))
        return self

    async def stop(self):
        await self.listener.close()
        await self.store.stop()


def run(test):
    async def main():
        async with asyncio.timeout(HANG_SECONDS):
            await test()

    asyncio.run(main())


def test_requests_go_to_the_store_that_owns_the_container():
    async def test():
        world = World()
        stores = [await Store(world, {number}).start() for number in range(2)]
        connections = StoreConnections(stores[0].env, FixedRouter(2, [store.address for store in stores]), SECRET)
        segments = RemoteSegments(connections, lambda own: ("advertised", own[1]))
        for name in SEGMENTS:
            await segments.create(name)
            await segments.write(name, b"x", 0)
            assert segments.endpoint(name) == ("advertised", stores[container_of(name, 2)].address[1])
        assert {container_of(name, 2) for name in SEGMENTS} == {0, 1}
        assert sorted(await segments.grown()) == SEGMENTS
        assert len(await segments.rates(SEGMENTS)) == len(SEGMENTS)
        await connections.close()
        for store in stores:
            await store.stop()

    run(test)


def test_router_is_asked_again_after_wrong_host():
    async def test():
        world = World()
        stores = [await Store(world, {number}).start() for number in range(2)]
        asked = []

        class Late:
            """Knows the owners from the third question on."""

            containers = 2

            def address(self, container):
                asked.append(container)
                return stores[container if len(asked) > 2 else 1 - container].address

        connections = StoreConnections(stores[0].env, Late(), SECRET)
        await RemoteSegments(connections).create(SEGMENTS[0])
        assert asked == [container_of(SEGMENTS[0], 2)] * 3
        await connections.close()
        for store in stores:
            await store.stop()

    run(test)


def test_fresh_segments_are_created_by_one_request_to_each_store(monkeypatch):
    async def test():
        world = World()
        stores = [await Store(world, {number}).start() for number in range(2)]
        connections = StoreConnections(stores[0].env, FixedRouter(2, [store.address for store in stores]), SECRET)
        segments = RemoteSegments(connections)
        asked = []
        right = Connection.ask

        async def ask(self, make):
            asked.append(type(make(1)))
            return await right(self, make)

        monkeypatch.setattr(Connection, "ask", ask)
        await segments.create_fresh(SEGMENTS)
        assert asked.count(wire.CreateFreshSegments) == 2
        assert wire.CreateSegment not in asked
        for name in SEGMENTS:
            assert (await segments.info(name)).length == 0
        # As after an attempt of which a part took effect.
        await segments.create_fresh(SEGMENTS)
        await connections.close()
        for store in stores:
            await store.stop()

    run(test)


def test_fresh_segments_are_created_one_by_one_at_a_store_of_an_earlier_version(monkeypatch):
    async def test():
        world = World()
        stores = [await Store(world, {number}).start() for number in range(2)]
        connections = StoreConnections(stores[0].env, FixedRouter(2, [store.address for store in stores]), SECRET)
        segments = RemoteSegments(connections)

        def decode(code, payload):
            if code == wire.CreateFreshSegments.code:
                raise wire.ProtocolError(f"there is no command {code}")
            return wire.decode(code, payload)

        monkeypatch.setattr(connection, "decode", decode)
        tried = []
        right = Connection.ask

        async def ask(self, make):
            tried.append(type(make(1)))
            return await right(self, make)

        monkeypatch.setattr(Connection, "ask", ask)
        for attempt in range(2):
            names = [f"{name}-{attempt}" for name in SEGMENTS]
            await segments.create_fresh(names)
            for name in names:
                assert (await segments.info(name)).length == 0
        # It is not asked in vain for each transaction.
        assert tried.count(wire.CreateFreshSegments) == 2
        await connections.close()
        for store in stores:
            await store.stop()

    run(test)


def test_fresh_segments_of_a_container_that_has_moved_are_created_at_its_owner():
    async def test():
        world = World()
        stores = [await Store(world, {number}).start() for number in range(2)]
        addresses = [store.address for store in stores]
        # By this map one store owns both: it refuses the request as a whole.
        router = FixedRouter(2, [addresses[0], addresses[0]])
        connections = StoreConnections(stores[0].env, router, SECRET)
        segments = RemoteSegments(connections)
        creating = asyncio.ensure_future(segments.create_fresh(SEGMENTS))
        mine = next(name for name in SEGMENTS if container_of(name, 2) == 0)
        while await stores[0].store.container(mine).metadata.find(mine) is None:
            await asyncio.sleep(0)
        router.stores[1] = addresses[1]
        await creating
        for name in SEGMENTS:
            assert await stores[container_of(name, 2)].store.container(name).length(name) == 0
        await connections.close()
        for store in stores:
            await store.stop()

    run(test)


def test_request_waits_while_nobody_owns_the_container():
    async def test():
        store = await Store(World(), {0, 1}).start()
        asked = []

        class Late:
            """Knows no owner until the third question."""

            containers = 2

            def address(self, container):
                asked.append(container)
                if len(asked) < 3:
                    raise Unavailable("nobody")
                return store.address

        connections = StoreConnections(store.env, Late(), SECRET)
        # Not repeatable: no store has seen it, so it goes on all the same.
        await RemoteSegments(connections).create(SEGMENTS[0])
        assert len(asked) == 3
        await connections.close()
        await store.stop()

    run(test)


def test_requests_are_repeated_until_no_store_was_there_for_long():
    async def test():
        store = await Store(World(), {0, 1}).start()
        await store.stop()
        connections = StoreConnections(store.env, FixedRouter(2, [store.address]), SECRET, retry_seconds=0.05)
        with pytest.raises(Unavailable, match=r"gave up after 0\.05 s"):
            await RemoteSegments(connections).create(SEGMENTS[0])
        await connections.close()

    run(test)


@pytest.mark.parametrize("repeatable", [False, True])
def test_call_under_way_in_a_controller_that_stops_is_one_to_repeat(repeatable):
    """It was answered Invalid, "the client is closed", which no client repeats."""

    async def test():
        store = await Store(World(), {0, 1}).start()
        connections = StoreConnections(store.env, FixedRouter(2, [store.address] * 2), SECRET)
        await connections.close()
        with pytest.raises(Unavailable, match="this controller stops"):
            await connections.ask(SEGMENTS[0], lambda number: wire.Hello(17, 5), "test", repeatable=repeatable)
        await store.stop()

    run(test)


def test_wrong_secret_is_named():
    async def test():
        store = await Store(World(), {0, 1}, b"another").start()
        connections = StoreConnections(store.env, FixedRouter(2, [store.address]), SECRET, retry_seconds=0.05)
        with pytest.raises(Unavailable, match="does not take internal requests: the secret is not that of"):
            await RemoteSegments(connections).info(SEGMENTS[0])
        await connections.close()
        await store.stop()

    run(test)


class Cut:
    """Ends the connection instead of the reply to commands of one kind, once each."""

    def __init__(self, monkeypatch, kind):
        self.count = 0
        ask = Connection.ask

        async def cut(connection, make):
            reply = await ask(connection, make)
            if type(make(0)) is kind and not self.count:
                self.count += 1
                connection.abort("cut by the test")
                raise Unavailable("cut by the test")
            return reply

        monkeypatch.setattr(Connection, "ask", cut)


def test_lost_answer_to_a_change_is_unknown_and_to_a_question_is_asked_again(monkeypatch):
    async def test():
        store = await Store(World(), {0, 1}).start()
        connections = StoreConnections(store.env, FixedRouter(2, [store.address]), SECRET)
        tables, segments = RemoteTables(connections), RemoteSegments(connections)
        await tables.create("t")
        with monkeypatch.context() as patch:
            Cut(patch, wire.ChangeTable)
            with pytest.raises(Unavailable, match="cut by the test"):
                await tables.update("t", [TableUpdate(b"a", b"1", NO_VERSION)])
        with monkeypatch.context() as patch:
            cut = Cut(patch, wire.ReadTable)
            (value,) = await tables.get("t", [b"a"])
            assert (value.value, cut.count) == (b"1", 1)
        await segments.create(SEGMENTS[0])
        with monkeypatch.context() as patch:
            Cut(patch, wire.AppendAt)
            with pytest.raises(Unavailable):
                await segments.write(SEGMENTS[0], b"x", 0)
        with pytest.raises(Conflict):
            await segments.write(SEGMENTS[0], b"x", 0)
        await connections.close()
        await store.stop()

    run(test)


def test_scale_requests_of_every_store_are_reported():
    async def test():
        world = World()
        stores = [await Store(world, {number}).start() for number in range(2)]
        connections = StoreConnections(stores[0].env, FixedRouter(2, [store.address for store in stores]), SECRET)
        reported = asyncio.Queue()
        watch = ScaleRequestWatch(connections, stores[0].env, lambda *request: reported.put_nowait(request))
        watching = asyncio.ensure_future(watch.run())
        for store, name in zip(stores, SEGMENTS, strict=False):
            while not any(session._subscribed for session in store.handler._sessions):
                await asyncio.sleep(0)
            store.handler.request_scaling(name, ScaleAdvice.MERGE)
        found = {await reported.get() for _ in stores}
        assert found == {(name, ScaleAdvice.MERGE) for name in SEGMENTS[:2]}
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await connections.close()
        for store in stores:
            await store.stop()

    run(test)
