"""Asynchronous iterators whose `__anext__` may be cancelled at any point.

`asyncio.wait_for(anext(events), 0.01)` in a loop is the usual way to read with a time limit.  An asynchronous generator
ends when it is cancelled: the next call would say that nothing more comes.  So what the client iterates over are
objects: a cancelled call, or one that failed, loses nothing, and the next one goes on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sarit.env.background import ignore_outcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator

T = TypeVar("T")
S = TypeVar("S")

_END: Final[Any] = object()


class Pulled(Generic[T]):
    """An iterator over what calls of `pull` return, up to the first None.  `pull` loses nothing when it is
    cancelled."""

    __slots__ = ("_pull",)

    def __init__(self, pull: Callable[[], Awaitable[T | None]]) -> None:
        self._pull = pull

    def __repr__(self) -> str:
        return f"Pulled({self._pull!r})"

    def __aiter__(self) -> Pulled[T]:
        return self

    async def __anext__(self) -> T:
        found = await self._pull()
        if found is None:
            raise StopAsyncIteration
        return found

    async def aclose(self) -> None:
        """End the iteration."""
        self._pull = _nothing


class Mapped(Generic[S, T]):
    """An iterator over what `change` makes of each item of `source`; the blocking client calls it on the caller's
    thread."""

    __slots__ = ("change", "source")

    def __init__(self, source: AsyncIterator[S], change: Callable[[S], T]) -> None:
        self.source = source
        self.change = change

    def __repr__(self) -> str:
        return f"Mapped({self.source!r})"

    def __aiter__(self) -> Mapped[S, T]:
        return self

    async def __anext__(self) -> T:
        return self.change(await anext(self.source))

    async def aclose(self) -> None:
        """End the iteration, and its source."""
        await self.source.aclose()  # type: ignore[attr-defined]


class Items(Generic[T]):
    """The items of lists, one by one.  Only a list is waited for, in the blocking client on the loop's thread."""

    __slots__ = ("_left", "lists")

    def __init__(self, lists: AsyncIterator[Iterable[T]]) -> None:
        self.lists = lists
        self._left: Iterator[T] = iter(())

    def __repr__(self) -> str:
        return f"Items({self.lists!r})"

    def __aiter__(self) -> Items[T]:
        return self

    async def __anext__(self) -> T:
        while True:
            for item in self._left:
                return item
            self._left = iter(await anext(self.lists))

    async def aclose(self) -> None:
        """End the iteration, and what its lists come from."""
        self._left = iter(())
        await self.lists.aclose()  # type: ignore[attr-defined]


class Resumed(Generic[T]):
    """The items of a generator.  A task waits for the next one, and goes on when a call that waits is cancelled.

    After an error every call raises it."""

    __slots__ = ("__weakref__", "_failure", "_items", "_step")

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._step: asyncio.Task[T] | None = None
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"Resumed({self._items!r})"

    def __aiter__(self) -> Resumed[T]:
        return self

    async def __anext__(self) -> T:
        if self._failure is not None:
            raise self._failure
        if self._step is None:
            self._step = asyncio.ensure_future(_next(self._items))
            self._step.add_done_callback(ignore_outcome)  # nobody may ask for it any more
        # Unlike an `await` of the task, this leaves it running when it is cancelled.
        await asyncio.wait((self._step,))
        step, self._step = self._step, None
        try:
            found = step.result()
        except Exception as error:
            self._failure = error
            raise
        if found is _END:
            raise StopAsyncIteration
        return found

    async def aclose(self) -> None:
        """End the generator, wherever it is."""
        step, self._step = self._step, None
        if step is not None:
            step.cancel()
            await asyncio.wait((step,))
        await self._items.aclose()

    def __del__(self) -> None:
        # The garbage collector may run on any thread.  A generator that nothing waits for is closed by its loop.
        step = self._step
        if step is not None and not step.done():
            with suppress(RuntimeError):  # the loop has ended
                step.get_loop().call_soon_threadsafe(step.cancel)


async def _next(items: AsyncIterator[T]) -> T:
    found: T = await anext(items, _END)
    return found


async def _nothing() -> None:
    return None
