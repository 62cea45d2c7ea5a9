"""Kills a chain of two Spark jobs and the node below it, again and again, and compares its output with the right one.

    python -m tests.spark.kill_matrix [--kills 40] [--minutes 60] [--seed N] [--scale] [--guarantee at-least-once]
    make spark-kills

The chain is that of examples/pipelines/chain.py, on a Spark of its own with two executors, with speculation.  Events
are written all the time.  Each kill is `kill -9` of one of

* the driver: its JVM, its Python, or both; executors and workers of the dead one run on for a moment;
* the JVM of an executor;
* a Python process: a worker of a task, the daemon that forks them, or a planner beside the driver;
* the node, which is then started again.

Most kills come at a random moment after the output has grown, the others while the chain still recovers from the one
before.  Meanwhile a reader follows the output: no part of a batch may ever be visible.  In the end the output must
equal the result that was computed without Spark, in the order of each key, and no transaction may be open.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sarit
from examples.pipelines import chain, inputs
from sarit.client.blocking.loop_thread import LoopThread
from sarit.controller import keys
from sarit.env.real import real_env
from sarit.node.settings import NodeConfig
from sarit.node.standalone import open_node
from tests.nodes import RunningNode
from tests.spark.whole_batches import WholeBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS = ("driver", "executor", "python", "node")
LOCAL_CLUSTER = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.task.duration.threshold": "1s",
    # Kills are no reason to give up.
    "spark.task.maxFailures": "50",
    "spark.stage.maxConsecutiveAttempts": "50",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.maxNumFailures": "1000",
    "spark.excludeOnFailure.enabled": "false",
}
STUCK_SECONDS = 600  # only a hang takes that long


@dataclass
class Plan:
    """What a run does."""

    kills: int
    seed: int
    guarantee: str | None = None
    settings: dict[str, str] = field(default_factory=lambda: dict(LOCAL_CLUSTER))
    kinds: tuple[str, ...] = KINDS
    scale: bool = False
    recovering: float = 0.25  # the fraction of kills that do not wait for the output to grow
    seconds: float = float("inf")  # no kill comes later than that
    events_ahead: int = 1200  # that the chain has not processed: enough for several micro-batches of both jobs


@dataclass
class Report:
    """What a run found."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    events: int = 0
    lines: int = 0
    batches: int = 0
    open_transactions: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        kills = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kills.items()))
        head = (
            f"seed {self.seed}: {self.kills.total()} kills ({kills}) in {self.seconds:.0f} s; {self.events} events, "
            f"{self.lines} lines in {self.batches} micro-batches, {self.open_transactions} open transactions"
        )
        return "\n".join([head, *(f"WRONG: {one}" for one in self.wrong[:20])])


class Follower(threading.Thread):
    """Follows the output segment by segment, as a reader sees it."""

    def __init__(self, controller: str) -> None:
        super().__init__(daemon=True)
        self.output = WholeBatches()
        self.lines: dict[str, list[tuple[int, int]]] = {}
        self.error: Exception | None = None
        self.count = 0
        self.grown = threading.Condition()
        self._controller = controller
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            with sarit.connect(self._controller, wait=60, retry_timeout=STUCK_SECONDS) as client:
                ends: dict[Any, int] = {}
                while True:
                    last = self._ending.is_set()
                    self._round(client, ends)
                    if last:
                        return
                    self._ending.wait(0.05)
        except Exception as error:
            self.error = error
        finally:
            with self.grown:
                self.grown.notify_all()

    def _round(self, client: sarit.Client, ends: dict[Any, int]) -> None:
        for part in client.stream(chain.TOTALS).segments():
            segment = part.segment
            end = client.segment_infos(chain.TOTALS, [segment])[segment].end_offset
            lines = []
            for batch in client.segment_batches(chain.TOTALS, segment, ends.get(segment, 0), end):
                lines += map(json.loads, batch.column("event").to_pylist())
            ends[segment] = end
            self.output.poll(segment.packed, lines)
            for line in lines:
                self.lines.setdefault(line["airline"], []).append((line["n"], line["miles"]))
            if lines:
                with self.grown:
                    self.count += len(lines)
                    self.grown.notify_all()
        self.output.end_round()

    def wait_for(self, lines: int, alive: Callable[[], None]) -> None:
        """Wait until there are so many lines.  Raises AssertionError when nothing moves for long."""
        deadline = time.monotonic() + STUCK_SECONDS
        with self.grown:
            while self.count < lines:
                alive()
                assert self.error is None, self.error
                assert time.monotonic() < deadline, f"{self.count} of {lines} lines came, and no more"
                self.grown.wait(0.5)

    def end(self) -> None:
        """One more round over all, and stop."""
        self._ending.set()
        self.join(STUCK_SECONDS)
        assert self.error is None, self.error


