"""Tasks that nobody awaits: referenced until they end, their failures reported, cancelled together.

And `gather`, which can always be cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")


async def gather(*work: Awaitable[T]) -> list[T]:
    """Await all work as `asyncio.gather` does, but a cancellation is never lost.

    When a piece of work fails in the same turn of the event loop in which the caller is cancelled, `asyncio.gather`
    raises only the error.  A task that retries after an error would then never end, nor would a wait for its end."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        return await asyncio.gather(*work)
    except Exception:
        if task.cancelling() > before:
            raise asyncio.CancelledError from None
        raise


async def shielded(work: asyncio.Future[T]) -> T:
    """Return the result of `work`, which goes on when the caller is cancelled.

    `asyncio.shield` logs an error on Python 3.14 when `work` fails later, also where its owner knows of it."""
    if not work.done():
        await asyncio.wait((work,))
    return work.result()


def ignore_outcome(future: asyncio.Future[Any]) -> None:
    """Mark the error of a future as seen, so that asyncio does not log it.  For `add_done_callback`.

    Needed wherever `shielded` or `asyncio.wait` lets a cancelled caller leave a task that goes on."""
    if not future.cancelled():
        future.exception()


class Background:
    """The tasks of one owner.

    `failed` is called on the event loop with each task that has failed and the task's error."""

    def __init__(self, failed: Callable[[asyncio.Task[Any], BaseException], None]) -> None:
        self._failed = failed
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order of their start, as the simulation needs it

    @classmethod
    def critical(cls, log: logging.Logger, what: str) -> Background:
        """Make an owner of tasks that should never end: the failure of one is logged as CRITICAL, with `what`."""
        return cls(
            lambda task, error: log.critical("%s failed: internal error; restart this process", what, exc_info=error)
        )

    def spawn(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        """Start `work`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        # `_tasks` keeps the task alive: asyncio itself holds tasks only weakly.
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(task, error)

    async def close(self) -> None:
        """Cancel the running tasks and wait until they have ended."""
        # Leaves out the task that calls `close`: it would wait for itself.
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
