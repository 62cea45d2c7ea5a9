"""A machine without a network: virtual time, a disk that obeys its fault model, threads that die with the process."""

from __future__ import annotations

import asyncio
import random
from heapq import heappop
from typing import TYPE_CHECKING, Any, TypeVar, cast

import detangle

from sarit.env.ports import Env
from simulation.disk import SimulatedDisk
from simulation.threads import SimulatedThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")


class SimulatedClock:
    """The loop's time."""

    def monotonic(self) -> float:
        """See `ports.Clock`."""
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """See `ports.Clock`."""
        return 1_700_000_000_000 + int(self.monotonic() * 1000)


class SimulatedRandom:
    """`Random` of env/ports.py."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def bytes(self, count: int) -> bytes:
        """See `ports.Random`."""
        return self._rng.randbytes(count)

    def random(self) -> float:
        """See `ports.Random`."""
        return self._rng.random()


class Machine:
    """A disk that outlives processes, and the process that runs now."""

    def __init__(self, seed: int = 0, capacity_bytes: int = 1 << 40, latency: float = 0.001) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(self.rng, capacity_bytes)
        self._latency = latency
        self.threads = self._new_threads()

    def __repr__(self) -> str:
        return f"<Machine with {self.disk!r}>"

    def _new_threads(self) -> SimulatedThreads:
        return SimulatedThreads(lambda: self.rng.random() * self._latency)

    def env(self) -> Env:
        """The world of a process on this machine."""
        return Env(SimulatedClock(), SimulatedRandom(self.rng), self.disk, self.threads, cast("Any", None))

    def kill(self) -> None:
        """The process dies; the page cache survives."""
        self.threads.halt()
        self.threads = self._new_threads()
        self.disk.kill()

    def crash(self) -> None:
        """The power fails."""
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


class NestedLoop(asyncio.BaseEventLoop):
    """An event loop that runs a coroutine inside a callback of another loop, which is blocked meanwhile.

    It has no selector and no thread: coroutines may wait only for its own callbacks and timers.  Time advances when no
    callback is ready.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    def time(self) -> float:
        """Virtual seconds."""
        return self._seconds

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `work()` returns."""
        around = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return self.run_until_complete(work())
        finally:
            asyncio._set_running_loop(around)

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]  # typeshed leaves them out
        if not ready:
            assert timers, "recovery waits for something that nobody schedules"
            timer = heappop(timers)
            timer._scheduled = False
            self._seconds = max(self._seconds, timer.when())
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()


class DirectWorker:
    """A worker that executes a call in `submit`; callbacks come on the loop, in order."""

    def submit(self, call: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """See `ports.Worker.submit`."""
        result: T | None = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as failure:  # passed to the caller
            error = failure
        asyncio.get_running_loop().call_soon(done, result, error)

    async def run(self, call: Callable[[], T]) -> T:
        """See `ports.Worker.run`."""
        return call()

    async def close(self) -> None:
        """See `ports.Worker.close`."""
        await asyncio.sleep(0)


class DirectThreads:
    """`Threads` of `DirectWorker`s."""

    def worker(self, name: str) -> DirectWorker:
        """See `ports.Threads.worker`."""
        return DirectWorker()
