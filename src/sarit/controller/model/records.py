"""The controller's stored records, as values.  `codec` has their bytes, `controller.keys` their keys.

A record in the middle of a change states it: its `state` or its `work` is the intention, stored before anything is
done.  Any controller that finds one may complete it, since every step can be repeated.  Versions, random ids and states
are all that a workflow needs; no controller has state in memory that another could not read.
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


@dataclass(frozen=True, slots=True)
class Work:
    """An intention; which fields count depends on the kind."""

    kind: WorkKind = WorkKind.NONE
    segments: tuple[int, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    transactions: tuple[int, ...] = ()


NO_WORK = Work()


@dataclass(frozen=True, slots=True)
class ScopeRecord:
    """A scope.  `incarnation` (8 bytes) is part of its table name: a later scope of the name never sees old records."""

    incarnation: bytes
    created_ms: int


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A stream now.

    `first_number`: of its first segment; since numbers continue from one stream of a name to the next, it identifies
    the stream.
    `epochs`: the latest ones, the current last; earlier ones are in chunks of their own.
    `head`: the cut at which the stream begins; empty while that is the start of the first epoch here.
    """

    state: State
    config: StreamConfig
    created_ms: int
    first_number: int
    epochs: tuple[Epoch, ...]
    head: Cut = field(default_factory=dict)
    work: Work = NO_WORK

    @property
    def current(self) -> Epoch:
        """The epoch whose segments are active, or were last."""
        return self.epochs[-1]

    @property
    def pending(self) -> bool:
        """Whether there is unfinished work."""
        return self.work.kind is not WorkKind.NONE or self.state not in (State.ACTIVE, State.SEALED)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A reader group's configuration, as its creator gave it; times in ms.  `generation` rises with each update.

    `leaving`: streams the last update left, whose subscription is still to be removed."""

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
    """Who created a reader group: the user, of the group with this id.

    It is beside the record of the group and not in it, which a controller of the version before could not read then.
    One of those leaves this record when it deletes the group: it is about no group then, since the id is none's."""

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
    """The random id of a stream or table, as long as it has this first segment number."""

    first_number: int
    creation_id: bytes


@dataclass(frozen=True, slots=True)
class SubscriberRecord:
    """The cut up to which a reader group has released a stream; empty until it releases."""

    generation: int
    group_id: str
    cut: Cut


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """The last time a writer noted, with its position then (bytes by packed segment id).

    `leaving`: it was removed, but the next watermark must include its last position."""

    time: int
    position: Cut
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class CutRecord:
    """A cut at the tail of a stream: ms since 1970, bytes written before it.

    Recorded for retention, and as part of the timeline, where the bytes are 0."""

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
    """A transaction that has not ended.  `renewal` rises with each ping; `timestamp` is the writer's, or None.

    `deadline_ms`: the end of its lease by the wall clock, for a controller that starts later.  `graced`: such a
    controller has put the end off, which happens once per renewal."""

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
