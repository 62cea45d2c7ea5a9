"""A result within a time-out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from sarit.core.errors import SaritError

if TYPE_CHECKING:
    from collections.abc import Awaitable

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
