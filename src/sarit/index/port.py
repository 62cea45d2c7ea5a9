"""The index: one container's ordered key-value store, written only by checkpoints, compaction and chunk deletion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sarit.core.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Sequence


class DamagedRecord(Corrupt):
    """One record is not what was written: its checksum does not match.  `key` is its key as found.

    The other records are not affected: whoever needs this one fails, and nothing else.  The key may be damaged, too.
    The right one is somewhere in begin <= key < resume: a scan finds what is whole below and above that."""

    def __init__(self, message: str, key: bytes, *, begin: bytes = b"", resume: bytes = b"") -> None:
        super().__init__(message)
        self.key = key
        self.begin = begin or key
        self.resume = resume or key + b"\0"


@dataclass(slots=True)
class WriteBatch:
    """One atomic change.  Its order of effect: range deletes, then deletes, then puts."""

    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    range_deletes: list[tuple[bytes, bytes]] = field(default_factory=list)


class Index(Protocol):
    """An open index.  Keys are ordered as unsigned bytes.  Errors: Unavailable, Fenced, Corrupt.

    Every record has a checksum.  `get` and `scan` raise DamagedRecord for the first one they meet that does not match;
    a commit may replace or delete it.  The commits of a fenced handle fail; its reads may return old values.
    """

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of `keys` at one moment, None where absent, in order."""

    async def scan(self, start: bytes, end: bytes, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """Up to `limit` pairs with start <= key < end, ascending (or descending)."""

    async def scan_sizes(
        self, start: bytes, end: bytes, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, int]]:
        """Scan as `scan` does, with the length of each value in place of the value, which is neither read nor
        checked."""

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
