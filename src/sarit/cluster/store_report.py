"""Reports the health of a store in a register of its own: which containers it serves, which it does not, and why.

A store writes its report within HEALTH_SAMPLE_SECONDS of a change, and every HEALTH_REPORT_SECONDS without one.  The
report has the same reasons as the store's own `/readyz`.  `verdict.py` judges the cluster by the reports of all stores,
and ignores reports older than HEALTH_OLD_SECONDS.  Appends are not affected: a timer reads present numbers.  Bytes:
docs/formats/store-health.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Final

from sarit.admin.reasons import Reason, container_of_part
from sarit.cluster.limits import HEALTH_REPORT_SECONDS, HEALTH_SAMPLE_SECONDS, OPENING_SECONDS
from sarit.cluster.object_requests import write_register
from sarit.coordination.limits import MAX_CONTAINERS
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Unavailable
from sarit.core.repeated_log import RepeatedLog
from sarit.log.statistics import BookieCounts
from sarit.process.limits import MAX_REASON_CHARACTERS
from sarit.process.observation.process_health import encode_reasons
from sarit.store.hosting.health import HealthState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Never

    from sarit.cluster.member import Member
    from sarit.coordination.port import Registers
    from sarit.process.admin import Admin
    from sarit.store.hosting.health import ContainerHealth
    from sarit.store.store import SegmentStore

_log = logging.getLogger("sarit.cluster")

HEALTH: Final = "health"
SERVING: Final = "serving"
OPENING: Final = "opening"
RECOVERING: Final = "recovering"
# Reasons that do not keep a store from serving: a store that stops serves until its containers have moved.
_SERVES_ON: Final = frozenset(("starting", "stopping"))
_FORMAT: Final = 1
_MAX_WORD: Final = 40
_MAX_REASONS: Final = 200


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The health of one start of a store at `at_ms`, by its own clock.

    `containers`: those that the map gives it, by state: "serving", "opening", "draining", or the code of the reason why
    requests for them fail or wait.  `bookies`: None: the log is not on BookKeeper."""

    at_ms: int
    incarnation: int
    containers: Mapping[str, Sequence[int]]
    reasons: tuple[Reason, ...]
    bookies: BookieCounts | None

    def encode(self) -> bytes:
        """Encode the report as JSON, the value of the register."""
        fields = {
            "version": _FORMAT, "at_ms": self.at_ms, "incarnation": self.incarnation,
            "containers": {state: list(numbers) for state, numbers in self.containers.items()},
            "reasons": encode_reasons(self.reasons),
            "bookies": None if self.bookies is None else astuple(self.bookies),
        }  # fmt: skip
        return json.dumps(fields).encode()

    def same_news(self, other: StoreReport) -> bool:
        """Return whether another report is the same except for times and texts."""
        return _news(self) == _news(other)


def _news(report: StoreReport) -> tuple[object, ...]:
    codes = [(reason.code, reason.part, reason.ready) for reason in report.reasons]
    return report.incarnation, report.containers, codes, report.bookies


def decode_store_report(data: bytes) -> StoreReport:
    """Decode a report.  Raises Invalid: it has another version, or is no report."""
    try:
        fields = json.loads(data)
        if fields["version"] != _FORMAT:
            raise Invalid("this report of a store's health is of another version of Sarit")
        containers = {
            str(state)[:_MAX_WORD]: [int(number) for number in numbers[:MAX_CONTAINERS]]
            for state, numbers in fields["containers"].items()
        }
        bookies = fields["bookies"]
        return StoreReport(
            int(fields["at_ms"]), int(fields["incarnation"]), containers,
            tuple(
                Reason(str(code)[:_MAX_WORD], str(part)[:_MAX_WORD], str(text)[:MAX_REASON_CHARACTERS], bool(ready))
                for code, part, text, ready in fields["reasons"][:_MAX_REASONS]
            ),
            None if bookies is None else BookieCounts(*map(int, bookies)),
        )  # fmt: skip
    except Invalid:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Invalid(f"a report of a store's health cannot be read: {error}") from None


def containers_by_state(
    containers: Iterable[ContainerHealth], reasons: Iterable[Reason]
) -> dict[str, list[int]]:  # fmt: skip
    """Return a store's containers by state: whether it serves them, or else the code of the reason why not.

    A reason that keeps the whole store from serving counts for each of its containers."""
    codes: dict[int, str] = {}
    of_all = ""
    for reason in reasons:
        number = container_of_part(reason.part)
        if reason.ready or reason.code in _SERVES_ON:
            continue
        if number is None:
            of_all = of_all or reason.code
        else:
            codes.setdefault(number, reason.code)
    found: dict[str, list[int]] = {}
    for health in containers:
        if health.state is not HealthState.ABSENT:
            late = RECOVERING if health.opening_seconds > OPENING_SECONDS else health.state.value
            found.setdefault(codes.get(health.number) or of_all or late, []).append(health.number)
    return found


class StoreReporter:
    """Makes and writes the reports of one store."""

    def __init__(self, registers: Registers, member: Member, store: SegmentStore, admin: Admin) -> None:
        self._registers = registers
        self._member = member
        self._store = store
        self._health = admin.health
        self._log = admin.metrics.log

    def __repr__(self) -> str:
        return f"<StoreReporter of {self._member.name}>"

    def report(self) -> StoreReport:
        """Return a report of the store's present health."""
        reasons = [replace(one, ready=True) if one.code in _SERVES_ON else one for one in self._health.reasons()]
        return StoreReport(
            self._health.clock.wall_ms(), self._member.incarnation, containers_by_state(self._store.health(), reasons),
            tuple(reasons), self._log.bookies(),
        )  # fmt: skip

    async def run(self) -> Never:
        """Write the report when it has changed, and at intervals, until cancelled."""
        clock, name = self._health.clock, self._member.name
        repeated = RepeatedLog(_log, clock.monotonic)
        written: StoreReport | None = None
        due = 0.0
        while True:
            found, now = self.report(), clock.monotonic()
            if written is None or now >= due or not found.same_news(written):
                try:
                    await write_register(self._registers, f"{HEALTH}/{name}", found.encode())
                    written, due = found, now + HEALTH_REPORT_SECONDS
                    repeated.ended("")
                except (Unavailable, Conflict, Exists, NotFound) as error:
                    written = None  # the outcome is unknown
                    repeated.info("", f"the health of store {name} is not reported now: {error}")
            await asyncio.sleep(HEALTH_SAMPLE_SECONDS)


async def read_store_report(registers: Registers, store: str) -> StoreReport | None:
    """Return the newest report of a store; None: there is none, or it cannot be read.  Raises Unavailable."""
    found = await registers.get(f"{HEALTH}/{store}")
    if found is None:
        return None
    try:
        return decode_store_report(found.value)
    except Invalid:
        return None
