"""A reader's part in its group: what it writes to the shared state, and when (what to read is in `reader.py`).

Theory of operation.  A task follows the state, so that the reader knows of changes at once (`heartbeat.py`).  All that
concerns segments and checkpoints is done by `manage`, which the reader calls between two events; at that moment
everything it handed out counts as consumed.

    passed a checkpoint?   write where we stand; complete segments that ended; give some away if we have too many
    a checkpoint is due?   hand it out: it counts as passed with the next call.  Silent ones are passed here
    free segments?         wait as long as `assignment.py` says, and take our share

A segment is released or completed right behind a checkpoint only, as in Java: the user may store positions at
checkpoints alone, and nobody else may go on behind what is not stored.  So that successors need not wait for the next
regular checkpoint, a reader at the end of a segment (or with too many) begins one early.  With automatic checkpoints
off, nothing waits: whoever asks for the next event is done with those before.

What is known of our segments is never guessed from what was sent, but from the state: after an error or a
cancellation we fetch before anything else is handed out.
"""

from __future__ import annotations

import logging
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
from sarit.client.groups.values import UNBOUNDED, GroupSegment, KeyPart
from sarit.core.errors import Conflict, SaritError
from sarit.core.limits import GROUP_EARLY_CHECKPOINT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.core.session import Session
    from sarit.client.groups.shared import SharedState
    from sarit.client.groups.sources import Sources
    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import Offsets

log = logging.getLogger(__name__)

