"""One lock per name, for as long as somebody holds or awaits it.

Only so that calls of one controller on one stream do not spoil each other's compare-and-set; what is right does not
depend on it.  While what one of them is about does not answer, they pile up: no more of them may wait than leave room
for calls on other names.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from sarit.core.errors import Unavailable
from sarit.core.limits import MAX_CALLS_PER_NAME

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
        """Hold the lock of `key`.  Raises Unavailable when too many wait for it."""
        lock, users = self._held.setdefault(key, (asyncio.Lock(), []))
        if len(users) >= MAX_CALLS_PER_NAME:
            raise Unavailable(f"{len(users)} calls wait for the same stream, reader group or table: try again")
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._held[key]
