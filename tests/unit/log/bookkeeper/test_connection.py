"""Connections to bookies: every request is answered exactly once, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.env.real import real_env
from sarit.log.bookkeeper import connection as connection_module
from sarit.log.bookkeeper.bookies import NetworkBookies, address_of
from sarit.log.bookkeeper.connection import PendingRequests, Request
from sarit.log.bookkeeper.limits import (
    BOOKIE_MAX_QUEUED_BYTES,
    BOOKIE_MAX_RETRY_SECONDS,
    BOOKIE_REQUEST_SECONDS,
    BOOKIE_RETRY_SECONDS,
    BOOKIE_SILENT_SECONDS,
)
from sarit.log.bookkeeper.port import Code
from sarit.log.bookkeeper.wire import add_packet
from sarit.wire.errors import ProtocolError
from tests.limits import HANG_SECONDS
from tests.unit.log.bookkeeper.fake_bookie import FakeBookie, Seen


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class Random:
    """Back-off is not shortened."""

    def random(self) -> float:
        return 1.0

    def bytes(self, count: int) -> bytes:
        return bytes(count)


class NoRegistrations:
    async def children(self, path):
        return []


class Client:
    """The bookies of a test, and the answers to its requests, each with its request's place."""

    def __init__(self, network=None) -> None:
        self.clock = Clock()
        env = replace(real_env(), clock=self.clock, random=Random())
        self.bookies = NetworkBookies(replace(env, network=network or env.network), NoRegistrations())
        self.answers: list[tuple[int, object]] = []
        self.requests = 0
        self._came = asyncio.Condition()
        self._calling = False

    def _done(self):
        place = self.requests
        self.requests += 1

        def done(answer):
            assert not self._calling, "answered from within the call"
            self.answers.append((place, answer))

        return done

    def add(self, bookie, entry, payload=b"x", *, ledger=7, recovery=False):
        packet = add_packet(ledger, entry, entry - 1, 1 << 40, [payload], recovery=recovery)
        done, self._calling = self._done(), True
        self.bookies.add(bookie.name, ledger, entry, packet, done)
        self._calling = False

    def read(self, bookie, entry, *, fence=False, ledger=7):
        done, self._calling = self._done(), True
        self.bookies.read(bookie.name, ledger, entry, fence=fence, done=done)
        self._calling = False

    async def all_answered(self):
        """The answers by request, each exactly one."""
        while len(self.answers) < self.requests:
            await asyncio.sleep(0.001)
        for _ in range(3):
            await asyncio.sleep(0)
        assert sorted(place for place, _ in self.answers) == list(range(self.requests))
        return [answer for _, answer in sorted(self.answers, key=lambda each: each[0])]

    def connection(self, bookie):
        return self.bookies._links[bookie.name]._connection


def run(test):
    async def main():
        async with asyncio.timeout(HANG_SECONDS):
            async with FakeBookie() as bookie:
                client = Client()
                try:
                    await test(client, bookie)
                finally:
                    await client.bookies.close()

    asyncio.run(main())


def test_entries_are_stored_and_read():
    async def test(client, bookie):
        for entry in range(3):
            client.add(bookie, entry, b"%d" % entry * 30_000)
        assert await client.all_answered() == [Code.OK] * 3
        client.read(bookie, 1)
        client.read(bookie, -1)
        client.read(bookie, 3)
        client.read(bookie, 0, ledger=8)
        found = (await client.all_answered())[3:]
        assert [each.code for each in found] == [Code.OK, Code.OK, Code.NO_ENTRY, Code.NO_LEDGER]
        assert [(each.entry, each.last_add_confirmed) for each in found[:2]] == [(1, 0), (2, 1)]
        assert bytes(found[0].payload) == b"1" * 30_000
        assert found[0].length == 1 << 40
        assert found[2].payload is None
        assert bookie.connections == 1

    run(test)


def test_a_fenced_ledger_takes_only_adds_of_a_recovery():
    async def test(client, bookie):
        client.add(bookie, 0)
        client.read(bookie, -1, fence=True)
        await client.all_answered()
        client.add(bookie, 1)
        client.add(bookie, 2, recovery=True)
        assert (await client.all_answered())[2:] == [Code.FENCED, Code.OK]

    run(test)


