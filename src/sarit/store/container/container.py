"""One container: the unit of ownership, from opening its log to the failure that ends it.

A `Container` object lives for one epoch.  It loads what an operation needs, checks and
assigns it in one synchronous step, and answers when the operation, or the newest one a
refusal depended on, is durable.  After a failed write nothing is retried: the object is
dead, its connections close, and `SegmentStore` opens a new one, which recovers by reading.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Exists, Invalid, NotFound, SaritError, Unavailable
from sarit.core.limits import APPEND_GATE_SWEEP_SECONDS, MAX_MERGE_ATTRIBUTES, MAX_SEGMENT_NAME_BYTES
from sarit.store.container.group_commit import GroupCommit, call_each, resolve, wake_waiters
from sarit.store.container.metadata_cache import MetadataCache
from sarit.store.container.operations import KIND_STREAM, Delete, Merge, Operation
from sarit.store.container.segment import EVENT_COUNT, AttributeUpdate, resolve_attributes
from sarit.store.container.state import ContainerState, WrongEventNumber
from sarit.store.container.writer_session import WriterSession, end_session, segment_gone
from sarit.store.flow_control.control_limit import wait_below_control_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.ports import Env
    from sarit.index.port import Index
    from sarit.log.port import DurableLog
    from sarit.storage.port import ChunkStorage
    from sarit.store.container.segment import Segment
    from sarit.store.container.writer_session import ReplySink
    from sarit.store.flow_control.memory_budget import MemoryBudget
    from sarit.store.flow_control.write_limiter import RateLimiters
    from sarit.wire.append import Append as WireAppend

_COMPACTION_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What readers may know of a segment; offsets in bytes, `modified_ms` since 1970."""

    length: int
    start_offset: int
    sealed: bool
    modified_ms: int


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Sizes that tests shrink."""

    max_segments: int = 12_500
    entry_cache_bytes: int = 16 << 20


class Container:
    """State, log, index and long-term storage of one share of the segments."""

    def __init__(
        self, number: int, env: Env, log: DurableLog, index: Index, storage: ChunkStorage, budget: MemoryBudget,
        rate_limiters: RateLimiters, limits: ContainerLimits, on_failure: Callable[[Container, BaseException], None],
    ) -> None:  # fmt: skip
        self.number = number
        self.env = env
        self.log = log
        self.index = index
        self.storage = storage
        self.budget = budget
        self.rate_limiters = rate_limiters
        self.state = ContainerState()
        self.metadata = MetadataCache(index, self.state, limits.max_segments, limits.entry_cache_bytes)
        self.group_commit: GroupCommit
        self._report_failure = on_failure
        self._throttled: deque[tuple[WriterSession, WireAppend, int | None]] = deque()
        self._refusing = False
        self.failure: BaseException | None = None
        # The first epoch whose commits tell which chunks they settle.
        self.resolved_from = log.epoch

    def __repr__(self) -> str:
        return f"<Container {self.number} epoch {self.log.epoch}, {len(self.state.segments)} segments in memory>"

    def serve(self) -> None:
        """Recovery is done: take operations."""

        def durable(began: float, size: int) -> None:
            self.rate_limiters.read.observe_appends(began, size)
            self.account()  # a deletion or truncation gave room, and with long-term storage away nothing else tells

        self.group_commit = GroupCommit(self.env, self.log, self.state, self._failed, durable)
        self._report()

    # -- appends: no await between here and the frame ---------------------------------------

    async def set_up_writer(self, name: str, writer: bytes, replies: ReplySink) -> WriterSession:
        """A session whose `last` is the writer's stored event number (NULL when unknown).

        Waits for that writer's appends in flight and ends its older sessions.  Raises NotFound, Invalid (a table)."""
        segment = await self.metadata.require(name)
        _require_stream(segment)
        segment.pins += 1
        try:
            while True:
                # Anew each time: it may leave memory while we wait.
                attribute = await self.metadata.attribute(segment, writer)
                # What older sessions have waiting must fail its check, not slip in behind us.
                end_session(attribute)
                if attribute.assigned == attribute.applied:
                    break
                if self.group_commit.idle:  # a bug: nothing will settle it, and this loop would never yield
                    self.fail(AssertionError(f"writer {writer.hex()} on {segment!r} waits for no operation"))
                await self.group_commit.wait_durable()
            if segment.assigned_deleted:
                raise NotFound(f"segment {name} does not exist")
            session = WriterSession(self, segment, writer, attribute, replies)
            attribute.owner = session
            segment.pins += 1
            return session
        finally:
            segment.pins -= 1

    def submit_append(self, session: WriterSession, append: WireAppend, expected_offset: int | None) -> None:
        """Check, assign and queue; or hold back while the node's bound is reached."""
        if self.failure is None and (self._throttled or self.budget.over_append_limit):
            if not self._throttled:
                coverage_probe("appends_throttled")
            self._throttled.append((session, append, expected_offset))
            return
        self._append(session, append, expected_offset)

    def release_throttled(self) -> None:
        """Go on with the appends held back, as far as the bound allows."""
        while self._throttled and not self.budget.over_append_limit:
            self._append(*self._throttled.popleft())

    def refuse_closed(self) -> None:
        """Refuse the appends held back whose session is closed: none can be taken, and they would stay as long as
        there is no room, those of each connection that a client opens meanwhile.

        Soon, for many connections at once: there may be a million appends to look through, and all give up together."""

        def look() -> None:
            self._refusing = False
            closed = [held for held in self._throttled if held[0].closed]
            if closed:
                self._throttled = deque(held for held in self._throttled if not held[0].closed)
                for held in closed:
                    self._append(*held)  # its writer's attribute has another owner, or none: this refuses it

        if self._throttled and not self._refusing:
            self._refusing = True
            asyncio.get_running_loop().call_later(APPEND_GATE_SWEEP_SECONDS, look)

    def account(self) -> None:
        """Tell the budget what is held now, and go on with the appends held back if that leaves room."""
        self._report()
        self.release_throttled()

    def _report(self) -> None:
        if self.failure is None:  # else what it held is forgotten, and would be charged for ever to nobody
            self.budget.report(self.number, self.state.dirty)

    @property
    def throttled(self) -> int:
        """Appends held back now."""
        return len(self._throttled)

    def _append(self, session: WriterSession, append: WireAppend, expected_offset: int | None) -> None:
        segment = session.segment
        number = append.last_event_number
        try:
            if number < session.last:  # of an append held back: when it came, the one before it had no number yet
                raise WrongEventNumber(f"event {number} of {session.writer.hex()} came after {session.last}")
            operation = self.state.append(
                segment, session.attribute, session, session.last, writer=session.writer, number=number,
                events=append.events, parts=append.parts, length=append.length, expected_offset=expected_offset,
            )  # fmt: skip
        except SaritError as error:
            refusal = error
            self.group_commit.barrier(lambda failure: session.replies.refused(session, append, failure or refusal))
            return
        session.last = number

        def done(error: BaseException | None) -> None:
            if error is None:
                previous, session.acknowledged = session.acknowledged, number
                session.replies.acknowledged(session, append, previous, operation.offset + operation.length)
            else:
                session.replies.refused(session, append, error)

        self._report()
        try:
            self.group_commit.add(operation, done)
        except SaritError as error:
            session.replies.refused(session, append, error)

    # -- control operations ---------------------------------------------------------------

    async def create(
        self, name: str, *, kind: int = KIND_STREAM, key_length: int = 0, scale_type: int = 0, target_rate: int = 0,
        rollover: int = 0, fresh: bool = False,
    ) -> None:  # fmt: skip
        """Raises Exists, once it is durable that it does; Invalid for a name that none can have; Unavailable (no room).

        `fresh`: the name was never used before, and the index is not asked."""
        if not name or len(name.encode()) > MAX_SEGMENT_NAME_BYTES or "\0" in name:
            raise Invalid(f"a segment's name has 1 to {MAX_SEGMENT_NAME_BYTES} bytes, none of them zero")
        await wait_below_control_limit(self, name)
        if not fresh and await self.metadata.find(name) is not None:
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
            )
        except Exists:  # by another caller, while we looked
            await self.group_commit.wait_durable()
            raise
        await self.submit(operation)

    async def seal(self, name: str) -> None:
        """Raises NotFound, Sealed."""
        await self.change(name, self.state.seal)

    async def truncate(self, name: str, offset: int) -> None:
        """Raises NotFound, Truncated when `offset` is outside the segment, Invalid (a table)."""

        def decide(segment: Segment) -> Operation:
            _require_stream(segment)
            return self.state.truncate(segment, offset)

        await self.change(name, decide)

    async def delete(self, name: str) -> None:
        """Raises NotFound."""
        await self.change(name, self.state.delete)

    async def set_policy(self, name: str, scale_type: int, target_rate: int) -> None:
        """Raises NotFound."""
        await self.change(name, lambda segment: self.state.set_policy(segment, scale_type, target_rate))

    async def merge(self, target_name: str, source_name: str, conditions: tuple[AttributeUpdate, ...] = ()) -> int:
        """Move all of source to the end of target; the target's length after it.

        Raises NotFound (with the missing name), Sealed, Invalid, Conflict (attributes)."""
        length, durable = await self.begin_merge(target_name, source_name, conditions)
        await durable
        return length

    async def begin_merge(
        self, target_name: str, source_name: str, conditions: tuple[AttributeUpdate, ...] = ()
    ) -> tuple[int, asyncio.Future[None]]:
        """As `merge`, decided and in line when this returns; the future is done when it is durable."""
        if len(conditions) > MAX_MERGE_ATTRIBUTES:
            raise Invalid(f"a merge changes at most {MAX_MERGE_ATTRIBUTES} attributes, not {len(conditions)}")
        target = await self.metadata.require(target_name)
        target.pins += 1
        try:
            source = await _merge_source(self.metadata, target, source_name)
            source.pins += 1
            try:
                await self.metadata.chunks(source)
                named = [update.attribute for update in conditions]
                await self.metadata.attributes(target, named)
                while source.compacting:  # rare and short; not worth an event per segment
                    await asyncio.sleep(_COMPACTION_POLL_SECONDS)
                    await self.metadata.attributes(target, named)  # again: they may have been evicted
                outcome = resolve_attributes(target, conditions)
                operation = self.state.merge(target, source, outcome)
            finally:
                source.pins -= 1
        except SaritError:
            await self.group_commit.wait_durable()
            raise
        finally:
            target.pins -= 1
        return operation.offset + operation.length, self._enqueue(operation)

    async def length(self, name: str) -> int:
        """Assigned length, once durable.  Raises NotFound."""
        segment = await self.metadata.require(name)
        length = segment.assigned_length
        await self.group_commit.wait_durable()
        return length

    async def get_attribute(self, name: str, key: bytes) -> int:
        """Applied value, NULL_ATTRIBUTE_VALUE when absent.  Raises NotFound."""
        segment = await self.metadata.require(name)
        if key == EVENT_COUNT:
            return segment.events
        segment.pins += 1
        try:
            return (await self.metadata.attribute(segment, key)).applied
        finally:
            segment.pins -= 1

    async def update_attribute(self, name: str, key: bytes, value: int, expected: int) -> bool:
        """Compare and set; absent equals NULL_ATTRIBUTE_VALUE.  Raises NotFound, Unavailable (no room)."""
        await wait_below_control_limit(self, name)
        segment = await self.metadata.require(name)
        segment.pins += 1
        try:
            attribute = await self.metadata.attribute(segment, key)
            if attribute.assigned != expected:
                await self.group_commit.wait_durable()
                return False
            operation = self.state.set_attributes(segment, ((key, value),))
        finally:
            segment.pins -= 1
        await self.submit(operation)
        return True

    async def info(self, name: str) -> SegmentInfo:
        """The applied state.  Raises NotFound."""
        segment = await self.metadata.require(name)
        if not segment.created:
            await self.group_commit.wait_durable()
        return SegmentInfo(segment.length, segment.start, segment.sealed, segment.modified_ms)

    async def submit(self, operation: Operation) -> None:
        """Queue an outcome and wait until it is durable.  Raises Unavailable (outcome unknown)."""
        await self._enqueue(operation)

    def _enqueue(self, operation: Operation) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended: int | None = None
        if isinstance(operation, Delete):
            ended = operation.segment
        elif isinstance(operation, Merge):
            ended = operation.source
        gone = None if ended is None else self.state.segments[ended]

        def done(error: BaseException | None) -> None:
            resolve(waiter, error)
            if gone is not None and error is None:
                segment_gone(gone)

        self.group_commit.add(operation, done)
        self._report()
        return waiter

    async def change(self, name: str, decide: Callable[[Segment], Operation]) -> None:
        """Check, assign and submit in one step.  Raises NotFound and what `decide` raises, once durable."""
        try:
            segment = await self.metadata.require(name)
            operation = decide(segment)
        except SaritError:
            await self.group_commit.wait_durable()
            raise
        await self.submit(operation)

    # -- the end ------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> None:
        self.failure = error
        throttled, self._throttled = self._throttled, deque()
        # Of no other kind, whatever the error is: of a missing segment, it would say that of the writer's.
        lost = Unavailable("the container failed; connect again and retry")
        bug = call_each((partial(session.replies.refused, session, append) for session, append, _ in throttled), lost)
        for segment in self.state.segments.values():
            bug = wake_waiters(segment) or bug
        self._report_failure(self, error)
        if bug is not None:
            raise bug

    def fail(self, error: BaseException) -> None:
        """End this epoch: something outside the log (the index, a bug) makes going on unsafe."""
        self.group_commit.fail(error)


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
