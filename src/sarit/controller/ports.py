"""The ports of the controller to the segment stores: segments and tables.

The node supplies an implementation: in-process calls on one node, wire-protocol connections in a cluster.  All calls
raise the kinds of `core.errors`.  Any call may raise Unavailable with an unknown outcome, so every use must be safe to
repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.core.metering import Rates


@dataclass(frozen=True, slots=True)
class TableValue:
    """A stored value and its version (rises with every update, never reused for a key)."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """One change of a batch.  `value` None removes the key.

    `expected` is the version the key must have now: `limits.NO_VERSION` for any,
    `limits.NOT_EXISTS` for none.  `fresh`: the key was never in the table (the caller drew
    it at random), so the store need not look it up.
    """

    key: bytes
    value: bytes | None
    expected: int
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The state of a segment; offsets in bytes, `modified_ms` since 1970."""

    length: int
    start_offset: int
    sealed: bool
    modified_ms: int


class Tables(Protocol):
    """Table segments with keys in unsigned byte order."""

    async def create(self, table: str) -> None:
        """Create a table; Exists when it is there."""

    async def get(self, table: str, keys: Sequence[bytes]) -> list[TableValue | None]:
        """Current values, None where absent, in order.  NotFound when the table is missing."""

    async def update(self, table: str, updates: Sequence[TableUpdate]) -> list[int]:
        """Apply all updates atomically if every expectation holds; the new versions in order
        (removals get -1).  Conflict when one does not hold: nothing is changed."""

    async def scan(self, table: str, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, TableValue]]:
        """Up to `limit` entries with start <= key (< end), ascending."""

    async def position(self, table: str) -> int:
        """Return a number that rises with every change of the table; NotFound."""

    async def delete(self, table: str, *, must_be_empty: bool = False, unchanged_since: int | None = None) -> None:
        """Remove the table with its entries; NotFound when it is missing, Exists when it has entries
        and must not have any, Conflict when it is not at the position `unchanged_since` (both checked atomically)."""


class Segments(Protocol):
    """Stream segments, wherever they live."""

    async def create(self, segment: str, *, scale_type: int = 0, target_rate: int = 0, rollover_bytes: int = 0) -> None:
        """Create an empty segment; Exists when it is there."""

    async def create_fresh(self, segments: Sequence[str]) -> None:
        """Create empty segments without a policy that never existed: no store looks them up.

        Unavailable when only some exist; those that an earlier attempt created count as created."""

    async def create_table(self, segment: str, *, key_length: int) -> None:
        """Create a table segment (key_length 0: keys of any length).

        Exists when it is there; Conflict when that one's keys have another length, so that it is not what was meant."""

    async def seal(self, segment: str) -> None:
        """Seal; succeeds when sealed already; NotFound."""

    async def delete(self, segment: str) -> None:
        """Delete; NotFound."""

    async def truncate(self, segment: str, offset: int) -> None:
        """Raise the start offset; succeeds when it is there or above; NotFound, Invalid."""

    async def merge(self, target: str, sources: Sequence[str]) -> list[int]:
        """Merge sources into target in order; per source the target's length after it.
        A source that was merged or is missing answers the target's current length."""
        # Not NotFound: a commit that is repeated after a lost reply meets sources that are merged already.

    async def info(self, segment: str) -> SegmentInfo:
        """Length, start and state; NotFound."""

    async def update_policy(self, segment: str, *, scale_type: int, target_rate: int) -> None:
        """Record the scaling policy that the store measures the segment by; NotFound."""

    async def rates(self, segments: Sequence[str]) -> list[Rates]:
        """Return the rates of each segment as its store measured them; zero for a missing segment."""

    async def grown(self) -> list[str]:
        """Segments that may have grown since the last call; tables and segments that are merged later left out.

        A segment that has left memory since may be missing."""

    async def scope_bytes(self, scope: str) -> int:
        """Return the bytes of all segments of a scope from their heads on: of streams, transactions and tables, whoever
        made
        them.  Those of tables may be of some seconds ago."""

    async def read(self, segment: str, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`, possibly fewer; none only at the end.

        NotFound; Truncated; Invalid beyond the end."""

    async def write(self, segment: str, data: bytes, expected_offset: int) -> None:
        """Append one event; Conflict when the segment does not end at `expected_offset`; NotFound, Sealed."""

    async def get_attribute(self, segment: str, key: bytes) -> int:
        """Return the value of a 16-byte id, NULL_ATTRIBUTE_VALUE when it has none; NotFound."""

    async def update_attribute(self, segment: str, key: bytes, value: int, expected: int) -> bool:
        """Compare and set; False when it was not `expected`; NotFound."""

    def endpoint(self, segment: str) -> tuple[str, int]:
        """Host (an address, not a name) and port of the store that owns the segment.

        Never checks that the segment exists."""
