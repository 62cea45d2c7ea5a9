"""What one reader writes to the state of its group, and when (`reader.py` reads the events).

Theory of operation.  `Heartbeat` follows the state in a task of its own.  Everything that moves segments or passes
checkpoints happens in a *round* (`manage`), which the reader runs between two events.  At that moment everything it
has handed out counts as consumed, so its positions are exact.  A round is a row of `ROUNDS`:

    checkpoint     automatic     steps of the round, in this order
    handed out     checkpoints
    ------------   -----------   ---------------------------------------------------------
    yes            on or off     pass it, complete, release, publish, checkpoint, acquire
    no             on            checkpoint, acquire
    no             off           complete, release, checkpoint, acquire

    pass         write our positions: the user has stored what belongs to the checkpoint, and asks for more
    complete     report the segments that we have read to their ends; their successors become available
    release      give segments back when our load is above the others' (`assignment.to_release`), after a delay
    publish      report the completed checkpoint to the controller, when retention follows checkpoints
    checkpoint   `next_checkpoint` decides: hand one out, pass a silent one, begin an automatic one
    acquire      take our share of the unassigned segments (`assignment.to_acquire`), after a delay

A round that hands out a checkpoint ends there: acquiring would change what the checkpoint is to record.

Invariant: with automatic checkpoints, a segment is completed or released right after a checkpoint only, as in Java.
The user may store positions at checkpoints alone, and no other reader may continue after a position that is not stored.
So that successors need not wait for the next regular checkpoint, a reader at the end of a segment, or with too many
segments, begins a checkpoint early.  Without automatic checkpoints nothing waits: a call for the next event says that
the events before it are consumed.

Invariant: which segments are ours is read from the state, never concluded from what we sent.  After an error or a
cancellation the state is fetched again before anything is handed out.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

from sarit.client.groups import assignment, calls, stream_cuts
from sarit.client.groups.checkpoints import is_silent
from sarit.client.groups.heartbeat import Heartbeat
from sarit.client.groups.state import (
    AcquireSegment,
    CheckpointPublished,
    CheckpointReader,
    ClearCheckpointsBefore,
    CreateCheckpoint,
    ReleaseSegment,
    SegmentCompleted,
    Update,
    UpdateDistance,
)
from sarit.client.groups.values import UNBOUNDED, GroupSegment, KeyPart, Retention
from sarit.client.limits import GROUP_EARLY_CHECKPOINT_SECONDS
from sarit.core.errors import Conflict, SaritError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping

    from sarit.client.groups.shared_state import SharedState
    from sarit.client.groups.sources import Sources
    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import Offsets
    from sarit.client.session.session import Session

log = logging.getLogger(__name__)


class Step(Enum):
    """A step that a round may take; the essay above says what each is."""

    PASS = "pass"
    COMPLETE = "complete"
    RELEASE = "release"
    PUBLISH = "publish"
    CHECKPOINT = "checkpoint"
    ACQUIRE = "acquire"


# (a checkpoint was handed out, automatic checkpoints are on) -> the steps of the round.
_AFTER_CHECKPOINT: Final = (Step.PASS, Step.COMPLETE, Step.RELEASE, Step.PUBLISH, Step.CHECKPOINT, Step.ACQUIRE)
ROUNDS: Final[Mapping[tuple[bool, bool], tuple[Step, ...]]] = {
    (True, True): _AFTER_CHECKPOINT,
    (True, False): _AFTER_CHECKPOINT,
    (False, True): (Step.CHECKPOINT, Step.ACQUIRE),
    (False, False): (Step.COMPLETE, Step.RELEASE, Step.CHECKPOINT, Step.ACQUIRE),
}


class Next(Enum):
    """A reader's next action on checkpoints."""

    NOTHING = "nothing"
    HAND_OUT = "hand out"
    PASS_SILENTLY = "pass silently"
    BEGIN = "begin"


def next_checkpoint(state: GroupState, reader: str, automatic_due: bool) -> tuple[Next, str]:
    """Return what a reader is to do about checkpoints now, and with which one (pure)."""
    name = state.checkpoints.next_for(reader)
    if name is not None:
        return (Next.PASS_SILENTLY if is_silent(name) else Next.HAND_OUT), name
    return (Next.BEGIN if automatic_due else Next.NOTHING), ""


