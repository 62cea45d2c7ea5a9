"""The health of a process: where it is in its life, and what its parts say."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from sarit.admin.reasons import Reason
from sarit.store.health import HealthState

if TYPE_CHECKING:
    from sarit.env.ports import Clock
    from sarit.store.health import ContainerHealth
    from sarit.store.store import SegmentStore

STARTING = "starting"
READY = "ready"
STOPPING = "stopping"

_CODES = {HealthState.OPENING: "recovering", HealthState.DRAINING: "draining", HealthState.FAILED: "damaged"}


class Health:
    """See `HealthPort`.  Parts become known when they exist."""

    def __init__(self, name: str, clock: Clock) -> None:
        """`name`: of the process, for people."""
        self.store: SegmentStore | None = None
        self._name = name
        self.clock = clock
        self._began = clock.monotonic()
        self._state = STARTING
        self._step = "it begins"

    def __repr__(self) -> str:
        return f"<Health {self._name} {self._state}>"

    def starting(self, step: str) -> None:
        """What its start does now."""
        self._step = step

    def ready(self) -> None:
        """It serves."""
        self._state = READY

    def stopping(self) -> None:
        """It stops."""
        self._state = STOPPING

    def state(self) -> str:
        """See `HealthPort`."""
        return self._state

    def reasons(self) -> list[Reason]:
        """See `HealthPort`."""
        reasons = []
        if self._state == STARTING:
            reasons.append(Reason("starting", self._name, self._step))
        elif self._state == STOPPING:
            reasons.append(Reason("stopping", self._name, "it flushes and stops"))
        if self.store is not None:
            reasons += [_of_container(health) for health in self.store.health() if health.state in _CODES]
        return reasons

    def details(self) -> dict[str, Any]:
        """See `HealthPort`."""
        found: dict[str, Any] = {
            "name": self._name,
            "version": version("sarit"),
            "up_seconds": round(self.clock.monotonic() - self._began, 3),
        }
        if self.store is not None:
            found["containers"] = [
                {"container": health.number, "state": health.state.value, "reason": health.reason,
                 "attempts": health.attempts}
                for health in self.store.health()
            ]  # fmt: skip
        return found


def _of_container(health: ContainerHealth) -> Reason:
    return Reason(_CODES[health.state], f"container {health.number}", health.reason)
