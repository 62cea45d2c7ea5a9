"""The port of tier 2: long-term storage of immutable chunks.

The rules for a backend:

- *Create if absent.*  A write never replaces a chunk: two owners may write at once, and the loser must see Exists.  Use
  the storage's conditional put (`If-None-Match: *`) or a link, not a check before the write.
- *Unknown outcomes.*  A write that failed may have happened, or happen later.  The caller uses another name, records
  the first one as garbage, and sweeps again after LATE_WRITES_SECONDS.
- *Stale listings.*  A listing may omit new chunks and show deleted ones.  Sweeps repeat, and `delete` of a missing
  chunk succeeds.  Reads by name are not stale: a chunk is readable when its write has returned.
- *Names.*  No name is the folder of another one (`a` and `a/b`), so names may be paths of a file system.  A listing of
  the folder `c1` does not show `c10/x`.
- *Checksums* belong to the caller.  `observe` and `check` are called on the thread that has the bytes, so that they do
  not delay the event loop.
- *The rate limiter* is awaited once for each piece, before the piece is written.  Storage on another machine than the
  log ignores it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sarit.env.ports import Buffer

    Observe = Callable[[Sequence[Buffer]], None]
    Check = Callable[[Buffer], None]

# The caller's rate limiter, awaited before each piece of a chunk with the number of bytes that are left.  It returns
# the size of the piece: all bytes that are left, or whole blocks (DISK_BLOCK_BYTES).
WriteLimiter = Callable[[int], Awaitable[int]]


class ChunkStorage(Protocol):
    """A store of immutable chunks with unique names of `/`-separated ASCII (`storage/names.py`).

    Errors: Unavailable (try again later; a write may or may not have happened), Exists, NotFound, Invalid."""

    async def write(
        self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None, observe: Observe | None = None
    ) -> None:
        """Store a new chunk, which is durable when this returns.  Raises Exists when the name is taken.

        Storage that shares a disk with the log writes in pieces, and awaits `limiter` before each.  `observe` is called
        with all bytes in order, piece by piece, on the thread that writes them."""

    async def read(self, name: str, offset: int, length: int, check: Check | None = None) -> Buffer:
        """Return exactly `length` bytes from `offset`.  Raises DamagedChunk (the chunk is shorter), NotFound.

        `check` is called with the bytes, on the thread that read them; its exceptions are raised here."""

    async def delete(self, name: str) -> None:
        """Remove a chunk; succeeds when it does not exist."""

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """Yield (name, length) of the chunks in the folder `prefix` and below, by name.

        `prefix` is whole parts of a name without a final `/`, or "" for all.  Chunks that are written or deleted
        meanwhile may be missing or shown."""

    async def close(self) -> None:
        """Release threads and connections."""
