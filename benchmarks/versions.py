"""Two versions of the node under the same load: python -m benchmarks.versions CHECKOUT [--control] [--pairs N]

CHECKOUT is a work tree of the earlier version.  Its node and that of this work tree run at once, each in a directory
of its own; the load is this work tree's, and comes to one and then to the other.  So both meet the same machine: its
processors are not always equally fast.  Bulk, as many events to both; 200 connections with one append of 100 bytes at
a time; 10,000 events/s, open loop.  For each figure: the median of either, and the median of the ratios of the pairs.

`--control` adds a second node of this work tree and compares both of its nodes in the same way: what it finds
there is what the method cannot see.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import ROOT, Load, SaritNode, load
from benchmarks.sarit_rows import EVENT_STORED_BYTES, LOW_RATE, wait_idle

CONNECTIONS: Final = 200
SEGMENTS: Final = 16
BULK_EVENTS: Final = 4_000_000
FIGURES: Final = {
    "bulk_events_per_s": "bulk, events/s",
    "bulk_cpu_s_per_gb": "the same, processor time of the node for a GB, s",
    "appends_per_s": f"{CONNECTIONS} connections, appends/s",
    "cpu_us_per_append": "the same, processor time of the node for an append, us",
    "p50_ms": f"{LOW_RATE:,} events/s: acknowledgement p50, ms",
    "p95_ms": "the same, p95, ms",
    "cpu_us_per_event": "the same, processor time of the node for an event, us",
}


class Version:
    """A node of one version, and what was measured of it, by figure."""

    def __init__(self, root: Path, directory: Path) -> None:
        self.node = SaritNode(directory, root=root).start(plain=True)
        self.found: dict[str, list[float]] = {figure: [] for figure in FIGURES}

    def measure(self, pair: int, seconds: float) -> None:
        """One slice of each load."""
        # Writers of the same ids cannot write to the same stream again.
        streams = {f"bench/{name}-{pair}": SEGMENTS for name in ("bulk", "small", "steady")}
        load("sarit_admin", {"controller": self.node.endpoint, "streams": streams})
        took = {"many": True, "seconds": 60, "events": BULK_EVENTS}
        found, cpu = self._run("sarit_write", f"bench/bulk-{pair}", took)
        self._note("bulk_events_per_s", found["events_per_s"])
        self._note("bulk_cpu_s_per_gb", cpu / (found["events"] * EVENT_STORED_BYTES / 1e9))
        small = {"segments": SEGMENTS, "connections": CONNECTIONS, "event_bytes": 100, "seconds": seconds}
        found, cpu = self._run("sarit_small_writers", f"bench/small-{pair}", small, ready=True)
        self._note("appends_per_s", found["appends_per_s"])
        self._note("cpu_us_per_append", cpu / found["appends"] * 1e6)
        found, cpu = self._run("sarit_write", f"bench/steady-{pair}", {"rate": LOW_RATE, "seconds": seconds})
        for name in ("p50_ms", "p95_ms"):
            self._note(name, found[name])
        self._note("cpu_us_per_event", cpu / found["events"] * 1e6)

    def _run(
        self, module: str, stream: str, options: dict[str, Any], *, ready: bool = False
    ) -> tuple[dict[str, Any], float]:
        wait_idle(self.node)
        running = Load(module, {"controller": self.node.endpoint, "stream": stream, **options})
        if ready:
            running.wait_ready()
        cpu = self.node.cpu_seconds()
        found = running.result()
        return found, self.node.cpu_seconds() - cpu

    def _note(self, figure: str, value: float) -> None:
        self.found[figure].append(value)


def report(first: str, before: Version, second: str, after: Version) -> None:
    """Print all figures of two nodes, each by its name."""
    for figure, what in FIGURES.items():
        old, new = before.found[figure], after.found[figure]
        ratios = [of_new / of_old for of_old, of_new in zip(old, new, strict=True)]
        print(
            f"{what}: {first} {statistics.median(old):.4g}, {second} {statistics.median(new):.4g}, ratio "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    parser.add_argument("--control", action="store_true", help="compare two nodes of this work tree, too")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each load but bulk")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="versions-"))
    try:
        with ExitStack() as nodes:
            roots = [options.checkout.absolute(), ROOT, *([ROOT] if options.control else [])]
            versions = []
            for number, root in enumerate(roots):
                versions.append(Version(root, directory / f"node-{number}"))
                nodes.callback(versions[-1].node.stop)
            for pair in range(options.pairs):
                # Who begins changes: what a slice leaves to the next is the same for all.
                for version in versions if pair % 2 else reversed(versions):
                    version.measure(pair, options.seconds)
                print(f"pair {pair + 1} of {options.pairs}", flush=True)
            report("earlier", versions[0], "this", versions[1])
            if options.control:
                print("control:")
                report("this", versions[1], "the same", versions[2])
    finally:
        Load.end_all()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
