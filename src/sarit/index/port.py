"""The index: one container's ordered key-value store, written only by checkpoints, compaction and chunk deletion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class WriteBatch:
    """One atomic change.  Its order of effect: range deletes, then deletes, then puts."""

    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    range_deletes: list[tuple[bytes, bytes]] = field(default_factory=list)


class Index(Protocol):
    """An open index.  Keys are ordered as unsigned bytes.  Errors: Unavailable, Fenced, Corrupt.

    The commits of a fenced handle fail; its reads may return old values.
    """

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys` at one moment, None where absent, in order."""

    async def scan(self, start: bytes, end: bytes, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """Up to `limit` pairs with start <= key < end, ascending (or descending)."""

    async def commit(self, batch: WriteBatch) -> None:
        """Apply all of `batch` or nothing; durable when this returns.

        After Unavailable the outcome is unknown, and the handle may be dead (every call fails): close it, open the
        index again and read.  Do not change `batch` until this returns.
        """

    async def close(self) -> None:
        """Release files and threads."""


class IndexProvider(Protocol):
    """Opens indexes: opening fences an earlier owner."""

    async def open(self, container: int) -> Index:
        """Open (or create) the container's index."""
