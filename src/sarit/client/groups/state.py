"""The state of a reader group, and what each update makes of it (pure).

The state is shared by a synchronizer (`synchronizer.py`), as Pravega's Java client does it (client_behaviour.md par. 6;
`ReaderGroupState`, `CheckpointState`), so that its readers and ours can be members of one group.

Theory of operation.  At each moment every segment that is to be read is in one place: *assigned* to one reader,
*unassigned* (any reader may acquire it), or in the *future* (it waits for predecessors to be read to their end).  A
reader that has read a segment to its end completes it: the successors enter the future, and those that wait for
nothing more become unassigned, at offset 0.  The offset of an assigned segment is where its reader acquired it, or
was at its last checkpoint: there another goes on when that reader is lost.

A checkpoint is a name and the set of readers that have not passed it yet.  Each reader adds where it stands, between
two events; the last one completes it.  Until a reader has passed it, it neither acquires nor releases nor completes
segments.  So every segment is in the positions of exactly one reader, or among those that were unassigned, and
together they are a consistent cut.

Where this differs from Java: predecessors of a future segment are told apart by stream, too.  Java knows them by
number alone, so that in a group over several streams one stream's segment can stand for another's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sarit.client.groups.checkpoints import Checkpoints, is_silent
from sarit.client.groups.values import UNBOUNDED
from sarit.core.errors import Conflict
from sarit.core.limits import ASSUMED_READER_LAG_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.client.groups.values import GroupConfig, GroupSegment, Offsets, Ranges


@dataclass(frozen=True, slots=True)
class GroupState:
    """All of it.  `assigned`: reader -> its segments.  `future`: segment -> its predecessors that are not read yet.

    `last_read`: where readers said they were, lately.  `ends`: where to stop.  `updating`: a new configuration is
    under way.  `heartbeats`: how many distances a reader has reported since the whole state was last read; not stored.
    `joined`: the update by which a reader joined, which distinguishes it from a later reader of the same name.  Unknown
    for readers that were in the group when a Java client stored the whole state."""

    config: GroupConfig
    unassigned: Offsets
    ends: Offsets
    ranges: Ranges
    assigned: Mapping[str, Offsets] = field(default_factory=dict)
    future: Mapping[GroupSegment, frozenset[GroupSegment]] = field(default_factory=dict)
    distances: Mapping[str, int] = field(default_factory=dict)
    last_read: Offsets = field(default_factory=dict)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    updating: bool = False
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    joined: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def readers(self) -> tuple[str, ...]:
        """The readers online, in the order of joining."""
        return tuple(self.assigned)

    @property
    def segment_count(self) -> int:
        """How many segments can be read now."""
        return len(self.unassigned) + sum(map(len, self.assigned.values()))

    @property
    def at_end(self) -> bool:
        """Whether everything was read."""
        return not self.future and not self.unassigned and not any(self.assigned.values())

    def positions(self) -> dict[GroupSegment, int]:
        """Where each segment that can be read now would be begun by another reader."""
        found = dict(self.unassigned)
        for owned in self.assigned.values():
            found.update(owned)
        return found

    def owner(self, segment: GroupSegment) -> str | None:
        """Whose a segment is."""
        return next((reader for reader, owned in self.assigned.items() if segment in owned), None)

    def check(self) -> None:
        """The invariants: a segment is in one place.  Raises AssertionError."""
        places = [*self.unassigned, *self.future]
        for owned in self.assigned.values():
            places += owned
        assert len(places) == len(set(places)), f"a segment is in two places: {sorted(map(str, places))}"
        assert all(self.future.values()), "a segment waits for nothing and is not unassigned"
        for name, readers in self.checkpoints.pending.items():
            assert name in self.checkpoints.names, f"{name} is awaited and not known"
            assert set(readers) <= set(self.assigned), f"{name} waits for {readers}, not all of them are here"


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


def apply(state: GroupState | None, update: Update) -> GroupState:
    """The next state.  Raises Conflict when the update does not fit the state."""
    if isinstance(update, Init):
        ranges = {segment: update.ranges.get(segment) for segment in update.start}
        return GroupState(
            update.config, dict(update.start), dict(update.ends), ranges, last_read=dict(update.start),
            updating=update.updating,
        )  # fmt: skip
    if isinstance(update, Compact):
        return update.state
    if state is None:
        raise Conflict("a group begins with an initial state")
    return _STEPS[type(update)](state, update)


def _owned(state: GroupState, reader: str) -> Offsets:
    owned = state.assigned.get(reader)
    if owned is None:
        raise Conflict(f"reader {reader} is not in the group (any more)")
    return owned


def _without(offsets: Offsets, segment: GroupSegment) -> dict[GroupSegment, int]:
    return {other: offset for other, offset in offsets.items() if other != segment}


def _add_reader(state: GroupState, update: AddReader) -> GroupState:
    if update.reader in state.assigned:
        raise Conflict(f"reader {update.reader} is in the group already")
    return replace(
        state,
        assigned={**state.assigned, update.reader: {}},
        distances={**state.distances, update.reader: UNBOUNDED},
    )


def _remove_reader(state: GroupState, update: RemoveReader) -> GroupState:
    reader = update.reader
    owned = state.assigned.get(reader, {})
    final = {segment: update.owned.get(segment, offset) for segment, offset in owned.items()}
    return replace(
        state,
        assigned={other: held for other, held in state.assigned.items() if other != reader},
        distances={other: distance for other, distance in state.distances.items() if other != reader},
        heartbeats={other: count for other, count in state.heartbeats.items() if other != reader},
        joined={other: place for other, place in state.joined.items() if other != reader},
        unassigned={**state.unassigned, **final},
        checkpoints=state.checkpoints.without_reader(reader, final),
    )


def _release(state: GroupState, update: ReleaseSegment) -> GroupState:
    owned = _owned(state, update.reader)
    if update.segment not in owned:
        raise Conflict(f"{update.segment} is not reader {update.reader}'s to release")
    return replace(
        state,
        assigned={**state.assigned, update.reader: _without(owned, update.segment)},
        unassigned={**state.unassigned, update.segment: update.offset},
        last_read=_moved(state.last_read, {update.segment: update.offset}),
    )


def _acquire(state: GroupState, update: AcquireSegment) -> GroupState:
    owned, segment = _owned(state, update.reader), update.segment
    if segment in state.future and segment not in state.unassigned:  # a Java reader takes it for free, see above
        future = {other: waits for other, waits in state.future.items() if other != segment}
        state = replace(state, future=future, unassigned={**state.unassigned, segment: 0})
    if segment not in state.unassigned:
        raise Conflict(f"{segment} is not unassigned")
    return replace(
        state,
        assigned={**state.assigned, update.reader: {**owned, segment: state.unassigned[segment]}},
        unassigned=_without(state.unassigned, segment),
    )


def _moved(last_read: Offsets, to: Offsets) -> Offsets:
    return {**last_read, **{segment: offset for segment, offset in to.items() if segment in last_read}}


def _update_distance(state: GroupState, update: UpdateDistance) -> GroupState:
    last_read = _moved(state.last_read, update.last_read)
    if update.reader not in state.assigned:  # it was written without a condition
        return replace(state, last_read=last_read)
    distances = {**state.distances, update.reader: max(ASSUMED_READER_LAG_MS, update.distance)}
    heartbeats = {**state.heartbeats, update.reader: state.heartbeats.get(update.reader, 0) + 1}
    return replace(state, distances=distances, last_read=last_read, heartbeats=heartbeats)


def _complete(state: GroupState, update: SegmentCompleted) -> GroupState:
    owned = _owned(state, update.reader)
    if update.segment not in owned:
        raise Conflict(f"{update.segment} is not reader {update.reader}'s to complete")
    future = dict(state.future)
    for successor, predecessors in update.successors.items():
        if state.owner(successor) is None and successor not in state.unassigned:
            future.setdefault(successor, predecessors)
    done = frozenset((update.segment,))
    future = {segment: predecessors - done for segment, predecessors in future.items()}
    begun = [segment for segment, predecessors in future.items() if not predecessors]
    ranges = {**state.ranges, **update.ranges}
    ranges.pop(update.segment, None)  # what older clients write says nothing of ranges
    last_read = _without(state.last_read, update.segment)
    return replace(
        state,
        assigned={**state.assigned, update.reader: _without(owned, update.segment)},
        future={segment: predecessors for segment, predecessors in future.items() if predecessors},
        unassigned={**state.unassigned, **dict.fromkeys(begun, 0)},
        last_read={**dict.fromkeys(begun, 0), **last_read},
        ranges=ranges,
    )


def _checkpoint_reader(state: GroupState, update: CheckpointReader) -> GroupState:
    state = replace(state, checkpoints=state.checkpoints.passed(update.checkpoint, update.reader, update.positions))
    owned = state.assigned.get(update.reader)
    if owned is None or is_silent(update.checkpoint):
        return state
    now = {segment: update.positions.get(segment, offset) for segment, offset in owned.items()}
    return replace(state, assigned={**state.assigned, update.reader: now})


def _create_checkpoint(state: GroupState, update: CreateCheckpoint) -> GroupState:
    return replace(state, checkpoints=state.checkpoints.begin(update.checkpoint, state.readers, state.unassigned))


def _clear_checkpoints(state: GroupState, update: ClearCheckpointsBefore) -> GroupState:
    return replace(state, checkpoints=state.checkpoints.since(update.checkpoint))


def _published(state: GroupState, update: CheckpointPublished) -> GroupState:
    return replace(state, checkpoints=replace(state.checkpoints, published=update.published))


def _updating(state: GroupState, update: UpdatingConfig) -> GroupState:
    return replace(state, updating=update.updating)


def _remove_outstanding(state: GroupState, _: RemoveOutstandingCheckpoints) -> GroupState:
    return replace(state, checkpoints=state.checkpoints.without(frozenset(state.checkpoints.outstanding)))


_STEPS: dict[type, Callable[[GroupState, Any], GroupState]] = {
    AddReader: _add_reader,
    RemoveReader: _remove_reader,
    ReleaseSegment: _release,
    AcquireSegment: _acquire,
    UpdateDistance: _update_distance,
    SegmentCompleted: _complete,
    CheckpointReader: _checkpoint_reader,
    CreateCheckpoint: _create_checkpoint,
    ClearCheckpointsBefore: _clear_checkpoints,
    CheckpointPublished: _published,
    UpdatingConfig: _updating,
    RemoveOutstandingCheckpoints: _remove_outstanding,
}
