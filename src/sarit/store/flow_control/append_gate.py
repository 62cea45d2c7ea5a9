"""The append gate of one container: appends that wait while the node is over its append limit.

Theory of operation.  The gate is closed while the node is over its limit (`MemoryBudget.over_append_limit`) or appends
are in the gate's `queue`.  A session reads both before each append: attributes, no call.  While the gate is closed, the
session hands the append to `throttle`, and its acknowledgement waits with it: writers slow down, and no append is
refused or lost.

- Order.  Each connection has a queue, first in, first out, and the connections take turns, an append each: who sends
  little does not wait for all that others have sent before.  As long as one append is in a queue the gate is closed for
  the later ones too, also when the node is below its limit again: otherwise a later append of the same writer would
  overtake an earlier one.
- Release.  No polling: `MemoryBudget` notifies the gate once when the node has come below the limit.  The gate
  releases appends in a turn of the loop of its own, as long as the node stays below, and asks to be notified again
  when appends are left.  The container also calls `release` directly when it has freed memory itself.
- Ended sessions.  No append of an ended session can be accepted, but as long as the node is over its limit nothing
  would release it, and every client that reconnects sends its appends again.  So `sweep_ended` submits them at once,
  which refuses them.  A sweep scans the whole queue, maybe a million appends, and clients often give up together:
  sweeps are APPEND_GATE_SWEEP_SECONDS apart.
- The end.  The gate of a container that failed is open for good: nothing would release it, and the container
  refuses every append.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from sarit.core.coverage_probes import coverage_probe
from sarit.store.limits import APPEND_GATE_SWEEP_SECONDS
from sarit.store.statistics import StoreStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.store.flow_control.memory_budget import MemoryBudget
    from sarit.wire.frames import Append


class Session(Protocol):
    """The session of a throttled append; `sink`: its connection."""

    sink: Any

    @property
    def is_open(self) -> bool:
        """Whether its appends may still be accepted."""

    def submit(self, append: Append, expected_offset: int | None) -> None:
        """Check the append and queue it to the log, or refuse it."""

    def refuse(self, append: Append, error: BaseException) -> None:
        """Answer that the append failed."""


class AppendGate:
    """Throttled appends, by connection, in the order of their turns."""

    def __init__(self, budget: MemoryBudget, statistics: StoreStatistics | None = None) -> None:
        self._budget = budget
        self._statistics = statistics or StoreStatistics()
        # Read-only for others.
        self.queue: dict[int, deque[tuple[Session, Append, int | None]]] = {}
        self._count = 0
        self._sweep_scheduled = False
        self._failed = False

    def __repr__(self) -> str:
        return f"<AppendGate, {len(self)} throttled>"

    def __len__(self) -> int:
        return self._count

    def throttle(self, session: Session, append: Append, expected_offset: int | None) -> None:
        """Let an append wait at the closed gate; `session.submit` follows when it is released."""
        if self._failed:
            # The group commit of a failed container refuses it.
            session.submit(append, expected_offset)
            return
        if not self.queue:
            coverage_probe("appends_throttled")
            # Once for the whole queue: the later ones need no notification of their own.
            self._budget.notify_below_append_limit(self._below_limit)
        self._statistics.throttled_appends += 1
        self._count += 1
        # By identity: what waits keeps its session, and that its connection.
        self.queue.setdefault(id(session.sink), deque()).append((session, append, expected_offset))

    def release(self) -> None:
        """Submit throttled appends as long as the node is below its limit."""
        try:
            while self.queue and not self._budget.over_append_limit:
                # Each `submit` reports its charge to the budget, so the loop ends where the node is over its limit
                # again.
                session, append, expected_offset = self._next()
                session.submit(append, expected_offset)
        finally:  # over the limit again, or a bug in an answer: without this the rest would stay throttled
            if self.queue:
                self._budget.notify_below_append_limit(self._below_limit)

    def _next(self) -> tuple[Session, Append, int | None]:
        """Return the first append of the connection whose turn it is; that one comes last in the next round."""
        sink = next(iter(self.queue))
        waiting = self.queue.pop(sink)
        self._count -= 1
        found = waiting.popleft()
        if waiting:
            self.queue[sink] = waiting
        return found

    def _below_limit(self) -> None:
        # Not at once: the budget notifies from inside an operation, and a submitted append must not come between the
        # assignment of that operation and its place in the log.
        asyncio.get_running_loop().call_soon(self.release)

    def sweep_ended(self) -> None:
        """Refuse the appends of ended sessions, within APPEND_GATE_SWEEP_SECONDS."""
        if self.queue and not self._sweep_scheduled:
            self._sweep_scheduled = True
            asyncio.get_running_loop().call_later(APPEND_GATE_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._sweep_scheduled = False
        ended = [throttled for waiting in self.queue.values() for throttled in waiting if not throttled[0].is_open]
        if ended:
            # Before any `submit`: an answer may close a connection, which asks for the next sweep.
            open_ones = (
                (sink, deque(throttled for throttled in waiting if throttled[0].is_open))
                for sink, waiting in self.queue.items()
            )
            self.queue = {sink: waiting for sink, waiting in open_ones if waiting}
            self._count -= len(ended)
            for session, append, expected_offset in ended:
                session.submit(append, expected_offset)  # refused: its session does not own the writer any more

    def fail(self) -> Iterator[tuple[Session, Append]]:
        """Yield what was throttled, for its owner to refuse, since the container failed."""
        self._failed = True
        queue, self.queue, self._count = self.queue, {}, 0
        return ((session, append) for waiting in queue.values() for session, append, _ in waiting)
