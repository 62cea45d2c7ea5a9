"""What the two sides of a link tell each other of what goes with streams: tables, cuts, schemas, reader groups.

A *partition* is a table whose rows are copied: one of a key-value table, or the table of the schema registry.  Its
*position* rises with every change.  A partition of the mirror *equals* the source's at a position, or it is being
compared: row by row, while the source goes on.  Once it equals, changes follow in the source's order, each as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sarit.controller.model.records import CutRecord, GroupRecord
    from sarit.core.names import StreamName
    from sarit.mirror.values import MirrorStatus

# In place of a position of the source: the mirror's partition equals the source's at none.
NO_POSITION: Final = -1


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A key-value table as its source knows it; `name` is SCOPE/TABLE.

    `creation_id`, `path`: as in `values.StreamFacts`.  `positions`: of its partitions now, by key range."""

    name: StreamName
    creation_id: bytes
    created_ms: int
    partitions: int
    primary_key_length: int
    secondary_key_length: int
    rollover_bytes: int
    positions: tuple[int, ...]
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition of a mirror.  `source`: the position of the source's partition that it equals, or NO_POSITION.

    `position`: its own.  `comparison`: the number of the comparison under way, or of the last one."""

    source: int
    position: int
    comparison: int


@dataclass(frozen=True, slots=True)
class TableState:
    """A mirror of a key-value table, or the registry.  `status`, `reason`: as in `values.MirrorState`."""

    name: StreamName
    status: MirrorStatus
    partitions: tuple[PartitionState, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TableAsk:
    """Which rows of a partition to read: the changes behind the position `since`, or if that is NO_POSITION the rows
    with start <= key (< end)."""

    name: StreamName
    creation_id: bytes
    partition: int
    since: int
    start: bytes = b""
    end: bytes | None = None


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Rows of a partition of the source.  A value of None removes the key.

    With `since` they are its changes behind that position, in order, up to the position `until`.  Without (NO_POSITION)
    they are all its rows with low <= key (< high), and `until` is its position before they were read.  `lost`: the
    changes behind the asked position are not known any more: compare."""

    name: StreamName
    partition: int
    since: int
    until: int
    rows: tuple[tuple[bytes, bytes | None], ...]
    low: bytes = b""
    high: bytes | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class TableWrite:
    """Changes for a partition of a mirror.  `state`: the partition as the copier knows it, of which all is compared.

    `ends_comparison`: with these rows the comparison ends, and the partition equals the source's at `changes.until`."""

    changes: TableChanges
    state: PartitionState
    ends_comparison: bool = False


@dataclass(frozen=True, slots=True)
class StreamCuts:
    """Cuts of a stream that its source recorded, in the order of recording (`controller/background/timeline.py`)."""

    name: StreamName
    cuts: tuple[CutRecord, ...]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A reader group, and the cuts that it has read up to (`record.starts`)."""

    group: str
    record: GroupRecord
