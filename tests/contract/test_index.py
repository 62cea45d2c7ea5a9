"""One suite for every index: what the container relies on, for every implementation of the port."""

import asyncio
import sqlite3
from contextlib import closing
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sarit.core.errors import Fenced, Unavailable
from sarit.env.real import real_env
from sarit.index.memory import MemoryIndexes
from sarit.index.port import DamagedRecord, Index, IndexProvider, WriteBatch
from sarit.index.record_seals import seal
from sarit.index.slate import SlateIndex, open_in_memory, open_on_s3
from sarit.index.sqlite import SqliteIndexProvider
from sarit.storage.open import s3_config
from tests.limits import examples

ALL = (b"", b"\xff" * 40)


def provider_of(kind: str, directory, request) -> IndexProvider:
    if kind == "memory":
        return MemoryIndexes()
    if kind == "slate":
        return open_in_memory()
    if kind == "slate on s3":
        server = request.getfixturevalue("s3")
        return open_on_s3(server.bucket, f"indexes/{uuid4().hex}", s3_config(server.environ))
    return SqliteIndexProvider(real_env(), str(directory / "index"))


@pytest.fixture(params=["memory", "sqlite", "slate", pytest.param("slate on s3", marks=pytest.mark.long)])
def kind(request):
    return request.param


@pytest.fixture
def provider(kind, tmp_path, request):
    return provider_of(kind, tmp_path, request)


def batch(puts=(), deletes=(), ranges=()) -> WriteBatch:
    return WriteBatch(dict(puts), set(deletes), list(ranges))


def test_get_returns_values_in_order_of_keys(provider):
    async def main():
        index = await provider.open(0)
        await index.commit(batch({b"a": b"1", b"b": b"", b"\xff\x00": b"3"}))
        assert await index.get([b"\xff\x00", b"missing", b"a", b"b", b"a"]) == [b"3", None, b"1", b"", b"1"]
        assert await index.get([]) == []
        await index.close()

    asyncio.run(main())


def test_scan_of_sizes_is_a_scan_without_values(provider):
    async def main():
        index = await provider.open(0)
        await index.commit(batch({b"a": b"1", b"b": b"", b"c": bytes(100_000), b"d": b"22"}))
        assert await index.scan_sizes(b"a", b"d", 9) == [(b"a", 1), (b"b", 0), (b"c", 100_000)]
        assert await index.scan_sizes(b"a", b"z", 2, reverse=True) == [(b"d", 2), (b"c", 100_000)]
        await index.close()

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 4, 5, 8, 9, 33, 64, 65, 200])
def test_get_of_any_number_of_keys(provider, count):
    async def main():
        index = await provider.open(0)
        entries = {b"k%05d" % at: b"v%d" % at for at in range(count)}
        await index.commit(batch(entries))
        asked = [key for pair in ((key, key + b"?") for key in entries) for key in pair]
        expected = [value for pair in ((value, None) for value in entries.values()) for value in pair]
        assert await index.get(asked) == expected
        await index.commit(batch(deletes=list(entries)[1:]))
        assert await index.scan(*ALL, 1000) == [(b"k00000", b"v0")]
        await index.close()

    asyncio.run(main())


