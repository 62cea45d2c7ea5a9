"""What a backup costs the writers: p95 of acknowledgements beside one, to p95 without, in pairs of one run.

python -m benchmarks.beside_backup [--on node | processes | cluster] [--ingest MB] [--event BYTES] [--copy MB]
    [--pairs N] [--seconds S]

On a node of one process, one of two store processes, or a cluster of two stores and a controller, whose logs and chunks
are in directories.  A writer sends events to four segments at a fixed rate, open loop: one that is late counts from
when it was due.  It runs alone and beside a backup in turn.  Backups begin again in an empty place until the writer
ends: moments, indexes and chunks are all part of the time that counts.  Everything shares this machine and one disk.
The figure is the median of the ratios of the pairs.  It depends on `--seconds`: turns of 20 s gave 1.4 to 1.5 where
turns of a minute gave 1.0.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import ROOT, Load, SaritNode, load
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

STREAM: Final = "bench/s"
SEGMENTS: Final = 4
MB: Final = 1_000_000
SARIT: Final = str(Path(sys.executable).with_name("sarit"))
STORES: Final = 2
BETWEEN_SECONDS: Final = 5.0
"""What was written is flushed meanwhile."""
WARM_UP_SECONDS: Final = 3.0
"""The first of a writer do not count: its first backup begins after them, and its moment counts."""
STOP_AGAIN_SECONDS: Final = 1.0
KEPT_PART: Final = 0.97
"""Of the rate.  A turn that was slower says how much more there was to do than could be done, and nothing else."""


class Target:
    """What is written to: the address of its controller, and how a backup of it is asked for."""

    def __init__(self, controller: str, source: list[str], environment: dict[str, str]) -> None:
        self.controller = controller
        self.source = source
        self.environment = environment


@contextmanager
def started(kind: str, directory: Path) -> Iterator[Target]:
    """Start it in a new directory."""
    if kind == "cluster":
        # By name: the types of tests are not checked.
        processes = importlib.import_module("tests.cluster.processes")
        with processes.RunningCluster(
            directory, stores=STORES, controllers=1, containers=SEGMENTS, program=SARIT
        ) as cluster:
            source = ["--cluster", cluster.url, "--work", str(directory / "work")]
            yield Target(cluster.controller, source, cluster.environ)
        return
    with SaritNode(directory, STORES if kind == "processes" else 1).start(plain=True) as node:
        yield Target(node.endpoint, ["--data-dir", str(directory / "data")], dict(os.environ))


class Backups:
    """Backups one after the other, each to an empty place, until `stop`."""

    def __init__(self, target: Target, place: Path, rate: int) -> None:
        self.whole = 0
        self.failure = ""
        self._words = [SARIT, "backup", "create", str(place), *target.source, "--rate", str(rate)]
        self._environment = target.environment
        self._place = place
        self._stopped = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Backups:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        while self._thread.is_alive():  # the next one may have begun in this moment
            if self._process is not None:
                self._process.send_signal(signal.SIGINT)
            self._thread.join(STOP_AGAIN_SECONDS)
        shutil.rmtree(self._place, ignore_errors=True)
        if self.failure:
            raise SystemExit(f"a backup failed: {self.failure}")

    def _run(self) -> None:
        self._stopped.wait(WARM_UP_SECONDS)
        while not self._stopped.is_set():
            shutil.rmtree(self._place, ignore_errors=True)
            self._process = subprocess.Popen(
                self._words, env=self._environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            _, error = self._process.communicate()
            if self._process.returncode == 0:
                self.whole += 1
            elif not self._stopped.is_set():
                self.failure = error
                return


def turn(target: Target, options: argparse.Namespace, backups: AbstractContextManager[Any]) -> dict[str, Any]:
    """One run of the writer."""
    time.sleep(BETWEEN_SECONDS)
    rate = options.ingest * MB // (options.event + EVENT_HEADER_BYTES)
    with backups:
        found = load("sarit_write", _writing(target, options) | {"rate": rate, "seconds": options.seconds})
    found["kept_part"] = found["events_per_s"] / rate
    found["processors"] = found["generator_cpu_s"] / options.seconds
    return found


def _writing(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    return {"controller": target.controller, "stream": STREAM, "event_bytes": options.event}


def measure(options: argparse.Namespace) -> None:
    """Run, and print."""
    directory = Path(tempfile.mkdtemp(prefix="beside-backup-", dir=options.dir))
    try:
        with started(options.on, directory / "site") as target:
            load("sarit_admin", {"controller": target.controller, "streams": {STREAM: SEGMENTS}})
            # So much is there that the first backup copies for as long as the writer writes.
            events = int(options.copy * MB * options.seconds / (options.event + EVENT_HEADER_BYTES))
            load("sarit_write", _writing(target, options) | {"seconds": 600, "events": events, "many": True})
            print(f"{options.on}: {options.ingest} MB/s of appends of {options.event} bytes, {options.copy} MB/s of "
                  f"copying; load of the machine {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
            _pairs(target, options, directory / "place")
    finally:
        Load.end_all()
        shutil.rmtree(directory, ignore_errors=True)


def _pairs(target: Target, options: argparse.Namespace, place: Path) -> None:
    ratios = []
    turn(target, options, nullcontext())  # the first one has what was written before it in its way
    for number in range(1, options.pairs + 1):
        without = turn(target, options, nullcontext())
        backups = Backups(target, place, options.copy * MB)
        beside = turn(target, options, backups)
        ratios.append(beside["p95_ms"] / without["p95_ms"])
        print(f"pair {number}: without {_shown(without)}; beside {_shown(beside)}, {backups.whole} whole backups: "
              f"ratio of p95 {ratios[-1]:.2f}", flush=True)  # fmt: skip
    print(f"{options.on}: median of {len(ratios)} ratios of p95 {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)  # fmt: skip


def _shown(found: dict[str, Any]) -> str:
    part = found["kept_part"]
    late = "" if part >= KEPT_PART else f" (only {part:.0%} of the rate: take less)"
    times = f"p50 {found['p50_ms']:.1f} p95 {found['p95_ms']:.1f} p99 {found['p99_ms']:.1f} ms"
    return f"{times}, writer {found['processors']:.2f} of a processor{late}"


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=("node", "processes", "cluster"), default="node")
    parser.add_argument("--ingest", type=int, default=50, help="MB of appends in a second")
    parser.add_argument("--event", type=int, default=100, help="bytes of an event")
    parser.add_argument("--copy", type=int, default=20, help="MB that a backup copies in a second")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=60, help="of each run of the writer")
    parser.add_argument("--dir", type=Path, default=None, help="on the disk to be measured")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # `nohup` has it ignored, and backups inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
