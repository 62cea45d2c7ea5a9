"""The storage in memory injects faults on request."""

import asyncio

import pytest

from sarit.core.errors import Exists, Unavailable
from sarit.storage.memory import MemoryChunks, StorageFaults


async def listed(chunks) -> list[str]:
    return [name async for name, _ in chunks.list("")]


def test_refused_write_has_no_effect_and_applied_write_has():
    async def main():
        faults = StorageFaults(fault=lambda: kinds.pop(0))
        chunks = MemoryChunks(faults)
        kinds = ["refused", "applied", "", "applied", "refused", "applied"]
        with pytest.raises(Unavailable, match="503"):
            await chunks.write("a", [b"1"])
        assert chunks.chunks == {}
        with pytest.raises(Unavailable):
            await chunks.write("a", [b"1"])
        assert chunks.chunks == {"a": b"1"}
        with pytest.raises(Exists):
            await chunks.write("a", [b"2"])
        with pytest.raises(Unavailable):
            await chunks.read("a", 0, 1)
        with pytest.raises(Unavailable):
            await chunks.delete("a")
        assert chunks.chunks == {"a": b"1"}
        with pytest.raises(Unavailable):
            await chunks.delete("a")
        assert chunks.chunks == {}

    asyncio.run(main())


def test_faults_delay_calls_and_make_storage_unavailable():
    async def main():
        lengths = []
        faults = StorageFaults(delay=lambda length: lengths.append(length) or 0.001)
        chunks = MemoryChunks(faults)
        await chunks.write("a", [b"1", b"23"])
        await chunks.read("a", 0, 2)
        assert lengths == [3, 2]
        writing = asyncio.ensure_future(chunks.write("b", [b"1"]))
        await asyncio.sleep(0)
        faults.unavailable = True
        for call in (writing, chunks.read("a", 0, 1), chunks.delete("a"), listed(chunks)):
            with pytest.raises(Unavailable, match="unavailable"):
                await call
        faults.unavailable = False
        assert await listed(chunks) == ["a"]

    asyncio.run(main())


def test_stale_listing_shows_earlier_state():
    async def main():
        chunks = MemoryChunks()
        for name in "cab":
            await chunks.write(name, [name.encode()])
        await chunks.delete("a")
        assert await listed(chunks) == ["b", "c"]
        chunks.faults.stale = 1
        assert await listed(chunks) == ["a", "c"], "b is not shown yet, a still"

    asyncio.run(main())


def test_second_concurrent_write_of_name_fails():
    async def main():
        chunks = MemoryChunks(StorageFaults(delay=lambda _: 0.001))
        outcomes = await asyncio.gather(*(chunks.write("a", [b"%d" % at]) for at in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes].count(Exists) == 2

    asyncio.run(main())
