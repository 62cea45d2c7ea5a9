"""The shared counter: its bytes, then processes that add at once, while connections break and histories end."""

import asyncio

import pytest

from sarit.client import aio
from sarit.client.structures import counter, formats
from sarit.client.sync.revisioned_stream import Revision
from sarit.core.errors import Corrupt, Invalid, NotFound
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node

FIRST = Revision(0)


def test_bytes_of_a_counter() -> None:
    assert counter.encode(-2) == b"c\x01" + bytes.fromhex("fffffffffffffffe")
    assert counter.decode(counter.encode(1 << 40)) == 1 << 40
    assert counter.added(5, -3) == [bytes.fromhex("fffffffffffffffd")]
    assert counter.added(5, 0) == []
    assert counter.apply(5, counter.added(5, -3)[0], FIRST) == 2


BROKEN = [b"", b"c", b"c\x01", b"c\x01" + bytes(7), b"c\x01" + bytes(9), b"{}"]


@pytest.mark.parametrize("broken", BROKEN)
def test_bytes_that_are_no_counter_are_refused(broken) -> None:
    with pytest.raises(Corrupt):
        counter.decode(broken)
    with pytest.raises(Corrupt):
        counter.apply(0, broken[2:], FIRST)


def test_newer_version_says_what_to_do() -> None:
    with pytest.raises(Corrupt, match="has version 2; version 1 is known: update this program"):
        formats.body_of(formats.COUNTER, b"c\x02" + bytes(8))


def test_sum_of_more_than_64_bits_is_refused() -> None:
    largest = (1 << 63) - 1
    assert counter.added(largest - 1, 1)
    for value, amount in ((largest, 1), (-largest - 1, -1), (largest, largest), (1, largest)):
        with pytest.raises(Invalid, match="beyond 64 bits; nothing was added"):
            counter.added(value, amount)


@on_node
async def test_counter_begins_at_zero_and_is_shared(made) -> None:
    one = await made.client.structures.counter("s/visits")
    two = await made.client.structures.counter("s/visits")
    assert (await one.value(), await two.value()) == (0, 0)
    assert await one.add() == 1
    assert await two.add(10) == 11
    assert await one.add(-20) == -9
    assert await two.value(fresh=False) == 11
    assert await two.value() == -9
    assert await one.add(0) == -9
    with pytest.raises(Invalid, match="nothing was added"):
        await one.add(-(1 << 63))
    assert await two.value() == -9
    assert repr(one) == "SharedCounter(s/visits, open)"
    with pytest.raises(NotFound):
        await made.client.structures.counter("none/visits")


@on_node
async def test_refusal_holds_for_the_newest_value(made) -> None:
    """A copy that is behind knows a value to which nothing can be added any more."""
    largest = (1 << 63) - 1
    one, two = [await made.client.structures.counter("s/visits") for _ in range(2)]
    await one.add(largest)
    await two.add(-10)
    assert await one.value(fresh=False) == largest
    assert await one.add(3) == largest - 7
    with pytest.raises(Invalid):
        await two.add(8)
    assert await two.add(7) == largest


@on_node
async def test_every_addition_counts_once_though_connections_break(made) -> None:
    """Each value is returned once: the additions have one order.  The stream is compacted, and late copies agree."""
    clients = [await aio.connect(made.address) for _ in range(3)]
    copies = [await one.structures.counter("s/visits") for one in clients for _ in range(2)]
    returned: list[int] = []

    async def add(copy) -> None:
        returned.extend([await copy.add() for _ in range(60)])

    async def cut() -> None:
        while True:
            await asyncio.sleep(0.02)
            for client in clients:
                made.client = client
                made.cut_connections()

    cutting, own = asyncio.ensure_future(cut()), made.client
    await asyncio.gather(*map(add, copies))
    cutting.cancel()
    made.client = own
    assert sorted(returned) == list(range(1, 361))
    assert await copies[0].value() == 360
    entries = await own.coordination.revisioned("s/visits")
    assert (await entries.oldest()).offset > 0, "it was never compacted"
    assert await (await own.structures.counter("s/visits")).value() == 360
    for client in clients:
        await client.close()


@on_node
async def test_watch_sees_the_value_now_and_the_last_one(made) -> None:
    one, two = [await made.client.structures.counter("s/visits") for _ in range(2)]
    await one.add(5)
    seen: list[int] = []

    async def watch() -> None:
        async for value in two.watch():
            seen.append(value)
            if value == 35:
                return

    watching = asyncio.ensure_future(watch())
    for _ in range(30):
        await one.add()
    async with asyncio.timeout(HANG_SECONDS):
        await watching
    assert (seen[0] >= 5, seen[-1], seen) == (True, 35, sorted(set(seen)))


@on_node
async def test_watch_ends_when_it_or_the_client_is_closed(made) -> None:
    copy = await made.client.structures.counter("s/visits")
    watching = copy.watch()
    assert await anext(watching) == 0
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(watching), 0.01)
    await copy.add()
    assert await anext(watching) == 1, "a cancelled call loses nothing"
    await watching.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(watching)
    watching = copy.watch()
    assert await anext(watching) == 1
    waiting = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    await made.client.close()
    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(Invalid, match="closed"):
            await waiting


@on_node
async def test_name_of_something_else_is_refused(made) -> None:
    coordination = made.client.coordination
    await coordination.shared_configuration("s/settings")
    with pytest.raises(Corrupt, match="does something else write to this name"):
        await made.client.structures.counter("s/settings")
    await made.client.create_stream("s/events")
    async with made.client.writer("s/events") as writer:
        writer.write("an event")
    with pytest.raises(Corrupt):
        await made.client.structures.counter("s/events")
