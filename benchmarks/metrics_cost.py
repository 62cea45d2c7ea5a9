"""What metrics cost: processor time of a node for the same work, with and without, in pairs of the same run.

python -m benchmarks.metrics_cost --base TREE    TREE: a checkout of a commit before the metrics

The node of the base has no counters and no HTTP port.  The other one counts, and is scraped once in every second of
processor time that it uses: that is each second at full load, however little of the machine it gets.  Processor time
is compared, not throughput: the machine is seldom quiet, and the load generator has a part of it.  The order
alternates, so that a machine that becomes slower does so for both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import cost_loads
from benchmarks.cost_loads import READY, RUN
from sarit.client import aio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_TICKS = os.sysconf("SC_CLK_TCK")
SMALL_APPENDS = 60_000
LARGE_BYTES = 1_500_000_000


async def small(controller: str) -> None:
    """See `cost_loads.small`."""
    async with await aio.connect(controller, wait=60) as client:
        await cost_loads.small(client, SMALL_APPENDS, "small/s")


async def large(controller: str) -> None:
    """See `cost_loads.large`."""
    async with await aio.connect(controller, wait=60) as client:
        await cost_loads.large(client, LARGE_BYTES, "large/s")


LOADS: dict[str, Callable[[str], Awaitable[None]]] = {"small": small, "large": large}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measure(name: str, tree: Path | None, directory: Path) -> float:
    """Seconds of processor time that a node of `tree` uses for a load; None: this tree, scraped every second."""
    command = [sys.executable, "-c", RUN, "standalone", "--data-dir", str(directory)]
    command += ["--controller-port", "0", "--store-port", "0"]
    if tree is None:
        command += ["--http-port", "0"]
    env = {**os.environ, "PYTHONPATH": str((tree or Path.cwd()) / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as node:
        assert node.stdout is not None
        found = next(match for line in node.stdout if (match := READY.search(line)))
        ended = threading.Event()
        scraper = threading.Thread(target=_scrape, args=(node.pid, found[2], ended))
        if tree is None:
            scraper.start()
        try:
            time.sleep(1)
            before = _cpu_seconds(node.pid)
            asyncio.run(LOADS[name](found[1]))  # type: ignore[arg-type]
            return _cpu_seconds(node.pid) - before
        finally:
            ended.set()
            node.kill()
            shutil.rmtree(directory, ignore_errors=True)


def _scrape(pid: int, address: str, ended: threading.Event) -> None:
    used = _cpu_seconds(pid)
    while not ended.wait(0.02):
        if _cpu_seconds(pid) >= used + 1:
            used += 1
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
                answer.read()


def main() -> None:
    """Measure, and print a line for each pair and one for each load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--load", choices=list(LOADS), action="append")
    options = parser.parse_args()
    for name in options.load or list(LOADS):
        ratios = []
        for number in range(options.pairs):
            order = [options.base, None] if number % 2 else [None, options.base]
            with tempfile.TemporaryDirectory(prefix="metrics-cost-") as place:
                seconds = {tree: measure(name, tree, Path(place) / str(tree is None)) for tree in order}
            ratios.append(seconds[None] / seconds[options.base])
            print(f"{name}: without {seconds[options.base]:.2f} s, with {seconds[None]:.2f} s, {ratios[-1]:.3f}")
        print(f"{name}: median of {len(ratios)} pairs {statistics.median(ratios):.3f}, "
              f"{min(ratios):.3f} to {max(ratios):.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
