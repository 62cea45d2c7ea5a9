"""Tier 2: long-term storage of immutable chunks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sarit.env.ports import Buffer

# Awaited before a piece of a chunk is written, with the bytes that are left; the size of the piece:
# all that is left, or whole blocks (`env.ports.DISK_BLOCK_BYTES`).
# So the caller spreads its load on the disk.
WriteLimiter = Callable[[int], Awaitable[int]]


class ChunkStorage(Protocol):
    """Immutable, uniquely named objects.  Names are `/`-separated ASCII (`storage/names.py`).

    Errors: Unavailable (try again later; the write may or may not have happened), Exists,
    NotFound, Invalid.
    """

    async def write(self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None) -> None:
        """Store a new chunk; durable when this returns.  Exists when the name is taken.

        Storage that shares a disk with the log writes in pieces and awaits `limiter` before each."""

    async def read(self, name: str, offset: int, length: int) -> Buffer:
        """Exactly `length` bytes from `offset`.  Corrupt when the chunk is shorter."""

    async def delete(self, name: str) -> None:
        """Remove a chunk; deleting one that is gone succeeds."""

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """(name, length) of the chunks under the folder `prefix` (whole parts, no final `/`;
        "" for all), by name.  A chunk written or deleted meanwhile may be missing or shown."""

    async def close(self) -> None:
        """Release threads and connections."""
