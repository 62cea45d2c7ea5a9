"""Background jobs of a node in several processes: they run in the process of the controller, and survive its death."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sarit
from tests import secured
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.test_cli import sarit as command
from tests.test_processes import children

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parent
ENVIRON = {**os.environ, "PYTHONPATH": f"{TESTS / 'counting_jobs'}:{TESTS.parent}"}


def until(stream, condition: Callable[[sarit.JobInfo], bool]) -> sarit.JobInfo:
    end = time.monotonic() + HANG_SECONDS
    while not condition(job := stream.jobs()[0]):
        assert time.monotonic() < end, job
        time.sleep(0.05)
    return job


def write(client, first: int, count: int) -> None:
    with client.writer("s/t") as writer:
        for number in range(first, first + count):
            writer.write(b"%d" % number)


def test_job_goes_on_when_the_process_that_runs_it_is_killed(tmp_path) -> None:
    options = ("--processes", "2", "--containers", "2")
    with RunningNode(tmp_path / "data", *options, env=ENVIRON) as node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t")
        write(client, 0, 5)
        stream = client.stream("s/t")
        stream.create_job("count", json.dumps({"until": 9}).encode())
        until(stream, lambda job: job.state == {"events": "5"})
        title, row = command(node, "stream", "jobs", "s/t")[0].splitlines()
        assert title.split() == ["KIND", "NAME", "STATE", "WORKER", "PROGRESS", "PROBLEM"]
        assert row.split() == ["count", "main", "running", node.controller, "events", "5", "-"]
        (shown,) = json.loads(command(node, "stream", "jobs", "s/t", "--format", "json")[0])
        assert (shown["settings"], shown["state"]) == ('{"until": 9}', {"events": "5"})
        before = children(node)["controller"]
        os.kill(before, signal.SIGKILL)
        write(client, 5, 4)
        job = until(stream, lambda job: job.done)
        assert (job.state, job.problem) == ({"events": "9"}, "")
        assert children(node)["controller"] != before
        assert " done " in command(node, "stream", "jobs", "s/t")[0]
        assert (
            command(node, "stream", "jobs", "s/t", "--delete", "count/main")[0] == "job count/main of s/t is deleted\n"
        )
        assert stream.jobs() == []


def test_processes_with_jobs_off_refuse_them(tmp_path) -> None:
    options = ("--processes", "2", "--containers", "2", "--jobs", "off")
    with RunningNode(tmp_path / "data", *options, env=ENVIRON) as node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t")
        with pytest.raises(sarit.Invalid, match="start it with --jobs on"):
            client.stream("s/t").create_job("count", b"{}")


def test_job_reads_its_stream_where_everybody_logs_in_over_tls(tmp_path) -> None:
    found, options = secured.files(), (*secured.options(), "--processes", "2", "--containers", "2")
    with RunningNode(tmp_path / "data", *options, env=ENVIRON) as node:
        address = node.controller.replace("127.0.0.1", "localhost")
        user = sarit.UserPassword(secured.USER, secured.PASSWORD)
        with sarit.connect(address, credentials=user, tls=sarit.Tls(found["ca"])) as client:
            client.create_scope("s")
            client.create_stream("s/t")
            write(client, 0, 5)
            stream = client.stream("s/t")
            stream.create_job("count", json.dumps({"until": 5}).encode())
            job = until(stream, lambda job: job.done)
            assert (job.state, job.problem) == ({"events": "5"}, "")
