"""Tables through the public client, on a whole node."""

import asyncio

import pytest

import sarit
import sarit.client.aio
from sarit.client.tables.changes import Insert, Put, Remove, Replace
from sarit.client.tables.partition import KEYS_PER_READ
from sarit.core.errors import Conflict, Invalid, NotFound, Unavailable
from sarit.core.limits import MAX_TABLE_VALUE_BYTES
from sarit.core.names import SegmentId
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node


async def made(node, name="s/t", primary=4, secondary=0, partitions=1):
    assert await node.client.tables.create(
        name, primary_key_bytes=primary, secondary_key_bytes=secondary, partitions=partitions
    )
    return node.client.table(name)


@on_node
async def test_put_get_insert_replace_remove(node):
    table = await made(node, partitions=3)
    first = await table.put("0001", "a")
    assert await table.get(b"0001") == (b"0001", b"", b"a", first)
    with pytest.raises(Conflict, match="exists already"):
        await table.insert("0001", "b")
    second = await table.replace("0001", "", first)
    assert second > first
    with pytest.raises(Conflict, match="does not have version") as caught:
        await table.replace("0001", "c", first)
    assert caught.value.expected == first
    assert await table.get("0001") == (b"0001", b"", b"", second), "an empty value is a value"
    with pytest.raises(Conflict):
        await table.remove("0001", first)
    await table.remove("0001", second)
    assert await table.get("0001") is None
    with pytest.raises(Conflict) as caught:
        await table.remove("0001", second)
    assert caught.value.actual == -1
    await table.remove("0001")
    assert await table.insert("0001", "again") > 0
    assert await table.get_many(["0001", "0002", "0001"]) == [await table.get("0001"), None, await table.get("0001")]


@on_node
async def test_batches_are_atomic(node):
    table = await made(node, secondary=2, partitions=4)
    versions = await table.update([Put(("acct", f"{n:02}"), str(n)) for n in range(10)])
    assert versions == sorted(set(versions))
    with pytest.raises(Conflict, match="nothing was changed"):
        await table.update(
            [Put(("acct", "00"), "x"), Replace(("acct", "01"), "x", versions[1]), Insert(("acct", "02"), "x")]
        )
    assert [entry.value for entry in [e async for e in table.scan("acct")]] == [b"%d" % n for n in range(10)]
    assert await table.update(Remove(("acct", f"{n:02}"), versions[n]) for n in range(5)) == [-1] * 5
    with pytest.raises(Conflict):
        await table.update([Remove(("acct", "05")), Remove(("acct", "06"), versions[5])])
    assert len([e async for e in table.scan("acct")]) == 5


@on_node
async def test_insert_many_reports_present_keys_and_inserts_all_others(node):
    table = await made(node, partitions=3)
    await table.put("0007", "before")
    items = [(f"{n:04}", str(n)) for n in range(700)]
    versions = await table.insert_many([*items, ("0008", "twice")])
    assert [index for index, version in enumerate(versions) if version == -1] == [7, 700]
    found = {e.primary.decode(): e.value.decode() async for e in table.scan()}
    assert found == {**dict(items), "0007": "before"}
    with pytest.raises(Invalid, match="4 bytes"):
        await table.insert_many([("9999", "x"), ("9", "x")])
    assert await table.get("9999") is None


@on_node
async def test_remove_many_removes_and_ignores_absent_keys(node):
    table = await made(node, partitions=3)
    await table.put_many((f"{n:04}", "x") for n in range(600))
    await table.remove_many(f"{n:04}" for n in range(10, 1000))
    assert [int(e.primary) async for e in table.scan()] == list(range(10))


@on_node
async def test_pages_of_all_partitions_are_the_whole_table(node):
    table = await made(node, partitions=4)
    await table.put_many((f"{n:04}", "x") for n in range(300))
    partitions = await table.partitions()
    assert len(partitions) == 4
    found = [
        [int(e.primary) async for page in table.scan_pages(partition=one, page_entries=9) for e in page]
        for one in partitions
    ]
    assert all(part == sorted(part) and part for part in found)
    assert sorted(n for part in found for n in part) == list(range(300))
    with pytest.raises(Invalid, match="no partition"):
        await anext(table.scan_pages(partition=SegmentId(9, 9)))


@on_node
async def test_ranges(node):
    table = await made(node, primary=2, secondary=2, partitions=5)
    keys = [(f"{p:02}", f"{s:02}") for p in range(20) for s in range(20)]
    await table.put_many((key, "/".join(key)) for key in reversed(keys))

    async def found(*where, **bounds):
        return [(e.primary.decode(), e.secondary.decode()) async for e in table.scan(*where, page_entries=7, **bounds)]

    assert await found() == keys
    assert await found(first="03", last="05") == [key for key in keys if "03" <= key[0] <= "05"]
    assert await found(prefix="1") == [key for key in keys if key[0][0] == "1"]
    assert await found("07") == [key for key in keys if key[0] == "07"]
    assert await found("07", first="18") == [("07", "18"), ("07", "19")]
    assert await found("07", last="01") == [("07", "00"), ("07", "01")]
    assert await found("07", prefix="1") == [("07", f"{n}") for n in range(10, 20)]
    assert await found("99") == []
    assert await found(first="05", last="03") == []
    only = [(e.primary, e.secondary, e.value) async for e in table.scan_keys("07", last="01")]
    assert only == [(b"07", b"00", b""), (b"07", b"01", b"")]
    extreme = await made(node, "s/extreme", primary=1)
    await extreme.put_many([(b"\xff", "last"), (b"\0", "first")])
    assert [e.value async for e in extreme.scan(page_entries=1)] == [b"first", b"last"]


