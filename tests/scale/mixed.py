"""Mixed load over time, and a check that the node's memory and open files stay flat.

One process of actors runs for the whole time; another is killed and restarted again and again, and abandons its
connections, transactions and readers.  Both run with low priority: the run measures memory and files, not speed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.scale.flat import Flatness, flatness
from tests.scale.node import Held, LoadedNode, held_by

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
MIB: Final = 1 << 20
SAMPLE_SECONDS: Final = 5.0
LEAST_SAMPLES: Final = 24
VISIT_SECONDS: Final = 20.0
PROGRESS_SECONDS: Final = 60.0
END_SECONDS: Final = 120.0
_NICE: Final = 10
# A sample may coincide with a checkpoint or a log roll-over: two files each, of four containers.
FILE_SLACK: Final = 16
MEMORY_SLACK_BYTES: Final = 8 * MIB


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run."""

    minutes: float
    seed: int
    only: Sequence[str] = ()


@dataclass(slots=True)
class Result:
    """The result of a run."""

    seconds: list[float] = field(default_factory=list)
    node: list[Held] = field(default_factory=list)
    load: list[Held] = field(default_factory=list)
    disk_bytes: list[int] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)
    visitors_killed: int = 0
    alarms: list[str] = field(default_factory=list)

    def verdicts(self) -> dict[str, Flatness]:
        """Each figure that must stay flat.  Raises ValueError after too short a run."""
        slack: dict[str, tuple[list[float], float]] = {
            "node memory": ([held.memory_bytes for held in self.node], MEMORY_SLACK_BYTES),
            "node open files": ([held.open_files for held in self.node], FILE_SLACK),
            "node threads": ([held.threads for held in self.node], 2),
            "client memory": ([held.memory_bytes for held in self.load], MEMORY_SLACK_BYTES),
            "client open files": ([held.open_files for held in self.load], FILE_SLACK),
        }
        return {name: flatness(self.seconds, values, by) for name, (values, by) in slack.items()}

    def good(self) -> bool:
        """Whether everything stayed flat and nothing failed."""
        return not self.report.get("failures") and not self.alarms and all(v.flat for v in self.verdicts().values())


class Actors:
    """A process of actors."""

    def __init__(self, controller: str, seed: int, only: Sequence[str], errors: Path) -> None:
        options = json.dumps({"controller": controller, "seed": seed, "actors": list(only)})
        with errors.open("a") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.scale.mixed_load", options],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True, cwd=ROOT,
                preexec_fn=lambda: os.nice(_NICE),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.communicate()

    def say(self) -> dict[str, Any]:
        """Its progress."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("say\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> dict[str, Any]:
        """Let it finish its rounds; return its counts.  Raises subprocess.TimeoutExpired."""
        out, _ = self._process.communicate(timeout=END_SECONDS)
        found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return found


def run_mixed(directory: Path, plan: Plan) -> Result:
    """Run it, and print the progress every minute."""
    result = Result()
    errors = directory / "load.log"
    with LoadedNode(directory / "node") as node:
        os.setpriority(os.PRIO_PROCESS, node.pid, _NICE)
        _prepare(node.controller)
        steady = Actors(node.controller, plan.seed, plan.only, errors)
        visitor = Actors(node.controller, plan.seed + 1, plan.only, errors)
        try:
            begun = time.monotonic()
            next_visit, next_progress = begun + VISIT_SECONDS, begun + PROGRESS_SECONDS
            while (now := time.monotonic()) - begun < plan.minutes * 60:
                _sample(result, node, steady, now - begun)
                if now >= next_visit:
                    visitor.kill()
                    result.visitors_killed += 1
                    visitor = Actors(node.controller, plan.seed + 1 + result.visitors_killed, plan.only, errors)
                    next_visit += VISIT_SECONDS
                if now >= next_progress:
                    _print_progress(result, steady.say())
                    next_progress += PROGRESS_SECONDS
                pause = min(SAMPLE_SECONDS, plan.minutes * 60 / LEAST_SAMPLES)
                time.sleep(max(0.0, pause - (time.monotonic() - now)))
            result.report = steady.end()
        finally:
            for actors in (steady, visitor):
                actors.kill()
        result.alarms = node.alarms()
    return result


def _prepare(controller: str) -> None:
    import asyncio

    from sarit.client.aio import connect
    from tests.scale.actors import prepare

    async def make() -> None:
        async with await connect(controller) as client:
            await prepare(client)

    asyncio.run(make())


def _sample(result: Result, node: LoadedNode, steady: Actors, at: float) -> None:
    result.seconds.append(at)
    result.node.append(held_by(node.pid))
    result.load.append(held_by(steady.pid))
    result.disk_bytes.append(node.disk_bytes())


def _print_progress(result: Result, report: dict[str, Any]) -> None:
    node, load = result.node[-1], result.load[-1]
    print(
        f"{result.seconds[-1]:6.0f} s: node {node.memory_bytes / MIB:.1f} MiB, {node.open_files} files, "
        f"{node.threads} threads, disk {result.disk_bytes[-1] / MIB:.0f} MiB; "
        f"client {load.memory_bytes / MIB:.1f} MiB, {load.open_files} files; "
        f"{report['counts'].get('rounds', 0)} rounds, {report['failures']} failed",
        flush=True,
    )
    for failure in report["first_failures"][:1]:
        print(f"         {failure[:300]}", flush=True)


def summary(result: Result) -> str:
    """For people."""
    lines = [f"{len(result.seconds)} samples in {result.seconds[-1]:.0f} s; {result.visitors_killed} processes killed"]
    for name, found in result.verdicts().items():
        unit = MIB if name.endswith("memory") else 1
        lines.append(f"  {name + (', MiB' if unit == MIB else ''):<22} {found.line(unit)}")
    disk = result.disk_bytes
    lines.append(f"  disk: {disk[len(disk) // 2] / MIB:.0f} MiB half way, {disk[-1] / MIB:.0f} MiB at the end")
    lines += [f"  {what}: {count}" for what, count in result.report["counts"].items()]
    lines += [f"  failed: {failure[:300]}" for failure in result.report["first_failures"]]
    lines += [f"  node: {alarm}" for alarm in result.alarms[:5]]
    return "\n".join(lines)
