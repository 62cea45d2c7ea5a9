"""From an event loop to a thread that blocks: results of coroutines, and items of asynchronous iterators.

The engine of a query runs on a thread of its own and reads streams by the client, which lives on the event loop.  The
bridge ends with its query: whatever waits in it then raises, and iterators on the loop are closed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from contextlib import suppress
from threading import Condition
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sarit.client.limits import QUERY_BATCHES_AHEAD
from sarit.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Generator

T = TypeVar("T")


class LoopBridge:
    """The way of one query from its thread to the event loop.  Made and closed on the loop; used on the thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._feeds: set[_Feed[Any]] = set()
        self._closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result.  Raises what it raises, Unavailable (closed)."""
        if self._closed:
            work.close()
            raise _ended()
        call = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._calls.add(call)
        try:
            return call.result()
        except concurrent.futures.CancelledError:
            raise _ended() from None
        finally:
            self._calls.discard(call)

    def iterate(self, items: AsyncIterator[T]) -> Generator[T, None, None]:
        """Yield the items of an asynchronous iterator, which runs ahead by QUERY_BATCHES_AHEAD items.

        Raises what it raises, Unavailable (closed).  Closing this iterator closes that one."""
        feed: _Feed[T] = _Feed(self._loop, items)
        self._feeds.add(feed)
        if self._closed:
            feed.stop()
        try:
            while (item := feed.take()) is not None:
                yield item
        finally:
            feed.stop()
            self._feeds.discard(feed)

    def close(self) -> None:
        """End all calls and iterators."""
        self._closed = True
        for call in list(self._calls):
            call.cancel()
        for feed in list(self._feeds):
            feed.stop()


class _Feed(Generic[T]):
    """Items of an asynchronous iterator on their way to a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, items: AsyncIterator[T]) -> None:
        self._loop = loop
        self._items = items
        self._ready: deque[T] = deque()
        self._moved = Condition()
        self._failure: BaseException | None = None
        self._ended = False
        self._stopped = False
        self._task: asyncio.Task[None] | None = None
        self._space: asyncio.Event | None = None
        with suppress(RuntimeError):  # the loop has ended: `take` says so
            loop.call_soon_threadsafe(self._begin)

    def take(self) -> T | None:
        """Return the next item; None at the end.  Called on the thread."""
        with self._moved:
            while not (self._ready or self._ended or self._stopped):
                self._moved.wait()
            if self._stopped:
                raise _ended()
            if self._ready:
                item = self._ready.popleft()
                low = len(self._ready) * 2 <= QUERY_BATCHES_AHEAD
            else:
                if self._failure is not None:
                    raise self._failure
                return None
        if low and not self._ended:
            self._call(self._wake)
        return item

    def stop(self) -> None:
        """End the iterator; called on any thread, more than once."""
        with self._moved:
            if self._stopped:
                return
            self._stopped = True
            self._moved.notify_all()
        self._call(self._cancel)

    def _call(self, function: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it the task
            self._loop.call_soon_threadsafe(function)

    # -- on the loop ----------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._stopped:
            self._space = asyncio.Event()
            self._task = self._loop.create_task(self._run())

    def _wake(self) -> None:
        if self._space is not None:
            self._space.set()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        failure: BaseException | None = None
        try:
            async for item in self._items:
                with self._moved:
                    self._ready.append(item)
                    full = len(self._ready) >= QUERY_BATCHES_AHEAD
                    self._moved.notify_all()
                if full and self._space is not None:
                    self._space.clear()
                    await self._space.wait()
        except Exception as error:
            failure = error
        finally:
            close = getattr(self._items, "aclose", None)
            if close is not None:
                await close()
            with self._moved:
                self._failure = failure
                self._ended = True
                self._moved.notify_all()


def _ended() -> Unavailable:
    return Unavailable("the query has ended, or its client was closed")
