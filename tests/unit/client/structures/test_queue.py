"""The shared priority queue on a node: order, leases, takers that die, replies that are lost."""

import asyncio

import pytest

from sarit import aio
from sarit.client.structures import shared_queue
from sarit.client.structures.shared_queue import FREE, Row
from sarit.core.errors import Conflict, Corrupt, Invalid, Unavailable
from sarit.core.limits import MAX_TABLE_VALUE_BYTES
from sarit.serializers import JsonDeserializer, JsonSerializer
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node

LEASE = 0.5


def test_keys_have_the_order_of_the_queue() -> None:
    places = [(-(1 << 63), 9), (-1, 3), (0, 1), (0, 2), (1, 0), ((1 << 63) - 1, 0)]
    keys = [shared_queue.key_of(*place) for place in places]
    assert keys == sorted(keys)
    assert [shared_queue.place_of(key) for key in keys] == places


def test_bytes_of_a_row() -> None:
    row = Row(b"t" * 16, 3, b"value")
    assert shared_queue.encode_row(row) == b"t" * 16 + b"\0\0\0\x03value"
    assert shared_queue.decode_row(shared_queue.encode_row(row)) == row
    with pytest.raises(Corrupt):
        shared_queue.decode_row(bytes(19))


async def values_of(queue) -> list:
    found = []
    while (item := await queue.take(timeout=0)) is not None:
        found.append(item.value)
    return found


@on_node
async def test_items_come_by_priority_and_then_in_order(made) -> None:
    one, two = [await made.client.structures.queue("s/queue") for _ in range(2)]
    await one.put(b"later", 5)
    await two.put_many([b"a", b"b"])
    await one.put(b"c")
    await two.put(b"first", -3)
    assert await one.size() == 5
    peeked = await two.peek()
    assert (peeked.value, peeked.priority, peeked.takes) == (b"first", -3, 0)
    with pytest.raises(Invalid, match="was peeked at, and not taken"):
        await two.done(peeked)
    first = await one.take()
    assert (first.value, first.priority, first.takes) == (b"first", -3, 1)
    assert (await two.peek()).value == b"a"
    assert await values_of(two) == [b"a", b"b", b"c", b"later"]
    assert await one.take(timeout=0.01) is None
    assert (await one.peek(), await one.size()) == (None, 5)
    await one.done(first)
    await two.done(first)  # it is done: nothing is left to do
    assert await one.size() == 4
    assert repr(one) == "SharedQueue(s/queue, open)"


@on_node
async def test_item_that_is_given_back_keeps_its_place(made) -> None:
    queue = await made.client.structures.queue("s/queue")
    await queue.put_many([b"a", b"b"])
    a = await queue.take()
    await queue.give_back(a)
    again = await queue.take()
    assert (again.value, again.takes, again.number) == (b"a", 2, a.number)
    with pytest.raises(Conflict, match="the lease of item 0 has ended, and it is not yours now"):
        await queue.done(a)
    with pytest.raises(Conflict):
        await queue.give_back(a)
    await queue.renew(again)
    await queue.done(again)
    with pytest.raises(Conflict):
        await queue.renew(again)
    assert await values_of(queue) == [b"b"]


@on_node
async def test_taker_waits_for_an_item(made) -> None:
    one, two = [await made.client.structures.queue("s/queue") for _ in range(2)]
    taking = asyncio.ensure_future(one.take())
    await asyncio.sleep(0)
    await two.put(b"x")
    async with asyncio.timeout(HANG_SECONDS):
        assert (await taking).value == b"x"


@on_node
async def test_item_of_a_taker_that_died_is_handed_out_again_after_its_lease(made) -> None:
    one = await made.client.structures.queue("s/queue", lease_seconds=LEASE)
    two = await made.client.structures.queue("s/queue")
    assert one.lease_seconds == two.lease_seconds == LEASE
    await one.put(b"x")
    dead = await one.take()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    again = await two.take(timeout=HANG_SECONDS)
    assert loop.time() - begun >= LEASE
    assert (again.value, again.takes) == (b"x", 2)
    with pytest.raises(Conflict, match="not yours now"):
        await one.done(dead)
    await two.done(again)
    assert await one.size() == 0


@on_node
async def test_taker_that_renews_keeps_its_item(made) -> None:
    one = await made.client.structures.queue("s/queue", lease_seconds=LEASE)
    two = await made.client.structures.queue("s/queue")
    await one.put(b"x")
    mine = await one.take()
    taking = asyncio.ensure_future(two.take())
    for _ in range(8):
        await asyncio.sleep(LEASE / 4)
        await one.renew(mine)
    assert not taking.done()
    await one.done(mine)
    taking.cancel()
    # One that is late, but before anybody else took the item, has it still.
    await one.put(b"y")
    late = await one.take()
    await asyncio.sleep(1.5 * LEASE)
    await one.done(late)
    assert await one.size() == 0


@on_node
async def test_each_item_is_done_once_by_many_takers_though_connections_break(made) -> None:
    clients = [await aio.connect(made.address) for _ in range(3)]
    queues = [await one.structures.queue("s/queue", lease_seconds=30) for one in clients for _ in range(2)]
    done: list[bytes] = []
    held: set[int] = set()

    async def work(number: int, queue) -> None:
        for step in range(12):
            await queue.put(b"%d.%d" % (number, step), priority=step % 3)
        while (item := await queue.take(timeout=0.3)) is not None:
            assert item.number not in held, "two takers have it at once"
            held.add(item.number)
            await asyncio.sleep(0.002)
            held.discard(item.number)
            if step % 4 == 0 and item.takes == 1:
                await queue.give_back(item)
            else:
                await queue.done(item)
                done.append(item.value)

    async def cut() -> None:
        while True:
            await asyncio.sleep(0.02)
            for client in clients:
                made.client = client
                made.cut_connections()

    own, cutting = made.client, asyncio.ensure_future(cut())
    await asyncio.gather(*(work(*each) for each in enumerate(queues)))
    cutting.cancel()
    made.client = own
    assert sorted(done) == sorted(b"%d.%d" % (number, step) for number in range(6) for step in range(12))
    for client in clients:
        await client.close()


