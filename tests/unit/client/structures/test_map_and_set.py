"""Shared maps and sets on a node: conditions, watchers, bounds, values of serializers."""

import asyncio

import pytest

from sarit import aio
from sarit.client.structures.limits import MAX_SHARED_STATE_BYTES
from sarit.client.structures.shared_map import MapChange, MapEntry
from sarit.client.structures.shared_set import SetChange
from sarit.core.errors import Conflict, Invalid
from sarit.serializers import JsonDeserializer, JsonSerializer
from sarit.serializers.registry_client import RegistryClient
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node


@on_node
async def test_map_is_shared_and_its_versions_rise(made) -> None:
    one, two = [await made.client.structures.map("s/map") for _ in range(2)]
    assert await one.put("a", b"1") == 1
    assert await two.put("b", b"2") == 2
    assert await one.put("a", b"3") == 3
    assert await two.get("a") == MapEntry("a", b"3", 3)
    assert (await two.get("none"), await two.size()) == (None, 2)
    assert await two.remove("b")
    assert not await two.remove("b")
    assert await one.get("b", fresh=False) == MapEntry("b", b"2", 2)
    assert await one.get("b") is None
    await one.put_many({"d": b"4", "c": b"5", "ä": b""})
    assert await two.items() == [
        MapEntry("a", b"3", 3), MapEntry("c", b"5", 6), MapEntry("d", b"4", 5), MapEntry("ä", b"", 7)
    ]  # fmt: skip
    assert repr(one) == "SharedMap(s/map, open)"


@on_node
async def test_condition_of_a_put_holds_for_the_newest_entry(made) -> None:
    """Also when this process knows an older one: its condition is not refused for that."""
    one, two = [await made.client.structures.map("s/map") for _ in range(2)]
    first = await one.put("a", b"1", version=0)
    with pytest.raises(Conflict, match="key 'a' has version 1, and was to be absent: read it and decide again"):
        await two.put("a", b"2", version=0)
    second = await two.put("a", b"2", version=first)
    assert await one.put("a", b"3", version=second) == 3, "it had seen the first one only"
    with pytest.raises(Conflict, match="has version 3, and was to have version 1") as refused:
        await one.put("a", b"4", version=first)
    assert refused.value.actual == 3
    with pytest.raises(Conflict, match="key 'b' is absent, and was to have version 3"):
        await two.remove("b", version=3)
    with pytest.raises(Invalid, match="-1 is no version of a key"):
        await one.remove("a", version=-1)
    assert await two.remove("a", version=3)
    assert await one.put("a", b"5", version=0) == 5, "a version never repeats"


@on_node
async def test_every_increment_by_compare_and_set_counts(made) -> None:
    copies = [await made.client.structures.map("s/map") for _ in range(4)]
    await copies[0].put("n", b"0")

    async def count(copy) -> None:
        for _ in range(15):
            while True:
                entry = await copy.get("n")
                try:
                    await copy.put("n", b"%d" % (int(entry.value) + 1), entry.version)
                    break
                except Conflict:
                    continue

    await asyncio.gather(*map(count, copies))
    assert (await copies[0].get("n")).value == b"60"


@on_node
async def test_watcher_of_a_map_can_follow_it(made) -> None:
    one, two = [await made.client.structures.map("s/map") for _ in range(2)]
    await one.put_many({"a": b"1", "b": b"2"})
    copy: dict[str, bytes] = {}
    changes = two.watch()
    assert [await anext(changes) for _ in range(2)] == [
        MapChange("a", MapEntry("a", b"1", 1)), MapChange("b", MapEntry("b", b"2", 2))
    ]  # fmt: skip

    async def follow() -> None:
        async for change in changes:
            copy.pop(change.key, None)
            if change.entry is not None:
                copy[change.key] = change.entry.value
            if change.key == "end":
                return

    following = asyncio.ensure_future(follow())
    for number in range(100):
        await one.put(str(number % 7), b"%d" % number)
        if number % 5 == 0:
            await one.remove(str(number % 7))
    await one.put("end", b"")
    async with asyncio.timeout(HANG_SECONDS):
        await following
    assert copy == {entry.key: entry.value for entry in await one.items() if entry.key not in "ab"}


