"""One lock per name, for as long as somebody holds or awaits it.

Only so that calls of one controller on one stream do not spoil each other's compare-and-set; what is right does not
depend on it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

K = TypeVar("K", bound="Hashable")


class Locks(Generic[K]):
    """Locks by key."""

    def __init__(self) -> None:
        self._held: dict[K, tuple[asyncio.Lock, list[None]]] = {}

    def __repr__(self) -> str:
        return f"<Locks {len(self._held)} held>"

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of `key`."""
        lock, users = self._held.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._held[key]
