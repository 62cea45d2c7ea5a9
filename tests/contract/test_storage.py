"""One suite for every chunk storage: what the flusher, readers and garbage collection rely on."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sarit.core.errors import Corrupt, Exists, Invalid, NotFound, Unavailable
from sarit.env.real import real_env
from sarit.storage.checksums import DamagedChunk
from sarit.storage.memory import MemoryChunks
from sarit.storage.open import open_storage
from tests.limits import examples

MIB = 1 << 20


@pytest.fixture(params=["fake", "directory", "memory", "s3", pytest.param("hdfs", marks=pytest.mark.long)])
def opened(request, tmp_path):
    """An async context manager that opens the same storage at each use."""
    kind = request.param
    if kind == "fake":
        fake = MemoryChunks()
    elif kind == "directory":
        url, environ = (tmp_path / "chunks" / "deep").as_uri(), {}
    elif kind == "memory":
        url, environ = "memory://", {}
    elif kind == "hdfs":
        url, environ = f"{request.getfixturevalue('hdfs').url}/{tmp_path.name}/deep", {}
    else:
        assert kind == "s3"
        server = request.getfixturevalue("s3")
        url, environ = f"s3://{server.bucket}/{tmp_path.name}/deep", server.environ

    @asynccontextmanager
    async def open_it():
        storage = fake if kind == "fake" else await open_storage(url, real_env(), environ)
        try:
            yield storage
        finally:
            await storage.close()

    open_it.persistent = kind != "memory"
    open_it.kind = kind
    return open_it


async def listed(storage, prefix="") -> list[tuple[str, int]]:
    return [entry async for entry in storage.list(prefix)]


def run(main):
    asyncio.run(main())


def test_write_concatenates_parts(opened):
    async def main():
        async with opened() as storage:
            await storage.write("c0/e1/a", [b"one", bytearray(b"two"), memoryview(b"three")[1:], b""])
            assert await storage.read("c0/e1/a", 0, 10) == b"onetwohree"
            assert await storage.read("c0/e1/a", 4, 3) == b"woh"
            assert await storage.read("c0/e1/a", 9, 1) == b"e"
            assert await listed(storage) == [("c0/e1/a", 10)]

    run(main)


def test_existing_chunk_is_never_overwritten(opened):
    async def main():
        async with opened() as storage:
            await storage.write("a", [b"first"])
            with pytest.raises(Exists):
                await storage.write("a", [b"second"])
            outcomes = await asyncio.gather(
                *(storage.write("b", [b"%d" % at * 5]) for at in range(5)), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes].count(type(None)) == 1, outcomes
            winner = outcomes.index(None)
            assert all(isinstance(outcome, (Exists, Unavailable)) for outcome in outcomes if outcome), outcomes
            assert await storage.read("a", 0, 5) == b"first"
            assert await storage.read("b", 0, 5) == b"%d" % winner * 5

    run(main)


def test_large_chunks_and_ranges(opened):
    data = bytes(range(256)) * 4096 * 9 + b"tail"
    parts = [data[at : at + 700_001] for at in range(0, len(data), 700_001)]

    async def main():
        async with opened() as storage:
            await storage.write("large", parts)
            for offset, length in [(0, 1), (MIB - 1, 2), (5 * MIB + 3, 4 * MIB), (len(data) - 4, 4), (0, len(data))]:
                assert await storage.read("large", offset, length) == data[offset : offset + length]
            assert await listed(storage) == [("large", len(data))]

    run(main)


def test_write_of_many_small_parts(opened):
    async def main():
        async with opened() as storage:
            parts = [b"%05d" % at for at in range(5000)]
            await storage.write("many", parts)
            assert await storage.read("many", 0, 25_000) == b"".join(parts)

    run(main)


def test_read_past_end_of_chunk_is_corrupt(opened):
    async def main():
        async with opened() as storage:
            await storage.write("a", [b"12345"])
            for offset, length in [(0, 6), (3, 3), (5, 1), (9, 9)]:
                with pytest.raises(Corrupt):
                    await storage.read("a", offset, length)
            assert await storage.read("a", 0, 5) == b"12345"

    run(main)


def test_deleted_chunk_is_not_found_after_earlier_read(opened):
    async def main():
        async with opened() as storage:
            await storage.write("c/a", [b"12345"])
            await storage.write("c/b", [b"12345"])
            for _ in range(8):
                assert await storage.read("c/a", 0, 5) == b"12345"
            await storage.delete("c/a")
            await storage.delete("c/a")
            await storage.delete("never/was")
            for name in ("c/a", "never/was", "c/a/b"):
                with pytest.raises(NotFound):
                    await storage.read(name, 0, 5)
            assert await listed(storage) == [("c/b", 5)]

    run(main)


def test_chunks_outlive_the_handle(opened):
    if not opened.persistent:
        pytest.skip("memory:// goes with its handle")

    async def main():
        async with opened() as storage:
            await storage.write("c/a", [b"data"])
        async with opened() as storage:
            assert await storage.read("c/a", 0, 4) == b"data"
            assert await listed(storage, "c") == [("c/a", 4)]
            with pytest.raises(Exists):
                await storage.write("c/a", [b"lost"])

    run(main)


def test_a_closed_storage_is_unavailable(opened):
    if opened.kind == "fake":
        pytest.skip("the fake is the disk itself: it has nothing to close")

    async def main():
        async with opened() as storage:
            await storage.write("a", [b"1"])
        await storage.close()
        for call in (storage.write("b", [b""]), storage.read("a", 0, 1), storage.delete("a"), listed(storage)):
            with pytest.raises(Unavailable):
                await call

    run(main)


def test_list_is_sorted_and_matches_whole_parts(opened):
    names = ["a-b", "a/b-1", "a/b/c", "a/b/d", "a/bc", "a0", "b/x/1", "b/x/2", "b/x-1", "b/y", "bx"]

    async def main():
        async with opened() as storage:
            assert await listed(storage) == []
            assert await listed(storage, "none") == []
            for name in reversed(names):
                await storage.write(name, [name.encode()])
            for prefix in ("", "a", "a/b", "b", "b/x", "bx", "none"):
                under = f"{prefix}/" if prefix else ""
                expected = sorted((name, len(name)) for name in names if name.startswith(under))
                assert await listed(storage, prefix) == expected, prefix

    run(main)


@pytest.mark.parametrize(
    "name", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a/.b", "ä", "a b", "a\n", "a\\b", "x" * 201]
)
def test_bad_names_are_refused(opened, name):
    async def main():
        async with opened() as storage:
            for call in (storage.write(name, [b""]), storage.read(name, 0, 1), storage.delete(name)):
                with pytest.raises(Invalid):
                    await call
            if name:
                with pytest.raises(Invalid):
                    await listed(storage, name)

    run(main)


def test_concurrent_writes_and_reads(opened):
    async def main():
        async with opened() as storage:

            async def one(at: int):
                data = b"%04d" % at * 1000
                await storage.write(f"c/{at}", [data])
                assert await storage.read(f"c/{at}", 4 * at, 4) == b"%04d" % at
                if at % 2:
                    await storage.delete(f"c/{at}")

            await asyncio.gather(*(one(at) for at in range(40)))
            assert await listed(storage) == sorted((f"c/{at}", 4000) for at in range(0, 40, 2))

    run(main)


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(parts=st.lists(st.binary(max_size=50), max_size=6), number=st.integers(0, 1 << 60), data=st.data())
def test_any_range_of_any_parts(opened, parts, number, data):
    whole = b"".join(parts)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))

    async def main():
        async with opened() as storage:
            name = f"any/{number}-{len(whole)}"
            await storage.write(name, parts)
            assert await storage.read(name, start, end - start) == whole[start:end]
            await storage.delete(name)

    run(main)


def test_checksums_observe_all_bytes_and_check_what_is_read(opened):
    data = bytes(range(256)) * 4096 * 3 + b"tail"
    parts = [data[at : at + 700_001] for at in range(0, len(data), 700_001)]

    async def small_pieces(left):
        return min(left, 256 * 1024)

    async def main():
        async with opened() as storage:
            for name, limiter in (("whole", None), ("pieces", small_pieces)):
                observed = []
                await storage.write(name, parts, limiter, observed.extend)
                assert b"".join(observed) == data, "in order"
                checked = []
                assert await storage.read(name, MIB, 2 * MIB + 4, checked.append) == data[MIB:]
                assert b"".join(map(bytes, checked)) == data[MIB:]

            def refuse(read):
                raise DamagedChunk("whole", 7, "is not what was written")

            for length in (10, 2 * MIB):
                with pytest.raises(DamagedChunk, match="not what was written") as found:
                    await storage.read("whole", 0, length, refuse)
                assert found.value.offset == 7
            with pytest.raises(DamagedChunk, match="too short") as found:
                await storage.read("whole", MIB, len(data), checked.append)
            assert not found.value.missing
            await storage.write("empty", [], None, observed.extend)
            assert await storage.read("whole", 0, len(data)) == data

    run(main)


def test_restored_chunk_is_read_again(opened, tmp_path):
    if opened.kind != "directory":
        pytest.skip("the other kinds keep no file open")

    async def main():
        async with opened() as storage:
            await storage.write("c/a", [b"right"])
            path = next(tmp_path.rglob("a.chunk"))
            path.write_bytes(b"wrong")

            def check(data):
                if bytes(data) != b"right":
                    raise DamagedChunk("c/a", 0, "is damaged")

            with pytest.raises(DamagedChunk):
                await storage.read("c/a", 0, 5, check)
            path.with_suffix(".new").write_bytes(b"right")
            path.with_suffix(".new").rename(path)  # another file under the same name
            for _ in range(6):
                assert await storage.read("c/a", 0, 5, check) == b"right"

    run(main)
