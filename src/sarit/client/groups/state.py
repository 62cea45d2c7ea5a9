"""The state of a reader group, and what each update makes of it (pure).

A synchronizer (`sync/synchronizer.py`) shares the state, as in Pravega's Java client (client_behaviour.md par. 6;
`ReaderGroupState`, `CheckpointState`): its readers and ours can be members of one group.

Theory of operation.  At each moment every segment to be read is in exactly one of three sets:

    assigned    to one reader; its offset is where that reader acquired it, or was at its last checkpoint
    unassigned  any reader may acquire it; its offset is where to begin
    future      it waits until its predecessors have been read to their ends

A reader that has read a segment to its end completes it.  Its successors enter the future, and those that wait for
nothing more become unassigned, at offset 0.  When a reader is lost, its segments become unassigned at the offsets of
its last checkpoint, or at positions that the caller knows to be later (`removal`).

A checkpoint is a name and the set of readers that have not passed it yet.  Each reader passes it between two events and
adds its positions; the last one completes it.  Until a reader has passed it, the reader neither acquires nor releases
nor completes segments.  So every segment is in the positions of exactly one reader, or among those that were
unassigned when the checkpoint began, and together they are a consistent cut.

Where this differs from Java: predecessors of a future segment are identified by stream and number.  Java uses the
number alone, so in a group over several streams a segment of one stream can stand for one of another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sarit.client.groups.checkpoints import Checkpoints, is_silent
from sarit.client.groups.values import UNBOUNDED
from sarit.client.limits import ASSUMED_READER_LAG_MS
from sarit.core.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.client.groups.values import GroupConfig, GroupSegment, Offsets, Ranges


@dataclass(frozen=True, slots=True)
class GroupState:
    """The whole state.  `assigned`: reader -> its segments.  `future`: segment -> its predecessors not completed yet.

    `last_read`: the positions last reported.  `ends`: where to stop.  `updating`: a configuration change is under
    way.  `heartbeats`: how many distances a reader has reported since the whole state was last read; not stored.
    `joined`: the update by which a reader joined, which distinguishes it from a later reader of the same name.  Unknown
    for readers that were in the group when a Java client stored the whole state."""

    # Every mapping is replaced, never changed: a synchronizer restores an older state when an update cannot be applied.
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
        """The number of segments that can be read now."""
        return len(self.unassigned) + sum(map(len, self.assigned.values()))

    @property
    def at_end(self) -> bool:
        """Whether the group has read all its segments to their end."""
        # A reader that has read its last segment still owns it until it completes it.
        return not self.future and not self.unassigned and not any(self.assigned.values())

    def positions(self) -> dict[GroupSegment, int]:
        """Return the offset at which another reader would continue each segment that can be read now."""
        found = dict(self.unassigned)
        for owned in self.assigned.values():
            found.update(owned)
        return found

    def owner(self, segment: GroupSegment) -> str | None:
        """Return the reader that a segment is assigned to."""
        return next((reader for reader, owned in self.assigned.items() if segment in owned), None)

    def check(self) -> None:
        """Check the invariants: a segment is in one set.  Raises AssertionError."""
        segments = [*self.unassigned, *self.future]
        for owned in self.assigned.values():
            segments += owned
        assert len(segments) == len(set(segments)), f"a segment is in two sets: {sorted(map(str, segments))}"
        assert all(self.future.values()), "a future segment has no predecessors left"
        for name, readers in self.checkpoints.pending.items():
            assert name in self.checkpoints.names, f"checkpoint {name} is pending and not known"
            assert set(readers) <= set(self.assigned), (
                f"checkpoint {name} waits for {readers}, some of which are not in the group"
            )


@dataclass(frozen=True, slots=True)
class Init:
    """The initial state of a group, or of its next generation: everything before it is replaced."""

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
    """A reader left or is lost; its segments continue at the offsets in `owned`, where it has one."""

    reader: str
    owned: Offsets


@dataclass(frozen=True, slots=True)
class ReleaseSegment:
    """A reader makes a segment unassigned, at an offset."""

    reader: str
    segment: GroupSegment
    offset: int


@dataclass(frozen=True, slots=True)
class AcquireSegment:
    """A reader takes over an unassigned segment."""

    reader: str
    segment: GroupSegment


@dataclass(frozen=True, slots=True)
class UpdateDistance:
    """A reader reports its positions; each report is a heartbeat."""

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
    """Checkpoints before this one are removed."""

    checkpoint: str


@dataclass(frozen=True, slots=True)
class CheckpointPublished:
    """The last checkpoint was reported to the controller."""

    published: bool


@dataclass(frozen=True, slots=True)
class UpdatingConfig:
    """A configuration change begins or ends."""

    updating: bool


@dataclass(frozen=True, slots=True)
class RemoveOutstandingCheckpoints:
    """Pending checkpoints are abandoned."""


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
    """Return the next state.  Raises Conflict when the update does not fit the state."""
    if isinstance(update, Init):
        # Readers, checkpoints and heartbeats are those of the generation before: its readers find that they are not in
        # the group any more, and raise.
        ranges = {segment: update.ranges.get(segment) for segment in update.start}
        return GroupState(
            update.config, dict(update.start), dict(update.ends), ranges, last_read=dict(update.start),
            updating=update.updating,
        )  # fmt: skip
    if isinstance(update, Compact):
        return update.state
    if state is None:
        raise Conflict("the first update of a group must be its initial state")
    return _STEPS[type(update)](state, update)


def removal(state: GroupState, reader: str, position: Offsets, *, rewind: bool = False) -> RemoveReader:
    """Return the update that removes a reader: its segments continue at the later of `position` and what the group
    knows.

    A stored position may be older: a segment can have left the reader, come back further on, and hold no newer event
    for it.  `rewind`: continue at `position` also where it is earlier.  An offset below 0 is the end of a deleted
    segment.  The update holds the offsets that result, so Java's readers, which apply it as it is, get the same."""
    owned = state.assigned.get(reader, {})
    # A segment that has left this reader since the position was stored belongs to another one, or is completed.
    known = {segment: offset for segment, offset in position.items() if segment in owned}
    if not rewind:
        known = {s: at if at < 0 or 0 <= owned[s] < at else owned[s] for s, at in known.items()}
    return RemoveReader(reader, known)


