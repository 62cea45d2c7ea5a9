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

    from sarit.core.errors import SaritError
    from sarit.core.metering import Rates


@dataclass(frozen=True, slots=True)
class TableValue:
    """A stored value, and its version, which rises with every update and is never reused for a key."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """One change of a batch.  `value`: None removes the key.

    `expected`: the version that the key must have now; `limits.NO_VERSION`: any; `limits.NOT_EXISTS`: the key must not
    exist.  `fresh`: the key was never in the table (the caller drew it at random), so the store need not look it up.
    """

    key: bytes
    value: bytes | None
    expected: int
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The state of a segment: length and start offset in bytes; `modified_ms`: ms since 1970."""

    length: int
    start_offset: int
    sealed: bool
    modified_ms: int


@dataclass(frozen=True, slots=True)
class TableFeed:
    """Changes of a table in order, each (key, value or None for a removal), and the position behind them."""

    rows: tuple[tuple[bytes, bytes | None], ...]
    position: int


class Tables(Protocol):
    """Table segments with keys in unsigned byte order."""

    async def create(self, table: str) -> None:
        """Create a table.  Raises Exists."""

    async def get(self, table: str, keys: Sequence[bytes]) -> list[TableValue | None]:
        """Return the current values of keys, in order; None for a missing key.  Raises NotFound (table)."""

    async def update(self, table: str, updates: Sequence[TableUpdate]) -> list[int]:
        """Apply all updates atomically.  Returns the new versions, in order (-1 for a removal).  Raises Conflict, and
        changes nothing, if a key does not have its expected version."""

    async def update_at(self, table: str, updates: Sequence[TableUpdate], position: int) -> int:
        """Apply all updates atomically if the table is at a position.  Returns the position behind them.

        Raises Conflict, and changes nothing, if it is at another one; NotFound."""

    async def changes(self, table: str, position: int, limit: int) -> TableFeed | None:
        """Return the changes behind a position, whole batches of about `limit` bytes; None: they are not known.

        A table can be followed from its position at the first call on, as long as memory lasts.  Raises NotFound."""

    async def scan(self, table: str, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, TableValue]]:
        """Return up to `limit` entries with start <= key (< end), ascending."""

    async def position(self, table: str) -> int:
        """Return a number that rises with every change of the table.  Raises NotFound."""

    async def delete(self, table: str, *, must_be_empty: bool = False, unchanged_since: int | None = None) -> None:
        """Delete a table with its entries.  Both conditions are checked atomically.  Raises NotFound, Exists (it must
        be empty and is not), Conflict (it is not at the position `unchanged_since`)."""


class Segments(Protocol):
    """The segments of streams, in whichever store they are."""

    async def create(self, segment: str, *, scale_type: int = 0, target_rate: int = 0, rollover_bytes: int = 0) -> None:
        """Create an empty segment.  Raises Exists."""

    async def create_fresh(self, segments: Sequence[str]) -> None:
        """Create empty segments that never existed, without a policy: no store looks them up first.

        Segments that an earlier attempt created count as created.  Raises Unavailable if only some were created."""

    async def create_table(self, segment: str, *, key_length: int) -> None:
        """Create a table segment.  `key_length`: 0 for keys of any length.

        Raises Exists; Conflict: it exists with keys of another length, so it is another table."""

    async def create_at(
        self, segment: str, offset: int, *, mirror: bool, scale_type: int = 0, target_rate: int = 0,
        rollover_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Create a segment that begins and ends at `offset`.  `mirror`: clients may only read it.

        Raises Exists, whatever the present segment is."""

    async def create_table_at(self, segment: str, *, key_length: int, position: int, mirror: bool = False) -> None:
        """Create a table segment whose versions are `position` and above.  Raises as `create_table`."""

    async def set_mirror(self, segment: str, mirror: bool) -> None:
        """Let clients change a segment or table, or only read it (`mirror`).  Raises NotFound."""

    async def seal(self, segment: str) -> None:
        """Seal a segment, which may be sealed already.  Raises NotFound."""

    async def delete(self, segment: str) -> None:
        """Delete a segment.  Raises NotFound."""

    async def truncate(self, segment: str, offset: int) -> None:
        """Raise a segment's start offset to `offset`, unless it is higher already.  Raises NotFound, Invalid."""

    async def merge(self, target: str, sources: Sequence[str]) -> list[int]:
        """Merge source segments into a target, in order.  Returns the target's length after each source.

        A missing source does not raise NotFound: it may have been merged by an earlier request whose reply was lost."""

    async def merge_at(self, target: str, source: str, expected_offset: int) -> int:
        """Merge a source into a target that ends at `expected_offset`.  Returns the target's length after it.

        Raises Conflict (its `actual` is the target's length), NotFound (the target, or the source, which may have been
        merged before), Sealed."""

    async def append_at_many(
        self, writes: Sequence[tuple[str, int, bytes]], *, begin_events: bool = True
    ) -> list[int | SaritError]:
        """Append bytes, each (segment, offset, bytes), if the segment ends at the offset; in order for each segment.

        `begin_events`: an event begins at each offset; without it, `locate` never returns these offsets.

        Returns in order the length after each append, or why there was none: Conflict (`actual` is the length),
        NotFound, Sealed, Invalid, Corrupt; Unavailable: it may have happened or not.  Appends have no writer."""

    async def read_many(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes | SaritError]:
        """Return bytes in order, each (segment, offset, length): fewer than asked for only at the end of a segment.

        In place of bytes: NotFound, Truncated, Invalid (beyond the end), Corrupt, Unavailable."""

    async def infos(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        """Return the states of segments in order, None for a missing one.  Raises Corrupt, Unavailable."""

    async def locate(self, segment: str, offset: int) -> int:
        """Return the first known offset at or after `offset` where an append began, else the length.

        Raises NotFound."""

    async def info(self, segment: str) -> SegmentInfo:
        """Return the state of a segment.  Raises NotFound."""

    async def update_policy(self, segment: str, *, scale_type: int, target_rate: int) -> None:
        """Record the scaling policy that the store measures the segment by.  Raises NotFound."""

    async def rates(self, segments: Sequence[str]) -> list[Rates]:
        """Return the rates of each segment that its store measured; zero for a missing segment."""

    async def grown(self) -> list[str]:
        """Return the segments that may have grown since the last call, without tables and transactions' segments.

        A segment that was evicted from memory since may be missing."""

    async def scope_bytes(self, scope: str) -> int:
        """Return the bytes of all segments of a scope (of streams, transactions and tables), from their heads on.
        Those of tables may be some seconds old."""

    async def read(self, segment: str, offset: int, limit: int) -> bytes:
        """Return up to `limit` bytes from `offset`, possibly fewer; none only at the end.

        Raises NotFound, Truncated, Invalid (beyond the end)."""

    async def write(self, segment: str, data: bytes, expected_offset: int) -> None:
        """Append one event.  Raises Conflict (the segment does not end at `expected_offset`), NotFound, Sealed."""

    async def get_attribute(self, segment: str, key: bytes) -> int:
        """Return the value of the attribute with a 16-byte key, NULL_ATTRIBUTE_VALUE if unset.  Raises NotFound."""

    async def update_attribute(self, segment: str, key: bytes, value: int, expected: int) -> bool:
        """Set an attribute if its value is `expected`.  Returns whether it was.  Raises NotFound."""

    def endpoint(self, segment: str) -> tuple[str, int]:
        """Return the IP address and port of the store that owns a segment, without checking that the segment exists."""
