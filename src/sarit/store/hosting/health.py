"""The health of a container in this store, and the error that its clients get."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, Moved, SaritError, Unavailable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from sarit.store.hosting.phases import Phases


class Opening(Unavailable):
    """The container of this segment may serve here soon; the request had no effect."""

    def __init__(self, message: str, decided: asyncio.Event) -> None:
        super().__init__(message)
        self._decided = decided

    async def wait(self) -> None:
        """Wait until the container serves here, or it is known that it will not."""
        await self._decided.wait()


class HealthState(Enum):
    """The health of a container.  `ABSENT`: another store owns it.  `FAILED`: damaged, until the store is restarted."""

    ABSENT = "absent"
    OPENING = "opening"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(slots=True)
class ContainerHealth:
    """The state of one container.  `reason`: why it does not serve.  `attempts`: failed attempts to recover it."""

    number: int
    state: HealthState = HealthState.OPENING
    reason: str = "the node starts"
    attempts: int = 0
    # The phases of the present attempt to open the container, if there is one.
    phases: Phases | None = None

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"container {self.number} {self.state.value}{reason}"

    def progress(self) -> str:
        """Return the phase of the container's opening and how far it is; empty when it is not being opened."""
        return "" if self.phases is None or self.state is not HealthState.OPENING else self.phases.now()

    @property
    def opening_seconds(self) -> float:
        """How long the present attempt to open the container has taken; 0 while there is none."""
        return 0.0 if self.phases is None or self.state is not HealthState.OPENING else self.phases.seconds

    def serve(self) -> None:
        """Mark the container as serving."""
        self.state, self.reason, self.attempts, self.phases = HealthState.SERVING, "", 0, None

    def recover(self, reason: str) -> None:
        """Mark the container as recovering, and count a failed attempt if it was recovering already."""
        self.attempts += self.state is HealthState.OPENING
        self.state, self.reason = HealthState.OPENING, reason

    def leave(self, state: HealthState, reason: str) -> None:
        """Mark the container as ABSENT or DRAINING."""
        self.state, self.reason, self.attempts, self.phases = state, reason, 0, None

    def fail(self, reason: str) -> None:
        """Mark the container as failed: its stored bytes are damaged, and no restart recovers it."""
        self.state, self.reason = HealthState.FAILED, reason

    def error(self) -> SaritError:
        """Return the error of a request for one of the container's segments.

        Corrupt when a retry cannot help, Moved when another store owns it, otherwise Unavailable."""
        if self.state is HealthState.FAILED:
            return Corrupt(f"{self}; see the log of the node")
        if self.state is HealthState.ABSENT:
            return Moved(f"container {self.number} of this segment is owned by another store")
        return Unavailable(f"the container of this segment is recovering, try again ({self.reason})")


def refusal(failed: Sequence[ContainerHealth], containers: int) -> str:
    """Return the message of a node that does not start because of these containers, with the remedy."""
    found = "; ".join(str(health) for health in failed)
    others = "" if len(failed) == containers else "--allow-damaged serves the other containers; "
    return (
        f"{found}.  Put back what is missing or damaged, from its disk or a backup.  `sarit verify` says what is "
        f"damaged; {others}--accept-data-loss goes on without what is lost, for good"
    )