class Timers:
    """The times at which a reader is due to run its next round, in seconds of the monotonic clock (pure).

    A delay begins when its cause is first seen, and ends when the cause is gone; evaluating it again does not restart
    it."""

    __slots__ = ("_acquire_at", "_checkpoint_at", "_last_checkpoint", "_reader", "_release_at", "_unassigned_since")

    def __init__(self, reader: str, state: GroupState, now: float) -> None:
        self._reader = reader
        self._unassigned_since: float | None = None
        self._acquire_at: float | None = None
        self._release_at: float | None = None
        self.checkpoint_written(state, now)

    def __repr__(self) -> str:
        times = f"checkpoint {self._checkpoint_at}, release {self._release_at}, acquire {self._acquire_at}"
        return f"Timers({self._reader}, {times})"

    def checkpoint_written(self, state: GroupState, now: float) -> None:
        """Start the interval to the next automatic checkpoint, because one was begun or passed."""
        self._last_checkpoint = now
        self._checkpoint_at = now + state.config.checkpoint_ms / 1000

    def released(self) -> None:
        """Restart the delays after a release, so that other readers have the time to acquire the segments first."""
        self._release_at = self._unassigned_since = None

    def acquired(self) -> None:
        """Restart the delay before the next acquisition, because segments were acquired."""
        self._unassigned_since = None

    def checkpoint_due(self, state: GroupState, now: float, any_ended: bool) -> bool:
        """Return whether to begin an automatic checkpoint."""
        # The whole group has one pending checkpoint at most.
        if not state.config.checkpoint_ms or state.checkpoints.pending:
            return False
        if now >= self._checkpoint_at:
            return True
        early = any_ended or self.release_due(state, now)
        return early and now >= self._last_checkpoint + GROUP_EARLY_CHECKPOINT_SECONDS

    def release_due(self, state: GroupState, now: float) -> bool:
        """Return whether this reader is due to release segments."""
        if not assignment.to_release(state, self._reader):
            self._release_at = None
            return False
        if self._release_at is None:
            self._release_at = now + assignment.release_delay_seconds(state, self._reader)
        return now >= self._release_at

    def acquire_due(self, state: GroupState, now: float) -> bool:
        """Return whether this reader is due to acquire segments."""
        if not state.unassigned:
            self._unassigned_since = self._acquire_at = None
            return False
        if self._unassigned_since is None:
            self._unassigned_since = now
        # Compute the delay each time: it depends on the segments that other readers own by now.
        self._acquire_at = self._unassigned_since + assignment.acquire_delay_seconds(state, self._reader)
        return now >= self._acquire_at

    def next_round_at(self, state: GroupState, now: float, any_ended: bool) -> float:
        """Return when the next round is due if nothing changes until then."""
        times = [now + state.config.refresh_ms / 1000]
        # These calls start or end the delays; their results are not needed.
        self.acquire_due(state, now)
        self.release_due(state, now)
        if self._acquire_at is not None:
            times.append(self._acquire_at)
        if state.config.checkpoint_ms and not state.checkpoints.pending:
            early = self._last_checkpoint + GROUP_EARLY_CHECKPOINT_SECONDS
            times.append(self._checkpoint_at)
            if any_ended:
                times.append(early)
            if self._release_at is not None:
                times.append(max(early, self._release_at))
        # With automatic checkpoints, segments are released only after a checkpoint.
        elif self._release_at is not None and not state.config.checkpoint_ms:
            times.append(self._release_at)
        return max(min(times), now)


