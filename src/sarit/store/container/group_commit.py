"""Group commit: batches the operations of all clients into frames, and applies a frame once it is durable.

Theory of operation.  Group commit happens at two levels, and both are one idea: while one write is in progress, what
arrives meanwhile is collected for the next.  At this level, a container batches operations into a *frame*.  At the
level below, its log batches frames into a *group*, with one write and one sync (`log/writer.py`).  Each
container has its own log and log thread: containers do not share a sync.

Group commit is self-clocked; there is no timer.  While the maximum number of frames is in flight
(`DurableLog.frames_in_flight`), operations are added to the current batch.  When a frame becomes durable, the next
batch is sent.  More than one frame is in flight so that a log's thread finds the next one waiting when a sync returns;
a log on other machines has more frames in flight, since each takes a network round trip.

When a frame is durable, three things happen, in this order:
1. `ContainerState.apply` moves the applied state by each of its operations.
2. The callbacks of its operations run: acknowledgements are sent.
3. The waiters of the segments that changed are called: readers at the tail.
So nobody reads or acknowledges anything that is not durable and applied.

A frame without an operation proves that this owner is not fenced (`prove`).  Such a frame is sent only when no other
frame is in flight; callers that ask meanwhile wait for the next frame.

While a backup takes snapshots of several processes at one moment, the applied state is frozen (`hold`): durable frames
wait to be applied, at most as many as may be in flight.  Nothing new is acknowledged or readable meanwhile.

The first failure ends group commit for good.  Every operation not known to be durable fails with Unavailable, its
outcome unknown, and the owner of the container recovers by reading the log again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.core.errors import Moved, SaritError, Unavailable
from sarit.log.limits import MAX_FRAME_BYTES
from sarit.store.container.operations import (
    APPEND_HEADER_BYTES,
    FORMAT_VERSION,
    FRAME_HEADER,
    MAX_OPERATION_BYTES,
    Append,
    Operation,
    operation_charge,
)
from sarit.store.limits import FRAME_TARGET_BYTES, MAX_FRAME_OPERATIONS, SAMPLE_SECONDS
from sarit.store.statistics import StoreStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sarit.env.ports import Buffer, Env
    from sarit.env.traces import Traces
    from sarit.log.port import DurableLog
    from sarit.store.container.segment import Segment
    from sarit.store.container.state import ContainerState
    from sarit.store.flow_control.memory_budget import MemoryBudget

Done = Callable[[BaseException | None], None]
E = TypeVar("E")

_EVENTS: Final = attrgetter("events")


class FrameBatch:
    """Operations that become durable together, as one frame of the log."""

    __slots__ = (
        "appends_only", "began", "bytes", "charged_bytes", "done", "number", "operations", "parts", "proofs", "sent",
        "wall_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.number = 0
        self.began = 0.0
        self.sent = 0.0  # when the frame was sent to the log; set for traces only
        self.wall_ms = 0
        # The first part stands for the header, which is packed when the batch is sent and its operations are counted.
        self.parts: list[Buffer] = [b""]
        self.bytes = FRAME_HEADER.size
        # The memory charged for the operations other than appends (`operation_charge`).
        self.charged_bytes = 0
        self.appends_only = True
        self.operations: list[Operation] = []
        self.done: list[Done | None] = []
        # The callers of `GroupCommit.prove` that this frame's durability answers.
        self.proofs: list[Done] | None = None


class GroupCommit:
    """The group commit of one container.  Operations are applied in the order in which they were added.

    `on_failure(error)` is called once, at the first failure.  After the callbacks of each durable frame,
    `observe(began, size)` is called with the time when the frame's first operation was added (monotonic, in seconds)
    and its size in bytes; and `on_memory_change()` when the frame may have freed memory, or while the node is over its
    append limit."""

    def __init__(
        self,
        env: Env,
        log: DurableLog,
        state: ContainerState,
        budget: MemoryBudget,
        on_failure: Callable[[BaseException], None],
        observe: Callable[[float, int], None],
        on_memory_change: Callable[[], None],
        statistics: StoreStatistics | None = None,
    ) -> None:
        self._env = env
        self._traces = env.traces
        self._statistics = statistics or StoreStatistics()
        self._log = log
        self._max_in_flight = log.frames_in_flight
        self._state = state
        self._on_failure = on_failure
        self._budget = budget
        self._observe = observe
        self._on_memory_change = on_memory_change
        self._loop = asyncio.get_running_loop()
        self._batch = FrameBatch()
        # Three stages, oldest operations last: the batch that grows, full batches that wait, frames that the log has.
        self._full_batches: deque[FrameBatch] = deque()
        self._in_flight: deque[FrameBatch] = deque()
        self._send_scheduled = False
        self._next_number = state.applied_frame + 1
        self._failure: BaseException | None = None
        # The results of durable frames that wait to be applied; None: group commit is not held (`hold`).
        self._held: list[BaseException | None] | None = None

    def __repr__(self) -> str:
        return f"<GroupCommit next frame {self._next_number}, in flight {len(self._in_flight)}>"

    @property
    def idle(self) -> bool:
        """Whether every operation added is applied."""
        return not (self._in_flight or self._full_batches or self._batch.done)

    @property
    def waiting_seconds(self) -> float:
        """For how many seconds the oldest frame in flight has waited; 0 if none is in flight."""
        return self._env.clock.monotonic() - self._in_flight[0].began if self._in_flight else 0.0

    def hold(self) -> None:
        """Apply and acknowledge nothing until `let_go`.  The caller bounds the time in between."""
        if self._held is None:
            self._held = []

    def let_go(self) -> None:
        """Apply and acknowledge the frames that became durable since `hold`; do nothing without a `hold`."""
        outcomes, self._held = self._held or [], None
        for error in outcomes:
            self._durable(error)

    def add(self, operation: Operation, done: Done | None) -> None:
        """Queue an operation; `done(None)` is called once it is durable and applied, `done(error)` on a failure.

        Raises Unavailable after a failure, Moved when the container has left this store."""
        if self._failure is not None:
            # The caller has moved the assigned state, which does no harm: a failed container accepts nothing more.
            raise self._new_refusal()
        frame = self._batch
        if not frame.operations:
            # `ReadRateLimiter` observes latency from here on, with the wait for the frames in flight.
            frame.began = self._env.clock.monotonic()
        parts = len(frame.parts)
        try:
            size = operation.encode(frame.parts)
            assert size <= MAX_OPERATION_BYTES, f"an operation of {size} bytes fits no frame"
        except Exception as bug:
            # End group commit: the assigned state has moved without an operation in the log, so later operations that
            # depend on it could not be replayed.
            self.fail(bug)
            raise
        total = frame.bytes + size
        if total > MAX_FRAME_BYTES:
            # Only a large operation does not fit: the batch is below FRAME_TARGET_BYTES, otherwise it would be queued.
            frame = self._start_overflow_batch(frame, parts)
            total = frame.bytes + size
        frame.bytes = total
        # `ContainerState.append` has charged an append already, as a block.
        if not isinstance(operation, Append):
            charge = operation_charge(operation, size)
            frame.appends_only = False
            frame.charged_bytes += charge
            self._state.dirty.add_operation(charge)
        frame.operations.append(operation)
        frame.done.append(done)
        if total >= FRAME_TARGET_BYTES or len(frame.operations) >= MAX_FRAME_OPERATIONS:
            self._full_batches.append(frame)
            self._batch = FrameBatch()
        if not self._send_scheduled and len(self._in_flight) < self._max_in_flight:
            # Send in the loop's next turn, so that operations that still come in this turn share the frame.
            self._send_scheduled = True
            self._loop.call_soon(self._send_batches)

    def _start_overflow_batch(self, full: FrameBatch, parts: int) -> FrameBatch:
        """Queue batch `full` without its parts from `parts` on, and begin another batch with these."""
        frame = self._batch = FrameBatch()
        frame.began = self._env.clock.monotonic()
        frame.parts += full.parts[parts:]
        del full.parts[parts:]
        self._full_batches.append(full)
        return frame

    def barrier(self, done: Done) -> None:
        """Call `done` once everything added so far is durable and applied; at once when nothing is pending."""
        if self._failure is not None:
            done(self._new_refusal())
        # The callback joins the newest operation: an empty frame would cost a write and a sync of its own.
        elif self._batch.operations:
            previous = self._batch.done[-1]
            self._batch.done[-1] = done if previous is None else _chained(previous, done)
        elif self._full_batches or self._in_flight:
            # Join the newest full batch before any frame in flight, since full batches are newer.
            frame = (self._full_batches or self._in_flight)[-1]
            if not frame.done:  # the frame has no operation: it is a proof of ownership
                frame.proofs = [*(frame.proofs or ()), done]
                return
            previous = frame.done[-1]
            frame.done[-1] = done if previous is None else _chained(previous, done)
        else:
            done(None)

    async def wait_durable(self) -> None:
        """Wait until everything added so far is durable.  Raises Unavailable."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self.barrier(lambda error: resolve(waiter, error))
        await waiter

    def fail(self, error: BaseException) -> None:
        """End group commit: all waiting callers get Unavailable, outcome unknown.  Only the first failure counts.

        With Moved as `error` nothing may be in flight; later operations are refused with Moved: they did not happen."""
        if self._failure is not None:
            return
        assert self.idle or not isinstance(error, Moved), self
        self._failure = error
        frames = [*self._in_flight, *self._full_batches, self._batch]
        # Empty all stages before any callback runs: a callback that adds or waits must find a group commit that ended.
        self._in_flight.clear()
        self._full_batches.clear()
        self._batch = FrameBatch()
        # Call `on_failure` before an operation is answered: clients that retry must not find this container open.
        bug = answer_each([self._on_failure], error)
        unknown = Unavailable("the container failed before the outcome was known; connect again and retry")
        for frame in frames:
            bug = answer_each(frame.done, unknown) or bug
            bug = answer_each(frame.proofs or (), self._new_refusal()) or bug
        if bug is not None:  # not raised: the caller has an error of its own to raise
            self._loop.call_exception_handler({"message": "a bug while a container failed", "exception": bug})

    def _new_refusal(self) -> SaritError:
        """Return the error of a caller after the failure: a new object for each, since each gets its own traceback."""
        if isinstance(self._failure, Moved):
            return Moved(str(self._failure))
        unavailable = Unavailable("the container is recovering")
        unavailable.__cause__ = self._failure
        return unavailable

    def prove(self, done: Done) -> None:
        """Call `done` once a frame is durable that was sent after this call.

        The log accepts no frame of an owner that was fenced, so this proves that nobody else owned the container when
        `prove` was called.  If no operation is queued, a frame without an operation is sent."""
        if self._failure is not None:
            done(self._new_refusal())
            return
        batch = self._full_batches[-1] if self._full_batches and not self._batch.operations else self._batch
        if not batch.operations and batch.proofs is None:
            batch.began = self._env.clock.monotonic()
        if batch.proofs is None:
            batch.proofs = []
        batch.proofs.append(done)
        if not self._send_scheduled and len(self._in_flight) < self._max_in_flight:
            self._send_scheduled = True
            self._loop.call_soon(self._send_batches)

    async def prove_ownership(self) -> None:
        """Prove the ownership of the log, as `prove` does.  Raises Unavailable, Moved."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self.prove(lambda error: resolve(waiter, error))
        await waiter

    def _send_batches(self) -> None:
        self._send_scheduled = False
        while len(self._in_flight) < self._max_in_flight and self._failure is None:
            # Send the oldest batch first: frames keep the order of `add`.
            if self._full_batches:
                frame = self._full_batches.popleft()
            elif self._batch.operations or (self._batch.proofs and not self._in_flight):
                frame, self._batch = self._batch, FrameBatch()
            else:
                return
            # `decode_frame` checks the same: a frame holds as many operations as its header says, and nothing else.
            assert len(frame.operations) == len(frame.done), frame.number
            assert frame.bytes <= MAX_FRAME_BYTES, frame.bytes
            frame.number = self._next_number
            self._next_number += 1
            # The frame stores the time, since replay must give segments the same time of modification.
            frame.wall_ms = self._env.clock.wall_ms()
            frame.parts[0] = FRAME_HEADER.pack(FORMAT_VERSION, frame.wall_ms, len(frame.operations))
            if self._traces is not None:
                frame.sent = self._env.clock.monotonic()
            self._in_flight.append(frame)
            self._log.append(frame.number, frame.parts, self._durable)

    def _durable(self, error: BaseException | None) -> None:
        """Apply and acknowledge the oldest frame in flight, which is durable; or fail, if the log reports an error."""
        # A frame in flight may become durable after the failure.  Its callers have got Unavailable; recovery reads it.
        if self._failure is not None:
            return
        if self._held is not None:
            self._held.append(error)
            return
        if error is not None:
            self.fail(error)
            return
        # This is the oldest frame, since the log reports frames in order of number.
        frame = self._in_flight.popleft()
        if self._traces is not None:
            self._trace(self._traces, frame)
        state = self._state
        woken: list[Segment] = []
        try:
            assert frame.number == state.applied_frame + 1, (frame.number, state.applied_frame)
            # No await between the operations of a frame: a snapshot must be of whole frames.
            for operation in frame.operations:
                if waiting := state.apply(operation, frame.wall_ms):
                    woken += waiting
        except Exception as bug:  # an assertion: nothing may be acknowledged after it
            # Put the frame back, because `fail` must answer its operations.
            self._in_flight.appendleft(frame)
            self.fail(bug)
            raise
        state.applied_frame = frame.number
        if frame.charged_bytes:  # not only appends
            state.dirty.operations_applied(frame.charged_bytes)
        # Acknowledge all operations, even if the callback of one raises.
        raised = answer_each(frame.done, None)
        if frame.proofs is not None:
            raised = answer_each(frame.proofs, None) or raised
        try:
            self._observe(frame.began, frame.bytes)
            self._count(frame)
            # Report freed memory after the replies, since that may release throttled appends.  Appends free none.
            if frame.charged_bytes or self._budget.over_append_limit:
                self._on_memory_change()
        except Exception as failure:
            raised = raised or failure
        # Wake readers after the acknowledgements: writers get their answers first.
        for segment in woken:
            raised = wake_waiters(segment) or raised
        if raised is not None:  # a caller may have got no reply: fail, so that its retry after the recovery is answered
            self.fail(raised)
            raise raised
        # Send the next batch in place of this frame: under load, `add` never sends, since no place is free.
        if not self._send_scheduled:
            self._send_batches()

    def _trace(self, traces: Traces, frame: FrameBatch) -> None:
        now = self._env.clock.monotonic()
        for operation in frame.operations:
            if isinstance(operation, Append):
                traces.append_durable(operation.writer, operation.event_number, frame.number, frame.sent, now)

    def _count(self, frame: FrameBatch) -> None:
        statistics, operations = self._statistics, frame.operations
        appends: Sequence[Any] = operations
        if frame.appends_only:
            # Compute the payload without a loop over the appends, which would cost more than all other counting.
            length = frame.bytes - FRAME_HEADER.size - len(appends) * APPEND_HEADER_BYTES
        else:
            appends = [operation for operation in operations if isinstance(operation, Append)]
            length = sum(append.length for append in appends)
        statistics.appends += len(appends)
        statistics.append_events += sum(map(_EVENTS, appends))
        statistics.append_bytes += length
        statistics.frames += 1
        if frame.began - statistics.frame_sampling.at >= SAMPLE_SECONDS:
            statistics.frame_sampling.at = frame.began
            statistics.observe_frame(self._env.clock.monotonic() - frame.began, len(operations), frame.bytes)


def call_each(those: Iterable[Callable[[], None]]) -> Exception | None:
    """Call each of `those`, also after one that raises.  Returns the first exception, if any."""
    # A loop of its own, because every tail read that waits is called here: through `answer_each`, each needs a partial.
    bug: Exception | None = None
    left = iter(those)
    while True:
        try:
            for call in left:
                call()
            return bug
        except Exception as failure:
            bug = bug or failure


def answer_each(those: Iterable[Callable[[E], None] | None], outcome: E) -> Exception | None:
    """Call each of `those` with an outcome, also after one that raises.  Returns the first exception, if any."""
    bug: Exception | None = None
    left = iter(those)
    while True:
        try:
            # One iterator for all rounds: after an exception the next round goes on with the callable after it.
            for call in left:
                if call is not None:
                    call(outcome)
            return bug
        except Exception as failure:
            bug = bug or failure


def wake_waiters(segment: Segment) -> Exception | None:
    """Call each waiter of a segment once, also after one that raises.  Returns the first exception, if any."""
    # Swap the list before the calls: a waiter may wait on the segment again, for its next change.
    waiters, segment.waiters = segment.waiters, []
    return call_each(waiters)


def resolve(waiter: asyncio.Future[None], error: BaseException | None) -> None:
    """Complete a future, unless its owner has cancelled it."""
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)


def _chained(first: Done, second: Done) -> Done:
    def call(error: BaseException | None) -> None:
        try:
            first(error)
        finally:
            second(error)

    return call
