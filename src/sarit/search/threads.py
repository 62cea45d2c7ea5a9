"""Threads on which searches run, so that the event loop goes on meanwhile.

A thread cannot be stopped: a caller that gives up gets nothing, and the thread ends its call before it takes another.
So a call that takes long asks now and then whether anybody waits for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from sarit.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.ports import Threads, Worker

T = TypeVar("T")


class SearchThreads:
    """At most `most` threads, each made when it is needed."""

    def __init__(self, threads: Threads, name: str, most: int) -> None:
        self._threads = threads
        self._name = name
        self._free = asyncio.Semaphore(most)
        self._idle: list[Worker] = []
        self._all: list[Worker] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<SearchThreads {self._name}, {len(self._all) - len(self._idle)} of {len(self._all)} at work>"

    @property
    def busy(self) -> int:
        """The threads that are at work."""
        return len(self._all) - len(self._idle)

    async def run(self, call: Callable[[], T], done: Callable[[], None] | None = None) -> T:
        """Run a call on a thread, and return its result.  Raises what it raises; Unavailable: the process stops.

        `done`: called on the event loop once the call has ended, also if nobody waits for it any more, or if it was
        never begun."""
        begun = False
        try:
            await self._free.acquire()
            try:
                worker = self._take()
            except BaseException:
                self._free.release()
                raise
            result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

            def ended(value: T | None, error: BaseException | None) -> None:
                self._idle.append(worker)
                self._free.release()
                if done is not None:
                    done()
                if result.done():
                    return
                if error is not None:
                    result.set_exception(error)
                else:
                    result.set_result(value)  # type: ignore[arg-type]

            worker.submit(call, ended)
            begun = True
        finally:
            if not begun and done is not None:
                done()
        return await result

    def _take(self) -> Worker:
        if self._closed:
            raise Unavailable("this process stops: search again")
        if self._idle:
            return self._idle.pop()
        worker = self._threads.worker(f"{self._name}-{len(self._all)}")
        self._all.append(worker)
        return worker

    async def close(self) -> None:
        """Wait for the calls under way, and end the threads."""
        self._closed = True
        for worker in self._all:
            await worker.close()
