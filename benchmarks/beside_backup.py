"""What a backup costs the writers: p95 of acknowledgements beside one, to p95 without, in turns of one run.

python -m benchmarks.beside_backup [--on node | processes | cluster] [--ingest MB] [--event BYTES] [--copy MB]
    [--pairs N] [--seconds S]

On a node of one process, one of two store processes, or a cluster of two stores and a controller, whose logs and chunks
are in directories.  One writer sends events to four segments at a fixed rate all the time, open loop: one that is late
counts from when it was due.  Backups run beside it in one turn of each pair, drawn which: each turn begins a backup in
an empty place, again when it has ended, and interrupts it at its own end.  Everything shares this machine and one disk.

The figure is the median of the turns with a backup, to the median of those without.  A machine becomes slower and
faster within minutes: runs of a minute, compared with others of a minute, differed by factors of 0.7 to 3.  The first
seconds of the turns are compared apart, too: the command starts then, and the node makes its checkpoint.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.figures import certain_range
from benchmarks.harness import ROOT, Load, SaritNode, load
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM: Final = "bench/s"
SEGMENTS: Final = 4
MB: Final = 1_000_000
SARIT: Final = str(Path(sys.executable).with_name("sarit"))
STORES: Final = 2
BETWEEN_SECONDS: Final = 5.0
"""After a turn: a backup ends meanwhile."""
WARM_UP_SECONDS: Final = 30.0
"""What was written before is flushed meanwhile."""
BEGIN_SECONDS: Final = 3.0
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
        while not self._stopped.is_set():
            shutil.rmtree(self._place, ignore_errors=True)
            self._process = subprocess.Popen(
                self._words, env=self._environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            _, error = self._process.communicate()
            if self._process.returncode != 0 and not self._stopped.is_set():
                self.failure = error
                return


def _writing(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    return {"controller": target.controller, "stream": STREAM, "event_bytes": options.event}


def measure(options: argparse.Namespace) -> None:
    """Run, and print."""
    directory = Path(tempfile.mkdtemp(prefix="beside-backup-", dir=options.dir))
    try:
        with started(options.on, directory / "site") as target:
            load("sarit_admin", {"controller": target.controller, "streams": {STREAM: SEGMENTS}})
            # So much is there that a backup copies for a whole turn.
            events = int(options.copy * MB * options.seconds / (options.event + EVENT_HEADER_BYTES))
            load("sarit_write", _writing(target, options) | {"seconds": 600, "events": events, "many": True})
            print(f"{options.on}: {options.ingest} MB/s of appends of {options.event} bytes, {options.copy} MB/s of "
                  f"copying; load of the machine {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
            _show(*_run(target, options, directory))
    finally:
        Load.end_all()
        shutil.rmtree(directory, ignore_errors=True)


def _run(target: Target, options: argparse.Namespace, directory: Path) -> tuple[list[bool], dict[str, Any], float]:
    """Which turns had a backup; by cut, what the writer says of each turn; the part of its rate that it kept."""
    rate = options.ingest * MB // (options.event + EVENT_HEADER_BYTES)
    turns = [with_backup for _ in range(options.pairs) for with_backup in random.sample((True, False), 2)]
    seconds = WARM_UP_SECONDS + len(turns) * (options.seconds + BETWEEN_SECONDS)
    spans, ask = directory / "spans.json", directory / "ask"
    asked = {"rate": rate, "seconds": seconds, "spans": str(spans), "ask": str(ask)}
    writer = Load("sarit_write", _writing(target, options) | asked)
    first = time.monotonic() + WARM_UP_SECONDS
    begins = [first + number * (options.seconds + BETWEEN_SECONDS) for number in range(len(turns))]
    for number, (begin, with_backup) in enumerate(zip(begins, turns, strict=True), 1):
        late = time.monotonic() - begin
        if late > 0:
            raise SystemExit(f"the backup before turn {number} ended {late + BETWEEN_SECONDS:.1f} s after its turn, "
                             f"{BETWEEN_SECONDS:.0f} s are allowed: nothing is compared")  # fmt: skip
        time.sleep(-late)
        with Backups(target, directory / "place", options.copy * MB) if with_backup else nullcontext():
            time.sleep(options.seconds)
        print(f"turn {number} of {len(turns)}", end="\r", file=sys.stderr, flush=True)
    parts = [(at + low, at + high) for at in begins for low, high in _cuts(options.seconds).values()]
    new = spans.with_suffix(".new")
    new.write_text(json.dumps(parts))
    new.rename(spans)
    found = writer.result(seconds)
    names = list(_cuts(options.seconds))
    by_cut = {name: found["spans"][place :: len(names)] for place, name in enumerate(names)}
    return turns, by_cut, found["events_per_s"] / rate


def _cuts(seconds: float) -> dict[str, tuple[float, float]]:
    return {
        "turns": (0.0, seconds),
        f"their first {BEGIN_SECONDS:.0f} s": (0.0, BEGIN_SECONDS),
        "the rest of them": (BEGIN_SECONDS, seconds),
    }


def _show(turns: list[bool], found: dict[str, Any], kept_part: float) -> None:
    if kept_part < KEPT_PART:
        print(f"  only {kept_part:.0%} of the rate: take less")
    for name, spans in found.items():
        beside = [each["p95_ms"] for each, with_backup in zip(spans, turns, strict=True) if with_backup]
        alone = [each["p95_ms"] for each, with_backup in zip(spans, turns, strict=True) if not with_backup]
        low, high = _range(beside, alone)
        print(f"  p95 of {name}: {median(beside):.1f} ms beside a backup, {median(alone):.1f} ms without: "
              f"{median(beside) / median(alone):.2f} times (95 %: {low:.2f} to {high:.2f})", flush=True)  # fmt: skip


def _range(beside: list[float], alone: list[float]) -> tuple[float, float]:
    """Of the ratio of the two medians."""
    return certain_range(lambda draw: median(draw(beside)) / median(draw(alone)))


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=("node", "processes", "cluster"), default="node")
    parser.add_argument("--ingest", type=int, default=50, help="MB of appends in a second")
    parser.add_argument("--event", type=int, default=100, help="bytes of an event")
    parser.add_argument("--copy", type=int, default=20, help="MB that a backup copies in a second")
    parser.add_argument("--pairs", type=int, default=12, help="of turns, one with a backup")
    parser.add_argument("--seconds", type=int, default=20, help="of each turn")
    parser.add_argument("--dir", type=Path, default=None, help="on the disk to be measured")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # `nohup` has it ignored, and backups inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
