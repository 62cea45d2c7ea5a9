"""Long-term storage as one process sees it: it fails when the process dies, but requests in flight may still arrive.

A write that the dying process had sent is executed after its death, or not.  Recovery must neither rely on such a late
write nor fail on it, and must delete its chunk.

A process that stands still in the middle of a write may complete it after the last sweep for late writes.  Nothing
deletes that chunk, as docs/decisions/0837 says, so these are noted for the checker of leaks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Unavailable
from simulation.options import LATE_WRITES_SECONDS
from simulation.world import now

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from typing import Any

    from sarit.env.ports import Buffer
    from sarit.storage.memory import MemoryChunks
    from sarit.storage.port import Check, Observe, WriteLimiter


class ProcessChunks:
    """`ChunkStorage` on a store that outlives the process."""

    def __init__(
        self, chunks: MemoryChunks, rng: random.Random,
        outside: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]], arrived_late: set[str],
    ) -> None:  # fmt: skip
        """`arrived_late`: gets the names of chunks whose write lasted longer than the sweeps wait for."""
        self._chunks = chunks
        self._rng = rng
        self._outside = outside
        self._arrived_late = arrived_late
        self._dead = False

    def die(self) -> None:
        """The process died."""
        self._dead = True

    async def write(
        self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None, observe: Observe | None = None
    ) -> None:
        """See `ChunkStorage`."""
        self._check()
        if self._rng.random() < 0.5:
            await self._write(name, parts, limiter, observe)
        else:
            await asyncio.shield(self._outside(self._write(name, [bytes(part) for part in parts], limiter, observe)))
        self._check()

    async def _write(
        self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None, observe: Observe | None
    ) -> None:
        begun = now()
        try:
            await self._chunks.write(name, parts, limiter, observe)
        finally:
            if now() - begun > LATE_WRITES_SECONDS:
                coverage_probe("chunk_write_stood_still")
                self._arrived_late.add(name)

    async def read(self, name: str, offset: int, length: int, check: Check | None = None) -> bytes:
        """See `ChunkStorage`."""
        self._check()
        data = await self._chunks.read(name, offset, length, check)
        self._check()
        return data

    async def delete(self, name: str) -> None:
        """See `ChunkStorage`."""
        self._check()
        await self._chunks.delete(name)
        self._check()

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """See `ChunkStorage`."""
        self._check()
        async for found in self._chunks.list(prefix):
            yield found

    async def close(self) -> None:
        """See `ChunkStorage`."""

    def _check(self) -> None:
        if self._dead:
            raise Unavailable("the process is dead")
