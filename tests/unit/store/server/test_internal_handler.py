"""Internal commands over real sockets: who may use them, and what does not end the connection."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sarit.core.errors import Invalid, NotFound, Unavailable
from sarit.core.metering import ScaleAdvice
from sarit.env.real import RealNetwork
from sarit.store.server import internal_handler
from sarit.store.server.internal_handler import InternalHandler
from sarit.store.server.listener import StoreListener
from sarit.wire import commands as wire
from tests.unit.store.harness import World, memory_env
from tests.unit.store.server.test_connection import SEGMENT, Server, run

SECRET = b"of this installation"
INTERNAL = [
    wire.CreateFreshSegment(3, SEGMENT, 0, 0, 0),
    wire.CreateFreshSegments(3, (SEGMENT,)),
    wire.ChangeTable(3, "t", ()),
    wire.ScanTable(3, "t", b"", False, b"", 1),
    wire.ChangeTableAt(3, "t", 0, ()),
    wire.FollowTable(3, "t", 0, 1),
    wire.DeleteTable(3, "t", False, -1),
    wire.ReadBytes(3, SEGMENT, 0, 1),
    wire.AppendAt(3, SEGMENT, 0, b"x"),
    wire.GetRates(3, (SEGMENT,)),
    wire.GetGrown(3),
    wire.AwaitScaleRequests(3),
    wire.BackupStep(3, '{"backup": 2}'),
]


@asynccontextmanager
async def serving(secret=SECRET):
    store = await World().start()
    store.env = replace(memory_env(), network=RealNetwork())
    handler = InternalHandler(store, secret) if secret is not None else None
    listener = StoreListener(store, internal=handler)
    port = await listener.listen("127.0.0.1", 0)
    server = Server(port, store, listener)
    server.handler = handler
    yield server
    await listener.close()
    await store.stop()


async def introduced(server):
    client = await server.client()
    assert await client.ask(wire.Introduce(1, SECRET)) == wire.Introduced(1)
    return client


@pytest.mark.parametrize("command", INTERNAL, ids=lambda command: type(command).__name__)
def test_internal_command_before_the_introduction_is_refused_and_ends_the_connection(command):
    async def test():
        async with serving() as server:
            await server.store.container(SEGMENT).create(SEGMENT)
            client = await server.client()
            reply = await client.ask(command)
            assert type(reply) is wire.AuthTokenCheckFailed
            assert reply.request_id == 3
            assert reply.stack == (
                f"{type(command).__name__} is for the processes of this installation: introduce the connection first"
            )
            await client.closed()
            assert (await server.store.container(SEGMENT).info(SEGMENT)).length == 0

    run(test())


@pytest.mark.parametrize("secret", [SECRET, None], ids=["with a secret", "without a secret"])
@pytest.mark.parametrize("guess", [b"", b"of this installatioN", b"of this", SECRET + b"x"])
def test_wrong_secret_is_refused_and_ends_the_connection(secret, guess):
    async def test():
        async with serving(secret) as server:
            client = await server.client()
            reply = await client.ask(wire.Introduce(5, guess))
            assert (type(reply), reply.request_id) == (wire.AuthTokenCheckFailed, 5)
            assert reply.stack == "the secret is not that of this installation"
            await client.closed()

    run(test())


def test_store_without_a_secret_answers_no_internal_command():
    async def test():
        async with serving(None) as server:
            client = await server.client()
            assert type(await client.ask(wire.GetGrown(3))) is wire.AuthTokenCheckFailed
            await client.closed()

    run(test())


def test_empty_secret_is_refused():
    async def test():
        store = await World().start()
        with pytest.raises(Invalid):
            InternalHandler(store, b"")
        await store.stop()

    run(test())


def test_reply_sent_as_a_request_ends_the_connection():
    async def test():
        async with serving() as server:
            client = await introduced(server)
            assert type(await client.ask(wire.AppendedAt(3))) is wire.AuthTokenCheckFailed
            await client.closed()

    run(test())


def test_failed_request_does_not_end_an_internal_connection():
    async def test():
        async with serving() as server:
            client = await introduced(server)

            def away(segment):
                raise Unavailable("it recovers")

            container, server.store.container = server.store.container, away
            assert await client.ask(wire.GetStreamSegmentInfo(4, SEGMENT, "")) == wire.OutcomeUnknown(
                4, SEGMENT, "the container of this segment does not serve now"
            )
            assert await client.ask(wire.AppendAt(5, SEGMENT, 0, b"x")) == wire.OutcomeUnknown(
                5, SEGMENT, "it recovers"
            )
            server.store.container = container
            assert type(await client.ask(wire.GetStreamSegmentInfo(6, SEGMENT, ""))) is wire.NoSuchSegment

    run(test())


def test_scale_request_is_answered_when_it_comes_and_dropped_without_a_controller():
    async def test():
        async with serving() as server:
            server.handler.request_scaling("lost", ScaleAdvice.SPLIT)
            client = await introduced(server)
            client.send(wire.AwaitScaleRequests(3))
            # An answer proves that the request before it has arrived.
            assert type(await client.ask(wire.GetGrown(4))) is wire.SegmentsGrown
            server.handler.request_scaling(SEGMENT, ScaleAdvice.SPLIT)
            assert await client.reply() == wire.ScaleRequests(3, (wire.ScaleRequest(SEGMENT, 1),))
            # One that comes between two requests is kept.
            server.handler.request_scaling(SEGMENT, ScaleAdvice.MERGE)
            assert await client.ask(wire.AwaitScaleRequests(5)) == wire.ScaleRequests(
                5, (wire.ScaleRequest(SEGMENT, 2),)
            )

    run(test())


def test_backup_takes_its_steps_on_one_connection_and_ends_with_it():
    async def test():
        async with serving() as server:
            client, other = await introduced(server), await introduced(server)

            async def step(who, **message):
                reply = await who.ask(wire.BackupStep(4, json.dumps(message)))
                assert type(reply) is wire.BackupStepDone
                return json.loads(reply.answer)

            assert await step(client, backup=2) == {"containers": [0, 1], "of": 2}
            assert (await step(other, backup=2))["again"] is False
            # Of a backup whose connection was lost.
            assert (await step(other, hold=True))["again"] is True
            assert "error" in await step(other, backup=1)
            assert await step(client, prepare=True) == {"prepared": True}
            assert await step(client, hold=True) == {"held": True}
            assert (await step(client, release=True))["released"]
            assert (await step(client, commit=1)) == {"committed": 1, "frame": 0}
            client.writer.close()
            while server.handler.backups.running is not None:
                await asyncio.sleep(0)
            assert "containers" in await step(other, backup=2)

    run(test())


def test_session_ends_with_its_connection():
    async def test():
        async with serving() as server:
            client = await introduced(server)
            assert len(server.handler._sessions) == 1
            client.writer.close()
            while server.handler._sessions:
                await asyncio.sleep(0)

    run(test())


def test_controller_of_an_earlier_version_creates_a_fresh_segment():
    async def test():
        async with serving() as server:
            client = await introduced(server)
            request = wire.CreateFreshSegment(3, SEGMENT, 100, 1, 64)
            assert await client.ask(request) == wire.SegmentCreated(3, SEGMENT)
            assert await server.store.container(SEGMENT).length(SEGMENT) == 0
            assert type(await client.ask(request)) is wire.SegmentAlreadyExists

    run(test())


def test_list_under_the_code_of_one_segment_is_sent_elsewhere():
    async def test():
        async with serving() as server:
            client = await introduced(server)
            listed = wire.encode(wire.CreateFreshSegments(3, (SEGMENT, "s/t/9.#epoch.0")))
            assert listed[:4] == wire.CreateFreshSegments.code.to_bytes(4)
            client.writer.write(wire.CreateFreshSegment.code.to_bytes(4) + listed[4:])
            assert type(await client.reply()) is wire.WrongHost
            with pytest.raises(NotFound):
                await server.store.container(SEGMENT).length(SEGMENT)

    run(test())


def test_grown_segments_come_in_pages(monkeypatch):
    monkeypatch.setattr(internal_handler, "MAX_GROWN_PER_REPLY", 2)

    async def test():
        async with serving() as server:
            names = [f"s/t/{number}.#epoch.0" for number in range(5)]
            client = await introduced(server)
            for name in names:
                await client.ask(wire.CreateFreshSegments(3, (name,)))
                await client.ask(wire.AppendAt(3, name, 0, b"x"))
            pages = [await client.ask(wire.GetGrown(4)) for _ in range(4)]
            assert [(len(page.segments), page.more) for page in pages] == [(2, True), (2, True), (1, False), (0, False)]
            assert sorted(name for page in pages for name in page.segments) == names

    run(test())
