"""A simulated machine for tests of the log: virtual time, a disk that obeys its fault model."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, cast

import detangle

from sarit.env.ports import Env
from simulation.disk import SimulatedDisk
from simulation.threads import SimulatedThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sarit.env.ports import Buffer
    from sarit.log.port import DurableLog

FILE_BYTES = 4 * 4096


class SimulatedClock:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)


class SimulatedRandom:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def bytes(self, count: int) -> bytes:
        return self._rng.randbytes(count)

    def random(self) -> float:
        return self._rng.random()


class Machine:
    """A disk that outlives processes, and the process that runs now."""

    def __init__(self, seed: int = 0, capacity_bytes: int = 1 << 40, latency: float = 0.001) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(self.rng, capacity_bytes)
        self._latency = latency
        self.threads = self._new_threads()

    def _new_threads(self) -> SimulatedThreads:
        return SimulatedThreads(lambda: self.rng.random() * self._latency)

    def env(self) -> Env:
        return Env(SimulatedClock(), SimulatedRandom(self.rng), self.disk, self.threads, cast("Any", None))

    def kill(self) -> None:
        """The process dies; the page cache lives."""
        self.threads.halt()
        self.threads = self._new_threads()
        self.disk.kill()

    def crash(self) -> None:
        """The power goes."""
        self.threads.halt()
        self.threads = self._new_threads()
        self.disk = self.disk.crash()


def simulate(main: Callable[[], Awaitable[None]], seed: int | None = None) -> None:
    """Run in virtual time; with a seed, ready callbacks are permuted."""
    strategy = detangle.FIFO() if seed is None else detangle.RandomWalk(seed)
    config = detangle.SimConfig(check_leaks=False)
    result = detangle.execute(main, strategy=strategy, config=config)
    if result.failure is not None:
        raise result.failure.exception or AssertionError(result.failure.message)


def start(log: DurableLog, number: int, *payload: Buffer) -> asyncio.Future[None]:
    """Append; the future ends as `done` says."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: BaseException | None) -> None:
        assert not future.done(), f"frame {number} was reported twice"
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    log.append(number, payload, done)
    future.add_done_callback(lambda f: f.cancelled() or f.exception())
    return future


async def append(log: DurableLog, number: int, *payload: Buffer) -> None:
    await start(log, number, *payload)


async def frames(log: DurableLog, after: int = 0) -> list[tuple[int, bytes]]:
    return [(frame.number, bytes(frame.payload)) async for frame in log.replay(after)]


def payload_of(number: int, size: int = 20) -> bytes:
    """Bytes that tell which frame they are of."""
    return random.Random(number).randbytes(size)


def expected(numbers: Sequence[int] | range, size: int = 20) -> list[tuple[int, bytes]]:
    return [(number, payload_of(number, size)) for number in numbers]
