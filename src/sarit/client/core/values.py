"""What the client reports about streams, segments and their order: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from sarit.core.cuts import StreamCut
from sarit.core.public import public

if TYPE_CHECKING:
    from sarit.core.names import SegmentId, StreamName
    from sarit.core.policies import StreamConfig


Cut: TypeAlias = StreamCut | str | None
"""How callers name a position: "head", "tail", the text of a cut, a cut; None where there need not be one."""


@public
@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A segment and its part of the key space."""

    segment: SegmentId
    low: float
    high: float


@public
@dataclass(frozen=True, slots=True)
class Successor:
    """A segment that follows one that was sealed; `predecessors` are all it follows."""

    segment: SegmentId
    low: float
    high: float
    predecessors: frozenset[SegmentId]


@public
@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The properties of a segment, as a store gives them; offsets in bytes, `modified_ms` since 1970."""

    segment: SegmentId
    start_offset: int
    end_offset: int
    sealed: bool
    modified_ms: int


@dataclass(frozen=True, slots=True)
class ScalingEvent:
    """An epoch of a stream; times in ms since 1970.  `segments`: each with the time when it was created.

    `splits`: how many segments of the epoch before were split; `merges`: how many of its own were merged from
    several; both 0 for the first event of an answer."""

    time_ms: int
    segments: tuple[tuple[SegmentRange, int], ...]
    splits: int
    merges: int


@public
@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as it is now: its configuration, its active segments (none when sealed), its oldest and newest cut."""

    stream: StreamName
    config: StreamConfig
    sealed: bool
    segments: tuple[SegmentRange, ...]
    head: StreamCut
    tail: StreamCut


@public
class TransactionStatus(IntEnum):
    """The states of a transaction.  The numbers are the protocol's (controller.md 2, checkTransactionState)."""

    UNKNOWN = 0
    OPEN = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5
