"""What each file of a run of several workers cost, and when each worker was done; printed at the end of the run.

`LONG` in conftest.py is put in order by it.  Processor time is that of the worker and of all its processes, also of
those that serve later files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_SHOWN: Final = 40
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """One stay of a worker in a file.  Seconds; `began`: since 1970."""

    file: str
    began: float
    real: float
    processor: float


def processor_seconds(root: int) -> float:
    """What a process and all that descend from it have used, and those of them that have ended."""
    parents, used = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(entry)] = int(fields[1])
            used[int(entry)] = sum(map(int, fields[11:15]))
    family, added = {root}, True
    while added:
        added = {child for child, parent in parents.items() if parent in family} - family
        family |= added
    return sum(used.get(member, 0) for member in family) / _TICKS


class WorkerCosts:
    """The plugin of a worker."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._costs: list[Cost] = []
        self._file, self._began, self._used = "", 0.0, 0.0

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
        """Around each test."""
        file = item.nodeid.partition("::")[0]
        if file != self._file:
            self._file, self._began, self._used = file, time.time(), processor_seconds(os.getpid())
        yield
        if nextitem is None or nextitem.nodeid.partition("::")[0] != file:
            used = processor_seconds(os.getpid()) - self._used
            self._costs.append(Cost(file, self._began, time.time() - self._began, max(0.0, used)))

    def pytest_sessionfinish(self) -> None:
        """Send them to the controller."""
        self._config.workeroutput["costs"] = [tuple(cost) for cost in self._costs]


class Costs:
    """The plugin of the controller."""

    def __init__(self) -> None:
        self._began = time.time()
        self._of_workers: dict[str, list[Cost]] = {}

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker has ended."""
        costs = getattr(node, "workeroutput", {}).get("costs", ())
        self._of_workers[node.gateway.id] = [Cost(*cost) for cost in costs]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print them."""
        costs = [cost for of_worker in self._of_workers.values() for cost in of_worker]
        if not costs:
            return
        terminalreporter.section("costs")
        for worker, of_worker in sorted(self._of_workers.items()):
            if of_worker:
                first, last = of_worker[0], of_worker[-1]
                done = last.began + last.real - self._began
                terminalreporter.line(
                    f"{worker}: from {first.began - self._began:.0f} s to {done:.0f} s, {len(of_worker)} files; "
                    f"the last one: {last.file}, {last.real:.0f} s"
                )
        costs.sort(key=lambda cost: -cost.real)
        terminalreporter.line(f"{'real':>7} {'processor':>9}  seconds; the {_SHOWN} longest of {len(costs)} files")
        for cost in costs[:_SHOWN]:
            terminalreporter.line(f"{cost.real:7.1f} {cost.processor:9.1f}  {cost.file}")
        real, processor = sum(cost.real for cost in costs), sum(cost.processor for cost in costs)
        terminalreporter.line(f"{real:7.1f} {processor:9.1f}  in all")
