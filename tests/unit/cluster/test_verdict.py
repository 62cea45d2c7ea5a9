"""Whether a cluster serves: the verdict on what stores report, and the reports themselves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest

from sarit.admin.reasons import Reason
from sarit.cluster import store_report
from sarit.cluster.limits import HEALTH_OLD_SECONDS, HEALTH_REPORT_SECONDS, OPENING_SECONDS
from sarit.cluster.report_watch import ReportWatch
from sarit.cluster.store_report import (
    HEALTH,
    StoreReport,
    StoreReporter,
    containers_by_state,
    decode_store_report,
    read_store_report,
)
from sarit.cluster.verdict import Received, judge
from sarit.coordination.container_map import ContainerMap, StoreAddress
from sarit.coordination.memory import MemoryCoordination
from sarit.core.errors import Invalid, Unavailable
from sarit.log.statistics import BookieCounts, LogStatistics
from sarit.process.observation.health import Health, reasons_of_bookies
from sarit.store.hosting.health import ContainerHealth, HealthState

STORES = {"a": StoreAddress("10.0.0.1", 1, "m", 7), "b": StoreAddress("10.0.0.2", 2, "n", 8)}
MAP = ContainerMap(3, STORES, ("a", "a", "b", "b"))
AWAY = Reason("log-away", "container 1", "an append has waited 9 s for the log")
FEW = Reason("log-away", "bookies", "1 of 3 bookies can be written")
COPIES = Reason("few-bookies", "bookies", "2 of 3 bookies can be written", ready=True)
STORAGE = Reason("storage-away", "container 2", "long-term storage takes no chunks: refused", ready=True)
ALL = BookieCounts(3, 3, 2, 3)

GOLDEN = (
    b'{"version": 1, "at_ms": 1700000000000, "incarnation": 7, "containers": {"serving": [0], "log-away": [1]}, '
    b'"reasons": [["log-away", "container 1", "an append has waited 9 s for the log", false]], "bookies": [1, 3, 2, 3]}'
)
REPORT = StoreReport(
    1_700_000_000_000, 7, {"serving": [0], "log-away": [1]}, (AWAY,), BookieCounts(1, 3, 2, 3)
)  # fmt: skip


def said(incarnation, containers, *reasons, age=1.0, bookies=None):
    return Received(StoreReport(0, incarnation, containers, reasons, bookies), age)


A, B = said(7, {"serving": [0, 1]}), said(8, {"serving": [2, 3]})


@pytest.mark.parametrize(("record", "reports", "asked", "state", "containers", "reasons"), [
    (MAP, {"a": A, "b": B}, {}, "ok", "serving serving serving serving", []),
    # Nothing is known of a store that is silent, was another start, or has an old report: it does not serve.
    (MAP, {"a": A}, {}, "failed", "serving serving unknown unknown", ["no-report b"]),
    (MAP, {"a": A, "b": None}, {}, "failed", "serving serving unknown unknown", ["no-report b"]),
    (MAP, {"a": A, "b": said(9, {"serving": [2, 3]})}, {}, "failed", "serving serving unknown unknown",
     ["no-report b"]),
    (MAP, {"a": A, "b": said(8, {"serving": [2, 3]}, age=HEALTH_OLD_SECONDS + 1)}, {}, "failed",
     "serving serving unknown unknown", ["no-report b"]),
    (MAP, {"a": A, "b": said(8, {"serving": [2, 3]}, age=HEALTH_OLD_SECONDS)}, {}, "ok",
     "serving serving serving serving", []),
    # A store without containers may be silent.
    (ContainerMap(3, STORES, ("a", "a")), {"a": A}, {}, "degraded", "serving serving", ["no-report b"]),
    # Why a container does not serve, its store says.
    (MAP, {"a": said(7, {"serving": [0], "log-away": [1]}, AWAY), "b": B}, {}, "failed",
     "serving log-away serving serving", ["log-away a, container 1"]),
    # One reason for containers of a store, and for stores.
    (MAP, {"a": said(7, {"log-away": [0, 1]}, AWAY, Reason("log-away", "container 0", "8 s")), "b": B}, {}, "failed",
     "log-away log-away serving serving", ["log-away a, containers 0-1"]),
    (MAP, {"a": said(7, {"log-away": [0, 1]}, FEW), "b": said(8, {"log-away": [2, 3]}, FEW)}, {}, "failed",
     "log-away log-away log-away log-away", ["log-away a, b: bookies"]),
    # A report whose reasons were too many for it still has every state.
    (MAP, {"a": said(7, {"damaged": [0], "serving": [1]}), "b": B}, {}, "failed",
     "damaged serving serving serving", ["damaged a, container 0"]),
    # What is wrong, while everything is served.
    (MAP, {"a": said(7, {"serving": [0, 1]}, COPIES), "b": said(8, {"serving": [2, 3]}, COPIES)}, {}, "degraded",
     "serving serving serving serving", ["few-bookies a, b: bookies"]),
    (MAP, {"a": A, "b": said(8, {"serving": [2, 3]}, STORAGE)}, {}, "degraded",
     "serving serving serving serving", ["storage-away b, container 2"]),
    # The map says more than the stores: nobody has it, or its owner has not begun.
    (ContainerMap(3, STORES, ("a", None, None, "b")), {"a": A, "b": B}, {}, "failed",
     "serving unassigned unassigned serving", ["unassigned containers 1-2"]),
    (MAP, {"a": A, "b": said(8, {"serving": [3]})}, {}, "failed", "serving serving not-open serving",
     ["not-open b, container 2"]),
    # A move is served by the old owner, and then for a short time by nobody.
    (ContainerMap(4, STORES, ("b", "a", "b", "b"), {0: "a"}),
     {"a": said(7, {"draining": [0], "serving": [1]}), "b": B}, {},
     "ok", "draining serving serving serving", []),
    (MAP, {"a": A, "b": said(8, {"serving": [2], "opening": [3]})}, {}, "ok", "serving serving serving opening", []),
    # What has no report.
    (None, {}, {}, "failed", "", ["no-map cluster"]),
    (MAP, {"a": A, "b": B}, {"controllers": 0}, "failed", "serving serving serving serving", ["no-controller cluster"]),
    (MAP, {"a": A, "b": B}, {"zookeeper": False}, "degraded", "serving serving serving serving",
     ["zookeeper-away zookeeper"]),
])  # fmt: skip
def test_verdict(record, reports, asked, state, containers, reasons) -> None:
    verdict = judge(record, reports, **asked)
    assert verdict.state == state
    assert " ".join(verdict.containers) == containers
    assert [f"{reason.code} {reason.part}" for reason in verdict.reasons] == reasons
    assert verdict.document()["served"] == sum(
        word in ("serving", "draining", "opening") for word in containers.split()
    )  # fmt: skip


@pytest.mark.parametrize(("counts", "reasons", "state", "text"), [
    ((ALL, ALL), (), "ok", "3 of 3 can be written"),
    # The store that sees fewest is believed.
    ((ALL, BookieCounts(2, 3, 2, 3)), (), "degraded", "2 of 3 can be written"),
    ((BookieCounts(1, 3, 2, 3), ALL), (), "failed", "1 of 3 can be written"),
])  # fmt: skip
def test_components(counts, reasons, state, text) -> None:
    first, second = (said(7 + number, {}, *reasons, bookies=one) for number, one in enumerate(counts))
    found = {one.name: one for one in judge(MAP, {"a": first, "b": second}).components}
    assert (found["zookeeper"].state, found["storage"].state) == ("ok", "ok")
    assert found["bookies"].state == state
    assert text in found["bookies"].text


def test_storage_and_zookeeper_are_components() -> None:
    def components(*reasons, **asked):
        verdict = judge(MAP, {"a": said(7, {"serving": [0, 1]}, *reasons)}, **asked)
        return {one.name: (one.state, one.text) for one in verdict.components}

    assert components(STORAGE)["storage"] == ("degraded", f"a: {STORAGE.text}")
    assert components(Reason("storage-away", "container 2", "refused"))["storage"] == ("failed", "a: refused")
    assert components(zookeeper=False)["zookeeper"][0] == "failed"
    assert {one.name: one.state for one in judge(MAP, {}).components} == {"zookeeper": "ok", "storage": "unknown"}


def test_report_has_the_bytes_of_the_format() -> None:
    assert REPORT.encode() == GOLDEN
    assert decode_store_report(GOLDEN) == REPORT


@pytest.mark.parametrize("data", [
    b"", b"{}", b"[]", b"\xff", GOLDEN.replace(b'"version": 1', b'"version": 2'), GOLDEN.replace(b"[0]", b"0"),
    GOLDEN.replace(b"[1, 3, 2, 3]", b"[1]"), GOLDEN.replace(b", false]]", b"]]"), GOLDEN.replace(b'"at_ms"', b'"at"'),
    GOLDEN.replace(b'{"serving": [0], "log-away": [1]}', b"[]"), GOLDEN.replace(b"[0]", b'["x"]'),
])  # fmt: skip
def test_other_bytes_are_no_report(data) -> None:
    with pytest.raises(Invalid):
        decode_store_report(data)


def _container(number, state=HealthState.SERVING, seconds=0.0):
    health = ContainerHealth(number, state, "")
    if seconds:
        health.phases = SimpleNamespace(seconds=seconds)
    return health


@pytest.mark.parametrize(("containers", "reasons", "found"), [
    ([_container(0), _container(1, HealthState.ABSENT), _container(2, HealthState.DRAINING)], [],
     {"serving": [0], "draining": [2]}),
    ([_container(0), _container(1)], [AWAY], {"serving": [0], "log-away": [1]}),
    ([_container(0), _container(1)], [FEW], {"log-away": [0, 1]}),
    ([_container(0), _container(1)], [COPIES, STORAGE], {"serving": [0, 1]}),
    # It stops, and serves until its containers have moved.
    ([_container(0)], [Reason("stopping", "store", "")], {"serving": [0]}),
    ([_container(0, HealthState.OPENING, OPENING_SECONDS)], [], {"opening": [0]}),
    ([_container(0, HealthState.OPENING, OPENING_SECONDS + 1)], [], {"recovering": [0]}),
    ([_container(0, HealthState.OPENING)], [Reason("recovering", "container 0", "it failed")], {"recovering": [0]}),
    ([_container(0, HealthState.OPENING)], [Reason("recovering", "container 0", "", ready=True)], {"opening": [0]}),
    ([_container(0, HealthState.FAILED)], [Reason("damaged", "container 0", "")], {"damaged": [0]}),
])  # fmt: skip
def test_containers_are_reported_by_what_their_clients_get(containers, reasons, found) -> None:
    assert containers_by_state(containers, reasons) == found


@pytest.mark.parametrize(("counts", "found"), [
    (ALL, []), (BookieCounts(5, 6, 2, 3), []),
    (BookieCounts(2, 3, 2, 3), [("few-bookies", True)]), (BookieCounts(1, 3, 2, 3), [("log-away", False)]),
])  # fmt: skip
def test_too_few_bookies_are_a_reason_although_nobody_appends(counts, found) -> None:
    log = LogStatistics()
    assert reasons_of_bookies(log) == []
    log.count_bookies_with(lambda: counts)
    assert [(reason.code, reason.ready) for reason in reasons_of_bookies(log)] == found


class _Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now * 1000)


class _Fleet:
    """A store `a` that reports, and a controller that reads."""

    def __init__(self) -> None:
        self.clock = _Clock()
        self.registers = MemoryCoordination().client("a", self.clock)
        self.health = Health("store", self.clock)
        self.health.ready()
        self.reasons: list[Reason] = []
        self.health.add(lambda: self.reasons)
        self.log = LogStatistics()
        self.away = False
        member = SimpleNamespace(name="a", incarnation=7)
        store = SimpleNamespace(health=lambda: [_container(0), _container(1)])
        admin = SimpleNamespace(health=self.health, metrics=SimpleNamespace(log=self.log))
        self.reporter = StoreReporter(self, member, store, admin)
        record = ContainerMap(3, {"a": STORES["a"]}, ("a", "a"))
        self.watch = ReportWatch(self.registers, SimpleNamespace(map=record), self.clock)

    async def get(self, name):
        if self.away:
            raise Unavailable("no quorum")
        return await self.registers.get(name)

    async def create(self, name, value):
        return await self.registers.create(name, value)

    async def set(self, name, value, expected):
        return await self.registers.set(name, value, expected)

    async def version(self) -> int:
        found = await self.registers.get(f"{HEALTH}/a")
        return -1 if found is None else found.version


def test_store_reports_a_change_at_once_and_at_intervals_without_one(monkeypatch) -> None:
    monkeypatch.setattr(store_report, "HEALTH_SAMPLE_SECONDS", 0)

    async def main() -> None:
        fleet = _Fleet()
        fleet.away = True
        task = asyncio.ensure_future(fleet.reporter.run())

        async def turns() -> int:
            for _ in range(20):
                await asyncio.sleep(0)
            return await fleet.version()

        assert await turns() == -1
        fleet.away = False
        first = await turns()
        assert first >= 0
        assert await turns() == first  # nothing has changed
        fleet.reasons = [AWAY]
        changed = await turns()
        assert changed == first + 1
        fleet.reasons = [Reason(AWAY.code, AWAY.part, "an append has waited 10 s for the log")]
        assert await turns() == changed  # the same with other seconds
        fleet.clock.now += HEALTH_REPORT_SECONDS
        assert await turns() == changed + 1
        found = await read_store_report(fleet.registers, "a")
        assert found is not None
        assert found.containers == {"serving": [0], "log-away": [1]}
        assert "10 s" in found.reasons[0].text
        assert found.incarnation == 7
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_report_that_does_not_change_is_old_by_the_clock_of_who_reads(monkeypatch) -> None:
    async def main() -> None:
        fleet = _Fleet()
        report = fleet.reporter.report()
        await fleet.registers.create(f"{HEALTH}/a", report.encode())
        fleet.clock.now += 5
        assert fleet.watch.verdict().state == "failed"  # nothing is read yet
        await fleet.watch.read()
        assert fleet.watch.verdict().ages == {"a": 5.0}  # of the first one, the time in it counts
        assert fleet.watch.verdict().state == "ok"
        fleet.clock.now += HEALTH_OLD_SECONDS
        await fleet.watch.read()
        assert fleet.watch.verdict().state == "failed"
        # A newer one, by a clock that is an hour behind.
        await fleet.registers.set(
            f"{HEALTH}/a", StoreReport(5, 7, report.containers, (), None).encode(), await fleet.version()
        )  # fmt: skip
        await fleet.watch.read()
        assert fleet.watch.verdict().ages == {"a": 0.0}
        assert fleet.watch.verdict().state == "ok"

    asyncio.run(main())


def test_controller_says_what_stores_report_and_stays_in_service() -> None:
    async def main() -> None:
        fleet = _Fleet()
        fleet.reasons = [AWAY]
        await fleet.registers.create(f"{HEALTH}/a", fleet.reporter.report().encode())
        await fleet.watch.read()
        health = Health("controller", fleet.clock)
        health.ready()
        fleet.watch.show_in(health)
        assert [(reason.code, reason.part, reason.ready) for reason in health.reasons()] == [
            ("log-away", "a, container 1", True)
        ]  # fmt: skip
        cluster = health.details()["cluster"]
        assert (cluster["state"], cluster["served"], cluster["containers"]) == ("failed", 1, 2)
        assert cluster["report_ages"] == {"a": 0.0}

    asyncio.run(main())
