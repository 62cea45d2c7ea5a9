"""How many bytes are copied at once and in a second: a backup must not delay the writers of its node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sarit.ops.backup.limits import COPIES_IN_FLIGHT, COPY_BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from sarit.env.ports import Clock

T = TypeVar("T")


class Progress(Protocol):
    """Shows how far a copy or a check is."""

    def begin(self, label: str, length: int | None) -> None:
        """Begin to show a part of `length` bytes; None: the length is not known."""

    def add(self, length: int) -> None:
        """Add bytes of the part that are done."""


class Pacer:
    """Lets a number of bytes pass in a second, evenly; 0: no limit."""

    def __init__(self, clock: Clock, bytes_per_second: int) -> None:
        self._clock = clock
        self._rate = bytes_per_second
        self._free_at = clock.monotonic()

    async def take(self, length: int) -> None:
        """Wait until `length` bytes may pass."""
        if not self._rate:
            return
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now) + length / self._rate
        await asyncio.sleep(self._free_at - now)

    async def block(self, left: int) -> int:
        """Return a `WriteLimiter`: files are written and synced in small blocks, so that other syncs need not wait
        long."""
        size = min(left, COPY_BLOCK_BYTES)
        await self.take(size)
        return size


async def for_each(items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """Do `work` for all, COPIES_IN_FLIGHT at a time.  Raises the first error, after the others were cancelled."""
    slots = asyncio.Semaphore(COPIES_IN_FLIGHT)

    async def in_slot(item: T) -> None:
        try:
            await work(item)
        finally:
            slots.release()

    try:
        async with asyncio.TaskGroup() as tasks:
            for item in items:
                await slots.acquire()
                tasks.create_task(in_slot(item))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
