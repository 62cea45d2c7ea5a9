"""Background jobs of a cluster: workers and controllers share them, and take over from each other; real processes."""

from __future__ import annotations

import json
import signal
import time

import pytest

import sarit
from tests.cluster.processes import ClusterProcess, RunningCluster
from tests.nodes import SARIT
from tests.test_job_processes import ENVIRON, until, write

pytestmark = pytest.mark.long

PATH = {"PYTHONPATH": ENVIRON["PYTHONPATH"]}


def worker(cluster: RunningCluster, name: str, *options: str) -> ClusterProcess:
    command = [SARIT, "worker", "--cluster", cluster.url, "--machine", name, *options]
    return ClusterProcess(name, cluster.directory, command, cluster.environ).begin().wait()


def machine_of(job: sarit.JobInfo) -> str:
    """The worker's machine; of a controller its host."""
    return job.holder.partition(":")[0].partition("-")[0]


def test_job_moves_when_its_worker_is_killed_stands_still_or_stops(tmp_path) -> None:
    environ = PATH | {"SARIT_JOBS": "off"}
    with RunningCluster(tmp_path / "cluster", 1, 1, containers=2, environ=environ) as cluster:
        workers = {name: worker(cluster, name) for name in ("w1", "w2", "w3")}
        try:
            with sarit.connect(cluster.controller) as client:
                client.create_scope("s")
                client.create_stream("s/t")
                stream = client.stream("s/t")
                stream.create_job("count", json.dumps({"until": 9}).encode())
                written, former = 0, ""
                for end in (signal.SIGKILL, signal.SIGSTOP, None):
                    write(client, written, 3)
                    written += 3
                    began = time.monotonic()
                    job = until(stream, lambda job, n=written, old=former: job.done or (
                        job.state == {"events": str(n)} and machine_of(job) not in ("", old)
                    ))  # fmt: skip
                    print(f"{written} events after {time.monotonic() - began:.1f} s, by {job.holder or 'nobody'}")
                    if end is not None:
                        former = machine_of(job)
                        workers[former].signal(end)
                job = until(stream, lambda job: job.done)
                assert job.state == {"events": "9"}
                assert job.problem == ""
        finally:
            for each in workers.values():
                each.signal(signal.SIGCONT)
                each.kill()


def test_controllers_share_jobs_with_workers(tmp_path) -> None:
    with RunningCluster(tmp_path / "cluster", 1, 2, containers=2, environ=PATH) as cluster:
        own = worker(cluster, "w1")
        shown = sorted(one["worker"] for one in cluster.status()["workers"])
        assert shown[:2] == sorted(controller.address for controller in cluster.controllers)
        assert shown[2].startswith("w1-")
        try:
            with sarit.connect(cluster.controller) as client:
                client.create_scope("s")
                holders = set()
                for number in range(12):
                    client.create_stream(f"s/t{number}")
                    client.stream(f"s/t{number}").create_job("count", json.dumps({"until": 1}).encode())
                for number in range(12):
                    job = until(client.stream(f"s/t{number}"), lambda job: job.holder != "")
                    holders.add(machine_of(job))
                assert holders == {"127.0.0.1", "w1"}
                assert own.stop() == 0
                for number in range(12):
                    until(client.stream(f"s/t{number}"), lambda job: not job.holder.startswith("w1"))
        finally:
            own.kill()
