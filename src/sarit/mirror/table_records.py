"""The record of a table that is, or was, a mirror: as a value, and its bytes (docs/formats/controller-records.md).

It is in the row `o/TABLE_kvtable/l` of the table's scope, and of the schema registry in `o/_registry/l` of `_system`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Invalid
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM
from sarit.core.versioned_objects import Cursor, pack_int, pack_long, pack_text
from sarit.mirror.attachments import NO_POSITION, PartitionState
from sarit.mirror.limits import MAX_MIRROR_PATH, MIRROR_ID_BYTES
from sarit.mirror.values import LinkIdentity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.core.names import StreamName

_VERSION: Final = b"\x01"


class Life(IntEnum):
    """The life of a mirror of a table."""

    MIRROR = 0
    PROMOTING = 1  # the link writes nothing any more, and clients not yet
    PROMOTED = 2


@dataclass(frozen=True, slots=True)
class Equality:
    """Where a partition of the mirror equals one of the source: the positions of both; NO_POSITION: nowhere.

    From there on changes move both positions alike.  `comparison`: how many comparisons began."""

    source: int = NO_POSITION
    mirror: int = 0
    comparison: int = 0

    def at(self, position: int) -> PartitionState:
        """Return the state of the partition when the mirror's is at a position."""
        known = self.source != NO_POSITION and position >= self.mirror
        return PartitionState(self.source + position - self.mirror if known else NO_POSITION, position, self.comparison)


@dataclass(frozen=True, slots=True)
class TableMirror:
    """The knowledge of a mirror of a table.  `creation_id`: the source's.  `path`: as in `values.StreamFacts`."""

    link: LinkIdentity
    creation_id: bytes
    path: tuple[str, ...]
    partitions: tuple[Equality, ...]
    life: Life = Life.MIRROR

    def with_partition(self, index: int, equality: Equality) -> TableMirror:
        """Return the record with another equality of one partition."""
        partitions = (*self.partitions[:index], equality, *self.partitions[index + 1 :])
        return replace(self, partitions=partitions)


def encode_table_mirror(record: TableMirror) -> bytes:
    """Encode what is known of a mirror of a table."""
    link = record.link
    parts = [_VERSION, bytes((record.life,)), link.link_id, pack_text(link.name), pack_text(link.installation)]
    parts += [record.creation_id, pack_int(len(record.path)), *map(pack_text, record.path)]
    parts.append(pack_int(len(record.partitions)))
    for one in record.partitions:
        parts += [pack_long(one.source + 1), pack_long(one.mirror), pack_long(one.comparison)]
    return b"".join(parts)


def decode_table_mirror(name: StreamName, data: bytes) -> TableMirror:
    """Decode what is known of the mirror `name`.  Raises Corrupt."""
    if data[:1] != _VERSION:
        found = data[:1].hex() or "none"
        raise Corrupt(f"the mirror's record of table {name} is of version {found}; this release of Sarit reads 01")
    cursor = Cursor(data)
    cursor.take(1)
    try:
        life = Life(cursor.number(1))
        link = LinkIdentity(bytes(cursor.take(MIRROR_ID_BYTES)), cursor.text(), cursor.text())
        creation_id = bytes(cursor.take(MIRROR_ID_BYTES))
        path = tuple(cursor.text() for _ in range(_count(cursor, MAX_MIRROR_PATH)))
        partitions = tuple(
            Equality(cursor.compact_long() - 1, cursor.compact_long(), cursor.compact_long())
            for _ in range(_count(cursor, MAX_SEGMENTS_PER_STREAM))
        )
    except (Invalid, ValueError, struct.error, IndexError, Corrupt) as error:
        raise Corrupt(f"the mirror's record of table {name} cannot be read: {error}") from error
    if not cursor.at_end:
        raise Corrupt(f"the mirror's record of table {name} has bytes after its end")
    return TableMirror(link, creation_id, path, partitions, life)


def _count(cursor: Cursor, most: int) -> int:
    count: int = cursor.compact_int()
    if count > most:
        raise Invalid(f"it names {count} of something of which there are at most {most}")
    return count


def states(record: TableMirror, positions: Sequence[int]) -> tuple[PartitionState, ...]:
    """Return the states of partitions that are at these positions."""
    return tuple(one.at(position) for one, position in zip(record.partitions, positions, strict=True))
