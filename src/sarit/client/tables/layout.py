"""The partition of a table's key, and the key's form on the wire (pure).

A key is a primary key and, in some tables, a secondary key, each of a length fixed at creation.  On the wire the
secondary key follows the primary one.  The primary key alone determines the partition, so that keys which share it can
change together and be read in order.  Source: client_behaviour.md par. 9, naming.md par. 3; Pravega `TableEntryHelper`,
`KeyValueTableSegments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from sarit.core import murmur
from sarit.core.errors import Invalid
from sarit.core.keyspace import KeyRange, RangeMap
from sarit.core.limits import MAX_TABLE_KEY_BYTES
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.core.values import SegmentRange
    from sarit.core.names import SegmentId

Part: TypeAlias = bytes | str
"""A primary or a secondary key."""
Key: TypeAlias = Part | tuple[Part, Part]
"""The key of an entry: primary, or (primary, secondary)."""

IN_BASE64: Final = "base64:"  # before a key or value that is shown, or given, as bytes
_ROUTER_SEED: Final = -2020233499  # Java's hash code of "KeyValueTableRouter"
_UNUSED_BITS: Final = 12
_FRACTION: Final = 2.0**-52


@public
class Entry(NamedTuple):
    """A key with its value and version.  Versions rise with every change of a partition, and never repeat."""

    primary: bytes
    secondary: bytes
    value: bytes
    version: int

    @property
    def key(self) -> Key:
        """The key as `get` takes it."""
        return (self.primary, self.secondary) if self.secondary else self.primary


@public
@dataclass(frozen=True, slots=True)
class TableConfig:
    """The configuration of a table.  Lengths in bytes; `secondary_key_bytes` 0: primary keys alone."""

    primary_key_bytes: int
    secondary_key_bytes: int = 0
    partitions: int = 1

    def check(self) -> None:
        """Raises Invalid when no such table can exist."""
        if self.partitions < 1:
            raise Invalid(f"a table has 1 partition or more, not {self.partitions}")
        if self.primary_key_bytes < 1 or self.secondary_key_bytes < 0:
            raise Invalid("the primary key of a table has 1 byte or more, the secondary one 0 or more")
        if self.primary_key_bytes + self.secondary_key_bytes > MAX_TABLE_KEY_BYTES:
            raise Invalid(f"both keys of a table have at most {MAX_TABLE_KEY_BYTES} bytes together")


def key_position(primary: bytes) -> float:
    """Return the position of a primary key, in [0, 1).  Invariant: the same double in every client and release."""
    return (murmur.murmur3_low_64_bits(primary, _ROUTER_SEED) >> _UNUSED_BITS) * _FRACTION


class Layout:
    """The partitions of one table and the lengths of its keys."""

    __slots__ = ("_only", "_partitions", "_primary", "_secondary", "config", "partitions")

    def __init__(self, config: TableConfig, partitions: Iterable[SegmentRange]) -> None:
        """Raises Invalid when the partitions do not tile the key space."""
        found = list(partitions)
        self.config = config
        self._partitions = RangeMap((KeyRange(part.low, part.high), part.segment) for part in found)
        self.partitions = tuple(part.segment for part in sorted(found, key=lambda part: part.low))
        self._only = self.partitions[0] if len(found) == 1 else None
        self._primary, self._secondary = config.primary_key_bytes, config.secondary_key_bytes

    def __repr__(self) -> str:
        return f"Layout({self.config}, {len(self.partitions)} partitions)"

    def wire_key(self, key: Key) -> bytes:
        """Return the key as the wire has it.  Raises Invalid: a wrong length, a missing or an unexpected secondary
        key."""
        if isinstance(key, tuple):
            if len(key) != 2:
                raise Invalid(f"a key is (primary, secondary), not {len(key)} parts")
            primary, secondary = _bytes(key[0]), _bytes(key[1])
        else:
            primary, secondary = _bytes(key), b""
        if len(primary) != self._primary:
            raise Invalid(f"primary keys of this table have {self._primary} bytes, not {len(primary)}")
        if len(secondary) != self._secondary:
            raise Invalid(f"secondary keys of this table have {self._secondary} bytes, not {len(secondary)}")
        return primary + secondary

    def partition(self, wire_key: bytes) -> SegmentId:
        """Return the partition of a key."""
        return self._only or self._partitions.at(key_position(wire_key[: self._primary]))

    def entry(self, wire_key: bytes, value: bytes, version: int) -> Entry:
        """Return an entry of a key as the wire has it."""
        return Entry(wire_key[: self._primary], wire_key[self._primary :], value, version)

    def bounds(
        self, primary: Part | None, first: Part | None, last: Part | None, prefix: Part | None
    ) -> tuple[bytes, bytes]:
        """Return the lowest and the highest key of a range, both part of it; of secondary keys when `primary` is given.

        `first` and `last` may be shorter than a key: the range then begins with the first key that begins so, and
        ends with the last one.  Raises Invalid."""
        if prefix is not None:
            if first is not None or last is not None:
                raise Invalid("a range has either a prefix, or a first and a last key")
            first = last = prefix
        length = self._secondary if primary is not None else self._primary
        ends = [b"" if end is None else _bytes(end) for end in (first, last)]
        for end in ends:
            if len(end) > length:
                raise Invalid(f"a bound of this range has at most {length} bytes, not {len(end)}")
        head = b"" if primary is None else _bytes(primary)
        if primary is not None and len(head) != self._primary:
            raise Invalid(f"primary keys of this table have {self._primary} bytes, not {len(head)}")
        whole = self._primary + self._secondary
        return (head + ends[0]).ljust(whole, b"\0"), (head + ends[1]).ljust(whole, b"\xff")


def following(wire_key: bytes) -> bytes | None:
    """Return the next key of the same length; None after the last one."""
    number = int.from_bytes(wire_key, "big") + 1
    return None if number >> (8 * len(wire_key)) else number.to_bytes(len(wire_key), "big")


def _bytes(part: Part) -> bytes:
    if isinstance(part, str):
        return part.encode()
    if not isinstance(part, bytes):
        raise Invalid(f"a part of a key is bytes or text, not {type(part).__name__}")
    return part
