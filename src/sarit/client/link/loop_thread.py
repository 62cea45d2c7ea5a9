"""An event loop on a thread of its own, for callers that do not want one."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

T = TypeVar("T")


class LoopThread:
    """A running loop.  `run` blocks the caller; not to be called on the loop's own thread."""

    def __init__(self, name: str = "sarit") -> None:
        import uvloop

        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"LoopThread({self._thread.name}, {'running' if self._thread.is_alive() else 'ended'})"

    @property
    def alive(self) -> bool:
        """Whether the loop runs."""
        return self._thread.is_alive()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result; interrupting the wait cancels it.  Raises Invalid."""
        if not self._thread.is_alive():
            work.close()
            raise Invalid("the client is closed (or this process was forked after it connected): connect anew")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous generator, each waited for; the generator is closed at the end."""
        try:
            while (item := self.run(_next(items))) is not None:
                yield item
        finally:
            if self._thread.is_alive():
                self.run(_close(items))

    def call(self, function: Callable[[], Any]) -> None:
        """Call `function` on the loop, soon; nothing happens when the loop has ended."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """End the loop and its thread."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)


async def _close(items: AsyncIterator[Any]) -> None:
    await items.aclose()  # type: ignore[attr-defined]
