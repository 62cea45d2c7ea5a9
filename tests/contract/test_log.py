"""One suite for every durable log: files on a real and a simulated disk, simulated and real bookies, the fake."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.errors import Fenced, SaritError, Unavailable
from sarit.env.real import real_env
from sarit.log.local import LocalLogProvider
from sarit.log.memory import MemoryLogProvider
from tests.components.bookkeeper import bookkeeper  # noqa: F401
from tests.components.bookkeeper_logs import RealLogs
from tests.components.zookeeper import zookeeper_server  # noqa: F401
from tests.limits import HANG_SECONDS
from tests.unit.log.bookkeeper.world import BookKeeperWorld
from tests.unit.log.world import FILE_BYTES, Machine, append, expected, frames, payload_of, simulate, start


class World:
    """Runs coroutines, and makes providers on one storage, each as a new process would."""

    def __init__(self, kind, directory) -> None:
        self.kind = kind
        self._directory = str(directory)
        self._machine = Machine()
        self._memory = MemoryLogProvider(0.0001)
        self._bookkeeper = BookKeeperWorld()
        self.real: RealLogs | None = None

    def run(self, main) -> None:
        if self.kind == "bookies":
            asyncio.run(self._run_and_close(main))
        elif self.kind in ("simulated", "bookkeeper"):
            simulate(main)
        else:
            asyncio.run(main())

    async def _run_and_close(self, main) -> None:
        try:
            await main()
        finally:
            await self.real.close()

    def provider(self):
        if self.kind == "bookies":
            return self.real.provider()
        if self.kind == "memory":
            return self._memory
        if self.kind == "bookkeeper":
            return self._bookkeeper.provider()
        if self.kind == "simulated":
            return LocalLogProvider(self._machine.env(), "/log", FILE_BYTES)
        return LocalLogProvider(real_env(), self._directory, FILE_BYTES)


REAL = pytest.param("bookies", marks=[pytest.mark.long, pytest.mark.timeout(HANG_SECONDS)])


@pytest.fixture(params=["disk", "simulated", "memory", "bookkeeper", REAL])
def world(request, tmp_path):
    found = World(request.param, tmp_path)
    if found.kind == "bookies":
        found.real = RealLogs(request.getfixturevalue("bookkeeper"))
    return found


def test_acknowledged_frames_are_replayed_by_next_owner(world):
    async def main():
        log = await world.provider().open(1)
        assert await frames(log) == []
        await append(log, 1, b"one")
        await append(log, 2, b"t", bytearray(b"w"), memoryview(b"xox")[1:2], b"")
        await append(log, 3)
        await log.close()
        log = await world.provider().open(1)
        assert await frames(log) == [(1, b"one"), (2, b"two"), (3, b"")]
        await append(log, 4, b"four")
        await log.close()
        log = await world.provider().open(1)
        assert await frames(log, after=2) == [(3, b""), (4, b"four")]
        await log.close()

    world.run(main)


def test_frames_carry_their_epoch_and_epochs_rise(world):
    async def main():
        epochs = []
        for number in range(1, 6):
            log = await world.provider().open(1)
            seen = [frame.epoch async for frame in log.replay(0)]
            assert seen == epochs
            epochs.append(log.epoch)
            await append(log, number, b"x")
            await log.close()
        assert epochs == sorted(set(epochs))

    world.run(main)


def test_callbacks_run_in_order_across_files(world):
    async def main():
        log = await world.provider().open(1)
        order = []
        for number in range(1, 300):
            log.append(number, [payload_of(number, number * 7)], lambda error, n=number: order.append((n, error)))
            if number % 17 == 0:
                await asyncio.sleep(0.0001)
        await append(log, 300, payload_of(300, 2100))
        assert order == [(number, None) for number in range(1, 300)]
        await log.close()
        log = await world.provider().open(1)
        assert await frames(log) == [(number, payload_of(number, number * 7)) for number in range(1, 301)]
        await log.close()

    world.run(main)


def test_frames_larger_than_a_file(world):
    async def main():
        log = await world.provider().open(1)
        sizes = [10, 3 * FILE_BYTES, 100, FILE_BYTES - 4096 - 48, FILE_BYTES, 7]
        await asyncio.gather(*(start(log, at + 1, payload_of(at + 1, size)) for at, size in enumerate(sizes)))
        await log.close()
        log = await world.provider().open(1)
        assert await frames(log) == [(at + 1, payload_of(at + 1, size)) for at, size in enumerate(sizes)]
        await log.close()

    world.run(main)


def test_truncation_frees_only_frames_below(world):
    async def main():
        log = await world.provider().open(1)
        for number in range(1, 101):
            await append(log, number, payload_of(number, 1000))
        before = log.backlog_bytes()
        assert before >= 100 * 1000
        log.truncate(81)
        assert log.backlog_bytes() < before * 0.4
        await append(log, 101, payload_of(101, 1000))
        await log.close()
        log = await world.provider().open(1)
        assert await frames(log, after=80) == expected(range(81, 102), 1000)
        log.truncate(102)
        assert log.backlog_bytes() < before * 0.1
        await append(log, 102, payload_of(102, 1000))
        await log.close()
        log = await world.provider().open(1)
        assert await frames(log, after=101) == expected([102], 1000)
        await log.close()

    world.run(main)


def test_opening_fences_earlier_owner(world):
    async def main():
        provider = world.provider()
        old = await provider.open(1)
        await append(old, 1, b"one")
        new = await provider.open(1)
        assert new.epoch > old.epoch
        with pytest.raises(SaritError):
            await append(old, 2, b"zombie")
        assert await frames(new) == [(1, b"one")]
        await append(new, 2, b"two")
        with pytest.raises(SaritError):
            await append(old, 3, b"zombie")
        await old.close()
        await append(new, 3, b"three")
        await new.close()
        last = await provider.open(1)
        assert await frames(last) == [(1, b"one"), (2, b"two"), (3, b"three")]
        await last.close()

    world.run(main)


def test_frames_in_flight_when_fenced_are_reported_once_each(world):
    """Each frame is durable and acknowledged, or refused."""

    async def main():
        provider = world.provider()
        old = await provider.open(1)
        flying = [start(old, number, payload_of(number)) for number in range(1, 40)]
        new = await provider.open(1)
        results = await asyncio.gather(*flying, return_exceptions=True)
        acked = [number for number, result in enumerate(results, 1) if result is None]
        assert all(result is None or isinstance(result, Fenced | Unavailable) for result in results)
        found = await frames(new)
        assert found == expected(range(1, len(found) + 1))
        assert acked == list(range(1, len(acked) + 1))
        assert len(found) >= len(acked)
        await new.close()

    world.run(main)


def test_containers_do_not_share_anything(world):
    async def main():
        provider = world.provider()
        logs = [await provider.open(container) for container in (0, 1, 12)]
        for container, log in enumerate(logs):
            await append(log, 1, b"%d" % container)
        for log in logs:
            await log.close()
        for container, number in enumerate((0, 1, 12)):
            log = await provider.open(number)
            assert await frames(log) == [(1, b"%d" % container)]
            await log.close()

    world.run(main)


def test_close_writes_queued_frames_and_refuses_later_ones(world):
    if world.kind == "memory":
        pytest.skip("the fake has no queue to finish: its delay is the disk's")

    async def main():
        log = await world.provider().open(1)
        queued = [start(log, number, payload_of(number)) for number in range(1, 50)]
        await asyncio.gather(log.close(), log.close())
        assert all(future.done() and future.exception() is None for future in queued)
        with pytest.raises(Unavailable):
            await append(log, 50, b"late")
        await log.close()

    world.run(main)


def test_log_without_frames_continues_after_checkpoint(world):
    """Restored from long-term storage: the first frame may have any number."""

    async def main():
        log = await world.provider().open(1)
        assert await frames(log, after=500) == []
        await append(log, 501, b"x")
        await log.close()
        log = await world.provider().open(1)
        assert await frames(log, after=500) == [(501, b"x")]
        await append(log, 502, b"y")
        await log.close()

    world.run(main)
