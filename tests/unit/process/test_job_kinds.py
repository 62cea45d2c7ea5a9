"""Background jobs on a whole node: a client creates them, and the node works on while nobody is connected."""

import asyncio
import json
import subprocess
import sys

import pytest

from sarit.admin.reasons import Reason
from sarit.client import aio
from sarit.core.errors import Invalid, NotFound
from sarit.env.real import real_env
from sarit.process import worker_role
from sarit.process.job_kinds import KINDS, job_config
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tests.limits import HANG_SECONDS

STREAM = "s/t"
COUNTING = "tests.unit.process.counting_job"


@pytest.fixture(autouse=True)
def _counting(monkeypatch):
    monkeypatch.setitem(KINDS, "count", COUNTING)
    for name in ("JOBS_POLL_SECONDS", "JOB_RETRY_SECONDS"):
        monkeypatch.setattr(worker_role, name, 0.05)


def on_node(path, work, *, with_node=False, **chosen):
    async def main():
        config = NodeConfig(str(path), controller_port=0, store_port=0, **{"jobs": True, **chosen})
        node = await open_node(config.validated(), real_env())
        await node.start()
        try:
            address = f"127.0.0.1:{node.controller_port}"
            async with asyncio.timeout(HANG_SECONDS), aio.connect(address) as client:
                return await (work(client, node) if with_node else work(client))
        finally:
            await node.stop()

    return asyncio.run(main())


async def started(client, count=5):
    await client.create_scope("s")
    await client.create_stream(STREAM)
    await write(client, count)
    return client.stream(STREAM)


async def write(client, count):
    async with client.writer(STREAM) as writer:
        for number in range(count):
            writer.write(b"%d" % number)


async def until(stream, condition):
    while not condition((await stream.jobs())[0]):
        await asyncio.sleep(0.02)
    return (await stream.jobs())[0]


def counted(node):
    return {(name, *labels): count for name, labels, count in node.controller_role.worker.samples()}


def settings(**chosen):
    return json.dumps(chosen).encode()


def test_job_counts_while_nobody_is_connected_and_ends(tmp_path):
    async def first(client):
        stream = await started(client)
        assert await stream.jobs() == []
        assert await stream.create_job("count", settings(until=8))
        assert not await stream.create_job("count", settings(until=9))
        info = await until(stream, lambda job: job.state == {"events": "5"})
        assert (info.kind, info.name, info.settings, info.problem) == ("count", "main", settings(until=8), "")
        assert not info.done
        assert info.holder

    async def second(client):
        await write(client, 3)
        info = await until(client.stream(STREAM), lambda job: job.done)
        assert (info.state, info.holder) == ({"events": "8"}, "")
        await client.stream(STREAM).delete_job("count")
        with pytest.raises(NotFound):
            await client.stream(STREAM).delete_job("count")
        assert await client.stream(STREAM).jobs() == []

    on_node(tmp_path / "node", first)
    on_node(tmp_path / "node", second)


@pytest.mark.parametrize(
    ("raises", "problem"),
    [
        ("unavailable", "the warehouse is away"),
        ("cancelled", "internal error: its work was cancelled"),
        ("exit", "internal error: SystemExit: 3"),
        ("defect", "internal error: ValueError: a defect"),
    ],
)
def test_problem_of_a_run_is_shown_and_harms_no_other_job(tmp_path, raises, problem):
    async def work(client):
        stream = await started(client)
        await stream.create_job("count", settings(until=6, raises=raises))
        await until(stream, lambda job: job.problem == problem)
        await stream.create_job("count", settings(until=5), "sound")
        while not (await stream.jobs())[1].done:
            await asyncio.sleep(0.02)

    on_node(tmp_path / "node", work)


def test_metrics_and_health_distinguish_a_job_that_fails_from_one_that_works(tmp_path, monkeypatch):
    async def work(client, node):
        stream = await started(client)
        worker = node.controller_role.worker
        assert counted(node)["sarit_jobs", "count", "running"] == 0
        await stream.create_job("count", settings(until=6, raises="unavailable"))
        await stream.create_job("count", settings(until=6), "sound")
        await until(stream, lambda job: job.problem != "")
        while counted(node)["sarit_job_failures_total", "count"] < 3:
            await asyncio.sleep(0.02)
        assert worker.reasons() == []
        monkeypatch.setattr(worker_role, "JOB_FAILING_SECONDS", 0.0)
        while not (reasons := worker.reasons()):
            await asyncio.sleep(0.02)
        assert [(one.code, one.part, one.ready) for one in reasons] == [("job-fails", "job s/t/count/main", True)]
        assert reasons[0].text.endswith("the warehouse is away")
        worker.statistics.add(lambda: [("sarit_link_up", ("l",), 0)], lambda: [Reason("link-down", "link l", "")])
        assert [one.code for one in worker.reasons()] == ["job-fails", "link-down"]
        found = counted(node)
        assert found["sarit_link_up", "l"] == 0
        assert (found["sarit_jobs", "count", "failing"], found["sarit_jobs", "count", "running"]) == (1, 1)
        assert found["sarit_job_runs_total", "count"] > found["sarit_job_failures_total", "count"] >= 3
        await write(client, 1)
        while not (await stream.jobs())[1].done:
            await asyncio.sleep(0.02)
        while counted(node)["sarit_jobs", "count", "running"]:
            await asyncio.sleep(0.02)

    on_node(tmp_path / "node", work, with_node=True)


def test_refused_before_anything_is_stored(tmp_path):
    async def work(client):
        stream = await started(client)
        with pytest.raises(Invalid, match="no kind of background job is named copy: this server knows .*count, "):
            await stream.create_job("copy", b"")
        with pytest.raises(Invalid, match="a count needs 'until'; catalogs: prod"):
            await stream.create_job("count", b"{}")
        with pytest.raises(Invalid, match="kind count: internal error TypeError, see its log"):
            await stream.create_job("count", settings(until=1, raises="check"))
        with pytest.raises(Invalid, match="no name of a job"):
            await stream.create_job("count", settings(until=1), "No")
        with pytest.raises(NotFound, match="s/other does not exist"):
            await client.stream("s/other").create_job("count", settings(until=1))
        with pytest.raises(NotFound, match="s/other does not exist"):
            await client.stream("s/other").jobs()
        assert await stream.jobs() == []

    catalogs = tmp_path / "catalogs.toml"
    catalogs.write_text('[prod]\nuri = "postgresql://user:secret-word@db/lake"\n')
    catalogs.chmod(0o600)
    on_node(tmp_path / "node", work, catalogs=str(catalogs))
    assert repr(job_config(NodeConfig("d", jobs=True, catalogs=str(catalogs)))) == "JobConfig(catalogs=<Catalogs prod>)"


def test_node_without_jobs_refuses_them(tmp_path):
    async def work(client):
        stream = await started(client)
        with pytest.raises(Invalid, match="start it with --jobs on"):
            await stream.create_job("count", settings(until=1))
        assert await stream.jobs() == []

    on_node(tmp_path / "node", work, jobs=False)


def test_node_with_no_job_imports_no_library_of_one():
    program = (
        "import sys, sarit.process.standalone, sarit.process.worker_role\n"
        "print(*[one for one in ('pyiceberg', 'pyarrow', 'duckdb', 'sarit.lake.committer') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
