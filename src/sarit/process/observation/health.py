"""The health of a process: where it is in its life, and what its parts say.

A reason takes the process out of service (`/readyz` answers 503) while requests fail or wait because of it:

| code | what | ready |
|---|---|---|
| starting, stopping | the process | no |
| recovering | a container is opened; in a cluster after a failed attempt only: requests wait for the first | no |
| damaged | a container cannot be opened | no |
| disk-full | appends wait; or chunks are not written, which appends notice later | no; yes |
| log-away | the log has not taken an append for LOG_AWAY_SECONDS, or too few bookies are registered | no |
| few-bookies | fewer bookies are registered than a ledger has | yes |
| storage-away | chunks are not written; no as soon as appends wait for it | yes |
| job-fails | a background job has failed for JOB_FAILING_SECONDS | yes |
| link-down | a link to another installation has been down for LINK_FAILING_SECONDS | yes |
| no-lease | the store is not a member of its cluster: not yet, or not any more | no |
| zookeeper-away | the session is interrupted; no as soon as the lease is lost, and with it the containers | yes |
| damaged-pieces | parts of some segments cannot be read | yes |
| draining | the cluster takes its containers away | yes |

A controller of a cluster also has the reasons of the verdict on its cluster (`cluster_verdict.py`), all of them ready.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from sarit.admin.reasons import Reason
from sarit.process.limits import LOG_AWAY_SECONDS
from sarit.store.hosting.health import HealthState

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.ports import Clock
    from sarit.log.statistics import LogStatistics
    from sarit.store.hosting.health import ContainerHealth
    from sarit.store.store import SegmentStore

STARTING = "starting"
READY = "ready"
STOPPING = "stopping"

_SHOWN_PIECES = 5  # of damaged pieces, by their text
_CODES = {HealthState.OPENING: "recovering", HealthState.DRAINING: "draining", HealthState.FAILED: "damaged"}


class Health:
    """The health of a node.  Parts become known when they exist."""

    def __init__(self, name: str, clock: Clock) -> None:
        """`name`: of the process, for people."""
        self.store: SegmentStore | None = None
        self._others: list[Callable[[], list[Reason]]] = []
        self._details: list[Callable[[], dict[str, Any]]] = []
        self._watchers: list[Callable[[], None]] = []
        self._name = name
        self.clock = clock
        self._began = clock.monotonic()
        self._state = STARTING
        self.step = "it begins"

    def __repr__(self) -> str:
        return f"<Health {self._name} {self._state}>"

    def add(self, reasons: Callable[[], list[Reason]], details: Callable[[], dict[str, Any]] = dict) -> None:
        """Add what another part says, of a cluster or of other processes: its reasons, and values for `details`."""
        self._others.append(reasons)
        self._details.append(details)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the state has changed."""
        self._watchers.append(changed)

    def _changed(self) -> None:
        for changed in self._watchers:
            changed()

    def starting(self, step: str) -> None:
        """Note what the start of the process does now."""
        self.step = step
        self._changed()

    def ready(self) -> None:
        """Record that the process serves."""
        self._state = READY
        self._changed()

    def stopping(self) -> None:
        """Record that the process stops."""
        self._state = STOPPING
        self._changed()

    def state(self) -> str:
        return self._state

    def reasons(self) -> list[Reason]:
        reasons = []
        if self._state == STARTING:
            reasons.append(Reason("starting", self._name, self.step))
        elif self._state == STOPPING:
            reasons.append(Reason("stopping", self._name, "it flushes and stops"))
        if self.store is not None:
            reasons += reasons_of_store(self.store)
        for other in self._others:
            reasons += other()
        return reasons

    def details(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self._name,
            "version": version("sarit"),
            "up_seconds": round(self.clock.monotonic() - self._began, 3),
        }
        store = self.store
        if store is not None:
            found["containers"] = [
                {"container": health.number, "state": health.state.value, "reason": health.reason,
                 "attempts": health.attempts, "progress": health.progress()}
                for health in store.health()
            ]  # fmt: skip
            found["dirty_bytes"], found["max_dirty_bytes"] = store.budget.charged_bytes, store.budget.max_dirty_bytes
            found["appends_wait"] = store.budget.over_append_limit
        for more in self._details:
            found |= more()
        return found


def reasons_of_store(store: SegmentStore) -> list[Reason]:
    """Return what is wrong with a store now."""
    moves = store.placement is not None  # in a cluster; a store of a node with several keeps its containers
    reasons = [_of_container(health, moves=moves) for health in store.health() if health.state in _CODES]
    waits = store.budget.over_append_limit
    reasons += [
        Reason("disk-full", "disk", str(space), ready=not waits) for space in store.disks().values() if space.full
    ]
    for opened in store.opened():
        container = opened.container
        part = f"container {container.number}"
        waited = container.group_commit.waiting_seconds
        if waited > LOG_AWAY_SECONDS:
            reasons.append(Reason("log-away", part, f"an append has waited {waited:.0f} s for the log"))
        if opened.flusher.storage_error:
            text = f"long-term storage takes no chunks: {opened.flusher.storage_error}"
            reasons.append(Reason("storage-away", part, text, ready=not waits))
        pieces = [*container.damage.chunks.values(), *container.state.unreadable.values()]
        if pieces:
            more = f"; and {len(pieces) - _SHOWN_PIECES} more" if len(pieces) > _SHOWN_PIECES else ""
            text = "; ".join(pieces[:_SHOWN_PIECES]) + more
            reasons.append(Reason("damaged-pieces", part, text, ready=True))
    return reasons


def _of_container(health: ContainerHealth, *, moves: bool) -> Reason:
    passing = moves and not health.attempts and health.state is not HealthState.FAILED
    progress = health.progress()
    text = f"{health.reason} ({progress})" if progress else health.reason
    return Reason(_CODES[health.state], f"container {health.number}", text, ready=passing)


def reasons_of_bookies(log: LogStatistics) -> list[Reason]:
    """Return what the bookies that are registered say of the log: appends wait while there are too few."""
    counts = log.bookies()
    if counts is None:
        return []
    text = f"{counts.writable} of {counts.known} bookies can be written, and "
    if counts.writable < counts.ack_quorum:
        text += f"an entry needs {counts.ack_quorum}: no append is acknowledged; start bookies"
        return [Reason("log-away", "bookies", text)]
    if counts.writable < counts.ensemble_size:
        text += f"a ledger has {counts.ensemble_size}: entries have fewer copies; start bookies"
        return [Reason("few-bookies", "bookies", text, ready=True)]
    return []
