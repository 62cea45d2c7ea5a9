"""The controller's stored records, as values.  `codec` has their bytes, `controller.keys` their keys.

A record states a change in progress by its `state` or its `work`, stored before anything is done.  Any controller that
reads such a record may complete the change, since every step can be repeated.  A workflow needs only versions, random
ids and states from the records; no controller has state in memory that another could not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch
    from sarit.core.names import StreamName
    from sarit.core.policies import StreamConfig


class State(IntEnum):
    """The life cycle of a stream, a reader group or a key-value table."""

    CREATING = 1  # its segments may not exist yet
    ACTIVE = 2
    SEALING = 3  # some of its segments may be sealed
    SEALED = 4
    DELETING = 5  # does not exist for users; some of its segments may still exist


class WorkKind(IntEnum):
    """Pending work of an active stream."""

    NONE = 0
    SCALE = 1  # create the segments of `epochs`, then publish these
    SEAL = 2  # `segments` were replaced: seal them
    TRUNCATE = 3  # truncate to the record's head, delete `segments`
    POLICY = 4  # set the scaling policy of the active segments
    ROLL = 5  # `epochs` are the two that merge `transactions`: create, merge, seal, publish
    PROMOTE = 6  # create the segments of `epochs`, then publish these, and the stream is no mirror any more


@dataclass(frozen=True, slots=True)
class Work:
    """Pending work of a stream, stored in its record so that any controller can complete it.  `kind` says which of the
    other fields are used."""

    kind: WorkKind = WorkKind.NONE
    segments: tuple[int, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    transactions: tuple[int, ...] = ()


NO_WORK = Work()


@dataclass(frozen=True, slots=True)
class ScopeRecord:
    """A scope.  `incarnation`: 8 random bytes, part of its table's name: a recreated scope has no old records."""

    incarnation: bytes
    created_ms: int


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """The present state of a stream.

    `first_number`: the number of its first segment.  Numbers continue when a stream is recreated, so it tells a stream
    from earlier ones of its name.
    `epochs`: the latest epochs, the current one last; earlier ones are in chunks, which are separate records.
    `head`: the cut at which the stream begins; empty: the start of the first of `epochs`.
    `link`: the link whose mirror it is, by name: only that link writes it, until it is promoted; empty: any writer.
    """

    state: State
    config: StreamConfig
    created_ms: int
    first_number: int
    epochs: tuple[Epoch, ...]
    head: Cut = field(default_factory=dict)
    work: Work = NO_WORK
    link: str = ""

    @property
    def mirrored(self) -> bool:
        """Whether the stream is a mirror: a copy that one link writes, and that is read-only for everybody else."""
        return bool(self.link)

    @property
    def current(self) -> Epoch:
        """The epoch whose segments are active, or were the last active ones of a sealed stream."""
        return self.epochs[-1]

    @property
    def pending(self) -> bool:
        """Whether the record states unfinished work."""
        return self.work.kind is not WorkKind.NONE or self.state not in (State.ACTIVE, State.SEALED)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A reader group's configuration, as its creator gave it; times in ms.  `generation` rises with each update.

    `pending`: an update is to be completed.  `leaving`: streams that the last update dropped, and whose subscriptions
    are still to be removed."""

    state: State
    group_id: str
    generation: int
    refresh_ms: int
    checkpoint_ms: int
    max_outstanding: int
    retention: int
    rollover_bytes: int
    starts: tuple[tuple[StreamName, tuple[tuple[int, int], ...]], ...]
    ends: tuple[tuple[StreamName, tuple[tuple[int, int], ...]], ...]
    pending: bool = False
    leaving: tuple[StreamName, ...] = ()


@dataclass(frozen=True, slots=True)
class MakerRecord:
    """The user who created the reader group with this id.

    This is no field of the group's record, because a controller of an earlier release could not read that then.  Such a
    controller leaves this record behind when it deletes the group: no later group has the id, so it is ignored."""

    group_id: str
    user: str


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A key-value table: lengths in bytes; partitions are numbered from `first_number`."""

    state: State
    first_number: int
    partitions: int
    primary_key_length: int
    secondary_key_length: int
    rollover_bytes: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class CreationRecord:
    """The random id of the stream or table whose first segment has this number."""

    first_number: int
    creation_id: bytes


@dataclass(frozen=True, slots=True)
class SubscriberRecord:
    """A reader group's subscription to a stream.  `cut`: up to where the group has released it; empty: nowhere yet."""

    generation: int
    group_id: str
    cut: Cut


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """The last event time that a writer noted, and its position then: offsets in bytes by packed segment id.

    `leaving`: the writer was removed, but the next watermark must still include its last position."""

    time: int
    position: Cut
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class CutRecord:
    """A cut recorded at the tail of a stream, for retention or the timeline.

    `time_ms`: when, in ms since 1970.  `size`: the bytes before the cut; in the timeline `timeline.CLEAN`, or 0."""

    time_ms: int
    size: int
    cut: Cut


class TxnState(IntEnum):
    """The state of a transaction; the values are those of the protocol."""

    UNKNOWN = 0
    OPEN = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transaction that has not ended.  `renewal`: the number of pings.  `timestamp`: the event time that the writer
    gave with the commit; None: none.

    `deadline_ms`: the end of its lease by the wall clock, for a controller that starts later.  `graced`: a controller
    that started has extended the lease, which happens once per renewal."""

    state: TxnState
    epoch: int
    lease_ms: int
    renewal: int
    created_ms: int
    deadline_ms: int
    graced: bool = False
    writer: str = ""
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class CompletedRecord:
    """The outcome of a transaction, and when it ended."""

    state: TxnState
    ended_ms: int