@on_node
async def test_concurrent_changes_are_evaluated_separately(node):
    table = await made(node, partitions=2)
    outcomes = await asyncio.gather(*(table.insert(f"{n % 50:04}", str(n)) for n in range(200)), return_exceptions=True)
    assert sum(isinstance(each, int) for each in outcomes) == 50
    assert sum(isinstance(each, Conflict) for each in outcomes) == 150
    assert [e.value async for e in table.scan()] == [b"%d" % n for n in range(50)], "the first of each key won"

    async def add_one():
        while True:
            entry = await table.get("0000")
            try:
                return await table.replace("0000", str(int(entry.value) + 1), entry.version)
            except Conflict:
                continue

    await asyncio.gather(*(add_one() for _ in range(30)))
    assert (await table.get("0000")).value == b"30"


@on_node
async def test_changes_of_one_key_are_applied_in_order(node):
    table = await made(node)
    work = [table.put("0001", str(n)) if n % 3 else table.remove("0001") for n in range(100)]
    await asyncio.gather(*work)
    assert await table.get("0001") is None
    await asyncio.gather(*(table.put("0001", str(n)) for n in range(100)))
    assert (await table.get("0001")).value == b"99"


@on_node
async def test_the_largest_values_fit_in_requests_and_replies(node):
    table = await made(node)
    large = bytes(MAX_TABLE_VALUE_BYTES)
    keys = [f"{n:04}" for n in range(KEYS_PER_READ + 3)]
    await table.put_many((key, large) for key in keys)
    assert all(entry.value == large for entry in await table.get_many(keys))
    assert [len(e.value) async for e in table.scan()] == [len(large)] * len(keys)
    await table.update(Put(key, large) for key in keys[:16])
    with pytest.raises(Invalid):
        await table.put("0000", large + b"x")
    with pytest.raises(Invalid):
        await table.put_many([("0001", "changed"), ("00001", "wrong")])
    assert (await table.get("0001")).value == large, "nothing of it was sent"


@on_node
async def test_tables_are_created_listed_and_deleted(node):
    tables = node.client.tables
    table = await made(node, partitions=2)
    assert not await tables.create("s/t", primary_key_bytes=9)
    assert (await table.config()).partitions == 2
    await made(node, "s/u")
    assert [str(name) async for name in tables.list("s")] == ["s/t", "s/u"]
    await table.put("0001", "old")
    await tables.delete("s/t")
    for ask in (table.get("0001"), table.put("0001", ""), anext(table.scan()), table.get_many(["0001"])):
        with pytest.raises(NotFound, match="s/t does not exist"):
            await ask
    await made(node, partitions=3)
    assert [e async for e in table.scan()] == [], "a table created again is another one"
    assert await table.insert("0001", "new") >= 0
    for wrong in ({"primary_key_bytes": 0}, {"primary_key_bytes": 8193}, {"primary_key_bytes": 1, "partitions": 0}):
        with pytest.raises(Invalid):
            await tables.create("s/wrong", **wrong)
    with pytest.raises(Invalid):
        await tables.create("s/_internal", primary_key_bytes=1)
    with pytest.raises(NotFound, match="scope nope"):
        await tables.create("nope/t", primary_key_bytes=1)
    with pytest.raises(NotFound):
        await anext(tables.list("nope"))
    with pytest.raises(NotFound):
        await tables.delete("s/nope")
    assert [name async for name in tables.list("s")] == [table.name, node.client.table("s/u").name]


@on_node
async def test_lost_connections_lose_and_duplicate_nothing(node):
    table = await made(node, partitions=2)
    version = await table.put("0000", "0")

    async def cut():
        for _ in range(20):
            await asyncio.sleep(0.01)
            node.cut_connections()

    cutting = asyncio.ensure_future(cut())
    number = inserted = 0
    while not cutting.done():
        number += 1
        assert await table.put(f"{number % 9000 + 1:04}", str(number)) >= 0
        try:
            await table.insert(f"i{number % 1000:03}", "x")
            inserted += 1
        except Unavailable:
            pass  # it is done, or not
        try:
            version = await table.replace("0000", str(number), version)
        except Unavailable:
            version = (await table.get("0000")).version
        assert (await table.get(f"{number % 9000 + 1:04}")).value == str(number).encode()
    assert inserted
    await cutting


@on_node
async def test_closed_client_ends_all_waits(node):
    other = await sarit.client.aio.connect(node.address)
    table = other.table("s/t")
    await made(node)
    await table.put("0000", "")
    waiting = [asyncio.ensure_future(table.put(f"{n:04}", "x")) for n in range(2000)]
    waiting += [asyncio.ensure_future(table.get(f"{n:04}")) for n in range(2000)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await other.close()
    async with asyncio.timeout(HANG_SECONDS):
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(not isinstance(each, BaseException) or isinstance(each, sarit.SaritError) for each in outcomes)
    assert any(isinstance(each, sarit.SaritError) for each in outcomes)
