"""Chunks in memory: the fake of long-term storage for tests and for the simulation.

Chunks survive simulated crashes of the process that stored them.  `StorageFaults` injects faults of real stores:
delays, refusals (503), writes that take effect although they report a failure, outages and stale listings.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Exists, NotFound, Unavailable
from sarit.storage.checksums import too_short
from sarit.storage.names import check_name, check_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer
    from sarit.storage.port import Check, Observe, WriteLimiter


def _no_delay(_: int) -> float:
    return 0.0


def _no_fault() -> str:
    return ""


@dataclass(slots=True)
class StorageFaults:
    """The faults of a store, set by a test or drawn by the simulation; none by default.

    `delay(length)` returns the seconds that a call takes to move `length` bytes.  `fault()` is called at each write,
    read and delete, and returns "" (none), "refused" (503: no effect) or "applied" (the call takes effect and reports a
    failure).  While `unavailable`, every call fails.  A listing omits the `stale` newest chunks, and shows the `stale`
    ones that were deleted last."""

    delay: Callable[[int], float] = _no_delay
    fault: Callable[[], str] = _no_fault
    unavailable: bool = False
    stale: int = 0


class MemoryChunks:
    """A chunk store in memory.  `chunks`: the bytes by name, in order of writing."""

    def __init__(self, faults: StorageFaults | None = None) -> None:
        self.faults = faults if faults is not None else StorageFaults()
        self.chunks: dict[str, bytes] = {}
        self._deleted: deque[tuple[str, int]] = deque(maxlen=64)

    def __repr__(self) -> str:
        return f"<MemoryChunks {len(self.chunks)} chunks, {sum(map(len, self.chunks.values()))} bytes>"

    async def write(
        self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None, observe: Observe | None = None
    ) -> None:
        check_name(name)
        data = b"".join(parts)
        if observe is not None and data:
            observe([data])
        fault = await self._begin(len(data))
        if name in self.chunks:
            raise Exists(f"chunk {name} exists")
        self.chunks[name] = data
        self._end(fault)

    async def read(self, name: str, offset: int, length: int, check: Check | None = None) -> bytes:
        check_name(name)
        self._end(await self._begin(length))
        chunk = self.chunks.get(name)
        if chunk is None:
            raise NotFound(f"chunk {name} does not exist")
        if offset + length > len(chunk):
            raise too_short(name, len(chunk), offset + length)
        data = chunk[offset : offset + length]
        if check is not None:
            check(data)
        return data

    async def delete(self, name: str) -> None:
        check_name(name)
        fault = await self._begin(0)
        chunk = self.chunks.pop(name, None)
        if chunk is not None:
            self._deleted.append((name, len(chunk)))
        self._end(fault)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        check_prefix(prefix)
        await self._begin(0)
        stale = self.faults.stale
        seen = {name: len(chunk) for name, chunk in self.chunks.items()}
        if stale > 0:
            # The last names are the newest chunks: a `dict` keeps the order of insertion.
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
        """Do nothing: the chunks stay."""

    async def _begin(self, length: int) -> str:
        """Wait for the delay of a call.  Returns the fault to report after the effect of the call."""
        faults = self.faults
        if faults.unavailable:
            raise Unavailable("long-term storage is unavailable")
        delay = faults.delay(length)
        if delay > 0:
            # Check for an outage again after the delay, since it may begin during the call.
            await asyncio.sleep(delay)
        if faults.unavailable:
            raise Unavailable("long-term storage is unavailable")
        fault = faults.fault()
        if fault == "refused":
            raise Unavailable("long-term storage is busy (503)")
        return fault

    def _end(self, fault: str) -> None:
        if fault == "applied":
            raise Unavailable("long-term storage reported a failure")