def _owned(state: GroupState, reader: str) -> Offsets:
    owned = state.assigned.get(reader)
    if owned is None:
        raise Conflict(f"reader {reader} is not in the group any more")
    return owned


def _without(offsets: Offsets, segment: GroupSegment) -> dict[GroupSegment, int]:
    return {other: offset for other, offset in offsets.items() if other != segment}


def _add_reader(state: GroupState, update: AddReader) -> GroupState:
    if update.reader in state.assigned:
        raise Conflict(f"reader {update.reader} is in the group already")
    return replace(
        state,
        assigned={**state.assigned, update.reader: {}},
        # Nothing is known of its lag: `assignment.loads` assumes one, so that it does not count as the slowest.
        distances={**state.distances, update.reader: UNBOUNDED},
    )


def _remove_reader(state: GroupState, update: RemoveReader) -> GroupState:
    reader = update.reader
    owned = state.assigned.get(reader, {})
    # Two processes may declare the same reader lost: the second finds that it owns nothing.
    final = {segment: update.owned.get(segment, offset) for segment, offset in owned.items()}
    return replace(
        state,
        assigned={other: owned for other, owned in state.assigned.items() if other != reader},
        distances={other: distance for other, distance in state.distances.items() if other != reader},
        heartbeats={other: count for other, count in state.heartbeats.items() if other != reader},
        joined={other: at for other, at in state.joined.items() if other != reader},
        unassigned={**state.unassigned, **final},
        # Remove the reader from pending checkpoints in the same step: they would wait for it for ever.
        checkpoints=state.checkpoints.without_reader(reader, final),
    )


def _release(state: GroupState, update: ReleaseSegment) -> GroupState:
    owned = _owned(state, update.reader)
    if update.segment not in owned:
        raise Conflict(f"{update.segment} is not assigned to reader {update.reader}, which releases it")
    return replace(
        state,
        assigned={**state.assigned, update.reader: _without(owned, update.segment)},
        unassigned={**state.unassigned, update.segment: update.offset},
        last_read=_moved(state.last_read, {update.segment: update.offset}),
    )


