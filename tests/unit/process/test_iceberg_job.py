"""The kind of job that makes a stream an Iceberg table: what may be created, and its metrics."""

import asyncio
from types import SimpleNamespace

import pytest

from sarit.admin.metric_table import METRICS
from sarit.controller.jobs import JobKey
from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.lake.catalogs import Catalogs, open_catalog
from sarit.lake.problems import FOREIGN, TableProblem, name_in
from sarit.lake.settings import IcebergSettings
from sarit.lake.statistics import LakeStatistics
from sarit.process.job_kinds import JobConfig, JobStatistics
from sarit.process.jobs.iceberg import IcebergJobs, check, runner
from sarit.process.jobs.iceberg_samples import samples
from sarit.process.limits import SERIES_AFTER_END_SECONDS

CONFIG = JobConfig(Catalogs({"lake": {"uri": "sqlite://"}}))
KEY = JobKey("iceberg", StreamName("shop", "orders"), "main")
SETTINGS = IcebergSettings("lake.shop.orders")


def test_table_of_a_catalog_of_the_node_may_be_created():
    pytest.importorskip("pyiceberg", reason="sarit[lake] is not installed")
    check(KEY, SETTINGS.encode(), CONFIG)


@pytest.mark.parametrize(
    ("settings", "config", "reason"),
    [
        (SETTINGS.encode(), JobConfig(), "this node has no Iceberg catalogs, its operator sets --catalogs"),
        (IcebergSettings("lak.a.b").encode(), CONFIG, "no catalog lak in the node's configuration; there is lake"),
        (b"{}", CONFIG, "name no table"),
    ],
)
def test_table_that_cannot_be_made_is_refused_before_there_is_a_job(settings, config, reason):
    with pytest.raises(Invalid, match=reason):
        check(KEY, settings, config)


def test_missing_extra_is_said_when_the_job_is_created(monkeypatch):
    monkeypatch.setattr("sarit.core.extras._is_installed", lambda extra: extra != "lake")
    with pytest.raises(Invalid, match=r"a stream's Iceberg table needs packages that are not installed: pip install"):
        check(KEY, SETTINGS.encode(), CONFIG)


def test_each_declared_metric_has_a_sample_with_its_labels():
    counters = LakeStatistics(3, 1000, 4, 5, 6, 7, 8, 9, 10, behind_since_ms=1000, committed_ms=2000)
    counters.problem = str(TableProblem(FOREIGN, "table lake.shop.orders was not created for a stream"))
    found = {name: (labels, value) for name, labels, value in samples({StreamName("shop", "orders"): counters}, 61_000)}
    declared = {each.name: each.labels for each in METRICS}
    assert found.keys() == {name for name in declared if name.startswith("sarit_iceberg_")}
    assert all(len(labels) == len(declared[name]) for name, (labels, _) in found.items())
    assert found["sarit_iceberg_lag_seconds"] == (("shop/orders",), 60)
    assert found["sarit_iceberg_stopped"] == (("shop/orders", "foreign-table"), 1)
    assert found["sarit_iceberg_rows_total"] == (("shop/orders",), 1000)


def test_series_are_bounded(monkeypatch):
    monkeypatch.setattr("sarit.process.jobs.iceberg_samples.MAX_MEASURED_TABLES", 2)
    running = {StreamName("shop", f"s{number}"): LakeStatistics() for number in range(5)}
    found = list(samples(running, 0))
    assert {labels[0] for _, labels, _ in found if labels} == {"shop/s0", "shop/s1"}
    assert found[-1] == ("sarit_iceberg_tables_not_measured", (), 3)


def test_text_of_a_problem_is_no_label():
    assert name_in("lake of secrets: password") == ""
    assert name_in(str(TableProblem(FOREIGN, "x"))) == FOREIGN


class LateClock:
    """A clock that is a day ahead."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def wall_ms(self):
        return real_env().clock.wall_ms() + 86_400_000


def world_of(catalogs, clock):
    env, client = SimpleNamespace(clock=clock, threads=real_env().threads), SimpleNamespace(session=None)
    return SimpleNamespace(env=env, config=JobConfig(catalogs), client=client, statistics=JobStatistics())


def test_old_snapshots_are_removed_by_schedule(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow", reason="sarit[lake] is not installed")
    pytest.importorskip("pyiceberg", reason="sarit[lake] is not installed")
    monkeypatch.setattr("sarit.process.jobs.iceberg.MIN_MAINTENANCE_SECONDS", 0.01)
    monkeypatch.setattr("sarit.process.jobs.iceberg.MAX_MAINTENANCE_SECONDS", 0.01)
    catalogs = Catalogs({"lake": {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}})
    catalog = open_catalog(catalogs, "lake")
    catalog.create_namespace("shop")
    rows = pa.table({"n": pa.array([1], pa.int64())})
    table = catalog.create_table("shop.orders", rows.schema)
    for _ in range(3):
        table.append(rows, snapshot_properties={"sarit.cut.to": "c"})

    async def run():
        maintaining = asyncio.ensure_future(IcebergJobs(world_of(catalogs, LateClock()))._maintain(SETTINGS))
        async with asyncio.timeout(30):
            while len(table.refresh().metadata.snapshots) > 1:
                assert not maintaining.done()
                await asyncio.sleep(0.01)
        maintaining.cancel()
        await asyncio.gather(maintaining, return_exceptions=True)

    asyncio.run(run())
    assert table.scan().to_arrow().num_rows == 3


def test_metrics_of_a_table_end_some_time_after_its_last_run_here():
    clock = LateClock()
    world = world_of(Catalogs({}), clock)
    run, (samples_now,) = runner(world), world.statistics.sources
    job = SimpleNamespace(key=SimpleNamespace(stream=StreamName("shop", "orders")), settings=b"{}", state=b"")
    with pytest.raises(Invalid, match="name no table"):
        asyncio.run(run(job, None))
    assert ("sarit_iceberg_stopped", ("shop/orders", "other"), 1) in list(samples_now())
    clock.now = SERIES_AFTER_END_SECONDS + 1
    assert list(samples_now()) == []
