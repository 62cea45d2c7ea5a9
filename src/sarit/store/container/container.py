"""One container: the unit of ownership of segments, from the opening of its log to the failure that ends it.

Theory of operation.  Every operation takes the same steps:
1. Load what its check needs into memory (`MetadataCache`).  This may await.
2. Check and assign: one synchronous step on `ContainerState`, which yields an outcome.
3. Queue the outcome (`GroupCommit`), in the same step, so the log has the order of the assignments.
4. Reply when the outcome is durable.  A refusal waits for the operations in flight that it depends on.
Appends take steps 2 and 3 in their `WriterSession`, without any await.

A `Container` object lives for one epoch and has one transition: it serves until it fails (`failure`).  The first
failed write ends it.  Nothing is retried: its connections close, and `SegmentStore` opens a new object, which
recovers by reading the log.

A container that moves to another store ends without a failed write (`departure.py`): its `failure` is Moved.

An owner that was fenced and does not know it would give stale answers.  So it answers only while the store's lease runs
(`may_answer`), or after a frame became durable that was sent after the facts of the answer were read (`confirm`).
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, Exists, Forbidden, Invalid, Moved, NotFound, SaritError, Unavailable
from sarit.store.container.damage import DamageLog
from sarit.store.container.group_commit import GroupCommit, answer_each, resolve, wake_waiters
from sarit.store.container.metadata_cache import MetadataCache
from sarit.store.container.operations import KIND_STREAM, Delete, Merge, Operation
from sarit.store.container.segment import EVENT_COUNT, AttributeUpdate, resolve_attributes
from sarit.store.container.state import ContainerState, append_at, set_mirror
from sarit.store.container.writer_session import fence_owner, segment_missing
from sarit.store.flow_control.append_gate import AppendGate
from sarit.store.flow_control.control_limit import ControlLimit
from sarit.store.limits import (
    MAX_MERGE_ATTRIBUTES,
    MAX_SEGMENTS_IN_MEMORY,
    MAX_START_OFFSET,
    METADATA_BYTES,
    RECOVERY_WINDOW_BYTES,
    TABLE_CACHE_BYTES,
)
from sarit.store.statistics import StoreStatistics
from sarit.wire.limits import MAX_SEGMENT_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sarit.env.ports import Env
    from sarit.index.port import Index
    from sarit.log.port import DurableLog
    from sarit.storage.port import ChunkStorage
    from sarit.store.container.segment import Segment
    from sarit.store.container.writer_session import WriterSession
    from sarit.store.flow_control.memory_budget import MemoryBudget
    from sarit.store.flow_control.write_limiter import RateLimiters


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The applied state of a segment; offsets in bytes, `modified_ms` since 1970."""

    length: int
    start_offset: int
    sealed: bool
    modified_ms: int


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Bounds of what one container holds in memory; tests lower them."""

    max_segments: int = MAX_SEGMENTS_IN_MEMORY
    entry_cache_bytes: int = TABLE_CACHE_BYTES
    recovery_window_bytes: int = RECOVERY_WINDOW_BYTES
    metadata_bytes: int = METADATA_BYTES


class Leaving(Protocol):
    """The departure of a container for another store (`Departure`, whose module imports this one)."""

    def moved(self) -> Moved:
        """Return the error with which every later request is refused."""

    async def complete_pending(self) -> None:
        """Wait until operations in flight are durable, then refuse everything else."""

    def send_away(self) -> None:
        """Refuse the appends that wait with Moved."""


class Container:
    """One share of the node's segments, with its state, log, index and long-term storage."""

    def __init__(
        self, number: int, env: Env, log: DurableLog, index: Index, storage: ChunkStorage, budget: MemoryBudget,
        rate_limiters: RateLimiters, limits: ContainerLimits, on_failure: Callable[[Container, BaseException], None],
        statistics: StoreStatistics | None = None, lease: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        """`lease`: whether the store's lease runs; None: no other store can own this container."""
        self.number = number
        self.statistics = statistics = statistics or StoreStatistics()
        self.env = env
        self.log = log
        self.index = index
        self.storage = storage
        self.budget = budget
        self.rate_limiters = rate_limiters
        self.limits = limits
        self.state = ContainerState()
        self.damage = DamageLog(statistics)
        self.metadata = MetadataCache(
            index, self.state, limits.max_segments, limits.entry_cache_bytes, limits.metadata_bytes,
            budget.forget_cached, statistics,
        )  # fmt: skip
        # Set by `serve`, since group commit numbers its frames from the last one that replay applied.
        self.group_commit: GroupCommit
        self._wake_flusher: Callable[[], None]
        self._report_failure = on_failure
        self.append_gate = AppendGate(budget, statistics)
        self.control_limit = ControlLimit(budget, log)
        self.failure: BaseException | None = None
        self.lease = lease
        self.departure: Leaving | None = None
        self._compaction_ended = asyncio.Event()
        # The first epoch whose commits record the highest chunk number they resolve.
        self.resolved_from = log.epoch

    def __repr__(self) -> str:
        return f"<Container {self.number} epoch {self.log.epoch}, {len(self.state.segments)} segments in memory>"

    def serve(self, wake_flusher: Callable[[], None]) -> None:
        """Accept operations from now on, after recovery.  `wake_flusher` is called while appends wait for memory."""
        self._wake_flusher = wake_flusher
        observe = self.rate_limiters.read.observe_appends
        self.group_commit = GroupCommit(
            self.env, self.log, self.state, self.budget, self._failed, observe, self._memory_changed, self.statistics
        )
        self._report()

    # -- writers ------------------------------------------------------------------------------

    async def set_up_writer(self, name: str, session: WriterSession) -> None:
        """Open a session of a writer; its `last` is the writer's stored event number (NULL when it has none).

        Waits for that writer's appends in flight and fences its older sessions.  Raises NotFound, Invalid (a table),
        Moved."""
        segment = await self.metadata.require(name)
        proved = False
        _require_stream(segment)
        segment.pins += 1
        try:
            while True:
                # Load the attribute in each round: it may be evicted during the wait.
                attribute = await self.metadata.attribute(segment, session.writer)
                # Throttled appends of an older session must not be assigned after `assigned` is read below.
                fence_owner(attribute)
                if self.departure is not None:
                    raise self.departure.moved()
                # No await from here to `session.set_up`: nobody may append as this writer or set it up in between.
                if attribute.assigned == attribute.applied:
                    if proved or self.may_answer:
                        break
                    # Prove that the writer's last event number, which the answer holds, is not stale.
                    await self.group_commit.prove_ownership()
                    proved = True
                    continue
                if self.group_commit.idle:  # a bug: nothing would move `applied`, and this loop would never yield
                    self.fail(AssertionError(f"writer {session.writer.hex()} on {segment.name} waits for no operation"))
                await self.group_commit.wait_durable()
            # During the waits above the segment may have been deleted or merged.
            if segment.assigned_deleted:
                raise NotFound(f"segment {name} does not exist")
            session.set_up(self, segment, attribute)
        finally:
            segment.pins -= 1

    def _memory_changed(self) -> None:
        self.account()  # a deletion or truncation freed memory; without long-term storage no flush would report that
        # Over the limit all appends wait for flushes.  Wake the flusher, because it could not flush the bytes of this
        # frame before they were durable, and would sleep until its next interval.
        if self.budget.over_append_limit:
            self._wake_flusher()

    def account(self) -> None:
        """Report the memory held now, and release throttled appends if that is less than before."""
        self._report()
        if self.append_gate.queue:
            self.append_gate.release()

    def _report(self) -> None:
        if self.failure is None:  # a failed container's charge is dropped already; a new one would stay for ever
            self.budget.report(self.number, self.state.dirty)

    @property
    def throttled(self) -> int:
        """The number of appends that wait at the append gate."""
        return len(self.append_gate)

    # -- control operations ---------------------------------------------------------------

    async def create(
        self, name: str, *, kind: int = KIND_STREAM, key_length: int = 0, scale_type: int = 0, target_rate: int = 0,
        rollover: int = 0, fresh: bool = False, offset: int = 0, mirror: bool = False,
    ) -> None:  # fmt: skip
        """Create a segment.  `fresh`: the name was never used before, so the index need not be asked.

        `offset`: where it begins and ends.  `mirror`: clients may only read it.

        Raises Exists (once that segment is durable), Invalid (the name), Unavailable (over the control limit)."""
        if not 0 <= offset <= MAX_START_OFFSET:
            raise Invalid(f"segment {name} cannot begin at offset {offset}")
        if not name or len(name.encode()) > MAX_SEGMENT_NAME_BYTES or "\0" in name:
            raise Invalid(f"a segment's name has 1 to {MAX_SEGMENT_NAME_BYTES} bytes, none of them zero")
        await self.control_limit.wait_below(name)
        # The read of the index awaits, so two creators of one name may pass it.  `state.create` decides between them.
        if not fresh and await self.metadata.find(name) is not None:
            # Wait until the creation is durable: a crash must not undo it after a client knows that the segment exists.
            await self.group_commit.wait_durable()
            raise Exists(f"segment {name} exists")
        try:
            operation = self.state.create(
                name,
                kind=kind,
                key_length=key_length,
                scale_type=scale_type,
                target_rate=target_rate,
                rollover=rollover,
                offset=offset,
                mirror=mirror,
            )
        except Exists:  # another caller has created it while the index was read
            await self.group_commit.wait_durable()
            raise
        await self.submit(operation)

    async def seal(self, name: str) -> None:
        """Refuse appends from now on.  Raises NotFound, Sealed."""
        await self.change(name, self.state.seal)

    async def truncate(self, name: str, offset: int) -> None:
        """Drop the bytes below `offset`.  Raises NotFound, Truncated (`offset` is outside), Invalid (a table)."""

        def decide(segment: Segment) -> Operation:
            _require_stream(segment)
            return self.state.truncate(segment, offset)

        await self.change(name, decide)

    async def delete(self, name: str) -> None:
        """Delete a segment, also one whose record cannot be read; its name may be used again.

        Raises NotFound, Corrupt (its name cannot be read)."""
        try:
            await self.change(name, self.state.delete)
        except Corrupt:
            # No await between the stand-in and the assigned deletion: nobody else may find the stand-in.
            await self.submit(self.state.delete(await self.metadata.stand_in(name)))

    async def set_policy(self, name: str, scale_type: int, target_rate: int) -> None:
        """Set the scaling policy by which a segment is metered.  Raises NotFound."""
        await self.change(name, lambda segment: self.state.set_policy(segment, scale_type, target_rate))

    async def set_mirror(self, name: str, mirror: bool) -> None:
        """Let clients change a segment, or only read it (`mirror`).  Raises NotFound."""
        await self.change(name, lambda segment: set_mirror(segment, mirror))

    async def merge(self, target_name: str, source_name: str, conditions: tuple[AttributeUpdate, ...] = ()) -> int:
        """Move all bytes of the source to the end of the target.  Returns the target's new length.

        Raises NotFound (with the missing name), Sealed, Invalid, Conflict (attributes)."""
        length, durable = await self.begin_merge(target_name, source_name, conditions)
        await durable
        return length

    async def begin_merge(
        self, target_name: str, source_name: str, conditions: tuple[AttributeUpdate, ...] = (),
        offset: int | None = None,
    ) -> tuple[int, asyncio.Future[None]]:  # fmt: skip
        """Merge as `merge` does, checked and queued when this returns; the future is done when the merge is durable.

        `offset`: where the target must end.  Raises Conflict, with the actual end, if it ends elsewhere."""
        if len(conditions) > MAX_MERGE_ATTRIBUTES:
            raise Invalid(f"a merge changes at most {MAX_MERGE_ATTRIBUTES} attributes, not {len(conditions)}")
        target = await self.metadata.require(target_name)
        # Pins keep both segments in memory over the awaits below; once the merge is assigned, `in_flight` does.
        target.pins += 1
        try:
            source = await _merge_source(self.metadata, target, source_name)
            source.pins += 1
            try:
                # Load the source's extents and the target's attributes: `apply` moves them and cannot await.  No await
                # from the end of this loop to `_enqueue`, so that all stays in memory and the log has this order.
                named = [update.attribute for update in conditions]
                while True:
                    if any(
                        key not in target.attributes for key in named
                    ):  # attributes may be evicted during the awaits below
                        await self.metadata.attributes(target, named)
                    elif source.compacting:
                        coverage_probe("merge_waited_for_compaction")
                        await self._compaction_ended.wait()
                    elif source.extents is None:
                        await self.metadata.merge_extents(source)
                    else:
                        break
                outcome = resolve_attributes(target, conditions)
                operation = self.state.merge(target, source, outcome, offset)
            finally:
                source.pins -= 1
                if not source.assigned_deleted:
                    source.extents = None  # the merge was refused; the next attempt loads the extents again
        except SaritError:
            # The refusal may rest on operations in flight; a crash must not undo them after the client has read it.
            await self.group_commit.wait_durable()
            raise
        finally:
            target.pins -= 1
        return operation.offset + operation.length, self._enqueue(operation)

    async def length(self, name: str) -> int:
        """Return the assigned length, once it is durable.  Raises NotFound."""
        segment = await self.metadata.require(name)
        # Read the length before the wait, so that this answer does not depend on later appends.
        length = segment.assigned_length
        await self.group_commit.wait_durable()
        return length

    async def get_attribute(self, name: str, key: bytes) -> int:
        """Return the applied value of an attribute, NULL_ATTRIBUTE_VALUE when absent.  Raises NotFound."""
        segment = await self.metadata.require(name)
        if key == EVENT_COUNT:
            return segment.events
        segment.pins += 1
        try:
            return (await self.metadata.attribute(segment, key)).applied
        finally:
            segment.pins -= 1

    async def update_attribute(self, name: str, key: bytes, value: int, expected: int) -> bool:
        """Compare and set an attribute.  Returns false when its value is not `expected` (NULL_ATTRIBUTE_VALUE: absent).

        Raises NotFound, Unavailable (over the control limit)."""
        # Pass the control limit before anything is pinned or checked, since it may wait for seconds.
        await self.control_limit.wait_below(name)
        segment = await self.metadata.require(name)
        segment.pins += 1
        try:
            attribute = await self.metadata.attribute(segment, key)
            # Compare with the assigned value: a change in flight counts, and the refusal waits until it is durable.
            if attribute.assigned != expected:
                await self.group_commit.wait_durable()
                return False
            operation = self.state.set_attributes(segment, ((key, value),))
        finally:
            segment.pins -= 1
        await self.submit(operation)
        return True

    async def info(self, name: str) -> SegmentInfo:
        """Return the applied state of a segment.  Raises NotFound."""
        segment = await self.metadata.require(name)
        if not segment.created:
            await self.group_commit.wait_durable()
        return SegmentInfo(segment.length, segment.start, segment.sealed, segment.modified_ms)

    async def submit(self, operation: Operation) -> None:
        """Queue an operation, and wait until it is durable.  Raises Unavailable (unknown whether it is durable)."""
        await self._enqueue(operation)

    def _enqueue(self, operation: Operation) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended: Segment | None = None
        # Keep the segment object, since the name may have a new incarnation when the callback runs.
        if isinstance(operation, Delete):
            ended = self.state.segments[operation.segment]
        elif isinstance(operation, Merge):
            ended = self.state.segments[operation.source]

        def done(error: BaseException | None) -> None:
            # Writers get their notice before the deletion is answered, in a later turn of the loop.
            resolve(waiter, error)
            if ended is not None and error is None:
                segment_missing(ended)

        self.group_commit.add(operation, done)
        self._report()
        return waiter

    def submit_append_at(
        self, segment: Segment, data: bytes, offset: int, waiter: asyncio.Future[None], *, begins_event: bool
    ) -> None:
        """Append bytes at an offset: checked and queued when this returns; `waiter` is done when they are durable.

        Raises NotFound, Sealed, Conflict, Invalid, Moved, Unavailable; a refusal may rest on operations in flight."""
        operation = append_at(self.state, segment, data, offset, begins_event=begins_event)
        self.group_commit.add(operation, partial(resolve, waiter))
        self._report()

    async def change(self, name: str, decide: Callable[[Segment], Operation]) -> None:
        """Submit the operation that `decide` returns for a segment.  Raises NotFound and what `decide` raises."""
        try:
            segment = await self.metadata.require(name)
            operation = decide(segment)
        except SaritError:
            await self.group_commit.wait_durable()  # the refusal may depend on operations in flight
            raise
        await self.submit(operation)

    @contextmanager
    def compaction(self, segment: Segment) -> Iterator[None]:
        """Pin a segment while compaction replaces its extents.  Merges of the segment wait, since they move extents."""
        assert not segment.compacting, segment
        segment.pins += 1
        segment.compacting = True
        try:
            yield
        finally:
            segment.compacting = False
            segment.pins -= 1
            self._compaction_ended.set()  # wakes the present waiters
            self._compaction_ended.clear()

    # -- ownership ----------------------------------------------------------------------------

    @property
    def may_answer(self) -> bool:
        """Whether no other owner can have changed the facts that an answer is based on."""
        return self.lease is None or self.lease()

    async def confirm(self) -> None:
        """Wait until facts that were read before this call may be answered.

        Raises Unavailable, Moved: this store may not own the container any more."""
        if isinstance(self.failure, Moved):
            raise Moved(str(self.failure))
        if not self.may_answer:
            coverage_probe("answer_waited_for_proof_of_ownership")
            await self.group_commit.prove_ownership()

    # -- the end ------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> None:
        # Set `failure` before the callbacks below, because what they call must find a failed container.
        self.failure = error
        # Refuse with Unavailable whatever the error was: a writer would take NotFound for the loss of its segment.
        lost = Unavailable("the container failed; connect again and retry")
        # Refuse throttled appends before those in flight: the order does not matter, as Unavailable ends connections.
        bug = answer_each((partial(session.refuse, append) for session, append in self.append_gate.fail()), lost)
        self.control_limit.fail()
        for segment in self.state.segments.values():
            # Wake the readers at the tail: nothing will be appended to this object any more.
            bug = wake_waiters(segment) or bug
        self._report_failure(self, error)
        if bug is not None:
            raise bug

    def fail(self, error: BaseException) -> None:
        """End this epoch after an error outside the log (an index error, a bug), since continuing is not safe."""
        self.group_commit.fail(error)


def require_writable(segment: Segment) -> None:
    """Check that clients may change a segment.  Raises Forbidden: it is a mirror."""
    if segment.mirror:
        raise Forbidden(
            f"segment {segment.name} is a mirror of another installation, and read-only until it is promoted "
            "(sarit link promote)"
        )


def _require_stream(segment: Segment) -> None:
    if segment.is_table:
        raise Invalid(f"segment {segment.name} is a table segment")


async def _merge_source(metadata: MetadataCache, target: Segment, source_name: str) -> Segment:
    source = await metadata.find(source_name)
    if source is None:
        raise NotFound(source_name)
    if source is target:
        raise Invalid(f"segment {source_name} cannot be merged into itself")
    return source