class Member:
    """One reader in its group."""

    def __init__(
        self,
        session: Session,
        shared: SharedState,
        reader: str,
        sources: Sources,
        positions: Callable[[], Offsets],
        wake: Callable[[], None],
        death_timeout: float | None,
    ) -> None:
        self.reader = reader
        self.shared = shared
        self._session = session
        self._clock = session.env.clock
        self._sources = sources
        self._positions = positions
        self.heartbeat = Heartbeat(session, shared, reader, self.is_current, self.distance, wake, death_timeout)
        self._joined = shared.state.joined.get(reader)
        self._timers = Timers(reader, shared.state, self._clock.monotonic())
        self._handed_out: str | None = None  # the checkpoint that counts as passed with the next call
        self._round_revision: object = None  # the state, and how many ended segments, that the last round saw
        self._round_ended = 0
        self._next_round_at = 0.0
        self._state_is_stale = True
        # The round that goes on after the call that began it; ended with the reader, or it would fetch for nobody.
        self.round: asyncio.Task[str | SaritError | None] | None = None
        self._steps: dict[Step, Callable[[], Awaitable[None]]] = {
            Step.PASS: self._pass_handed_out,
            Step.COMPLETE: self._complete_ended,
            Step.RELEASE: self._release,
            Step.PUBLISH: self._publish,
            Step.CHECKPOINT: self._checkpoint,
            Step.ACQUIRE: self._acquire,
        }

    def __repr__(self) -> str:
        return f"Member({self.shared.name}, {self.reader}, at checkpoint {self._handed_out})"

    @property
    def at_end(self) -> bool:
        """Whether the group had read everything when the state was last fetched."""
        return self.shared.state.at_end

    def is_current(self, state: GroupState) -> bool:
        """Return whether this reader is in the group: this one, not a later reader of the same name."""
        # Unknown after a Java reader has compacted the state: then the name has to do.
        return self.reader in state.assigned and state.joined.get(self.reader, self._joined) == self._joined

    def due(self) -> bool:
        """Return whether a round is due.  Called per event: it must stay cheap."""
        if self._state_is_stale or self._handed_out is not None or self.heartbeat.failure is not None:
            return True
        if len(self._sources.ended) != self._round_ended:
            return True
        changed = self._round_revision is not self.shared.revision
        return changed or self._clock.monotonic() >= self._next_round_at

    def seconds_until_due(self) -> float:
        """Return how long until a round is due if nothing changes."""
        return max(0.0, self._next_round_at - self._clock.monotonic())

    # -- a round ----------------------------------------------------------------------------------

    async def manage(self) -> str | None:
        """Run one round, and return the checkpoint to hand out, or None.

        Raises Conflict when the reader is not in the group any more."""
        if self.heartbeat.failure is not None:
            raise self.heartbeat.failure
        if self._state_is_stale:
            await self.shared.fetch()
        self._state_is_stale = True  # until the end of the round: a step may fail, or be cancelled
        self._update_sources()
        automatic = bool(self._state().config.checkpoint_ms)
        for step in ROUNDS[self._handed_out is not None, automatic]:
            await self._steps[step]()
            # The user gets the checkpoint before this reader acquires more.
            if step is Step.CHECKPOINT and self._handed_out is not None:
                break
        self._update_sources()
        self._round_revision, self._state_is_stale = self.shared.revision, False
        self._round_ended = len(self._sources.ended)
        self._next_round_at = self._timers.next_round_at(self._state(), self._clock.monotonic(), self._any_ended)
        return self._handed_out

    @property
    def _any_ended(self) -> bool:
        return bool(self._sources.ended)

    def _state(self) -> GroupState:
        """Return the state, with this reader in it."""
        state = self.shared.state
        if not self.is_current(state):
            raise Conflict(
                f"reader {self.reader} is not in group {self.shared.name} any more: the group was reset, or the reader "
                "was declared offline; its segments belong to other readers now.  Open a new reader"
            )
        return state

    def _update_sources(self) -> None:
        """Read the segments assigned to us, and no others."""
        state = self._state()
        owned = state.assigned[self.reader]
        for segment in self._sources.segments:
            # Released, or assigned to another reader after we were declared offline.
            if segment not in owned:
                self._sources.remove(segment)
        for segment, offset in owned.items():
            if segment not in self._sources:
                end = state.ends.get(segment, UNBOUNDED)
                self._sources.add(segment, offset, None if end >= UNBOUNDED else end)

    # -- checkpoints --------------------------------------------------------------------------------

    async def _pass_handed_out(self) -> None:
        assert self._handed_out is not None
        await self._pass_checkpoint(self._handed_out)
        self._handed_out = None

    async def _pass_checkpoint(self, checkpoint: str) -> None:
        # Nothing is handed out while a round runs, so these are still our positions when the update is written.
        positions = dict(self._positions())

        def decide(state: GroupState) -> list[Update]:
            if state.checkpoints.next_for(self.reader) is None or self.reader not in state.assigned:
                return []
            # Passed or removed meanwhile: nothing to write.
            if self.reader not in state.checkpoints.pending.get(checkpoint, ()):
                return []
            return [CheckpointReader(checkpoint, self.reader, positions)]

        await self.shared.update(decide)
        self._timers.checkpoint_written(self._state(), self._clock.monotonic())

    async def _checkpoint(self) -> None:
        """Pass silent checkpoints and begin an automatic one, until one is to be handed out or nothing is to be
        done."""
        while True:
            state = self._state()
            due = self._timers.checkpoint_due(state, self._clock.monotonic(), self._any_ended)
            action, name = next_checkpoint(state, self.reader, due)
            if action is Next.NOTHING:
                return
            if action is Next.HAND_OUT:
                self._handed_out = name
                return
            if action is Next.PASS_SILENTLY:
                await self._pass_checkpoint(name)
            else:
                await self._begin_checkpoint()

    async def _begin_checkpoint(self) -> None:
        name = _uuid_text(self._session.env.random.bytes(16))

        def decide(state: GroupState) -> list[Update]:
            # Another reader was first: nothing to begin.
            if state.checkpoints.pending or self.reader not in state.assigned:
                return []
            # Nothing is pending here, so only completed checkpoints are cleared.
            return [CreateCheckpoint(name), ClearCheckpointsBefore(name)]

        await self.shared.update(decide)
        self._timers.checkpoint_written(self._state(), self._clock.monotonic())

    async def _publish(self) -> None:
        """Report the last checkpoint to the controller, when retention follows it and no reader has reported it yet."""
        state = self.shared.state
        checkpoints = state.checkpoints
        if state.config.retention != Retention.AUTOMATIC or checkpoints.published or checkpoints.last is None:
            return
        for cut in await stream_cuts.cuts_of(self._session, checkpoints.last):
            try:
                await calls.release(self._session, *self.shared.name, state.config, cut)
            except SaritError as error:
                log.warning("group %s: the cut read of %s was not released: %s", self.shared.name, cut.stream, error)
        # Also after an error above: the next checkpoint reports a later cut.
        await self.shared.write(CheckpointPublished(True))

    # -- segments -----------------------------------------------------------------------------------

    def _may_transfer(self, state: GroupState) -> bool:
        """Return whether segments may change hands: not before we have passed every open checkpoint: its cut would miss
        the segment."""
        return self.reader in state.assigned and state.checkpoints.next_for(self.reader) is None

    async def _complete_ended(self) -> None:
        for segment in list(self._sources.ended):
            await self._complete(segment)

    async def _complete(self, segment: GroupSegment) -> None:
        successors: dict[GroupSegment, frozenset[GroupSegment]] = {}
        ranges: dict[GroupSegment, KeyPart | None] = {}
        # A segment with an end in the configuration has no successors in this group.
        if segment not in self.shared.state.ends:
            controller, stream = self._session.controller, segment.stream
            for found in await self._session.with_retry(lambda: controller.successors(stream, segment.segment)):
                name = GroupSegment(stream, found.segment)
                ranges[name] = KeyPart(found.low, found.high)
                successors[name] = frozenset(GroupSegment(stream, other) for other in found.predecessors)

        def decide(state: GroupState) -> list[Update]:
            if not self._may_transfer(state) or segment not in state.assigned[self.reader]:
                return []
            # The Java client's update contains the key range of the completed segment, too.
            parts = {segment: state.ranges.get(segment), **ranges}
            return [SegmentCompleted(self.reader, segment, successors, parts)]

        await self.shared.update(decide)
        self._update_sources()

    async def _release(self) -> None:
        if not self._timers.release_due(self._state(), self._clock.monotonic()):
            return
        positions = self._positions()

        def decide(state: GroupState) -> list[Update]:
            if not self._may_transfer(state):
                return []
            # A segment assigned in the newest state alone has no position here yet.
            chosen = [s for s in assignment.to_release(state, self.reader) if s in positions]
            released: list[Update] = [ReleaseSegment(self.reader, s, positions[s]) for s in chosen]
            return [*released, self.distance(state)] if released else []

        if await self.shared.update(decide):
            log.info("reader %s of %s has released segments", self.reader, self.shared.name)
        self._timers.released()
        self._update_sources()

    async def _acquire(self) -> None:
        if not self._timers.acquire_due(self._state(), self._clock.monotonic()):
            return

        def decide(state: GroupState) -> list[Update]:
            if not self._may_transfer(state):
                return []
            taken: list[Update] = [AcquireSegment(self.reader, s) for s in assignment.to_acquire(state, self.reader)]
            return [*taken, self.distance(state)] if taken else []

        await self.shared.update(decide)
        self._timers.acquired()

    def distance(self, state: GroupState) -> UpdateDistance:
        """Return the update that reports our positions, and that we are alive."""
        # Java's readers report a point in time where a lag is meant (a known defect); loads must stay comparable.
        positions = {s: at for s, at in self._positions().items() if s in state.assigned.get(self.reader, ())}
        ranges = {segment: state.ranges.get(segment) for segment in positions}
        return UpdateDistance(self.reader, self._clock.wall_ms(), positions, ranges)


def _uuid_text(data: bytes) -> str:
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
