"""What the controller stores, as values.  The bytes are `codec`'s, the keys `controller.keys`'s.

A record that is in the middle of something says so: its state, or its `work`, is the intention, written before
anything is done.  Whoever finds one may finish it, since every step can be repeated.  Version numbers, random ids and
states are thus all there is to a workflow; no controller remembers anything that another could not read.
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
    """Where a stream, a reader group or a key-value table is in its life."""

    CREATING = 1  # its segments may not be there yet
    ACTIVE = 2
    SEALING = 3  # some of its segments may be sealed
    SEALED = 4
    DELETING = 5  # gone for everybody; some of its segments may still be there


class WorkKind(IntEnum):
    """What an active stream still has to do."""

    NONE = 0
    SCALE = 1  # create the segments of `epochs`, then publish these
    SEAL = 2  # `segments` were replaced: seal them
    TRUNCATE = 3  # truncate to the record's head, delete `segments`
    POLICY = 4  # tell the active segments the scaling policy
    ROLL = 5  # `epochs` are the two that take `transactions` in: create, merge, seal, publish


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
    """A scope.  `incarnation` (8 bytes) names its table, so that a scope of the same name never meets old records."""

    incarnation: bytes
    created_ms: int


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A stream now.

    `first_number`: of its first segment; since numbers go on from one stream of a name to the next, it tells which of
    them this is.
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
        """Whether something was begun and not finished."""
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
class SubscriberRecord:
    """How far a reader group has released a stream; an empty cut until it says."""

    generation: int
    group_id: str
    cut: Cut


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """The last time a writer noted, with its position then (bytes by packed segment id).

    `leaving`: it was removed; a watermark is still to take its last position in."""

    time: int
    position: Cut
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class CutRecord:
    """A whole cut at the tail of a stream, taken for retention: ms since 1970, bytes written before it."""

    time_ms: int
    size: int
    cut: Cut


class TxnState(IntEnum):
    """Where a transaction is; the values are the protocol's."""

    UNKNOWN = 0
    OPEN = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transaction that lives.  `renewal` rises with each ping; `timestamp` is the writer's, None for none."""

    state: TxnState
    epoch: int
    lease_ms: int
    renewal: int
    created_ms: int
    writer: str = ""
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class CompletedRecord:
    """How a transaction ended, and when."""

    state: TxnState
    ended_ms: int
