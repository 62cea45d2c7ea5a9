"""The index: one container's ordered key-value store, written only by checkpoints, compaction and chunk deletion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sarit.core.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Sequence


class DamagedRecord(Corrupt):
    """A record is damaged: its checksum does not match.  `key`: the key as it was found, which may be damaged.

    The right key is somewhere in begin <= key < resume; a scan finds the whole records below and above that range.
    Other records are not affected: only users of this one should fail."""

    def __init__(self, message: str, key: bytes, *, begin: bytes = b"", resume: bytes = b"") -> None:
        super().__init__(message)
        self.key = key
        self.begin = begin or key
        self.resume = resume or key + b"\0"


@dataclass(slots=True)
class WriteBatch:
    """One atomic change: range deletes take effect first, then deletes, then puts."""

    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    range_deletes: list[tuple[bytes, bytes]] = field(default_factory=list)


class Index(Protocol):
    """An open index.  Keys are ordered as unsigned bytes.  Errors: Unavailable, Fenced, Corrupt.

    Every record has a checksum.  `get` and `scan` raise DamagedRecord for the first record that does not match; a
    commit may replace or delete it.  The commits of a fenced handle fail; its reads may return old values."""

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of `keys` at one moment, None where absent, in order."""

    async def scan(self, start: bytes, end: bytes, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` pairs with start <= key < end, ascending (or descending)."""

    async def scan_sizes(
        self, start: bytes, end: bytes, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, int]]:
        """Scan as `scan` does, but return the length of each value, which is not checked."""

    async def commit(self, batch: WriteBatch) -> None:
        """Apply all of `batch` or nothing; the change is durable when this returns.

        After Unavailable the outcome is unknown, and the handle may be dead (every call fails): close it, open the
        index again and read.  Do not change `batch` until this returns."""

    async def close(self) -> None:
        """Release files and threads."""


class IndexProvider(Protocol):
    """A provider of the indexes of containers."""

    async def open(self, container: int) -> Index:
        """Open or create the container's index, which fences an earlier owner."""