RELEASING: Final = 2  # retention at the last checkpoint


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
        self._evaluated_revision: object = None
        self._evaluated_ended = 0  # how many segments at their ends `manage` knew of
        self._state_is_stale = True
        self._next_evaluation_at = 0.0
        self._open_checkpoint: str | None = None
        self._unassigned_since: float | None = None  # for how long we know that there are segments nobody has
        self._acquire_at: float | None = None
        self._release_at: float | None = None
        self._checkpoint_at = self._clock.monotonic() + shared.state.config.checkpoint_ms / 1000
        self._last_checkpoint = self._clock.monotonic()

    def __repr__(self) -> str:
        return f"Member({self.shared.name}, {self.reader}, at checkpoint {self._open_checkpoint})"

    @property
    def at_end(self) -> bool:
        """Whether the group has read everything, at last sight."""
        return self.shared.state.at_end

    def is_current(self, state: GroupState) -> bool:
        """Whether this reader is in the group, and not a later one of the same name."""
        return self.reader in state.assigned and state.joined.get(self.reader, self._joined) == self._joined

    def due(self) -> bool:
        """Whether there is something to manage."""
        if self._state_is_stale or self._open_checkpoint is not None or self.heartbeat.failure is not None:
            return True
        if len(self._sources.ended) != self._evaluated_ended:
            return True
        return (
            self._evaluated_revision is not self.shared.revision or self._clock.monotonic() >= self._next_evaluation_at
        )

    def seconds_until_due(self) -> float:
        """After how long there is, if nothing happens."""
        return max(0.0, self._next_evaluation_at - self._clock.monotonic())

    # -- between two events -----------------------------------------------------------------------

    async def manage(self) -> str | None:
        """Do what is due; the checkpoint to hand out, if there is one.

        Raises Conflict when the reader is not in the group any more."""
        if self.heartbeat.failure is not None:
            raise self.heartbeat.failure
        if self._state_is_stale:
            await self.shared.fetch()
        self._state_is_stale = True
        self._update_sources()
        passed = False
        if self._open_checkpoint is not None:
            await self._pass_checkpoint(self._open_checkpoint)
            passed, self._open_checkpoint = True, None
        if passed or not self._state().config.checkpoint_ms:
            await self._complete_and_release()
        if passed:
            await self._publish()
        self._open_checkpoint = await self._next_checkpoint()
        if self._open_checkpoint is None:
            await self._acquire()
        self._update_sources()
        self._evaluated_revision, self._state_is_stale = self.shared.revision, False
        self._schedule_next()
        return self._open_checkpoint

    def _state(self) -> GroupState:
        """The state, with this reader in it."""
        state = self.shared.state
        if not self.is_current(state):
            raise Conflict(
                f"reader {self.reader} is not in group {self.shared.name} any more: the group was reset, or somebody "
                "declared the reader offline; its segments are others' now.  Open a new reader"
            )
        return state

    def _update_sources(self) -> None:
        """Read the segments that are ours, and no others."""
        state = self._state()
        owned = state.assigned[self.reader]
        for segment in self._sources.segments:
            if segment not in owned:
                self._sources.remove(segment)
        for segment, offset in owned.items():
            if segment not in self._sources:
                end = state.ends.get(segment, UNBOUNDED)
                self._sources.add(segment, offset, None if end >= UNBOUNDED else end)

    # -- checkpoints --------------------------------------------------------------------------------

    async def _pass_checkpoint(self, checkpoint: str) -> None:
        positions = dict(self._positions())

        def decide(state: GroupState) -> list[Update]:
            if state.checkpoints.next_for(self.reader) is None or self.reader not in state.assigned:
                return []
            if self.reader not in state.checkpoints.pending.get(checkpoint, ()):
                return []
            return [CheckpointReader(checkpoint, self.reader, positions)]

        await self.shared.update(decide)
        now = self._clock.monotonic()
        self._last_checkpoint = now
        self._checkpoint_at = now + self._state().config.checkpoint_ms / 1000

    async def _next_checkpoint(self) -> str | None:
        while True:
            state = self._state()
            name = state.checkpoints.next_for(self.reader)
            if name is not None and not is_silent(name):
                return name
            if name is not None:
                await self._pass_checkpoint(name)
            elif not self._checkpoint_due(state):
                return None
            else:
                await self._begin_checkpoint()

    def _checkpoint_due(self, state: GroupState) -> bool:
        if not state.config.checkpoint_ms or state.checkpoints.pending:
            return False
        now = self._clock.monotonic()
        if now >= self._checkpoint_at:
            return True
        early = bool(self._sources.ended) or self._release_due(state, now)
        return early and now >= self._last_checkpoint + GROUP_EARLY_CHECKPOINT_SECONDS

    async def _begin_checkpoint(self) -> None:
        name = _uuid_text(self._session.env.random.bytes(16))

        def decide(state: GroupState) -> list[Update]:
            if state.checkpoints.pending or self.reader not in state.assigned:
                return []
            return [CreateCheckpoint(name), ClearCheckpointsBefore(name)]

        await self.shared.update(decide)
        now = self._clock.monotonic()
        self._last_checkpoint = now
        self._checkpoint_at = now + self._state().config.checkpoint_ms / 1000

    async def _publish(self) -> None:
        """Tell the controller of the last checkpoint, when retention goes by that and this reader completed it."""
        state = self.shared.state
        held = state.checkpoints
        if state.config.retention != RELEASING or held.published or held.last is None:
            return
        for cut in await stream_cuts.cuts_of(self._session, held.last):
            try:
                await calls.release(self._session, *self.shared.name, state.config, cut)
            except (Conflict, SaritError) as error:
                log.warning("group %s: what was read of %s is not released: %s", self.shared.name, cut.stream, error)
        await self.shared.write(CheckpointPublished(True))

    # -- segments -----------------------------------------------------------------------------------

    async def _complete_and_release(self) -> None:
        """Complete what was read to its end, and give away what is too much."""
        for segment in list(self._sources.ended):
            await self._complete(segment)
        if not self._release_due(self._state(), self._clock.monotonic()):
            return
        positions = self._positions()

        def decide(state: GroupState) -> list[Update]:
            if not self._may_transfer(state):
                return []
            chosen = [s for s in assignment.to_release(state, self.reader) if s in positions]
            released: list[Update] = [ReleaseSegment(self.reader, s, positions[s]) for s in chosen]
            return [*released, self.distance(state)] if released else []

        if await self.shared.update(decide):
            log.info("reader %s of %s has given segments away", self.reader, self.shared.name)
        self._release_at = self._unassigned_since = None
        self._update_sources()

    def _may_transfer(self, state: GroupState) -> bool:
        return self.reader in state.assigned and state.checkpoints.next_for(self.reader) is None

    async def _complete(self, segment: GroupSegment) -> None:
        successors: dict[GroupSegment, frozenset[GroupSegment]] = {}
        ranges: dict[GroupSegment, KeyPart | None] = {}
        if segment not in self.shared.state.ends:
            controller, stream = self._session.controller, segment.stream
            for found in await self._session.with_retry(lambda: controller.successors(stream, segment.segment)):
                name = GroupSegment(stream, found.segment)
                ranges[name] = KeyPart(found.low, found.high)
                successors[name] = frozenset(GroupSegment(stream, other) for other in found.predecessors)

        def decide(state: GroupState) -> list[Update]:
            if not self._may_transfer(state) or segment not in state.assigned[self.reader]:
                return []
            parts = {segment: state.ranges.get(segment), **ranges}
            return [SegmentCompleted(self.reader, segment, successors, parts)]

        await self.shared.update(decide)
        self._update_sources()

    def _release_due(self, state: GroupState, now: float) -> bool:
        if not assignment.to_release(state, self.reader):
            self._release_at = None
            return False
        if self._release_at is None:
            self._release_at = now + assignment.release_delay_seconds(state, self.reader)
        return now >= self._release_at

    async def _acquire(self) -> None:
        now = self._clock.monotonic()
        if not self._acquire_due(self._state(), now):
            return

        def decide(state: GroupState) -> list[Update]:
            if not self._may_transfer(state):
                return []
            taken: list[Update] = [AcquireSegment(self.reader, s) for s in assignment.to_acquire(state, self.reader)]
            return [*taken, self.distance(state)] if taken else []

        await self.shared.update(decide)
        self._unassigned_since = None

    def _acquire_due(self, state: GroupState, now: float) -> bool:
        """Whether it is our turn to take segments; `_acquire_at` says when it will be."""
        if not state.unassigned:
            self._unassigned_since = self._acquire_at = None
            return False
        if self._unassigned_since is None:
            self._unassigned_since = now
        self._acquire_at = self._unassigned_since + assignment.acquire_delay_seconds(state, self.reader)
        return now >= self._acquire_at

    def distance(self, state: GroupState) -> UpdateDistance:
        """How far this reader is, and that it is there."""
        # Java's readers tell the time as their lag (a known mistake of theirs); sizes must be comparable.
        positions = {s: at for s, at in self._positions().items() if s in state.assigned.get(self.reader, ())}
        ranges = {segment: state.ranges.get(segment) for segment in positions}
        return UpdateDistance(self.reader, self._clock.wall_ms(), positions, ranges)

    def _schedule_next(self) -> None:
        """When there will be something to do if nothing happens."""
        state, now = self._state(), self._clock.monotonic()
        times = [now + state.config.refresh_ms / 1000]
        self._acquire_due(state, now)
        self._release_due(state, now)
        if self._acquire_at is not None:
            times.append(self._acquire_at)
        if state.config.checkpoint_ms and not state.checkpoints.pending:
            early = self._last_checkpoint + GROUP_EARLY_CHECKPOINT_SECONDS
            times.append(self._checkpoint_at)
            if self._sources.ended:
                times.append(early)
            if self._release_at is not None:
                times.append(max(early, self._release_at))
        elif self._release_at is not None and not state.config.checkpoint_ms:
            times.append(self._release_at)
        self._next_evaluation_at = max(min(times), now)
        self._evaluated_ended = len(self._sources.ended)


def _uuid_text(data: bytes) -> str:
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