def test_a_damaged_entry_is_a_failure_with_a_line_in_the_log(caplog):
    async def test(client, bookie):
        client.add(bookie, 0, b"hello")
        await client.all_answered()
        stored = bookie.ledgers[7][0]
        bookie.ledgers[7][0] = stored[:-1] + b"?"
        client.read(bookie, 0)
        (_, reply) = await client.all_answered()
        assert (reply.code, reply.payload) == (Code.FAILED, None)
        assert f"bookie {bookie.name}: entry 0 of ledger 7: its digest is wrong" in caplog.text

    run(test)


def test_requests_without_an_answer_are_lost_with_the_connection():
    async def test(client, bookie):
        bookie.answer = lambda request: request.serve() if request.entry < 4 else None
        for entry in range(10):
            client.add(bookie, entry)
        await bookie.wait_for(10)
        while len(client.answers) < 4:
            await asyncio.sleep(0.001)
        bookie.drop()
        assert await client.all_answered() == [Code.OK] * 4 + [Code.LOST] * 6
        # The queue is empty, and a connection is made again after the back-off.
        assert client.bookies.queued_bytes(bookie.name) == 0
        bookie.answer = Seen.serve
        client.clock.now += BOOKIE_RETRY_SECONDS
        client.add(bookie, 10)
        assert (await client.all_answered())[10:] == [Code.OK]
        assert bookie.connections == 2

    run(test)


def test_a_request_made_while_the_connection_ends_is_lost():
    async def test(client, bookie):
        bookie.answer = lambda request: None
        client.add(bookie, 0)
        await bookie.wait_for(1)
        client.connection(bookie).abort("test")
        client.add(bookie, 1)
        assert await client.all_answered() == [Code.LOST] * 2

    run(test)


def test_a_request_made_from_an_answer_that_is_lost_is_answered():
    async def test(client, bookie):
        bookie.answer = lambda request: None
        packet = add_packet(7, 0, -1, 1, [b"x"], recovery=False)
        answers = []

        def again(code):
            answers.append(code)
            if len(answers) < 3:
                client.bookies.add(bookie.name, 7, 0, packet, again)

        client.bookies.add(bookie.name, 7, 0, packet, again)
        await bookie.wait_for(1)
        bookie.drop()
        while len(answers) < 3:
            await asyncio.sleep(0.001)
        assert answers == [Code.LOST] * 3

    run(test)


def test_an_answer_that_fails_does_not_stop_the_others(caplog):
    async def test(client, bookie):
        packet = add_packet(7, 0, -1, 1, [b"x"], recovery=False)
        client.bookies.add(bookie.name, 7, 0, packet, lambda code: 1 / 0)
        client.add(bookie, 1)
        assert await client.all_answered() == [Code.OK]
        assert "could not be handled" in caplog.text

    run(test)


def test_nobody_at_the_address_means_lost_and_then_a_back_off_that_doubles(caplog):
    caplog.set_level(logging.INFO)

    async def test(client, bookie):
        await bookie.stop()
        link = None
        wait = BOOKIE_RETRY_SECONDS
        for attempt in range(8):
            client.add(bookie, attempt)
            assert (await client.all_answered())[-1] is Code.LOST
            link = client.bookies._links[bookie.name]
            assert link._not_before == pytest.approx(client.clock.now + wait)
            # Within the back-off no connection is tried.
            client.clock.now += wait * 0.99
            client.add(bookie, attempt)
            assert link._connecting is None
            assert (await client.all_answered())[-1] is Code.LOST
            client.clock.now += wait * 0.02
            wait = min(2 * wait, BOOKIE_MAX_RETRY_SECONDS)
        assert wait == BOOKIE_MAX_RETRY_SECONDS
        assert caplog.text.count("no connection") == 1, "one cause, one line"
        await bookie.start()
        client.add(bookie, 100)
        assert (await client.all_answered())[-1] is Code.OK
        bookie.drop()
        while client.connection(bookie) is not None:
            await asyncio.sleep(0.001)
        assert link._not_before == pytest.approx(client.clock.now + BOOKIE_RETRY_SECONDS)

    run(test)