def _acquire(state: GroupState, update: AcquireSegment) -> GroupState:
    owned, segment = _owned(state, update.reader), update.segment
    # Java compares predecessors by number alone: in a group of several streams a segment may wait here that a Java
    # reader takes for unassigned.  Its update is in the stream, so every copy must make the same of it.
    if segment in state.future and segment not in state.unassigned:
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
    # Known segments only: a late report must not bring back a segment that was completed.
    return {**last_read, **{segment: offset for segment, offset in to.items() if segment in last_read}}


def _update_distance(state: GroupState, update: UpdateDistance) -> GroupState:
    last_read = _moved(state.last_read, update.last_read)
    if update.reader not in state.assigned:  # unconditional updates may come after the reader was declared lost
        return replace(state, last_read=last_read)
    # A reader at the tail would have a lag of 0, and with it no load whatever it owns.
    distances = {**state.distances, update.reader: max(ASSUMED_READER_LAG_MS, update.distance)}
    heartbeats = {**state.heartbeats, update.reader: state.heartbeats.get(update.reader, 0) + 1}
    return replace(state, distances=distances, last_read=last_read, heartbeats=heartbeats)


def _complete(state: GroupState, update: SegmentCompleted) -> GroupState:
    owned = _owned(state, update.reader)
    if update.segment not in owned:
        raise Conflict(f"{update.segment} is not assigned to reader {update.reader}, which completes it")
    future = dict(state.future)
    for successor, predecessors in update.successors.items():
        # Each predecessor of a merged segment reports it: it enters the future once.
        if state.owner(successor) is None and successor not in state.unassigned:
            future.setdefault(successor, predecessors)
    # From all that wait, not from the new ones only: the others were reported by other predecessors.  What waits for
    # nothing more can begin.
    done = frozenset((update.segment,))
    future = {segment: predecessors - done for segment, predecessors in future.items()}
    begun = [segment for segment, predecessors in future.items() if not predecessors]
    ranges = {**state.ranges, **update.ranges}
    ranges.pop(update.segment, None)  # an update of an older client has no ranges
    last_read = _without(state.last_read, update.segment)
    return replace(
        state,
        assigned={**state.assigned, update.reader: _without(owned, update.segment)},
        future={segment: predecessors for segment, predecessors in future.items() if predecessors},
        unassigned={**state.unassigned, **dict.fromkeys(begun, 0)},
        # What was reported of a successor already stays.
        last_read={**dict.fromkeys(begun, 0), **last_read},
        ranges=ranges,
    )


def _checkpoint_reader(state: GroupState, update: CheckpointReader) -> GroupState:
    state = replace(state, checkpoints=state.checkpoints.passed(update.checkpoint, update.reader, update.positions))
    owned = state.assigned.get(update.reader)
    # At a silent checkpoint users store nothing: a lost reader's segments must not continue there.
    if owned is None or is_silent(update.checkpoint):
        return state
    now = {segment: update.positions.get(segment, offset) for segment, offset in owned.items()}
    return replace(state, assigned={**state.assigned, update.reader: now})


def _create_checkpoint(state: GroupState, update: CreateCheckpoint) -> GroupState:
    # The unassigned segments are in the cut from the beginning: no reader will add them.
    return replace(state, checkpoints=state.checkpoints.begin(update.checkpoint, state.readers, state.unassigned))


def _clear_checkpoints(state: GroupState, update: ClearCheckpointsBefore) -> GroupState:
    return replace(state, checkpoints=state.checkpoints.since(update.checkpoint))


def _published(state: GroupState, update: CheckpointPublished) -> GroupState:
    return replace(state, checkpoints=replace(state.checkpoints, published=update.published))


def _updating(state: GroupState, update: UpdatingConfig) -> GroupState:
    # Our clients set it only; the `Init` of the next generation ends it (`generations.adopt_generation` says why).
    return replace(state, updating=update.updating)


def _remove_outstanding(state: GroupState, _: RemoveOutstandingCheckpoints) -> GroupState:
    # Silent ones stay: each is a call of `ReaderGroup.stream_cuts` that waits.
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