class Feeder(threading.Thread):
    """Writes events until it is stopped, not far ahead of the output; `events` are those it has written."""

    def __init__(self, controller: str, follower: Follower, ahead: int) -> None:
        super().__init__(daemon=True)
        self.events: list[inputs.Event] = []
        self.error: Exception | None = None
        self._controller = controller
        self._follower = follower
        self._ahead = ahead
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            with (
                sarit.connect(self._controller, wait=60, retry_timeout=STUCK_SECONDS) as client,
                client.writer(chain.FLIGHTS) as writer,
            ):
                for event in endless(chain.events_of(chain.DAYS)):
                    while len(self.events) - self._follower.count > self._ahead and not self._ending.is_set():
                        self._ending.wait(0.1)
                    if self._ending.is_set():
                        return
                    writer.write(event.body, key=event.key)
                    self.events.append(event)
        except Exception as error:
            self.error = error

    def end(self) -> None:
        """Stop, when all is durable."""
        self._ending.set()
        self.join(STUCK_SECONDS)
        assert self.error is None, self.error


def endless(events: list[inputs.Event]) -> Iterator[inputs.Event]:
    """The events over and over, with numbers that rise."""
    bodies = [json.loads(event.body) for event in events]
    number = 0
    while True:
        for event, body in zip(events, bodies, strict=True):
            yield inputs.Event(json.dumps(body | {"n": number}), event.key)
            number += 1


