"""Tiny frames, requests without a valid token and silent connections: what they cost others is bounded."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sarit.env.real import RealNetwork
from sarit.security.audit import NoAudit
from sarit.security.permissions import Permission
from sarit.security.tokens import TokenKeys
from sarit.store.limits import (
    FIRST_REQUEST_SECONDS,
    FRAMES_PER_TURN,
    HOST_REFUSALS,
    MAX_FRAME_WAIT_SECONDS,
    MAX_REFUSED_HOSTS,
    STRANGER_FRAME_BUDGET,
    STRANGER_FRAMES_PER_SECOND,
)
from sarit.store.server.access import TokenChecks
from sarit.store.server.connection import StoreConnection
from sarit.store.server.connection_budget import frame_budget
from sarit.store.server.frame_turns import FrameTurns
from sarit.store.server.listener import StoreListener
from sarit.wire import commands as wire
from tests.unit.store.harness import World, memory_env
from tests.unit.store.server.test_connection import SEGMENT, WRITER, Server, append_end, ready, run, serving

if TYPE_CHECKING:
    from sarit.core.bucket import Bucket, HostBuckets

KEYS = TokenKeys([b"k" * 64])
KEEP_ALIVE = wire.encode(wire.KeepAlive())
HELLO = wire.encode(wire.Hello(17, 5))
# What a read of a new connection brings at most, in frames of 8 bytes.
FIRST_READ_FRAMES = 128


def token(server: Server, seconds: int = 600) -> str:
    now = server.store.env.clock.wall_ms() // 1000
    return KEYS.sign({"prn::/scope:s/stream:t": Permission.READ_UPDATE}, now, seconds, "alice")


@asynccontextmanager
async def with_users(max_connections: int = 100):
    store = await World().start()
    store.env = replace(memory_env(), network=RealNetwork())
    listener = StoreListener(
        store,
        max_connections=max_connections,
        checks=lambda peer: TokenChecks(lambda: KEYS, store.env.clock, NoAudit(), peer),
    )
    yield Server(await listener.listen("127.0.0.1", 0), store, listener)
    await listener.close()
    await store.stop()


def take(bucket: Bucket, now: float) -> float:
    bucket.use(1, now)
    return bucket.wait(now)


def sole(server: Server):
    (connection,) = server.server._connections
    return connection


def info(number: int, text: str) -> bytes:
    return wire.encode(wire.GetStreamSegmentInfo(number, SEGMENT, text))


# -- pure ---------------------------------------------------------------------------------------------


def test_turn_serves_so_many_frames_and_the_rest_in_order():
    turns, frames = FrameTurns(), [(number, b"") for number in range(2 * FRAMES_PER_TURN + 10)]
    assert turns.received(frames[:10]) == frames[:10]
    assert turns.left
    served = turns.received(frames[10:-1])
    assert len(served) == FRAMES_PER_TURN - 10
    assert not turns.left
    assert turns.received(frames[-1:]) == []  # what comes while the turn is over waits behind the others
    served += turns.next_turn()
    assert not turns.left
    served += turns.next_turn()
    assert turns.left
    assert served == frames[10:]
    assert turns.next_turn() == []


def test_turn_that_is_used_up_exactly_is_over():
    turns = FrameTurns()
    for number in range(FRAMES_PER_TURN):
        assert turns.left
        assert turns.received([(number, b"")]) == [(number, b"")]
    assert not turns.left
    turns.clear()
    assert turns.next_turn() == []
    assert turns.left


def test_budget_of_frames_lends_and_is_paid_back():
    budget = frame_budget(10, 2.0, 100.0)
    assert [take(budget, 100.0) for _ in range(10)] == [0.0] * 10
    assert [take(budget, 100.0) for _ in range(3)] == [0.5, 1.0, 1.5]
    assert take(budget, 101.5) == 0.5
    assert [take(budget, 200.0) for _ in range(11)][-2:] == [0.0, 0.5]
    for _ in range(1000):
        assert take(budget, 200.0) <= MAX_FRAME_WAIT_SECONDS
    assert take(budget, 200.0) == MAX_FRAME_WAIT_SECONDS


def test_refused_tokens_count_for_their_host_whatever_the_connection():
    async def made() -> HostBuckets:
        async with with_users() as server:
            return server.server.refusals

    refusals = asyncio.run(made())
    assert not any([take(refusals.of("10.0.0.1", 5.0), 5.0) for _ in range(HOST_REFUSALS)])
    assert take(refusals.of("10.0.0.1", 5.0), 5.0) > 0
    assert take(refusals.of("10.0.0.2", 5.0), 5.0) == 0
    for number in range(MAX_REFUSED_HOSTS + 10):
        refusals.of(f"h{number}", 5.0)
    assert repr(refusals) == f"<HostBuckets of {MAX_REFUSED_HOSTS} hosts>"


# -- on a listener ------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [KEEP_ALIVE, HELLO], ids=["KeepAlive", "Hello"])
def test_frames_of_a_stranger_are_answered_at_a_bounded_rate(frame, caplog):
    async def main():
        async with serving() as server:
            client = await server.client(hello=False)
            client.send(frame * 20_000)
            for _ in range(STRANGER_FRAME_BUDGET):
                await client.reply()
            while not (connection := sole(server)).paused:
                await asyncio.sleep(0)
            reads = connection._reads_received
            other = await ready(server)
            other.send(append_end(b"x", 1, 1))
            await other.reply()
            assert connection._reads_received == reads
            assert len(client.replies) + STRANGER_FRAME_BUDGET <= FIRST_READ_FRAMES
            assert not connection.closed

    run(main())
    assert [text.partition(" sends ")[2] for text in caplog.messages] == [
        "KeepAlive and Hello frames and asks for nothing: it is slowed down"
    ]


def test_stranger_that_is_slowed_down_goes_on_when_it_has_paid():
    async def main():
        async with serving() as server:
            client = await server.client()
            client.send(KEEP_ALIVE * (STRANGER_FRAME_BUDGET + 1))  # one above, with the Hello two
            for _ in range(STRANGER_FRAME_BUDGET + 1):
                await client.reply()
            began = asyncio.get_running_loop().time()
            client.send(wire.GetStreamSegmentInfo(1, SEGMENT, ""))
            assert isinstance(await client.reply(), wire.NoSuchSegment)
            assert asyncio.get_running_loop().time() - began > 1 / STRANGER_FRAMES_PER_SECOND

    run(main())


def test_connection_that_was_served_and_floods_is_ended_with_one_line(caplog):
    async def main():
        async with serving() as server:
            for _ in range(3):
                client = await server.client()
                await client.ask(wire.GetStreamSegmentInfo(1, SEGMENT, ""))
                client.send(KEEP_ALIVE * 20_000)
                with pytest.raises(ConnectionError):
                    while True:
                        await client.reply()

    run(main())
    assert len([text for text in caplog.messages if "than any client does, and was closed" in text]) == 1


def test_requests_of_one_connection_leave_turns_to_others(monkeypatch):
    async def main():
        async with serving() as server:
            client, other = await ready(server), await server.client()
            turns = []
            serve = StoreConnection._serve

            def counted(self, frames):
                turns.append(len(frames))
                serve(self, frames)

            monkeypatch.setattr(StoreConnection, "_serve", counted)
            count = 10 * FRAMES_PER_TURN
            client.send(b"".join(append_end(b"x", 1, number) for number in range(1, count + 1)))
            last = 0
            while last < count:
                reply = await client.reply()
                last = reply.event_number
            assert sum(turns) == count
            assert max(turns) <= FRAMES_PER_TURN
            other.send(wire.KeepAlive())
            await other.reply()

    run(main())


def test_bound_that_stops_a_connection_keeps_frames_that_wait_for_their_turn():
    async def main():
        async with serving() as server:
            client = await ready(server)
            connection = sole(server)
            connection.set_memory_limits(1 << 20, 5000)  # a few appends
            count = 4 * FRAMES_PER_TURN
            client.send(b"".join(append_end(struct.pack(">i", n), 1, n) for n in range(1, count + 1)))
            last = 0
            while last < count:
                last = (await client.reply()).event_number
            assert connection._appends.unacked_bytes == 0
            read = await client.ask(wire.ReadSegment(SEGMENT, 2 * count, 4 * count, "", 9))
            half = b"".join(struct.pack(">i", n) for n in range(1 + count // 2, count + 1))
            assert len(read.data) > 0
            assert half.startswith(bytes(read.data))

    run(main())


def test_connection_that_ends_forgets_frames_that_wait():
    async def main():
        async with serving() as server:
            client = await ready(server)
            connection = sole(server)
            client.send(b"".join(append_end(b"x", 1, n) for n in range(1, 5000)))
            while connection._turns.left:
                await asyncio.sleep(0)
            client.writer.transport.abort()
            connection.close()
            while server.server.connections:
                await asyncio.sleep(0)
            assert connection._turns.next_turn() == []

    run(main())


def test_bad_tokens_are_refused_at_a_bounded_rate_and_a_good_one_is_served(caplog):
    async def main():
        async with with_users() as server:
            client = await server.client()
            client.send(b"".join(info(number, "bad.token.x") for number in range(5000)))
            for _ in range(STRANGER_FRAME_BUDGET):
                assert isinstance(await client.reply(), wire.AuthTokenCheckFailed)
            while not sole(server).paused:
                await asyncio.sleep(0)
            reads = sole(server)._reads_received
            other = await server.client()
            served = await other.ask(wire.GetStreamSegmentInfo(1, SEGMENT, token(server)))
            assert isinstance(served, wire.NoSuchSegment)
            assert len(client.replies) < FIRST_READ_FRAMES
            assert next(iter(server.server._connections))._reads_received == reads

    run(main())
    assert len([text for text in caplog.messages if "tokens are refused: it is slowed down" in text]) == 1


def test_connection_without_a_valid_token_ends_in_time_where_there_are_users(caplog):
    async def main():
        async with with_users() as server:
            greeted, refused, served = [await server.client() for _ in range(3)]
            assert isinstance(await refused.ask(wire.GetStreamSegmentInfo(1, SEGMENT, "x")), wire.AuthTokenCheckFailed)
            await served.ask(wire.GetStreamSegmentInfo(1, SEGMENT, token(server)))
            server.server.reap(server.store.env.clock.monotonic() + FIRST_REQUEST_SECONDS)
            await greeted.closed()
            await refused.closed()
            await served.ask(wire.KeepAlive())

    run(main())
    assert "2 connections sent no valid request in 30 s and were closed" in caplog.text


def test_strangers_give_way_when_all_places_are_taken(caplog):
    async def main():
        async with with_users(max_connections=4) as server:
            served = await server.client()
            await served.ask(wire.GetStreamSegmentInfo(1, SEGMENT, token(server)))
            strangers = [await server.client() for _ in range(3)]
            newest = await server.client()
            await strangers[0].closed()
            await newest.ask(wire.GetStreamSegmentInfo(1, SEGMENT, token(server)))
            for client in (served, *strangers[1:]):
                await client.ask(wire.KeepAlive())
            for client in strangers[1:]:
                await client.ask(wire.GetStreamSegmentInfo(1, SEGMENT, token(server)))
            # All four have asked for something: nobody gives way.
            with pytest.raises((ConnectionError, AssertionError)):
                await server.client()

    run(main())
    assert len([text for text in caplog.messages if "4 connections are open, which is the limit" in text]) == 1


def test_parked_read_gets_no_bytes_after_its_token_has_expired():
    async def main():
        async with with_users() as server:
            writer, reader = await server.client(), await server.client()
            await server.store.container(SEGMENT).create(SEGMENT)
            await writer.ask(wire.SetupAppend(2, WRITER, SEGMENT, token(server)))
            short = token(server, 1)
            reader.send(wire.ReadSegment(SEGMENT, 0, 100, short, 9))
            await reader.ask(wire.KeepAlive())
            clock = server.store.env.clock
            late = clock.wall_ms() + 2000
            clock.wall_ms = lambda: late
            writer.send(append_end(b"secret", 1, 1))
            await writer.reply()
            reply = await reader.reply()
            assert (reply.request_id, bytes(reply.data), reply.at_tail) == (9, b"", True)
            again = await reader.ask(wire.ReadSegment(SEGMENT, 0, 100, short, 10))
            assert again.error_code == 1

    run(main())