class LostReplies:
    """Makes some calls of a table raise Unavailable: before they are made, or after."""

    def __init__(self, table, monkeypatch) -> None:
        self.plan: list[str] = []
        for name in ("replace", "remove"):
            monkeypatch.setattr(table, name, self._losing(getattr(table, name)), raising=True)

    def _losing(self, call):
        async def losing(*args):
            lost = self.plan.pop(0) if self.plan else ""
            if lost in ("request", "final"):
                error = Unavailable("the request was lost")
                error.final = lost == "final"
                raise error
            found = await call(*args)
            if lost == "reply":
                raise Unavailable("the reply was lost")
            return found

        return losing


@on_node
async def test_lost_replies_are_found_again(made) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        queue = await made.client.structures.queue("s/queue")
        lost = LostReplies(queue._table, monkeypatch)
        await queue.put_many([b"a", b"b"])
        lost.plan = ["reply"]
        a = await queue.take()
        assert (a.value, a.takes) == (b"a", 1)
        lost.plan = ["reply"]
        await queue.renew(a)
        lost.plan = ["reply"]
        await queue.give_back(a)
        a = await queue.take()
        assert (a.value, a.takes) == (b"a", 2)
        lost.plan = ["reply"]
        await queue.done(a)
        assert await queue.size() == 1
        lost.plan = ["request"]
        b = await queue.take()
        assert (b.value, b.takes) == (b"b", 1)
        for act in (queue.renew, queue.give_back):
            lost.plan = ["request", "reply"]
            await act(b)
        b = await queue.take()
        lost.plan = ["final"]
        with pytest.raises(Unavailable, match="the request was lost"):
            await queue.done(b)
        lost.plan = ["request", "reply"]
        await queue.done(b)
        assert await queue.size() == 0
        await queue.put(b"c")
        lost.plan = ["final"]
        with pytest.raises(Unavailable, match="the request was lost"):
            await queue.take()
        assert (await queue.take()).takes == 1


@on_node
async def test_reads_may_lag_behind_what_conditions_see(made) -> None:
    """A change on its way refuses the next one, though a read does not show it yet: its own change, or another's."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        queue = await made.client.structures.queue("s/queue")
        await queue.put(b"a")
        lost, get = LostReplies(queue._table, monkeypatch), queue._table.get
        lag: list = []

        async def late(key):
            now = await get(key)
            return lag.pop(0) if lag else now

        monkeypatch.setattr(queue._table, "get", late)
        before = await get(shared_queue.key_of(0, 0))
        lost.plan, lag = ["reply"], [before, before]
        a = await queue.take(timeout=0)
        assert (a.value, a.takes) == (b"a", 1)
        before = await get(shared_queue.key_of(0, 0))
        lost.plan, lag = ["reply"], [before, before, before]
        await queue.done(a)
        assert await queue.size() == 0


@on_node
async def test_bad_input_is_refused_before_anything_is_written(made) -> None:
    structures = made.client.structures
    queue = await structures.queue("s/queue")
    assert queue.lease_seconds == 30
    for seconds in (0.1, 1e6):
        with pytest.raises(Invalid, match="a lease has 0.5 to 3600.0 seconds"):
            await structures.queue("s/other", lease_seconds=seconds)
    with pytest.raises(Invalid, match="queue s/queue has a lease of 30.0 seconds, not 5: all must agree"):
        await structures.queue("s/queue", lease_seconds=5)
    with pytest.raises(Invalid, match="1 to 255 values are put at once, not 0"):
        await queue.put_many([])
    with pytest.raises(Invalid, match="has at most 1040364 bytes, not 1040365"):
        await queue.put(bytes(MAX_TABLE_VALUE_BYTES - 19))
    with pytest.raises(Invalid, match="priority="):
        await queue.put(b"x", priority=1 << 63)
    assert await queue.size() == 0
    await queue.put(bytes(MAX_TABLE_VALUE_BYTES - 20), priority=-(1 << 63))
    assert len((await queue.take()).value) == MAX_TABLE_VALUE_BYTES - 20


@on_node
async def test_item_that_cannot_be_decoded_does_not_hold_the_others_up(made) -> None:
    structures = made.client.structures
    raw = await structures.queue("s/queue")
    await raw.put_many([b"{", b"1"])
    typed = await structures.queue("s/queue", serializer=JsonSerializer(), deserializer=JsonDeserializer())
    with pytest.raises(Invalid, match="item 0 of queue s/queue cannot be decoded"):
        await typed.take()
    assert (await typed.take()).value == 1


@on_node
async def test_taken_items_beyond_the_bound_end_a_poll(made) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_queue, "MAX_TAKEN_ITEMS", 4)
        patch.setattr(shared_queue, "QUEUE_PAGE_ROWS", 2)
        queue = await made.client.structures.queue("s/queue")
        await queue.put_many([b"%d" % n for n in range(6)])
        taken = [await queue.take(timeout=0) for _ in range(5)]
        assert [None if item is None else item.value for item in taken] == [b"0", b"1", b"2", b"3", None]
        await queue.done(taken[1])
        assert (await queue.take(timeout=0)).value == b"4"


def test_free_is_no_token() -> None:
    assert bytes(16) == FREE