class Matrix:
    """One run."""

    def __init__(self, plan: Plan, directory: Path, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._directory = directory
        self._say = say
        self._rng = random.Random(plan.seed)
        self._report = Report(plan.seed)
        controller, store = free_ports(2)
        self._data = directory / "node"
        self._node = RunningNode(self._data, "--controller-port", controller, "--store-port", store)
        self._processes: set[int] = set()  # leaders of sessions
        self._jobs: chain.Jobs | None = None

    def run(self) -> Report:
        """All of it.  Raises AssertionError when it hangs."""
        begun = time.monotonic()
        self._node.start()
        try:
            self._run_chain()
        finally:
            self._end_processes()
            self._node.stop()
        self._report.open_transactions = open_transactions(self._data)
        if self._report.open_transactions:
            self._report.wrong.append(f"{self._report.open_transactions} transactions are open")
        self._report.seconds = time.monotonic() - begun
        return self._report

    def _run_chain(self) -> None:
        with sarit.connect(self._node.controller, wait=60, retry_timeout=STUCK_SECONDS) as client:
            chain.create_streams(client)
            follower = Follower(self._node.controller)
            feeder = Feeder(self._node.controller, follower, self._plan.events_ahead)
            for thread in (feeder, follower):
                thread.start()
            self._start_jobs()
            begun = time.monotonic()
            for number, kind in enumerate(self._order()):
                self._wait(follower, number)
                if time.monotonic() - begun > self._plan.seconds:
                    self._say("the time is over: no more kills")
                    break
                if self._plan.scale and number in (self._plan.kills // 3, 2 * self._plan.kills // 3):
                    segments = 8 if number == self._plan.kills // 3 else 2
                    client.stream(chain.FLIGHTS).scale(segments)
                    self._say(f"the input has {segments} segments")
                self._kill(kind)
                self._say(f"kill {number + 1}: {kind}; {follower.count} lines so far")
            feeder.end()
            wanted = chain.totals_of(feeder.events)
            follower.wait_for(sum(map(len, wanted.values())), self._keep_running)
            self._drain()
            follower.end()
        report = self._report
        report.events, report.lines = len(feeder.events), follower.count
        report.batches = len({batch for batch, _ in follower.output.stated})
        report.wrong += chain.mistakes(follower.lines, wanted) + follower.output.end()

    def _order(self) -> list[str]:
        kinds = [self._plan.kinds[number % len(self._plan.kinds)] for number in range(self._plan.kills)]
        self._rng.shuffle(kinds)
        return kinds

    def _wait(self, follower: Follower, number: int) -> None:
        """Until a random moment, most often one at which the chain works again."""
        if not number or self._rng.random() >= self._plan.recovering:
            follower.wait_for(follower.count + 1, self._keep_running)
            time.sleep(self._rng.random() * 2)
        else:
            time.sleep(self._rng.random() * 8)
        self._keep_running()

    def _start_jobs(self) -> None:
        options = [part for one in self._plan.settings.items() for part in ("--spark", "=".join(one))]
        if self._plan.guarantee:
            options += ["--sink", f"deliveryGuarantee={self._plan.guarantee}"]
        self._jobs = chain.Jobs(self._node.controller, self._directory, *options)
        self._processes.add(self._jobs.process.pid)

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

    def _kill(self, kind: str) -> None:
        if kind == "node":
            self._node.kill()
            self._node.start()
            killed = kind
        else:
            killed = self._kill_process(kind)
        self._report.kills[killed] += 1

    def _kill_process(self, kind: str) -> str:
        """Kill one of a kind, when there is one; else the driver.  What was killed."""
        assert self._jobs is not None
        leader = self._jobs.process.pid
        found = processes(leader)
        targets = found.get(kind, [])
        if targets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(targets), signal.SIGKILL)
            return kind
        victims = self._rng.choice([[leader], found["jvm"], [*found["jvm"], leader]])
        for pid in victims or [leader]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if kind == "driver":
            self._jobs.process.wait(STUCK_SECONDS)
        return "driver"

    def _end_processes(self) -> None:
        for leader in self._processes:
            for pid in chain.session_processes(leader):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._jobs is not None:
            self._jobs.process.wait()


def processes(leader: int) -> dict[str, list[int]]:
    """The processes of a driver's session: "jvm" of the driver, "executor" JVMs, "python" of Spark."""
    found: dict[str, list[int]] = {"jvm": [], "executor": [], "python": []}
    for pid in chain.session_processes(leader):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            if "CoarseGrainedExecutorBackend" in command:
                found["executor"].append(pid)
            elif "SparkSubmit" in command:
                found["jvm"].append(pid)
            elif "pyspark" in command and pid != leader:
                found["python"].append(pid)
    return found


def open_transactions(data: Path) -> int:
    """The transactions that a node which was stopped has neither committed nor aborted."""
    thread = LoopThread("node")

    async def count() -> int:
        node = await open_node(NodeConfig(str(data), controller_port=0, store_port=0).validated(), real_env())
        await node.start()
        try:
            return len(await node.controller.catalog.pending_work(start=keys.PENDING_TRANSACTIONS))
        finally:
            await asyncio.wait_for(node.stop(), STUCK_SECONDS)

    try:
        return thread.run(count())
    finally:
        thread.close()


def free_ports(count: int) -> list[str]:
    """Free ports."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no kill comes later than that")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--guarantee", choices=["exactly-once", "at-least-once"])
    parser.add_argument("--scale", action="store_true", help="scale the input from 2 segments to 8 and back to 2")
    parser.add_argument("--data", type=Path, help="keep node, checkpoints and logs in this directory")
    options = parser.parse_args()
    plan = Plan(options.kills, options.seed, options.guarantee, scale=options.scale, seconds=options.minutes * 60)
    for number in (signal.SIGINT, signal.SIGTERM):  # also when a shell starts it in the background
        signal.signal(number, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        directory = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-kills-")))
        directory.mkdir(parents=True, exist_ok=True)
        report = Matrix(plan, directory, lambda text: print(text, flush=True)).run()
    print(report)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
