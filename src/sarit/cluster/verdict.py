"""Judges whether a cluster serves, from the reports of its stores; commands and console show the same verdict.

| a container whose store | state | served |
|---|---|---|
| reports that it serves it, or that it moves away | serving, draining | yes |
| opens it: the first attempt, for OPENING_SECONDS at most | opening | yes |
| reports why requests for it fail or wait | the code of the reason | no |
| does not report it | not-open | no |
| has not reported for HEALTH_OLD_SECONDS | unknown | no |
| does not exist: the map gives it to no store | unassigned | no |

A cluster is *failed* while any part of it is not served, *degraded* while something else is wrong, and otherwise *ok*.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sarit.admin.reasons import Reason, container_of_part
from sarit.cluster.limits import HEALTH_OLD_SECONDS
from sarit.cluster.store_report import OPENING, SERVING
from sarit.store.hosting.health import HealthState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sarit.cluster.store_report import StoreReport
    from sarit.coordination.container_map import ContainerMap
    from sarit.log.statistics import BookieCounts

OK, DEGRADED, FAILED, UNKNOWN_STATE = "ok", "degraded", "failed", "unknown"
NOT_OPEN, UNKNOWN, UNASSIGNED = "not-open", "unknown", "unassigned"
SERVED: Final = frozenset((SERVING, OPENING, HealthState.DRAINING.value))


@dataclass(frozen=True, slots=True)
class Received:
    """The newest report of a store, and its age in seconds."""

    report: StoreReport
    age: float


@dataclass(frozen=True, slots=True)
class Component:
    """A service that the stores need: "bookies", "storage" or "zookeeper".  `state`: "ok", "degraded", "failed" or
    "unknown"."""

    name: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a cluster.  `containers`: the state of each, by number.  `ages`: the age of each store's report in
    seconds; None: its present start has no report.  A reason that is not `ready` means that something is not served."""

    containers: tuple[str, ...]
    reasons: tuple[Reason, ...]
    components: tuple[Component, ...]
    ages: Mapping[str, float | None]

    @property
    def state(self) -> str:
        """The state of the cluster: "ok", "degraded" or "failed"."""
        if any(not reason.ready for reason in self.reasons):
            return FAILED
        return DEGRADED if self.reasons else OK

    @property
    def served(self) -> int:
        """The number of containers that are served."""
        return sum(state in SERVED for state in self.containers)

    def document(self) -> dict[str, Any]:
        """Return the verdict without its reasons, as JSON values."""
        return {
            "state": self.state,
            "containers": len(self.containers),
            "served": self.served,
            "components": {one.name: {"state": one.state, "text": one.text} for one in self.components},
            "report_ages": {
                name: None if age is None else round(age, 1) for name, age in sorted(self.ages.items())
            },
        }  # fmt: skip


def judge(
    record: ContainerMap | None, received: Mapping[str, Received | None], *, zookeeper: bool = True,
    controllers: int | None = None,
) -> Verdict:  # fmt: skip
    """Judge a cluster by its map and the reports of its stores.

    `zookeeper`: whether ZooKeeper answers.  `controllers`: how many controllers there are; None: unknown."""
    reasons = []
    if not zookeeper:
        reasons.append(Reason("zookeeper-away", "zookeeper", "no server of ZooKeeper answers", ready=True))
    if controllers == 0:
        reasons.append(Reason("no-controller", "cluster", "there is no controller, so clients find no store"))
    if record is None:
        reasons.append(Reason("no-map", "cluster", "nobody has given containers to stores yet: start a controller"))
        return Verdict((), tuple(reasons), _components({}, zookeeper=zookeeper), {})
    ages = {name: _age(received.get(name), store.incarnation) for name, store in record.stores.items()}
    fresh = {
        name: one.report
        for name, one in received.items()
        if one is not None and (age := ages.get(name)) is not None and age <= HEALTH_OLD_SECONDS
    }
    containers = _states(record, fresh)
    reasons += _missing(record, containers, ages)
    reasons += _reported(fresh)
    reasons.sort(key=lambda reason: reason.ready)  # reasons that something is not served come first
    return Verdict(containers, tuple(reasons), _components(fresh, zookeeper=zookeeper), ages)


def _age(received: Received | None, incarnation: int) -> float | None:
    """Return the age of a store's report; None: it has no report, or one of an earlier start."""
    return None if received is None or received.report.incarnation != incarnation else received.age


