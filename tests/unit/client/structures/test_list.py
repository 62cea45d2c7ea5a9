"""The shared list on a node: indexes, pages, removal from the front, watchers."""

import asyncio

import pytest

from sarit import aio
from sarit.client.structures import shared_list
from sarit.client.structures.limits import MAX_ITEMS_AT_ONCE
from sarit.client.structures.shared_list import ListItem
from sarit.core.errors import Invalid, NotFound, Truncated
from sarit.core.limits import MAX_TABLE_VALUE_BYTES
from sarit.serializers import JsonDeserializer, JsonSerializer
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node


def test_keys_have_the_order_of_their_indexes() -> None:
    indexes = [0, 1, 255, 256, 1 << 40, (1 << 63) - 1]
    keys = [shared_list.key_of(index) for index in indexes]
    assert keys == sorted(keys)
    assert [shared_list.index_of(key) for key in keys] == indexes
    assert shared_list.key_of(258) == b"i" + bytes(6) + b"\x01\x02"


async def all_of(items) -> list:
    return [item async for item in items]


@on_node
async def test_list_is_shared_and_its_indexes_have_no_gaps(made) -> None:
    one, two = [await made.client.structures.list("s/list") for _ in range(2)]
    assert await one.append(b"a") == 0
    assert await two.append(b"b") == 1
    assert await one.extend([b"c", b"", b"e"]) == 2
    assert await two.get(3) == b""
    assert (await one.bounds(), await two.length()) == ((0, 5), 5)
    assert await all_of(two.items()) == [ListItem(n, v) for n, v in enumerate([b"a", b"b", b"c", b"", b"e"])]
    assert [item.value for item in await all_of(one.items(1, 3))] == [b"b", b"c"]
    assert await all_of(one.items(5)) == await all_of(one.items(3, 2)) == await all_of(one.items(7, 9)) == []
    with pytest.raises(NotFound, match="list s/list has no index 5: it has 0 to 4"):
        await one.get(5)
    with pytest.raises(NotFound, match="no index -1"):
        await one.get(-1)
    assert repr(one) == "SharedList(s/list, open)"


@on_node
async def test_concurrent_appends_get_all_indexes_once(made) -> None:
    clients = [await aio.connect(made.address) for _ in range(3)]
    copies = [await one.structures.list("s/list") for one in clients for _ in range(2)]
    given: dict[int, bytes] = {}

    async def append(number: int, copy, steps: range) -> None:
        for step in steps:
            value = b"%d.%d" % (number, step)
            given[await copy.append(value)] = value

    async def cut() -> None:
        while True:
            await asyncio.sleep(0.02)
            for client in clients:
                made.client = client
                made.cut_connections()

    own, cutting = made.client, asyncio.ensure_future(cut())
    for first in range(0, 20, 5):  # in between at most 25 operations of others, which the head remembers
        await asyncio.gather(*(append(*each, range(first, first + 5)) for each in enumerate(copies)))
    cutting.cancel()
    made.client = own
    late = await own.structures.list("s/list")
    assert {item.index: item.value for item in await all_of(late.items())} == given
    assert sorted(given) == list(range(120))
    for client in clients:
        await client.close()


@on_node
async def test_removal_from_the_front_keeps_indexes(made) -> None:
    copy = await made.client.structures.list("s/list")
    for first in range(0, 600, 200):
        assert await copy.extend([b"%d" % n for n in range(first, first + 200)]) == first
    reading = copy.items()
    assert (await anext(reading)).index == 0
    await copy.remove_before(0)
    await copy.remove_before(550)
    assert (await copy.bounds(), await copy.length()) == ((550, 600), 50)
    assert [item.index for item in await all_of(copy.items(550))] == list(range(550, 600))
    with pytest.raises(Truncated, match="index 549 was removed; it begins at 550") as error:
        await copy.get(549)
    assert error.value.start_offset == 550
    with pytest.raises(Truncated, match="index 0 was removed"):
        await all_of(copy.items())
    with pytest.raises(Truncated, match="index 512 was removed"):
        await all_of(reading)  # it has one page, and its next one is gone
    await copy.remove_before(3)
    assert (await copy.bounds())[0] == 550, "never back"
    with pytest.raises(Invalid, match="the list ends at index 600: nothing can be removed up to 601"):
        await copy.remove_before(601)
    with pytest.raises(Invalid, match="0 or more"):
        await copy.remove_before(-1)
    await copy.remove_before(600)
    assert await copy.append(b"next") == 600
    rows = [entry async for entry in made.client.table("s/list").scan_keys()]
    assert len(rows) == 2, "the head, and the item that is left"
    with pytest.raises(NotFound, match="it has 600 to 600"):
        await copy.get(601)


