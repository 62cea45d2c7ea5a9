"""A wrapper of any long-term storage that counts and times its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Exists, NotFound
from sarit.core.histogram import DURATIONS, Histogram

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sarit.env.ports import Buffer, Clock
    from sarit.storage.port import Check, ChunkStorage, Observe, WriteLimiter


class RequestCounts:
    """The requests of one kind.  `seconds`: their durations, with the waits for a rate limiter.  `bytes`: the bytes of
    successful requests.

    Exists and NotFound are answers, and do not count as `errors`."""

    __slots__ = ("bytes", "errors", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(DURATIONS)
        self.errors = self.bytes = 0

    def __repr__(self) -> str:
        return f"<RequestCounts, {self.seconds.count} requests, {self.errors} errors>"


class StorageStatistics:
    """The requests to long-term storage by kind: write, read, delete, list."""

    def __init__(self) -> None:
        self.kinds = {kind: RequestCounts() for kind in ("write", "read", "delete", "list")}

    def __repr__(self) -> str:
        return f"<StorageStatistics {self.kinds}>"


class _Request:
    """One request, which lasts from the begin to the end of the `with` block."""

    __slots__ = ("_began", "_clock", "_counts")

    def __init__(self, counts: RequestCounts, clock: Clock) -> None:
        self._counts, self._clock = counts, clock

    def __enter__(self) -> None:
        self._began = self._clock.monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._counts.seconds.observe(self._clock.monotonic() - self._began)
        # Do not count a cancellation, which comes from the caller.
        self._counts.errors += isinstance(error, Exception) and not isinstance(error, Exists | NotFound)


class MeteredStorage:
    """A long-term storage whose calls are counted and timed."""

    def __init__(self, storage: ChunkStorage, clock: Clock, statistics: StorageStatistics) -> None:
        self._storage = storage
        self._clock = clock
        self._kinds = statistics.kinds

    def __repr__(self) -> str:
        return repr(self._storage)

    async def write(
        self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None, observe: Observe | None = None
    ) -> None:
        counts = self._kinds["write"]
        with _Request(counts, self._clock):
            await self._storage.write(name, parts, limiter, observe)
        counts.bytes += sum(map(len, parts))

    async def read(self, name: str, offset: int, length: int, check: Check | None = None) -> Buffer:
        counts = self._kinds["read"]
        with _Request(counts, self._clock):
            found = await self._storage.read(name, offset, length, check)
        counts.bytes += length
        return found

    async def delete(self, name: str) -> None:
        with _Request(self._kinds["delete"], self._clock):
            await self._storage.delete(name)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        with _Request(self._kinds["list"], self._clock):
            async for found in self._storage.list(prefix):
                yield found

    async def close(self) -> None:
        await self._storage.close()
