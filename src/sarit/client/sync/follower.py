"""Keeping a copy of a shared state fresh, and telling who waits for a change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sarit.core.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.sync.synchronizer import StateSynchronizer

S = TypeVar("S")
T = TypeVar("T")


class Follower(Generic[S]):
    """Waits for what others write to one state; `ring` wakes those in `until`."""

    def __init__(self, shared: StateSynchronizer[S]) -> None:
        self.shared = shared
        self.failure: BaseException | None = None
        self._more: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"Follower({self.shared!r}, {len(self._waiting)} waiting)"

    async def wait(self, seconds: float | None) -> None:
        """Wait until there may be more to fetch, or so long.  Raises what the store answers, but Unavailable."""
        # One question for many waits: a question given up would stay parked on the store.
        if self._more is None:
            self._more = asyncio.get_running_loop().create_task(self._beyond(), name=f"follow {self.shared.stream}")
        await asyncio.wait((self._more,), timeout=seconds)
        if self._more.done():
            ended, self._more = self._more, None
            ended.result()

    async def _beyond(self) -> None:
        try:
            await self.shared.stream.wait_beyond(self.shared.revision)
        except Unavailable:
            return  # the fetch to come is patient

    async def until(self, look: Callable[[], T | None], seconds: Callable[[], float | None] = lambda: None) -> T:
        """What `look` finds, asked after every `ring` and after `seconds()`, once it is not None.

        Raises the failure that ended the following."""
        while True:
            if self.failure is not None:
                raise self.failure
            found = look()
            if found is not None:
                return found
            bell: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(bell)
            try:
                await asyncio.wait((bell,), timeout=seconds())
            finally:
                if bell in self._waiting:
                    self._waiting.remove(bell)

    def ring(self) -> None:
        """Something changed."""
        waiting, self._waiting = self._waiting, []
        for bell in waiting:
            if not bell.done():
                bell.set_result(None)

    def end(self, failure: BaseException | None = None) -> None:
        """Stop; those who wait are told why."""
        if self.failure is None:
            self.failure = failure or Invalid(f"{self.shared.stream.stream} was closed here")
        if self._more is not None:
            self._more.cancel()
            self._more.add_done_callback(_drop)
            self._more = None
        self.ring()


def _drop(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
