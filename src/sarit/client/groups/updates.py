"""The updates of a reader group's state (plain values); `state.py` says what each does, `codec.py` how it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import GroupConfig, GroupSegment, Offsets, Ranges


@dataclass(frozen=True, slots=True)
class Init:
    """A new group, or the next generation of one: all begins anew.  Also what stands for all updates before it."""

    config: GroupConfig
    start: Offsets
    ends: Offsets
    ranges: Ranges = field(default_factory=dict)
    updating: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """The whole state."""

    state: GroupState


@dataclass(frozen=True, slots=True)
class AddReader:
    """A reader joins."""

    reader: str


@dataclass(frozen=True, slots=True)
class RemoveReader:
    """A reader left or is lost; its segments go on at `owned`, where that says something."""

    reader: str
    owned: Offsets


@dataclass(frozen=True, slots=True)
class ReleaseSegment:
    """A reader gives a segment to whoever wants it, at an offset."""

    reader: str
    segment: GroupSegment
    offset: int


@dataclass(frozen=True, slots=True)
class AcquireSegment:
    """A reader takes an unassigned segment."""

    reader: str
    segment: GroupSegment


@dataclass(frozen=True, slots=True)
class UpdateDistance:
    """A reader says how far it is, and that it is alive."""

    reader: str
    distance: int
    last_read: Offsets = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SegmentCompleted:
    """A reader has read a segment to its end; `successors`: successor -> all its predecessors."""

    reader: str
    segment: GroupSegment
    successors: Mapping[GroupSegment, frozenset[GroupSegment]]
    ranges: Ranges = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointReader:
    """A reader passes a checkpoint."""

    checkpoint: str
    reader: str
    positions: Offsets


@dataclass(frozen=True, slots=True)
class CreateCheckpoint:
    """All readers are to pass a checkpoint."""

    checkpoint: str


@dataclass(frozen=True, slots=True)
class ClearCheckpointsBefore:
    """Older checkpoints are of no interest any more."""

    checkpoint: str


@dataclass(frozen=True, slots=True)
class CheckpointPublished:
    """The controller was told of the last checkpoint."""

    published: bool


@dataclass(frozen=True, slots=True)
class UpdatingConfig:
    """A new configuration is under way, or is not."""

    updating: bool


@dataclass(frozen=True, slots=True)
class RemoveOutstandingCheckpoints:
    """Checkpoints that were not completed are given up."""


Update = (
    Init
    | Compact
    | AddReader
    | RemoveReader
    | ReleaseSegment
    | AcquireSegment
    | UpdateDistance
    | SegmentCompleted
    | CheckpointReader
    | CreateCheckpoint
    | ClearCheckpointsBefore
    | CheckpointPublished
    | UpdatingConfig
    | RemoveOutstandingCheckpoints
)
