"""Results within a time-out, and work that outlasts one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from sarit.core.errors import SaritError
from sarit.env.background import ignore_outcome, shielded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def within(timeout: float | None, work: Awaitable[T]) -> T | None:
    """Return the result of `work`; None after `timeout` seconds, when it is cancelled.  `timeout` None: wait for
    ever."""
    try:
        async with asyncio.timeout(timeout):
            return await work
    except SaritError:  # also one that is a TimeoutError: another time has passed than this one
        raise
    except TimeoutError:
        return None


class Once(Generic[T]):
    """One result for all calls.  Its work goes on when a call is cancelled, and is done again after an error.

    Calls with short time-outs would never get to the end of work that each of them began again."""

    __slots__ = ("_task", "_work")

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._task: asyncio.Future[T] | None = None

    def __repr__(self) -> str:
        return f"Once({self._task})"

    async def get(self) -> T:
        """Return the result, of the first call that has one."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._work())
            self._task.add_done_callback(ignore_outcome)  # nobody may ask for it any more
        try:
            return await shielded(self._task)
        except Exception:
            self._task = None
            raise