def test_a_connection_closed_before_its_first_response_does_not_reset_the_back_off():
    """A bookie that starts accepts connections and closes them."""

    async def test(client, bookie):
        bookie.answer = lambda request: bookie.drop()
        waits = []
        for attempt in range(3):
            client.add(bookie, attempt)
            assert (await client.all_answered())[-1] is Code.LOST
            waits.append(client.bookies._links[bookie.name]._not_before - client.clock.now)
            client.clock.now += 10
        assert waits == pytest.approx([BOOKIE_RETRY_SECONDS * factor for factor in (1, 2, 4)])

    run(test)


def test_a_request_of_the_same_name_waits_for_the_one_before():
    """A plain read may be answered before the read with a fence that was sent earlier."""

    async def test(client, bookie):
        bookie.answer = lambda request: None
        client.read(bookie, 3)
        client.read(bookie, 3, fence=True)
        client.read(bookie, 4)
        client.add(bookie, 3)
        client.add(bookie, 3, recovery=True)
        await bookie.wait_for(3)
        assert [repr(each) for each in bookie.seen] == [
            "read 7/3 flags 0", "read 7/4 flags 0", "add 7/3 flags 0",
        ]  # fmt: skip
        assert client.bookies.queued_bytes(bookie.name) > 0
        bookie.seen[0].reply(2)
        bookie.seen[2].reply(104)
        await bookie.wait_for(5)
        assert {repr(each) for each in bookie.seen[3:]} == {"read 7/3 flags 1", "add 7/3 flags 2"}
        assert client.bookies.queued_bytes(bookie.name) == 0
        for each in (bookie.seen[1], bookie.seen[3], bookie.seen[4]):
            each.reply(0 if each.operation == 1 else 1)
        found = await client.all_answered()
        assert [found[place].code for place in (0, 1, 2)] == [Code.NO_ENTRY, Code.NO_LEDGER, Code.NO_LEDGER]
        assert found[3:] == [Code.FENCED, Code.OK]

    run(test)


def test_more_bytes_than_the_bound_are_refused_and_not_sent():
    async def test(client, bookie):
        bookie.answer = lambda request: None
        client.add(bookie, 0)
        await bookie.wait_for(1)
        bookie.reading.clear()
        payload = bytes(1 << 20)
        count = 0
        # What the kernel takes does not count.
        while not any(answer is Code.TOO_MANY_REQUESTS for _, answer in client.answers):
            count += 1
            client.add(bookie, count, payload)
            await asyncio.sleep(0)
        assert client.bookies.queued_bytes(bookie.name) > BOOKIE_MAX_QUEUED_BYTES - (2 << 20)
        assert client.bookies.queued_bytes(bookie.name) <= BOOKIE_MAX_QUEUED_BYTES
        bookie.answer = Seen.serve
        for request in bookie.seen:
            request.serve()
        bookie.reading.set()
        found = await client.all_answered()
        refused = found.count(Code.TOO_MANY_REQUESTS)
        assert 1 <= refused <= 3
        assert found.count(Code.OK) == client.requests - refused
        assert len(bookie.ledgers[7]) == client.requests - refused

    run(test)


def test_a_bookie_that_stopped_to_answer_loses_its_connection():
    async def test(client, bookie):
        bookie.answer = lambda request: None
        client.add(bookie, 0)
        client.add(bookie, 1)
        await bookie.wait_for(2)
        connection = client.connection(bookie)
        client.clock.now += BOOKIE_SILENT_SECONDS * 0.99
        connection.check_timeouts()
        assert not connection.closed
        client.clock.now += BOOKIE_SILENT_SECONDS * 0.02
        connection.check_timeouts()
        assert await client.all_answered() == [Code.LOST] * 2

    run(test)


def test_one_request_that_is_never_answered_ends_the_connection():
    async def test(client, bookie):
        bookie.answer = lambda request: request.serve() if request.entry else None
        client.add(bookie, 0)
        await bookie.wait_for(1)
        connection = client.connection(bookie)
        entry, begun = 1, client.clock.now
        while not connection.closed:
            client.clock.now += BOOKIE_SILENT_SECONDS / 2
            client.add(bookie, entry)
            entry += 1
            while len(client.answers) < entry - 1:
                await asyncio.sleep(0.001)
            connection.check_timeouts()
        assert client.clock.now - begun == BOOKIE_REQUEST_SECONDS
        assert await client.all_answered() == [Code.LOST] + [Code.OK] * (entry - 1)

    run(test)