def _states(record: ContainerMap, fresh: Mapping[str, StoreReport]) -> tuple[str, ...]:
    reported = {
        name: {number: state for state, numbers in report.containers.items() for number in numbers}
        for name, report in fresh.items()
    }
    found = []
    for number in range(len(record.owners)):
        store = record.serving(number)
        if store is None:
            found.append(UNASSIGNED)
        elif store not in reported:
            found.append(UNKNOWN)
        else:
            found.append(reported[store].get(number, NOT_OPEN))
    return tuple(found)


def _missing(record: ContainerMap, states: Sequence[str], ages: Mapping[str, float | None]) -> list[Reason]:
    """Return the reasons that no report has: containers that no store owns or has opened, and missing reports."""
    reasons = []
    lost = [number for number, state in enumerate(states) if state == UNASSIGNED]
    if lost:
        reasons.append(Reason("unassigned", _containers(lost), "no store has been given them"))
    for name, age in sorted(ages.items()):
        has = [number for number in range(len(states)) if record.serving(number) == name]
        if age is None or age > HEALTH_OLD_SECONDS:
            since = "since it started" if age is None else f"for {age:.0f} s"
            text = f"it has not reported its health {since}: whether it serves its containers is not known"
            reasons.append(Reason("no-report", name, text, ready=not has))
        closed = [number for number in has if states[number] == NOT_OPEN]
        if closed:
            text = "the map gives them to this store, and it has not begun to open them"
            reasons.append(Reason(NOT_OPEN, f"{name}, {_containers(closed)}", text))
    return reasons


def _reported(fresh: Mapping[str, StoreReport]) -> list[Reason]:
    """Return the reasons in the reports, joined: those that several stores have, or several containers of a store."""
    of_stores: dict[Reason, list[str]] = {}
    of_containers: dict[tuple[str, str, bool], tuple[list[int], str]] = {}
    for name, report in sorted(fresh.items()):
        for reason in report.reasons:
            number = container_of_part(reason.part)
            if number is None:
                of_stores.setdefault(reason, []).append(name)
            else:
                key = name, reason.code, reason.ready
                of_containers.setdefault(key, ([], reason.text))[0].append(number)
        # A report that is too large lacks reasons, but has the states of all containers: make reasons from these.
        for state, numbers in report.containers.items():
            if state not in SERVED and (name, state, False) not in of_containers and not _says(report, state):
                of_containers[name, state, False] = (list(numbers), "its store says no more")
    found = [replace(reason, part=f"{', '.join(names)}: {reason.part}") for reason, names in of_stores.items()]
    for (name, code, ready), (numbers, text) in of_containers.items():
        found.append(Reason(code, f"{name}, {_containers(numbers)}", text, ready))
    return found


def _says(report: StoreReport, code: str) -> bool:
    return any(reason.code == code and not reason.ready for reason in report.reasons)


def _containers(numbers: Iterable[int]) -> str:
    """Return a text that names containers, consecutive ones as a range."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    text = ", ".join("-".join(map(str, run)) for run in runs)
    return f"container{'s' if len(runs) > 1 or len(runs[0]) > 1 else ''} {text}"


def _components(fresh: Mapping[str, StoreReport], *, zookeeper: bool) -> tuple[Component, ...]:
    text = "answers" if zookeeper else "no server answers"
    found = [Component("zookeeper", OK if zookeeper else FAILED, text)]
    counts = [report.bookies for report in fresh.values() if report.bookies is not None]
    if counts:
        found.append(_bookies(min(counts, key=lambda count: count.writable)))
    away = [
        (reason, name) for name, report in sorted(fresh.items()) for reason in report.reasons
        if reason.code == "storage-away"
    ]  # fmt: skip
    if away:
        state = DEGRADED if all(reason.ready for reason, _ in away) else FAILED
        found.append(Component("storage", state, f"{away[0][1]}: {away[0][0].text}"))
    else:
        state = OK if fresh else UNKNOWN_STATE
        found.append(Component("storage", state, "no store reports a failure" if fresh else "no store has reported"))
    return tuple(found)


def _bookies(counts: BookieCounts) -> Component:
    state = (
        FAILED if counts.writable < counts.ack_quorum
        else DEGRADED if counts.writable < counts.ensemble_size else OK
    )  # fmt: skip
    text = (
        f"{counts.writable} of {counts.known} can be written; an acknowledgement needs {counts.ack_quorum}, a ledger "
        f"has {counts.ensemble_size}"
    )
    return Component("bookies", state, text)
