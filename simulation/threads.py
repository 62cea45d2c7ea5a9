"""Threads for the deterministic simulation.

A simulated worker runs its calls one at a time, in order, as events on the running loop: the effect of a
call comes after one drawn delay, its result after another, so that other events, and crashes, come
before, between and after.  `SimulatedThreads.halt` is the death of the process: no submitted call runs
or reports after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class SimulatedWorker:
    """One thread, as events of the running loop."""

    def __init__(self, threads: SimulatedThreads, name: str) -> None:
        self._threads = threads
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()
        self._running = False
        self._closed = False
        self._ended = asyncio.Event()

    def __repr__(self) -> str:
        return f"<SimulatedWorker {self._name}, {len(self._jobs)} waiting>"

    def submit(self, call: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """See `ports.Worker.submit`."""
        if self._closed:
            raise RuntimeError(f"worker {self._name} is closed")
        self._jobs.append((call, done))
        self._go_on()

    def run(self, call: Callable[[], T]) -> Awaitable[T]:
        """See `ports.Worker.run`."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: object, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(call, done)
        return future

    async def close(self) -> None:
        """See `ports.Worker.close`."""
        self._closed = True
        self._go_on()
        await self._ended.wait()

    def _go_on(self) -> None:
        if self._running or self._threads.halted:
            return
        if self._jobs:
            self._running = True
            self._loop.call_later(self._threads.latency(), self._execute)
        elif self._closed:
            self._ended.set()

    def _execute(self) -> None:
        if self._threads.halted:
            return
        call, done = self._jobs.popleft()
        result, error = None, None
        try:
            result = call()
        except BaseException as failure:  # passed to the caller
            error = failure
        self._loop.call_later(self._threads.latency(), self._deliver, done, result, error)

    def _deliver(
        self, done: Callable[[Any, BaseException | None], None], result: object, error: BaseException | None
    ) -> None:
        if self._threads.halted:
            return
        self._running = False
        try:
            done(result, error)
        finally:
            self._go_on()


class SimulatedThreads:
    """Workers whose delays `latency` draws, in seconds."""

    def __init__(self, latency: Callable[[], float] = lambda: 0.0) -> None:
        self.latency = latency
        self.halted = False

    def worker(self, name: str) -> SimulatedWorker:
        """Start a worker."""
        return SimulatedWorker(self, name)

    def halt(self) -> None:
        """The process dies: no submitted call runs or reports after this."""
        self.halted = True
