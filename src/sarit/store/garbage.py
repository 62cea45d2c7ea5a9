"""Deletes the chunks that commits of the index dropped, after them: the marks are in the batch that dropped them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Unavailable
from sarit.core.sometimes import sometimes
from sarit.index import keys
from sarit.index.port import WriteBatch

if TYPE_CHECKING:
    from sarit.store.container import Container

_PER_CYCLE: Final = 1000
_CYCLE_SECONDS: Final = 1.0
_AT_ONCE: Final = 16
_MOST_FAILURES: Final = 3


class Garbage:
    """What a container's commits dropped, until it is deleted."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._next: bytes | None = None

    def __repr__(self) -> str:
        return f"<Garbage of {self._container!r}>"

    async def collect(self) -> None:
        """Delete for a while; what is left, or fails, at later cycles."""
        container = self._container
        low, high = keys.kind_range(keys.GARBAGE)
        rows = await container.index.scan(self._next or low, high, _PER_CYCLE)
        clock, failures = container.env.clock, 0
        end = clock.monotonic() + _CYCLE_SECONDS
        batch = WriteBatch()
        self._next = None
        for at in range(0, len(rows), _AT_ONCE):
            if failures >= _MOST_FAILURES or clock.monotonic() >= end:
                self._next = rows[at][0]  # those that cannot be deleted do not keep the others
                break
            group = [key for key, _ in rows[at : at + _AT_ONCE]]
            deleted = await asyncio.gather(*map(self._delete, group))
            batch.deletes.update(key for key, done in zip(group, deleted, strict=True) if done)
            failures += deleted.count(False)
        if batch.deletes:
            sometimes("garbage_deleted")
            await container.index.commit(batch)

    async def _delete(self, key: bytes) -> bool:
        try:
            await self._container.storage.delete(keys.parse_garbage_key(key))
        except Unavailable:
            return False
        return True
