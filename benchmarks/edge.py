"""How much memory and disk a node of the profile `edge` takes, with one link that pushes many small streams.

python -m benchmarks.edge [--streams N] [--rate BYTES] [--seconds S] [--plain]

Two nodes are processes of their own: the edge (`--profile edge`; with --plain the defaults) and a core.  One line of
JSON: resident memory (`VmRSS`, and its peak `VmHWM`, of /proc) and disk of the edge when it is empty, and at the end
of S seconds in which a third process wrote N streams, N events of RATE/N bytes a second, while a link copied them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB: Final = 1 << 20
SARIT: Final = str(Path(sys.executable).with_name("sarit"))
START_SECONDS: Final = 5.0
LAG_SECONDS: Final = 60.0


@contextmanager
def node(directory: str, *options: str) -> Iterator[tuple[int, str]]:
    """Run a node; its process id, and the address of its controller."""
    command = [SARIT, "standalone", "--data-dir", directory, "--controller-port", "0",
               "--store-port", "0", "--log-level", "warning", *options]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            while "sarit is ready: controller " not in line:
                assert line, "the node did not start"
                line = process.stdout.readline()
            yield process.pid, line.split("controller ")[1].split(",")[0]
        finally:
            process.terminate()


def memory(pid: int) -> dict[str, float]:
    """Return the resident memory of a process, and its peak, in MiB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {"rss": _mib(lines["VmRSS"]), "peak": _mib(lines["VmHWM"]), "threads": int(lines["Threads"])}


def _mib(text: str) -> float:
    return round(int(text.split()[0]) / 1024, 1)


def disk(directory: str) -> float:
    """Return the blocks of all files below a directory, in MiB."""
    found = (os.lstat(os.path.join(place, name)) for place, _, names in os.walk(directory) for name in names)
    return round(sum(each.st_blocks * 512 for each in found) / MIB, 1)


async def write(address: str, streams: int, rate: int, seconds: float) -> None:
    """Write one event a second to each stream."""
    import sarit.aio

    event = os.urandom(rate // streams)
    async with await sarit.aio.connect(address) as client:
        await client.create_scope("edge")
        writers = []
        for number in range(streams):
            await client.create_stream("edge", f"sensor-{number}")
            writers.append(client.writer(f"edge/sensor-{number}"))
        began, sent = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds:
            for number in range(sent, due := int(now * streams)):
                writers[number % streams].write(event)
            sent = max(sent, due)
            await asyncio.sleep(0.05)
        for writer in writers:
            await writer.close()


async def copied(address: str, streams: int) -> dict[str, Any]:
    """Wait until the link has copied all, and return its status."""
    import sarit.aio

    async with await sarit.aio.connect(address) as client:
        ends = time.monotonic() + LAG_SECONDS
        while True:
            status = (await client.links.get("core")).status
            if (status.streams >= streams and not status.lag_bytes and status.copied_bytes) or time.monotonic() > ends:
                return {"copied": status.copied_bytes, "lag": status.lag_bytes, "note": status.note}
            await asyncio.sleep(1)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run both nodes, and return the figures."""
    profile = () if options.plain else ("--profile", "edge")
    with (
        tempfile.TemporaryDirectory() as place,
        node(f"{place}/core", "--http-port", "off") as (_, core),
        node(f"{place}/edge", *profile, "--http-port", "off") as (pid, edge),
    ):
        time.sleep(START_SECONDS)
        empty = {**memory(pid), "disk": disk(f"{place}/edge")}
        link = [SARIT, "link", "create", "core", "--push", core, "--controller", edge]
        subprocess.run([*link, "--include", "edge/*"], check=True, stdout=subprocess.DEVNULL)
        command = [sys.executable, "-m", "benchmarks.edge", "--write", edge]
        command += ["--streams", str(options.streams), "--rate", str(options.rate), "--seconds", str(options.seconds)]
        seen = []
        with subprocess.Popen(command) as writer:
            while writer.poll() is None:
                seen.append(memory(pid)["rss"])
                time.sleep(1)
        busy = {**memory(pid), "most_rss": max(seen), "disk": disk(f"{place}/edge")}
        return {"empty": empty, "busy": busy, "link": asyncio.run(copied(edge, options.streams))}


def main() -> None:
    """Measure, or write."""
    parser = argparse.ArgumentParser(description="Memory and disk of a node at the edge")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--rate", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--write", metavar="ADDRESS")
    options = parser.parse_args()
    if options.write:
        asyncio.run(write(options.write, options.streams, options.rate, options.seconds))
    else:
        print(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
