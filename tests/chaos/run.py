"""One round: a fresh node, a workload, faults one after the other, and the checks.

1. Faults.  After each, every writer must get something acknowledged within LIVENESS_SECONDS.
2. The writers end: everything they wrote is acknowledged.
3. Everything is read from the head of the running node; after kill -9; after a clean stop; and by the official client.
   Each is a scan for `checkers/log.py`, in addition to the history of the tail reader.
4. The node's log has only lines that a fault explains.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from checkers.log import Violation, check
from tests.chaos.faults import FAULTS, Site, draw, possible
from tests.chaos.node import ChaosNode, SmallDisk
from tests.chaos.workload import Stopped, Workload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

LIVENESS_SECONDS: Final = 150.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a round."""

    seed: int
    faults: int
    classes: Sequence[str] = ()
    writers: int = 3
    official: bool = True
    parts: bool = True
    small_disk: bool = False
    short: bool = False
    verbose: bool = False


@dataclass(slots=True)
class Round:
    """The result of a round."""

    plan: Plan
    violations: list[Violation] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    acked_events: int = 0
    starts: int = 0
    scales: int = 0
    reader_kills: int = 0
    seconds: float = 0.0
    last_words: str = ""

    def line(self) -> str:
        """For people."""
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.struck.items()))
        return (
            f"seed {self.plan.seed}: {len(self.violations)} broken, {self.struck.total()} faults ({faults}), "
            f"{self.acked_events} events acknowledged, {self.starts} starts, {self.scales} scales, "
            f"{self.reader_kills} readers killed, {self.seconds:.0f} s"
        )


async def run_round(directory: Path, plan: Plan) -> Round:
    """Execute a plan in a directory of its own."""
    result = Round(plan)
    begun = time.monotonic()
    disk = SmallDisk(directory / "disk") if plan.small_disk else None
    with disk or nullcontext():
        names = [name for name in possible(disk) if not plan.classes or name in plan.classes]
        node = ChaosNode((directory / "disk" if disk else directory) / "data", fake_time="clock_jumps" in names)
        site = Site(node, disk, random.Random(plan.seed), plan.short)
        await run_on(node, result, lambda workload: _strike(site, workload, result, names))
    result.seconds = time.monotonic() - begun
    return result


async def run_on(node: ChaosNode, result: Round, strike: Callable[[Workload], Awaitable[None]]) -> None:
    """A round on a node that does not run yet: the workload, `strike` with the faults, and the checks."""
    plan = result.plan
    workload = Workload(node.address, random.Random(plan.seed), plan.writers, plan.official, plan.parts)
    try:
        for proxy in node.proxies:
            await proxy.start()
        await node.begin()
        await workload.start()
        await workload.progress(LIVENESS_SECONDS, "the start")
        await strike(workload)
        if plan.parts:  # a short round may end before any reader was killed, so that none continued from a position
            async with asyncio.timeout(LIVENESS_SECONDS):
                while not workload.reader_kills:
                    await asyncio.sleep(0.1)
        await _judge(node, workload)
    except Stopped as error:
        result.violations.append(Violation("liveness", str(error)))
    except (AssertionError, TimeoutError) as error:
        result.violations.append(Violation("harness", f"{type(error).__name__}: {error}"))
    finally:
        await workload.close()
        for proxy in node.proxies:
            await proxy.close()
        if node.alive:
            await node.crash()
    result.violations += workload.violations
    result.violations += check(workload.verdict())
    for part in workload.parts:
        result.violations += part.check()
    result.violations += [Violation("alarm", line) for line in node.alarms()[:3]]
    result.last_words = node.last_words()
    result.acked_events = workload.acked_events
    result.starts = node.starts
    result.scales = workload.elastic.scales
    result.reader_kills = workload.reader_kills


async def _strike(site: Site, workload: Workload, result: Round, names: list[str]) -> None:
    for number in range(result.plan.faults):
        # Each class once first, so that none is missing.
        name = names[number % len(names)] if number < len(names) else draw(site, names)
        begun = time.monotonic()
        await FAULTS[name][0](site)
        healed = time.monotonic()
        result.struck[name] += 1
        await workload.progress(LIVENESS_SECONDS, f"fault {number + 1}, {name}")
        again = time.monotonic() - healed
        if result.plan.verbose:
            print(f"  {name}: {healed - begun:.1f} s, all write again after {again:.1f} s", flush=True)


async def _judge(node: ChaosNode, workload: Workload) -> None:
    await workload.stop()
    await workload.scan()
    await node.crash()
    await node.begin()
    await workload.scan()
    await node.end()
    await node.begin()
    await workload.scan()
    if workload.official:
        await workload.referee()
    await node.end()
