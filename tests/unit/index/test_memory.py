"""The fake index injects the faults of the real one."""

import asyncio

import pytest

from sarit.core.errors import Fenced, Unavailable
from sarit.index.memory import IndexFaults, MemoryIndexes
from sarit.index.port import WriteBatch

A1, A2 = WriteBatch({b"a": b"1"}), WriteBatch({b"a": b"2"})


@pytest.fixture
def faults():
    return IndexFaults()


@pytest.fixture
def disk(faults):
    return MemoryIndexes(faults)


@pytest.mark.parametrize(("fault", "applied"), [("fail_before", b"1"), ("fail_after", b"2")])
def test_failed_commit_kills_the_handle(disk, faults, fault, applied):
    async def main():
        index = await disk.open(0)
        await index.commit(A1)
        setattr(faults, fault, 1)
        with pytest.raises(Unavailable):
            await index.commit(A2)
        for call in (index.commit(A1), index.get([b"a"]), index.scan(b"", b"b", 1)):
            with pytest.raises(Unavailable, match="dead"):
                await call
        assert await (await disk.open(0)).get([b"a"]) == [applied]

    asyncio.run(main())


@pytest.mark.parametrize(("draw", "left"), [(0.9, b"1"), (0.1, b"2")])
@pytest.mark.parametrize("how", ["crash", "cancel"])
def test_interrupted_commit_is_atomic(disk, faults, draw, left, how):
    async def main():
        index = await disk.open(0)
        await index.commit(A1)
        faults.delay, faults.draw = (lambda: 0.01), (lambda: draw)
        commit = asyncio.ensure_future(index.commit(A2))
        await asyncio.sleep(0)
        if how == "crash":
            disk.crash()
        else:
            commit.cancel()
        with pytest.raises((Unavailable, asyncio.CancelledError)):
            await commit
        assert disk.snapshot(0) == {b"a": left}
        assert disk.commits(0) == (1 if left == b"1" else 2)
        if how == "crash":
            with pytest.raises(Unavailable, match="crashed"):
                await index.get([b"a"])

    asyncio.run(main())


def test_fenced_handle_reads_old_values_and_fails_commits(disk):
    async def main():
        old = await disk.open(0)
        await old.commit(A1)
        new = await disk.open(0)
        await new.commit(A2)
        assert await old.get([b"a"]) == [b"1"]
        assert await old.scan(b"", b"b", 9) == [(b"a", b"1")]
        with pytest.raises(Fenced):
            await old.commit(A1)
        assert await new.get([b"a"]) == [b"2"]

    asyncio.run(main())


def test_commit_in_flight_is_fenced(disk, faults):
    async def main():
        old = await disk.open(0)
        faults.delay = lambda: 0.01
        commit = asyncio.ensure_future(old.commit(A1))
        await asyncio.sleep(0)
        faults.delay = lambda: 0.0
        await disk.open(0)
        with pytest.raises(Fenced):
            await commit
        assert disk.snapshot(0) == {}

    asyncio.run(main())


def test_calls_fail_while_unavailable_and_entries_survive(disk, faults):
    async def main():
        index = await disk.open(0)
        await index.commit(A1)
        faults.unavailable = True
        for call in (index.commit(A2), index.get([b"a"]), index.scan(b"", b"b", 1), disk.open(1)):
            with pytest.raises(Unavailable, match="unavailable"):
                await call
        faults.unavailable = False
        assert await index.get([b"a"]) == [b"1"]
        await index.commit(A2)
        assert await index.get([b"a"]) == [b"2"]

    asyncio.run(main())


def test_stalls_keep_the_order_of_commits(disk, faults):
    async def main():
        index = await disk.open(0)
        delays = iter([0.003, 0.002, 0.001, 0.0])
        faults.delay = lambda: next(delays)
        await asyncio.gather(*(index.commit(WriteBatch({b"a": b"%d" % at})) for at in range(3)))
        assert await index.get([b"a"]) == [b"2"]

    asyncio.run(main())