def test_scans_follow_unsigned_byte_order_within_bounds(provider):
    async def main():
        index = await provider.open(0)
        keys = [b"", b"\x00", b"a", b"a\x00", b"a\x00\x00", b"ab", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
        await index.commit(batch({key: b"v" + key for key in reversed(keys)}))
        pairs = [(key, b"v" + key) for key in keys]
        assert await index.scan(*ALL, 100) == pairs
        assert await index.scan(*ALL, 100, reverse=True) == pairs[::-1]
        assert await index.scan(b"a", b"b", 100) == pairs[2:6]
        assert await index.scan(b"a", b"b", 2) == pairs[2:4]
        assert await index.scan(b"a", b"b", 2, reverse=True) == pairs[5:3:-1]
        assert await index.scan(b"b", b"a", 2) == []
        assert await index.scan(*ALL, 0) == []
        assert await index.scan(*ALL, 0, reverse=True) == []
        await index.close()

    asyncio.run(main())


def test_a_batch_deletes_ranges_then_keys_then_puts(provider):
    async def main():
        index = await provider.open(0)
        await index.commit(batch({b"a": b"1", b"b": b"1", b"c": b"1", b"d": b"1"}))
        await index.commit(batch({b"b": b"2", b"d": b"2"}, [b"d", b"missing"], [(b"a", b"c"), (b"x", b"y")]))
        assert await index.scan(*ALL, 100) == [(b"b", b"2"), (b"c", b"1"), (b"d", b"2")]
        await index.commit(batch())
        assert len(await index.scan(*ALL, 100)) == 3
        await index.close()

    asyncio.run(main())


def test_large_values_and_buffers_changed_afterwards(provider):
    async def main():
        index = await provider.open(0)
        value = bytearray(range(256)) * 4096
        before = bytes(value)
        await index.commit(batch({b"large": value, b"other": memoryview(b"view")}))
        value[:] = bytes(len(value))
        assert await index.get([b"large", b"other"]) == [before, b"view"]
        await index.close()

    asyncio.run(main())


def test_commits_survive_reopening(provider):
    async def main():
        index = await provider.open(3)
        await index.commit(batch({b"a": b"1", b"b": b"2"}))
        await index.close()
        await index.close()
        with pytest.raises(Unavailable):
            await index.get([b"a"])
        with pytest.raises(Unavailable):
            await index.scan(*ALL, 1)
        with pytest.raises(Unavailable):
            await index.commit(batch({b"a": b"3"}))
        other, again = await provider.open(4), await provider.open(3)
        assert await other.scan(*ALL, 10) == []
        assert await again.scan(*ALL, 10) == [(b"a", b"1"), (b"b", b"2")]
        await other.close()
        await again.close()

    asyncio.run(main())


def test_opening_fences_earlier_owner(provider):
    async def main():
        old = await provider.open(0)
        await old.commit(batch({b"a": b"old"}))
        new = await provider.open(0)
        with pytest.raises(Fenced):
            await old.commit(batch({b"a": b"zombie"}))
        await new.commit(batch({b"b": b"new"}))
        with pytest.raises(Fenced):
            await old.commit(batch({b"b": b"zombie"}))
        assert await new.scan(*ALL, 10) == [(b"a", b"old"), (b"b", b"new")]
        await old.close()
        await new.commit(batch({b"c": b"new"}))
        await new.close()

    asyncio.run(main())


def test_concurrent_calls_see_whole_batches_in_order(provider):
    async def main():
        index = await provider.open(0)
        await index.commit(batch({b"a": b"0", b"b": b"0"}))
        seen: list[int] = []

        async def read():
            for _ in range(20):
                one, other = await index.get([b"a", b"b"])
                assert one == other, "half of a batch was read"
                seen.append(int(one))
                pair = await index.scan(*ALL, 2)
                assert pair[0][1] == pair[1][1], "half of a batch was scanned"

        async def write():
            for number in range(1, 11):
                await index.commit(batch({b"a": b"%d" % number, b"b": b"%d" % number}))
                assert await index.get([b"a"]) == [b"%d" % number], "a commit that returned was not read"

        await asyncio.gather(write(), *(read() for _ in range(8)))
        queued = [asyncio.ensure_future(index.commit(batch({b"a": b"q%d" % at}))) for at in range(5)]
        await asyncio.gather(*queued)
        assert await index.get([b"a"]) == [b"q4"], "commits are applied in the order made"
        await index.close()

    asyncio.run(main())


async def flip(provider: IndexProvider, index: Index, directory, key: bytes, value: bytes, bit: int) -> None:
    """Flip one bit of what is stored for a key."""
    if isinstance(provider, MemoryIndexes):
        provider.flip(0, key, bit)
        return
    if isinstance(index, SlateIndex):
        damaged = bytearray(seal(key, value))
        damaged[bit // 8] ^= 1 << bit % 8
        await index._database.put(b"k" + key, bytes(damaged))
        return
    with closing(sqlite3.connect(directory / "index" / "container-0.db")) as connection:
        (stored,) = connection.execute("SELECT v FROM entries WHERE k=?", (key,)).fetchone()
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << bit % 8
        connection.execute("UPDATE entries SET v=? WHERE k=?", (bytes(damaged), key))
        connection.commit()


@pytest.mark.parametrize("bit", [0, 31, 32, 47])  # of the checksum, of the value
def test_a_damaged_record_is_refused_and_the_others_are_served(provider, tmp_path, bit):
    async def main():
        index = await provider.open(0)
        await index.commit(batch({b"a": b"1", b"b": b"22", b"c": b"3"}))
        await flip(provider, index, tmp_path, b"b", b"22", bit)
        for call in (index.get([b"a", b"b"]), index.scan(*ALL, 3), index.scan(*ALL, 2, reverse=True)):
            with pytest.raises(DamagedRecord) as caught:
                await call
            assert caught.value.key == b"b"
        # Together: SQLite reads them for all callers at once.
        answers = await asyncio.gather(
            index.get([b"a"]), index.get([b"a"]), index.get([b"b"]), index.get([b"c"]), return_exceptions=True
        )
        assert isinstance(answers[2], DamagedRecord)
        assert [*answers[:2], answers[3]] == [[b"1"], [b"1"], [b"3"]]
        assert await index.scan(b"", b"b", 3) == [(b"a", b"1")]
        assert await index.scan(b"b\0", b"z", 3) == [(b"c", b"3")]
        await index.commit(batch({b"b": b"new"}))
        assert await index.get([b"b"]) == [b"new"], "a commit may replace it"
        await flip(provider, index, tmp_path, b"b", b"new", bit)
        await index.commit(batch(deletes=[b"b"]))
        assert await index.get([b"b"]) == [None], "and delete it"
        await index.close()

    asyncio.run(main())


def test_a_value_under_the_key_of_another_is_damaged(tmp_path):
    async def main():
        provider = SqliteIndexProvider(real_env(), str(tmp_path / "index"))
        index = await provider.open(0)
        await index.commit(batch({b"a": b"1"}))
        with closing(sqlite3.connect(tmp_path / "index" / "container-0.db")) as connection:
            connection.execute("UPDATE entries SET k=?", (b"b",))
            connection.commit()
        with pytest.raises(DamagedRecord):
            await index.get([b"b"])
        await index.close()

    asyncio.run(main())


KEY = st.binary(max_size=3)
BATCH = st.builds(
    WriteBatch,
    puts=st.dictionaries(KEY, st.binary(max_size=4), max_size=6),
    deletes=st.sets(KEY, max_size=4),
    range_deletes=st.lists(st.tuples(KEY, KEY), max_size=2),
)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    batches=st.lists(BATCH, max_size=6), start=KEY, end=KEY, limit=st.integers(0, 5), asked=st.lists(KEY, max_size=5)
)
def test_index_behaves_as_sorted_dictionary(kind, tmp_path_factory, request, batches, start, end, limit, asked):
    async def main():
        provider = provider_of(kind, tmp_path_factory.mktemp("index"), request)
        index = await provider.open(0)
        model: dict[bytes, bytes] = {}
        for change in batches:
            await index.commit(change)
            for low, high in change.range_deletes:
                model = {key: value for key, value in model.items() if not low <= key < high}
            for key in change.deletes:
                model.pop(key, None)
            model |= change.puts
        expected = sorted((key, value) for key, value in model.items() if start <= key < end)
        assert await index.scan(start, end, limit) == expected[:limit]
        assert await index.scan(start, end, limit, reverse=True) == expected[::-1][:limit]
        assert await index.get(asked) == [model.get(key) for key in asked]
        assert await index.scan(*ALL, 1000) == sorted(model.items())
        await index.close()

    asyncio.run(main())
