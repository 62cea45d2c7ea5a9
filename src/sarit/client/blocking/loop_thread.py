"""An event loop on a background thread, for callers that have none.

A call of another thread is a task on the loop (`_Call`); its caller waits on a future.  An interrupted caller (Ctrl-C)
cancels the task and waits for its end, so that the next call does not find it still running.  When the loop ends, by
`close` or because code on it asked the process to exit, every call that runs or waits ends with Invalid.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from sarit.client.core.iteration import Items, Mapped
from sarit.client.limits import CANCEL_GRACE_SECONDS, EXIT_FLUSH_SECONDS
from sarit.client.session.parts import warn_user
from sarit.client.session.tracebacks import trimmed
from sarit.core.errors import Invalid, SaritError
from sarit.env.event_loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from sarit.client.session.session import Session

P = ParamSpec("P")
T = TypeVar("T")


class _Call(Generic[T]):
    """A coroutine that runs on the loop for another thread; `ended` is done once the task has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self.ended: Future[T] = Future()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        """On the loop."""
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._copy)

    def cancel(self) -> None:
        """On the loop."""
        if self._task is not None:
            self._task.cancel()

    def abandon(self) -> None:
        """Wake the caller, as nothing else will after the end of the loop."""
        if self._task is None:
            self._work.close()
        if not self.ended.done():
            self._cancelled()

    def _cancelled(self) -> None:
        self.ended.cancel()
        self.ended.set_running_or_notify_cancel()  # only this wakes a caller that is in `wait`

    def _copy(self, task: asyncio.Task[T]) -> None:
        if self.ended.done():
            return
        if task.cancelled():
            self._cancelled()
        elif (error := task.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(task.result())


class RunningLoop:
    """A loop on its thread.  The thread refers to this, and not to the `LoopThread` of the client's objects: when these
    are dropped, the garbage collector sees it."""

    def __init__(self, name: str) -> None:
        self.loop = new_event_loop()
        self.session: Session | None = None
        self.calls: dict[_Call[Any], None] = {}
        self._gate = threading.Lock()  # held to begin a call, and to refuse calls from then on
        self._stopped = False
        self._ended = False
        self._closing: set[asyncio.Task[None]] = set()
        self.thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        self.thread.start()

    def __repr__(self) -> str:
        return f"RunningLoop({self.thread.name}, {'running' if self.thread.is_alive() else 'ended'})"

    def check(self) -> None:
        """Raises Invalid when the loop has ended, or is another process's."""
        if not self.thread.is_alive():
            raise Invalid("the client is closed (or this process was forked after it connected): connect again")

    def call(self, function: Callable[[], Any]) -> None:
        """Call `function` on the loop soon, without waiting; nothing happens when the loop has ended."""
        with suppress(RuntimeError):  # closed meanwhile
            self.loop.call_soon_threadsafe(function)

    def begin(self, work: Coroutine[Any, Any, T]) -> _Call[T]:
        """Start `work` on the loop.  Raises Invalid when that has ended."""
        call = _Call(self.loop, work)
        with self._gate:
            if self._ended:
                raise Invalid("the client is closed: connect again")
            self.calls[call] = None
            self.loop.call_soon_threadsafe(call.start)
        return call

    def close(self) -> None:
        """End the loop and its thread; calls that other threads have begun end with Invalid."""
        if self.thread.is_alive():
            self._stop()
            self.thread.join()

    def _stop(self) -> None:
        with self._gate:
            first, self._stopped = not self._stopped, True
        if first:  # a second stop would interrupt what the first one lets end
            self.call(self.loop.stop)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:  # also when a user's function on the loop asked the process to exit: no caller may wait for ever
            with self._gate:
                self._ended = True
            try:
                self.loop.run_until_complete(self._cancel_all())
                self.loop.close()
            finally:
                for call in list(self.calls):
                    call.abandon()

    def close_soon(self, items: AsyncIterator[Any]) -> None:
        """On the loop: close an asynchronous iterator."""
        self._spawn(_close(items))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _cancel_all(self) -> None:
        """Cancel every task and wait for their end."""
        await asyncio.sleep(0)  # calls that began meanwhile are tasks now
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_GRACE_SECONDS)

    # -- the end of a client that nobody closed -----------------------------------------------------

    def dropped(self) -> None:
        """Begin to close a client whose objects were all garbage-collected.  Runs on any thread, and does not wait."""
        if not self.thread.is_alive() or self._stopped:  # closed; or this is a child process
            return
        if self.session is not None:
            warn_user("a blocking client was dropped and not closed: close it, or use it as a block")
        self.call(lambda: self._spawn(self._finish()))

    def exiting(self) -> None:
        """Flush the writers for a bounded time, because the process exits."""
        if self.thread.is_alive() and not self._stopped and self.session is not None:
            with suppress(Invalid, CancelledError):
                wait((self.begin(self._flush()).ended,), EXIT_FLUSH_SECONDS + CANCEL_GRACE_SECONDS)

    async def _flush(self) -> None:
        if self.session is not None and not self.session.ended:
            await self.session.flush(EXIT_FLUSH_SECONDS)

    async def _finish(self) -> None:
        try:
            await self._flush()
            if self.session is not None:
                await self.session.close()
        finally:
            self._stop()