@on_node
async def test_larger_map_is_refused_before_anything_is_written(made) -> None:
    one = await made.client.structures.map("s/map")
    half = bytes(MAX_SHARED_STATE_BYTES // 2 - 100)
    await one.put_many({"a": half, "b": half})
    with pytest.raises(Invalid, match="keep them in a table"):
        await one.put("c", half)
    with pytest.raises(Invalid):
        await one.put_many({"c": bytes(100), "d": bytes(100)})
    with pytest.raises(Invalid, match="the key of a map has at most 1024 bytes"):
        await one.put("k" * 1025, b"")
    assert await one.size() == 2
    for _ in range(6):  # each is as long as the bound of compaction
        await one.put("a", half)
    assert await one.remove("a")
    await one.put("c", half)
    late = await made.client.structures.map("s/map")
    assert [(entry.key, len(entry.value)) for entry in await late.items()] == [("b", len(half)), ("c", len(half))]


@on_node
async def test_values_of_a_serializer(made) -> None:
    structures = made.client.structures
    json = {"serializer": JsonSerializer(), "deserializer": JsonDeserializer()}
    prices = await structures.map("s/prices", **json)
    await prices.put("bread", {"price": 3})
    assert (await prices.get("bread")).value == {"price": 3}
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        await prices.put("cake", object())
    raw = await structures.map("s/prices")
    assert (await raw.get("bread")).value == b'{"price":3}'
    with pytest.raises(Invalid, match="value=5 is not encoded as bytes: give bytes, or open the structure with"):
        await raw.put("cake", 5)
    await raw.put("cake", b"{")
    with pytest.raises(Invalid, match="the value of key 'cake' cannot be decoded, by JsonDeserializer"):
        await prices.get("cake")
    changes = prices.watch()
    for _ in range(2):
        with pytest.raises(Invalid, match="'cake'"):
            await anext(changes)
    seen = await structures.set("s/seen", **json)
    assert await seen.add("x")
    assert await seen.items() == ["x"]
    with pytest.raises(Invalid, match="give a serializer and a deserializer, or neither"):
        await structures.map("s/prices", serializer=JsonSerializer())
    registered = JsonSerializer({"type": "object"}, registry=RegistryClient("http://127.0.0.1:1"))
    with pytest.raises(Invalid, match="a JsonSerializer with a schema registry is for streams"):
        await structures.map("s/prices", serializer=registered, deserializer=JsonDeserializer())


@on_node
async def test_one_of_many_that_add_an_item_added_it(made) -> None:
    clients = [await aio.connect(made.address) for _ in range(3)]
    copies = [await client.structures.set("s/set") for client in clients]
    added = await asyncio.gather(*(copy.add(b"%d" % item) for item in range(20) for copy in copies))
    assert sum(added) == 20
    assert await copies[0].size() == 20
    discarded = await asyncio.gather(*(copy.discard(b"7") for copy in copies))
    assert sum(discarded) == 1
    assert not await copies[1].contains(b"7")
    assert await copies[1].contains(b"8")
    assert await copies[2].contains(b"7", fresh=False) in (True, False)
    assert await copies[2].add_many([b"8", b"7", b"x", b"x"]) == 2
    assert sorted(await copies[0].items()) == sorted({b"x", *(b"%d" % item for item in range(20))})
    with pytest.raises(Invalid, match="item=3 is not encoded as bytes"):
        await copies[0].add(3)
    for client in clients:
        await client.close()


@on_node
async def test_watcher_of_a_set(made) -> None:
    one, two = [await made.client.structures.set("s/set") for _ in range(2)]
    await one.add(b"a")
    changes = two.watch()
    assert await anext(changes) == SetChange(b"a", True)
    await one.discard(b"a")
    assert await anext(changes) == SetChange(b"a", False)
    await one.add_many([b"c", b"b"])
    assert [await anext(changes) for _ in range(2)] == [SetChange(b"c", True), SetChange(b"b", True)]


@on_node
async def test_name_of_another_structure_is_refused(made) -> None:
    structures = made.client.structures
    await structures.counter("s/one")
    with pytest.raises(Invalid, match="this name is a shared counter, not a map"):
        await structures.map("s/one")
    await structures.map("s/two")
    with pytest.raises(Invalid, match="this name is a shared map, not a set"):
        await structures.set("s/two")