@on_node
async def test_what_a_removal_left_is_removed_by_the_next_one(made) -> None:
    copy = await made.client.structures.list("s/list")
    await copy.extend([b"a", b"b", b"c"])
    await copy._head.drop_before(2)  # as a process that died then
    assert await copy.length() == 1
    await copy.remove_before(2)
    with pytest.raises(Truncated):
        await all_of(copy.items())
    assert len([entry async for entry in made.client.table("s/list").scan_keys()]) == 2


@on_node
async def test_watch_follows_without_a_gap(made) -> None:
    one, two = [await made.client.structures.list("s/list") for _ in range(2)]
    await one.append(b"0")
    seen: list[ListItem] = []

    async def watch(items, until: int) -> None:
        async for item in items:
            seen.append(item)
            if item.index == until:
                return

    watching = asyncio.ensure_future(watch(two.watch(0), 120))
    for number in range(0, 120, 3):
        await one.extend([b"%d" % (number + each) for each in (1, 2, 3)])
    async with asyncio.timeout(HANG_SECONDS):
        await watching
    assert seen == [ListItem(n, b"%d" % n) for n in range(121)]
    tail = two.watch()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(tail), 0.05)
    await one.append(b"new")
    assert await anext(tail) == ListItem(121, b"new"), "a cancelled call loses nothing"
    await tail.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(tail)


@on_node
async def test_bad_input_is_refused_before_anything_is_written(made) -> None:
    copy = await made.client.structures.list("s/list")
    for values in ([], [b"x"] * (MAX_ITEMS_AT_ONCE + 1)):
        with pytest.raises(Invalid, match="1 to 255 values are appended at once"):
            await copy.extend(values)
    with pytest.raises(Invalid, match="at most 1040384 bytes, not 1040385"):
        await copy.append(bytes(MAX_TABLE_VALUE_BYTES + 1))
    with pytest.raises(Invalid, match="is not encoded as bytes"):
        await copy.extend([b"a", "b"])
    assert await copy.length() == 0
    await copy.append(bytes(MAX_TABLE_VALUE_BYTES))
    await copy.extend([b"x"] * MAX_ITEMS_AT_ONCE)
    assert await copy.length() == 256


@on_node
async def test_values_before_one_that_cannot_be_decoded_come_first(made) -> None:
    structures = made.client.structures
    raw = await structures.list("s/list")
    await raw.extend([b"1", b"2", b"{", b"4"])
    typed = await structures.list("s/list", serializer=JsonSerializer(), deserializer=JsonDeserializer())
    items = typed.items()
    assert [await anext(items), await anext(items)] == [ListItem(0, 1), ListItem(1, 2)]
    for _ in range(2):
        with pytest.raises(Invalid, match="item 2 of list s/list cannot be decoded"):
            await anext(items)
    assert await typed.get(3) == 4


@on_node
async def test_table_of_something_else_is_refused(made) -> None:
    tables = made.client.tables
    await tables.create("s/other", primary_key_bytes=4)
    with pytest.raises(Invalid, match="is a key-value table of another kind"):
        await made.client.structures.list("s/other")
    await tables.create("s/same", primary_key_bytes=9)
    await made.client.table("s/same").put(b"123456789", b"mine")
    with pytest.raises(Invalid, match="a key-value table with entries of its own"):
        await made.client.structures.list("s/same")
    await made.client.structures.queue("s/queue")
    with pytest.raises(Invalid, match="of another kind"):
        await made.client.structures.list("s/queue")
    with pytest.raises(NotFound):
        await made.client.structures.list("none/list")
    opened = await asyncio.gather(*(made.client.structures.list("s/new") for _ in range(6)))
    assert sorted(await asyncio.gather(*(copy.append(b"x") for copy in opened))) == list(range(6))
