"""Kills a chain of two Spark jobs and the node below it, again and again, and compares its output with the right one.

    python -m tests.spark.kill_matrix [--kills 40] [--minutes 60] [--seed N] [--scale] [--guarantee at-least-once]
    make spark-kills

The chain is that of examples/pipelines/chain.py, on a standalone cluster of Spark with two workers, with speculation.
Events are written all the time.  Each kill is `kill -9` of one of

* the driver: its JVM, its Python, or both; executors and workers of the dead one run on for a moment;
* the JVM of an executor;
* a Python process: a worker of a task, the daemon that forks them, or a planner beside the driver;
* the node, which is then started again.

Most kills come at a random moment after the output has grown, the others while the chain still recovers from the one
before.  A kill counts if executors worked at a micro-batch.  Before many a kill a worker stands still for some seconds,
so that its task gets a speculative copy.  Meanwhile a reader follows the output: no part of a batch may ever be
visible.  In the end the output must equal the result that was computed without Spark, in the order of each key, and no
transaction may be open.  Ctrl-C ends the kills, and the output is judged; a second one stops at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import sarit
from examples.pipelines import chain
from sarit.client.blocking.loop_thread import LoopThread
from sarit.controller import keys
from sarit.env.real import real_env
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.spark.limits import SPARK_FIRST_LEASE_SECONDS
from tests.nodes import RunningNode
from tests.spark.chain_ends import STUCK_SECONDS, Feeder, Follower
from tests.spark.micro_batches import query_names, under_way
from tests.spark.servers import StandaloneCluster
from tests.spark.spark_events import SparkEvents, read_logs, runs, submitted
from tests.spark.spark_processes import Process, busy, find, kill, stall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KINDS = ("driver", "executor", "python", "node")
SPARK = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.task.duration.threshold": "1s",
    # Kills are no reason to give up.
    "spark.task.maxFailures": "50",
    "spark.stage.maxConsecutiveAttempts": "50",
    "spark.executor.maxNumFailures": "1000",
    "spark.excludeOnFailure.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}
CLUSTER_ENVIRONMENT = {
    # Executors may be killed as often as the run likes.
    "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
}
LINES_PER_SCALE = 4 * chain.EVENTS_PER_BATCH  # without kills: how long the input has each number of segments
SEGMENTS = (1, 8, 2)  # of the input, one after the other


@dataclass
class Plan:
    """What a run does."""

    kills: int
    seed: int
    guarantee: str | None = None
    cluster: bool = True  # else in one JVM
    kinds: tuple[str, ...] = KINDS
    scale: bool = False
    recovering: float = 0.15  # the fraction of kills that do not wait for the output to grow
    stalls: float = 0.5  # the fraction of kills before which a worker stands still for some seconds
    seconds: float = float("inf")  # no kill comes later than that
    events_ahead: int = 1200  # that the chain has not processed: enough for several micro-batches of both jobs


@dataclass
class Report:
    """What a run found."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    between: int = 0  # kills that do not count: no micro-batch was on the executors
    stalls: int = 0
    drivers: int = 0
    events: int = 0
    lines: int = 0
    batches: int = 0
    open_transactions: int = 0
    spark: SparkEvents = field(default_factory=lambda: SparkEvents({}))
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        kills = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kills.items()))
        return "\n".join(
            [
                f"seed {self.seed}: {self.kills.total()} kills during micro-batches ({kills}), {self.between} between "
                f"them, in {self.seconds:.0f} s; {self.events} events, {self.lines} lines in {self.batches} "
                f"micro-batches, {self.open_transactions} open transactions",
                f"{self.drivers} drivers, {self.stalls} stalls; tasks lost: {dict(self.spark.lost)}; speculative copies"
                f" started: {named(self.spark.copies)}; of them won: {named(self.spark.copies_won)}",
                *(f"WRONG: {one}" for one in self.wrong[:20]),
            ]
        )