def test_an_idle_connection_stays():
    async def test(client, bookie):
        client.add(bookie, 0)
        await client.all_answered()
        connection = client.connection(bookie)
        client.clock.now += 1000
        connection.check_timeouts()
        client.add(bookie, 1)
        connection.check_timeouts()
        assert await client.all_answered() == [Code.OK] * 2
        assert not connection.closed

    run(test)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 8,
        bytes.fromhex("00000018 02010000 00000000 0000000000000007 0000000000000063"),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["length", "no such request", "another protocol"],
)
def test_wrong_bytes_end_the_connection(garbage, caplog):
    async def test(client, bookie):
        bookie.answer = lambda request: request._writer.write(garbage)
        client.add(bookie, 0)
        client.add(bookie, 1)
        assert await client.all_answered() == [Code.LOST] * 2

    with caplog.at_level("INFO"):
        run(test)
    assert "the connection was lost (a response" in caplog.text


def test_requests_wait_for_a_connection_only_so_long(monkeypatch):
    monkeypatch.setattr(connection_module, "BOOKIE_CONNECT_SECONDS", 0.05)

    class Hanging:
        async def connect(self, factory, host, port):
            await asyncio.Event().wait()

    async def main():
        client = Client(Hanging())
        bookie = FakeBookie()
        bookie.port = 1
        for entry in range(3):
            client.add(bookie, entry)
        await asyncio.sleep(0)
        assert client.bookies.queued_bytes(bookie.name) > 0
        assert await client.all_answered() == [Code.LOST] * 3
        assert client.bookies.queued_bytes(bookie.name) == 0
        client.clock.now += 10
        client.add(bookie, 4)
        await client.bookies.close()
        assert (await client.all_answered())[3:] == [Code.LOST]

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))


def test_close_answers_everything():
    async def test(client, bookie):
        bookie.answer = lambda request: None
        client.add(bookie, 0)
        client.add(bookie, 0)
        await bookie.wait_for(1)
        await client.bookies.close()
        assert [answer for _, answer in client.answers] == [Code.LOST] * 2
        client.add(bookie, 1)
        assert await client.all_answered() == [Code.LOST] * 3

    run(test)


def test_a_bookie_id_without_a_port_is_lost(caplog):
    async def test(client, bookie):
        answers = []
        packet = add_packet(7, 0, -1, 1, [b"x"], recovery=False)
        client.bookies.add("rack1-bookie", 7, 0, packet, answers.append)
        client.bookies.read("rack1-bookie", 7, 0, fence=False, done=answers.append)
        assert not answers
        while len(answers) < 2:
            await asyncio.sleep(0)
        assert answers[0] is Code.LOST
        assert answers[1].code is Code.LOST

    run(test)
    assert caplog.text.count("is not HOST:PORT") == 1


def test_addresses_of_bookie_ids():
    assert address_of("10.0.0.1:3181") == ("10.0.0.1", 3181)
    assert address_of("[::1]:3181") == ("::1", 3181)
    for wrong in ("", "a", "a:", ":1", "a:0", "a:65536", "a:x", "a:１"):
        assert address_of(wrong) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_pending_requests_are_each_answered_once_in_order_of_their_name(steps):
    pending, wire, waiting, answered, made = PendingRequests(), {}, {}, [], []
    for add, entry in steps:
        name = (1, 7, entry)
        if add:
            request = Request(1, 7, entry, (), 10, print, float(len(made)))
            made.append(request)
            assert pending.add(request) == (name not in wire)
            if name in wire:
                waiting.setdefault(name, []).append(request)
            else:
                wire[name] = request
        elif name in wire:
            request, following = pending.answer(name)
            assert request is wire.pop(name)
            answered.append(request)
            assert following is (waiting[name].pop(0) if waiting.get(name) else None)
            if following is not None:
                wire[name] = following
        else:
            with pytest.raises(ProtocolError):
                pending.answer(name)
        left = [each for each in made if not each.answered]
        assert len(pending) == len(left)
        assert pending.oldest_since() == (left[0].since if left else None)
        assert pending.waiting_bytes == 10 * sum(map(len, waiting.values()))
    left = pending.clear()
    assert left == [each for each in made if each not in answered]
    assert len(pending) == pending.waiting_bytes == 0
