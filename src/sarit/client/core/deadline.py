"""A result within a time-out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def within(timeout: float | None, work: Awaitable[T]) -> T | None:
    """Return the result of `work`; None after `timeout` seconds, when it is cancelled.  `timeout` None: wait for
    ever."""
    try:
        async with asyncio.timeout(timeout):
            return await work
    except TimeoutError:
        return None
