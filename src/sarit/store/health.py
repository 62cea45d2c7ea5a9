"""Whether a container serves, recovers, or has failed; and what its clients are answered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, SaritError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence


class HealthState(Enum):
    """`RECOVERING` ends by itself.  `FAILED` lasts until the node is started again."""

    SERVING = "serving"
    RECOVERING = "recovering"
    FAILED = "failed"


@dataclass(slots=True)
class ContainerHealth:
    """The state of one container.  `reason`: why it does not serve.  `attempts`: failed attempts to recover it."""

    number: int
    state: HealthState = HealthState.RECOVERING
    reason: str = "the node starts"
    attempts: int = 0

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"container {self.number} {self.state.value}{reason}"

    def serve(self) -> None:
        """It serves."""
        self.state, self.reason, self.attempts = HealthState.SERVING, "", 0

    def recover(self, reason: str) -> None:
        """It stopped serving, or an attempt to recover it failed; another one follows."""
        self.attempts += self.state is HealthState.RECOVERING
        self.state, self.reason = HealthState.RECOVERING, reason

    def fail(self, reason: str) -> None:
        """It cannot be recovered."""
        self.state, self.reason = HealthState.FAILED, reason

    def error(self) -> SaritError:
        """What a request for one of its segments gets: Corrupt when a retry cannot help, otherwise Unavailable."""
        if self.state is HealthState.FAILED:
            return Corrupt(f"{self}; see the log of the node")
        return Unavailable(f"the container of this segment is recovering, try again ({self.reason})")


def refusal(failed: Sequence[ContainerHealth], containers: int) -> str:
    """Why a node does not start with these containers, and what to do."""
    found = "; ".join(str(health) for health in failed)
    others = "" if len(failed) == containers else "--allow-damaged serves the other containers; "
    return (
        f"{found}.  Put back what is missing or damaged, from its disk or a backup.  `sarit verify` says what is "
        f"damaged; {others}--accept-data-loss goes on without what is lost, for good"
    )