class LoopThread:
    """A running loop.  `run` blocks the caller; not to be called on the loop's own thread.

    When nobody refers to it any more, the client is flushed, closed and the thread ends."""

    def __init__(self, name: str = "sarit") -> None:
        self.running = RunningLoop(name)
        self.loop = self.running.loop
        self._dropped = weakref.finalize(self, self.running.dropped)
        self._dropped.atexit = False
        _threads.add(self)

    def __repr__(self) -> str:
        return f"LoopThread({self.running!r})"

    @property
    def alive(self) -> bool:
        """Whether the loop runs."""
        return self.running.thread.is_alive()

    def check(self) -> None:
        """Raises Invalid when the loop has ended, or is another process's."""
        self.running.check()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result; interrupting the wait cancels it.  Raises Invalid."""
        try:
            self.check()
            if threading.current_thread() is self.running.thread:
                raise Invalid("a blocking call on the client's own thread would wait for itself: use sarit.aio")
            call = self.running.begin(work)
        except Invalid:
            work.close()
            raise
        try:
            return call.ended.result()
        except CancelledError:
            raise Invalid("the client was closed while this call was under way") from None
        except SaritError as error:
            raise trimmed(error) from None
        except BaseException:
            if not call.ended.done():  # Ctrl-C: the next call must not find this one still running
                self.call(call.cancel)
                wait((call.ended,), CANCEL_GRACE_SECONDS)
            raise
        finally:
            self.running.calls.pop(call, None)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator, and close it at the end.

        What is at hand is handed out on the caller's thread: one that Ctrl-C interrupts consumes nothing."""
        if isinstance(items, Items):
            for some in self.iterate(items.lists):
                yield from some
            return
        if isinstance(items, Mapped):
            for found in self.iterate(items.source):
                yield items.change(found)
            return
        try:
            while (item := self.run(_next(items))) is not None:
                yield item
        finally:
            # Not waited for: the garbage collector may close an abandoned iterator on any thread, at any moment.
            running = self.running
            running.call(lambda: running.close_soon(items))

    def call_and_wait(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function on the loop and return its result.  Raises Invalid, and what the function raises."""

        async def on_loop() -> T:
            return function(*args, **kwargs)

        return self.run(on_loop())

    def call(self, function: Callable[[], Any]) -> None:
        """Call `function` on the loop soon, without waiting; nothing happens when the loop has ended."""
        self.running.call(function)

    def close(self) -> None:
        """End the loop and its thread; calls that other threads have begun end with Invalid."""
        self.running.close()


_threads: weakref.WeakSet[LoopThread] = weakref.WeakSet()


def _at_exit() -> None:
    for thread in list(_threads):
        thread.running.exiting()


atexit.register(_at_exit)


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)


async def _close(items: AsyncIterator[Any]) -> None:
    await items.aclose()  # type: ignore[attr-defined]
