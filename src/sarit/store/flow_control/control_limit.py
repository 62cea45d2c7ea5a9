"""The limit of control operations (creations, attributes, user tables): above it they wait for memory or disk space.

Control operations continue for a while after appends are throttled, so that slow long-term storage or a nearly full
disk does not stop the control plane.  But any change that no checkpoint covers stays in memory and in the log.  So
control operations wait

- while the node holds a quarter more than the append limit (`MemoryBudget.over_control_limit`), and
- while the log's file is more than half full and the disk has no space for the next one (`short_of_space`): a log that
  fails for lack of a file may never be opened again.

Seals, truncations and deletions free memory, and the system's own tables record what is to be deleted: none of these
operations ever waits.

There is no polling for memory: `MemoryBudget` notifies when the node is below the limit again.  Nothing notifies when
the disk has space again, so the store calls `recheck` on its disk timer.

An operation that waited for CONTROL_LIMIT_TIMEOUT_SECONDS raises Unavailable, which ends its connection.  The protocol
has no reply for it.  After WrongHost only the Java client would retry; a table of the Rust client would report an error
to its user, but retries after a lost connection.  ErrorMessage and OperationUnsupported are left to the user.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Unavailable
from sarit.core.names import SYSTEM_SCOPE
from sarit.store.limits import CONTROL_LIMIT_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from sarit.log.port import DurableLog
    from sarit.store.flow_control.memory_budget import MemoryBudget

_SYSTEM: Final = f"{SYSTEM_SCOPE}/"


class ControlLimit:
    """The control limit of one container, and the operations that wait for it."""

    def __init__(self, budget: MemoryBudget, log: DurableLog) -> None:
        self._budget = budget
        self._log = log
        self._waiters: list[asyncio.Future[None]] = []
        self._failed = False

    def __repr__(self) -> str:
        return f"<ControlLimit, {len(self._waiters)} wait>"

    @property
    def exceeded(self) -> bool:
        """Whether control operations must wait; false after a failure of the container, so that they fail at once."""
        return (self._budget.over_control_limit or self._log.short_of_space) and not self._failed

    async def wait_below(self, name: str) -> None:
        """Wait until a change of segment `name` may be made.

        Raises Unavailable after CONTROL_LIMIT_TIMEOUT_SECONDS."""
        # Never delay the controller's tables: they record what is to be deleted, which frees memory and disk.
        if name.startswith(_SYSTEM) or not self.exceeded:
            return
        coverage_probe("control_change_throttled")
        try:
            async with asyncio.timeout(CONTROL_LIMIT_TIMEOUT_SECONDS):
                while self.exceeded:  # all waiters are notified, and the first may use up the space
                    await self._wait_recheck()
        except TimeoutError:
            reason = "long-term storage is unavailable, or the disk is full"
            raise Unavailable(f"changes of {name} wait for memory or disk space: {reason}") from None

    async def _wait_recheck(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        # Each waiter asks for the notification; the budget keeps equal callbacks once.
        self._budget.notify_below_control_limit(self.recheck)
        try:
            await waiter
        finally:
            if waiter in self._waiters:  # the wait was cancelled, by the timeout or the end of the connection
                self._waiters.remove(waiter)

    def recheck(self) -> None:
        """Wake the waiters if enough memory and disk space has been freed."""
        if not self.exceeded:
            self._wake()
        elif self._waiters:
            self._budget.notify_below_control_limit(self.recheck)  # ask again: each notification comes once

    def fail(self) -> None:
        """End all waits, since the container failed."""
        # With `_failed`, `exceeded` is false: the waiters continue, and their operations fail with Unavailable.
        self._failed = True
        self._wake()

    def _wake(self) -> None:
        # Wake all, though the space may be enough only for a few: each checks again in its own turn.
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
