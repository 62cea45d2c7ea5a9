"""Workers of a cluster: they share its jobs with the controllers that run some, and take over from each other."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from sarit.client import aio
from sarit.cluster.controller import ClusterController
from sarit.cluster.controller_members import WORKERS, decode
from sarit.cluster.worker import ClusterWorker, name_of
from sarit.controller.times import Times
from sarit.core.errors import Invalid
from sarit.env.real import real_env
from sarit.process import worker_role
from sarit.process.controller_role import ControllerSettings
from sarit.process.job_kinds import KINDS, JobConfig
from sarit.process.security import Security, SecurityConfig
from sarit.process.settings import NodeConfig
from tests.unit.cluster.test_controller import SECRET, started
from tests.unit.store.harness import SMALL, memory_env

SETTINGS = ControllerSettings(NodeConfig("/"), 0, 100, Times(), quotas=False, jobs=JobConfig())


@pytest.fixture(autouse=True)
def _counting(monkeypatch):
    monkeypatch.setitem(KINDS, "count", "tests.unit.process.counting_job")
    for name in ("JOBS_POLL_SECONDS", "JOB_RETRY_SECONDS"):
        monkeypatch.setattr(worker_role, name, 0.05)


class Site:
    """A store, a controller, and workers on the same coordination service."""

    def __init__(self, fleet) -> None:
        self.fleet = fleet
        self.env = replace(fleet.env, threads=real_env().threads)  # a kind is imported on a thread

    async def start(self, *, runs_jobs: bool = False) -> None:
        await self.fleet.store("a")
        client = self.fleet.service.client("c", self.fleet.env.clock)
        self.controller = ClusterController(
            replace(SETTINGS, runs_jobs=runs_jobs), client, client.members, self.fleet.env, SECRET, SMALL.containers,
            Security(SecurityConfig()), 1,
        )  # fmt: skip
        self.fleet.stack.push_async_callback(self.controller.stop)
        await self.controller.open()
        self.client = await aio.connect(f"127.0.0.1:{await self.controller.serve()}")
        self.fleet.stack.push_async_callback(self.client.close)
        await self.client.create_scope("s")

    async def worker(self, name: str) -> ClusterWorker:
        client = self.fleet.service.client(name, self.fleet.env.clock)
        made = ClusterWorker(
            SETTINGS, client, client.members, self.env, SECRET, Security(SecurityConfig()),
            name_of(name, None, self.fleet.env),
        )  # fmt: skip
        self.fleet.stack.push_async_callback(made.stop)
        await made.start()
        return made

    async def kill(self, worker: ClusterWorker) -> None:
        """End a worker as kill -9 does: nothing is released, and its lease ends later."""
        for part in (worker.worker, worker.members):
            await part._background.close()
        members = await self.fleet.service.client("c", self.env.clock).members(WORKERS).list()
        own = next(name for name, value in members.items() if decode(value) == worker.role.controller.advertised)
        self.fleet.service.expire(WORKERS, own)

    async def write(self, stream: str, count: int) -> None:
        async with self.client.writer(stream) as writer:
            for number in range(count):
                writer.write(b"%d" % number)

    async def create(self, stream: str, until: int) -> None:
        await self.client.create_stream(stream)
        await self.client.stream(stream).create_job("count", json.dumps({"until": until}).encode())

    async def until(self, stream: str, holds):
        while not holds(job := (await self.client.stream(stream).jobs())[0]):
            await asyncio.sleep(0.02)
        return job


def machine_of(job) -> str:
    return job.holder.partition(":")[0].rpartition("-")[0] or job.holder.partition(":")[0]


def test_job_of_a_worker_that_dies_or_stops_goes_on_at_another():
    async def main():
        async with started() as fleet:
            site = Site(fleet)
            await site.start()
            workers = {name: await site.worker(name) for name in ("w1", "w2", "w3")}
            await site.create("s/t", until=9)
            for written, end in ((3, site.kill), (6, ClusterWorker.stop)):
                await site.write("s/t", 3)
                job = await site.until(
                    "s/t", lambda job, n=written: job.state == {"events": str(n)} and machine_of(job) in workers
                )
                assert job.problem == ""
                await end(workers.pop(machine_of(job)))
            await site.write("s/t", 3)
            job = await site.until("s/t", lambda job: job.done)
            assert job.state == {"events": "9"}

    asyncio.run(main())


def test_controllers_run_jobs_beside_workers():
    async def main():
        async with started() as fleet:
            site = Site(fleet)
            await site.start(runs_jobs=True)
            await site.worker("w1")
            streams = [f"s/t{number}" for number in range(12)]
            for stream in streams:
                await site.create(stream, until=1)
            holders = {machine_of(await site.until(stream, lambda job: job.holder != "")) for stream in streams}
            assert holders == {"127.0.0.1", "w1"}

    asyncio.run(main())


def test_cluster_whose_controllers_run_no_jobs_takes_them_and_checks_them():
    async def main():
        async with started() as fleet:
            site = Site(fleet)
            await site.start()
            await site.create("s/t", until=1)
            with pytest.raises(Invalid, match="a count needs 'until'"):
                await site.client.stream("s/t").create_job("count", b"{}", "other")
            await asyncio.sleep(0.2)
            (job,) = await site.client.stream("s/t").jobs()
            assert (job.holder, job.done) == ("", False)
            await site.write("s/t", 1)
            await site.worker("w1")
            await site.until("s/t", lambda job: job.done)

    asyncio.run(main())


def test_name_of_a_worker_is_its_own():
    env = memory_env()
    assert name_of("m", 9093, env) == ("m", 9093)
    one, other = name_of("m", None, env), name_of("m", None, env)
    assert one != other
    assert one[0].startswith("m-")
