"""Chunks in memory: for tests, and for the simulation, where they misbehave as real stores do.

What was stored outlives any number of crashes of the process that stored it.  Through
`StorageFaults` the store is slow, refuses (503), applies a write although it reports a
failure, is away for a while, and lists what was there some time ago.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, Exists, NotFound, Unavailable
from sarit.storage.names import check_name, check_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer
    from sarit.storage.port import WriteLimiter


def _at_once(_: int) -> float:
    return 0.0


def _none() -> str:
    return ""


@dataclass(slots=True)
class StorageFaults:
    """What goes wrong, set by a test or drawn by the simulation; the default: nothing.

    `delay(length)` is asked before each call for the seconds it takes to move `length` bytes.
    `fault()` is asked at each write, read and delete: "" (none), "refused" (503: nothing
    happened) or "applied" (it happened, and is reported as failed).  While `unavailable`, every call
    fails.  A listing leaves out the `stale` newest chunks, and shows the `stale` last deleted.
    """

    delay: Callable[[int], float] = _at_once
    fault: Callable[[], str] = _none
    unavailable: bool = False
    stale: int = 0


class MemoryChunks:
    """A chunk store; `chunks` is what it holds, newest last."""

    def __init__(self, faults: StorageFaults | None = None) -> None:
        self.faults = faults if faults is not None else StorageFaults()
        self.chunks: dict[str, bytes] = {}
        self.bytes_written = 0
        self._deleted: deque[tuple[str, int]] = deque(maxlen=64)

    def __repr__(self) -> str:
        return f"<MemoryChunks {len(self.chunks)} chunks, {sum(map(len, self.chunks.values()))} bytes>"

    async def write(self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None) -> None:
        """See `ChunkStorage`."""
        check_name(name)
        data = b"".join(parts)
        fault = await self._begin(len(data))
        if name in self.chunks:
            raise Exists(f"chunk {name} exists")
        self.chunks[name] = data
        self.bytes_written += len(data)
        self._end(fault)

    async def read(self, name: str, offset: int, length: int) -> bytes:
        """See `ChunkStorage`."""
        check_name(name)
        self._end(await self._begin(length))
        chunk = self.chunks.get(name)
        if chunk is None:
            raise NotFound(f"chunk {name} does not exist")
        if offset + length > len(chunk):
            raise Corrupt(f"chunk {name} has {len(chunk)} bytes, not {offset + length}")
        return chunk[offset : offset + length]

    async def delete(self, name: str) -> None:
        """See `ChunkStorage`."""
        check_name(name)
        fault = await self._begin(0)
        chunk = self.chunks.pop(name, None)
        if chunk is not None:
            self._deleted.append((name, len(chunk)))
        self._end(fault)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """See `ChunkStorage`."""
        check_prefix(prefix)
        await self._begin(0)
        stale = self.faults.stale
        seen = {name: len(chunk) for name, chunk in self.chunks.items()}
        if stale > 0:
            for name in list(seen)[-stale:]:
                del seen[name]
            for name, length in list(self._deleted)[-stale:]:
                seen.setdefault(name, length)
        under = f"{prefix}/" if prefix else ""
        names = sorted(seen)
        for name in names[bisect_left(names, under) :]:
            if not name.startswith(under):
                break
            yield name, seen[name]

    async def close(self) -> None:
        """Nothing is held open; what was stored stays."""

    async def _begin(self, length: int) -> str:
        """Wait as long as the call takes; answers the fault that strikes after it."""
        faults = self.faults
        if faults.unavailable:
            raise Unavailable("long-term storage is away")
        delay = faults.delay(length)
        if delay > 0:
            await asyncio.sleep(delay)
        if faults.unavailable:
            raise Unavailable("long-term storage is away")
        fault = faults.fault()
        if fault == "refused":
            raise Unavailable("long-term storage is busy (503)")
        return fault

    def _end(self, fault: str) -> None:
        if fault == "applied":
            raise Unavailable("long-term storage reported a failure")