def named(counts: Mapping[tuple[str, str], int]) -> str:
    """Counts by query and what a task does."""
    return ", ".join(f"{query} {what} {count}" for (query, what), count in sorted(counts.items())) or "none"


class Matrix:
    """One run."""

    def __init__(self, plan: Plan, directory: Path, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._directory = directory
        self._say = say
        self._rng = random.Random(plan.seed)
        self._report = Report(plan.seed)
        self._data = directory / "node"
        self._node = RunningNode(self._data)
        self._checkpoints = directory / "checkpoints"
        self._cluster: StandaloneCluster | None = None
        self._drivers: list[int] = []  # leaders of sessions
        self._jobs: chain.Jobs | None = None
        self._begun = time.monotonic()
        self._driver_started = 0.0
        self._ending_early = False
        self._segments = [SEGMENTS[0] if plan.scale else 2]  # that the input has had

    def run(self) -> Report:
        """All of it.  Raises AssertionError when it hangs."""
        with contextlib.ExitStack() as stack:
            if self._plan.cluster:
                (self._directory / "events").mkdir()
                self._cluster = stack.enter_context(StandaloneCluster(self._directory, **CLUSTER_ENVIRONMENT))
            self._node.start()
            stack.callback(self._node.stop)
            stack.callback(self._end_drivers)
            self._run_chain()
        report = self._report
        report.open_transactions = open_transactions(self._data)
        if report.open_transactions:
            report.wrong.append(f"{report.open_transactions} transactions are open")
        report.spark = read_logs(self._directory / "events", query_names(self._checkpoints))
        report.drivers = len(self._drivers)
        if self._plan.scale:
            self._check_parallelism()
        report.seconds = time.monotonic() - self._begun
        return report

    def end_early(self, *_: object) -> None:
        """For Ctrl-C: no more kills, and the output is judged as ever; the second time stop at once."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._ending_early = True

    def _run_chain(self) -> None:
        with sarit.connect(self._node.controller, wait=60, retry_timeout=STUCK_SECONDS) as client:
            chain.create_streams(client, self._segments[0])
            follower = Follower(self._node.controller)
            feeder = Feeder(self._node.controller, follower, self._plan.events_ahead)
            for thread in (feeder, follower):
                thread.start()
            self._start_jobs()
            if self._plan.kills:
                self._kill_often(client, follower)
            elif self._plan.scale:
                for segments in SEGMENTS[1:]:
                    follower.wait_for(follower.count + LINES_PER_SCALE, self._keep_running)
                    self._scale(client, segments)
            follower.wait_for(follower.count + LINES_PER_SCALE, self._keep_running)
            feeder.end()
            self._say(f"all {len(feeder.events)} events are written, after {self._seconds()} s")
            wanted = chain.totals_of(feeder.events)
            follower.wait_for(sum(map(len, wanted.values())), self._keep_running)
            self._drain()
            follower.end()
            between = numbers_by_airline(client)
        report = self._report
        report.events, report.lines = len(feeder.events), follower.count
        report.batches = len({batch for batch, _ in follower.output.stated})
        report.wrong += chain.mistakes(follower.lines, wanted) + follower.output.end()
        for airline, lines in wanted.items():
            if between.get(airline) != [number for number, _ in lines]:
                report.wrong.append(f"{airline}: the intermediate stream has other events, or in another order")

    # -- kills ------------------------------------------------------------------------------------

    def _kill_often(self, client: sarit.Client, follower: Follower) -> None:
        plan, report = self._plan, self._report
        due = self._order()
        scales = dict(zip((plan.kills // 3, 2 * plan.kills // 3), SEGMENTS[1:], strict=True)) if plan.scale else {}
        begun = time.monotonic()
        while due:
            number = report.kills.total()
            if number in scales:
                self._scale(client, scales.pop(number))
            recovering = bool(number) and self._rng.random() < plan.recovering
            self._wait(follower, recovering=recovering)
            if time.monotonic() - begun > plan.seconds or self._ending_early:
                self._say("no more kills: the time is over, or somebody ended the run")
                return
            working = self._work() if recovering else self._wait_for_work()
            kind, what = self._kill(due[-1])
            during = " and ".join(f"{query} {batch}" for query, batch in working if (query, batch) in self._work())
            if not during:
                report.between += 1
                self._say(f"{what} was killed between micro-batches or at their start, which does not count")
                continue
            report.kills[kind] += 1
            due.pop()
            self._say(f"kill {number + 1}: {what}, during {during}; {follower.count} lines after {self._seconds()} s")

    def _order(self) -> list[str]:
        kinds = [self._plan.kinds[number % len(self._plan.kinds)] for number in range(self._plan.kills)]
        self._rng.shuffle(kinds)
        return kinds

    def _wait(self, follower: Follower, *, recovering: bool) -> None:
        """Until a random moment: one at which the chain works again, or soon after the last kill."""
        if not recovering:
            follower.wait_for(follower.count + 1, self._keep_running)
            self._maybe_stall()
            time.sleep(self._rng.random() * 2)
        else:
            time.sleep(self._rng.random() * 8)
        self._keep_running()

    def _wait_for_work(self) -> set[tuple[str, int]]:
        """The micro-batches that are under way, as soon as there is one."""
        deadline = time.monotonic() + STUCK_SECONDS
        while not (found := self._work()):
            self._keep_running()
            assert time.monotonic() < deadline, "no micro-batch began"
            time.sleep(0.05)
        return found

    def _work(self) -> set[tuple[str, int]]:
        """(query, micro-batch) of those that this driver has given to its executors, and that are not completed."""
        open_ones = set(under_way(self._checkpoints).items())
        if self._cluster is None:
            return open_ones
        # Spark makes this file when a driver has its executors, and does not touch it again.
        ready = sorted(self._events().rglob("appstatus_*"))
        if not open_ones or not ready or ready[-1].stat().st_mtime < self._driver_started:
            return set()
        (log,) = ready[-1].parent.glob("events_1_*")
        return open_ones & submitted(log, query_names(self._checkpoints))

    def _maybe_stall(self) -> None:
        """Let a worker stand still for some seconds: Spark starts a copy of its task, and the task may end late."""
        if self._rng.random() >= self._plan.stalls:
            return
        workers = [one for one in self._processes() if one.role == "worker"]
        for one in self._rng.sample(working := busy(workers), min(1, len(working))):
            stall(one, 3 + self._rng.random() * 5)
            self._report.stalls += 1

    def _kill(self, kind: str) -> tuple[str, str]:
        """Kill one of a kind, when there is one; else the driver.  The kind, and what it was."""
        if kind == "node":
            self._node.kill()
            self._node.start()
            return kind, "node"
        found = [one for one in self._processes() if one.kind == kind]
        targets = busy(found) or found
        if targets:
            victim = self._rng.choice(targets)
            kill(victim)
            return kind, f"{kind} ({victim.role})" if victim.role != kind else kind
        return "driver", self._kill_driver()

    def _kill_driver(self) -> str:
        assert self._jobs is not None
        leader = Process(self._jobs.process.pid, "driver", "driver's Python")
        jvms = [one for one in self._processes() if one.kind == "jvm"]
        victims = self._rng.choice([[leader], jvms or [leader], [*jvms, leader]])
        for victim in victims:
            kill(victim)
        self._jobs.process.wait(STUCK_SECONDS)  # without its JVM it ends by itself
        return "driver (" + " and ".join(victim.role for victim in victims) + ")"

    # -- scaling ----------------------------------------------------------------------------------

    def _scale(self, client: sarit.Client, segments: int) -> None:
        client.stream(chain.FLIGHTS).scale(segments)
        self._segments.append(segments)
        self._say(f"the input has {segments} segments, after {self._seconds()} s")

    def _check_parallelism(self) -> None:
        """A micro-batch is read by as many tasks as the input has segments with unread events."""
        tasks = [count for (query, _), count in sorted(self._report.spark.partitions.items()) if query == "clean"]
        self._say(f"Spark partitions of the micro-batches of the first job: {runs(tasks)}")
        had = self._segments
        if (max(tasks), tasks[0], tasks[-1] <= had[-1]) != (max(had), had[0], True):
            self._report.wrong.append(f"the number of tasks did not follow the segments {had}: {runs(tasks)}")

    # -- processes --------------------------------------------------------------------------------

    def _start_jobs(self) -> None:
        settings = dict(SPARK) if self._cluster else {}
        if self._cluster:
            settings |= {"spark.master": self._cluster.url, "spark.eventLog.dir": f"file://{self._events()}"}
        options = [part for one in settings.items() for part in ("--spark", "=".join(one))]
        if self._plan.guarantee:
            options += ["--sink", f"deliveryGuarantee={self._plan.guarantee}"]
        self._jobs = chain.Jobs(self._node.controller, self._directory, *options)
        self._drivers.append(self._jobs.process.pid)
        self._driver_started = time.time()

    def _events(self) -> Path:
        return (self._directory / "events").resolve()

    def _processes(self) -> list[Process]:
        """Of the driver that runs, and of the cluster, which may still have some of a driver before."""
        assert self._jobs is not None
        return find([self._jobs.process.pid, *(self._cluster.pids if self._cluster else ())])

    def _keep_running(self) -> None:
        """Start the jobs again when their driver has ended, as an operator's supervisor does."""
        assert self._jobs is not None
        if self._jobs.process.poll() is not None:
            self._start_jobs()

    def _drain(self) -> None:
        """Let the jobs end by themselves; what a kill left behind is completed by another start."""
        for _ in range(5):
            assert self._jobs is not None
            if self._jobs.drain(STUCK_SECONDS) == 0:
                return
            self._start_jobs()
        raise AssertionError(f"the jobs do not end: see {self._directory}/jobs.log")

    def _end_drivers(self) -> None:
        for leader in self._drivers:
            for pid in chain.session_processes(leader):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._jobs is not None:
            self._jobs.process.wait()

    def _seconds(self) -> int:
        return round(time.monotonic() - self._begun)


def numbers_by_airline(client: sarit.Client) -> dict[str, list[int]]:
    """What the intermediate stream has, in order."""
    found: dict[str, list[int]] = {}
    for event in client.reader(chain.CLEAN, end="tail"):
        flight = json.loads(event)
        found.setdefault(flight["airline"], []).append(flight["n"])
    return found


def open_transactions(data: Path) -> int:
    """The transactions that a node which was stopped has neither committed nor aborted, when short leases are over.

    An attempt that was killed before it had registered its transaction leaves it for the short lease, which a start of
    the node prolongs once."""
    thread = LoopThread("node")

    async def count() -> int:
        node = await open_node(NodeConfig(str(data), controller_port=0, store_port=0).validated(), real_env())
        await node.start()
        try:
            begun = time.monotonic()
            while found := await node.controller.catalog.pending_work(start=keys.PENDING_TRANSACTIONS):
                if time.monotonic() - begun > 2 * SPARK_FIRST_LEASE_SECONDS:
                    break
                await asyncio.sleep(1)
            return len(found)
        finally:
            await asyncio.wait_for(node.stop(), STUCK_SECONDS)

    try:
        return thread.run(count())
    finally:
        thread.close()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no kill comes later than that")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--guarantee", choices=["exactly-once", "at-least-once"])
    parser.add_argument("--scale", action="store_true", help="scale the input from 1 segment to 8 and to 2")
    parser.add_argument("--data", type=Path, help="keep node, checkpoints and logs in this directory")
    options = parser.parse_args()
    plan = Plan(options.kills, options.seed, options.guarantee, scale=options.scale, seconds=options.minutes * 60)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        directory = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-kills-")))
        directory.mkdir(parents=True, exist_ok=True)
        matrix = Matrix(plan, directory, lambda text: print(text, flush=True))
        signal.signal(signal.SIGINT, matrix.end_early)
        report = matrix.run()
    print(report)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
