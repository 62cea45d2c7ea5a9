"""The append gate of one container: appends that wait while the node is over its append limit.

Theory of operation.  The gate is closed while the node is over its limit (`MemoryBudget.over_append_limit`) or appends
are in the gate's `queue`.  A session reads these two attributes before each append, without a call.  While the gate is
closed, the session hands the append to `throttle`, and its acknowledgement waits with it: writers slow down, and no
append is refused or lost.

- Order.  Each connection has a queue, first in, first out, and the connections take turns, an append each: who sends
  little does not wait for all that others have sent before.  As long as one append is in a queue, the gate is closed
  for later ones, even if the node is below its limit again: otherwise a later append of the same writer would overtake
  an earlier one.
- Release.  There is no polling: `MemoryBudget` notifies the gate once when the node has come below the limit.  The gate
  then releases appends in a later turn of the event loop, as long as the node stays below, and asks to be notified
  again when appends are left.  The container also calls `release` directly when it has freed memory.
- Ended sessions.  No append of an ended session can be accepted, but as long as the node is over its limit nothing
  would release it, and every client that reconnects sends its appends again.  So `sweep_ended` submits such appends,
  which refuses them.  A sweep scans the whole queue, maybe a million appends, and clients often give up together:
  sweeps are APPEND_GATE_SWEEP_SECONDS apart.
- The end.  The gate of a container that failed stays open, since nothing would release it again, and the container
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
    """The session of a throttled append.  `sink`: the connection of the session."""

    sink: Any

    @property
    def is_open(self) -> bool:
        """Whether appends of the session may still be accepted."""

    def submit(self, append: Append, expected_offset: int | None) -> None:
        """Check the append and queue it to the log, or refuse it."""

    def refuse(self, append: Append, error: BaseException) -> None:
        """Answer that the append failed."""


class AppendGate:
    """Throttled appends, by connection, in the order of their turns."""

    def __init__(self, budget: MemoryBudget, statistics: StoreStatistics | None = None) -> None:
        self._budget = budget
        self._statistics = statistics or StoreStatistics()
        # Sessions read `queue`; only the gate changes it.
        self.queue: dict[int, deque[tuple[Session, Append, int | None]]] = {}
        self._count = 0
        self._sweep_scheduled = False
        self._failed = False

    def __repr__(self) -> str:
        return f"<AppendGate, {len(self)} throttled>"

    def __len__(self) -> int:
        return self._count

    def throttle(self, session: Session, append: Append, expected_offset: int | None) -> None:
        """Queue an append at the closed gate; the release calls `session.submit`."""
        if self._failed:
            # Nobody would release the queue of a container that failed or leaves: submit the append, to be refused.
            session.submit(append, expected_offset)
            return
        if not self.queue:
            coverage_probe("appends_throttled")
            # Ask for one notification for the whole queue.
            self._budget.notify_below_append_limit(self._below_limit)
        self._statistics.throttled_appends += 1
        self._count += 1
        # Key by the connection's identity, which stays unique: a queued append refers to its session and connection.
        self.queue.setdefault(id(session.sink), deque()).append((session, append, expected_offset))

    def release(self) -> None:
        """Submit throttled appends as long as the node is below its limit."""
        try:
            while self.queue and not self._budget.over_append_limit:
                # The loop ends when the node is over its limit again, since each `submit` reports its charge.
                session, append, expected_offset = self._next()
                session.submit(append, expected_offset)
        finally:  # the limit, or an exception, ended the loop: ask again, or the rest would stay throttled for ever
            if self.queue:
                self._budget.notify_below_append_limit(self._below_limit)

    def _next(self) -> tuple[Session, Append, int | None]:
        """Remove and return the first append of the connection whose turn it is, and move the connection to the end."""
        sink = next(iter(self.queue))
        waiting = self.queue.pop(sink)
        self._count -= 1
        found = waiting.popleft()
        if waiting:
            self.queue[sink] = waiting
        return found

    def _below_limit(self) -> None:
        # Release in a later turn of the loop: the budget notifies from inside an operation, and no append may come
        # between the assignment of that operation and its place in the log.
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
            # Update the queue before any `submit`, because an answer may close a connection, which sweeps again.
            open_ones = (
                (sink, deque(throttled for throttled in waiting if throttled[0].is_open))
                for sink, waiting in self.queue.items()
            )
            self.queue = {sink: waiting for sink, waiting in open_ones if waiting}
            self._count -= len(ended)
            for session, append, expected_offset in ended:
                session.submit(append, expected_offset)  # is refused: the session does not own the writer any more

    def fail(self) -> Iterator[tuple[Session, Append]]:
        """Empty the queue, since the container failed or leaves.  Returns its appends, for the caller to refuse."""
        self._failed = True
        queue, self.queue, self._count = self.queue, {}, 0
        return ((session, append) for waiting in queue.values() for session, append, _ in waiting)
