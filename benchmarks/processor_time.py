"""Processor time of a node for a GB that is written and read: `python -m benchmarks.processor_time`.

For docs/operations/provisioning.md.  It is time of processors, not of a clock: other work on the machine changes it
little.  Two turns for each size of events.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import sarit

GB: Final = 1_000_000_000
PAYLOAD_BYTES: Final = 500_000_000
TURNS: Final = 2
BATCH_BYTES: Final = 1 << 20
IDLE_SECONDS: Final = 12  # until a node has flushed what was written
READY: Final = re.compile(r"controller (\S+:\d+), store")


def node_seconds(pid: int) -> float:
    """What a process has used, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def client_seconds() -> float:
    """What this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def written_bytes(pid: int) -> int:
    """What a process has sent to disks."""
    (line,) = [line for line in Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("write_bytes")]
    return int(line.split()[1])


def one_turn(client: Any, pid: int, stream: str, size: int) -> dict[str, float]:
    """Write events of `size` bytes, and read it back."""
    batch = [os.urandom(size)] * (BATCH_BYTES // size)
    count = PAYLOAD_BYTES // (size * len(batch))
    payload = count * size * len(batch) / GB
    client.create_stream(stream, segments=4)
    node, own, disk = node_seconds(pid), client_seconds(), written_bytes(pid)
    with client.writer(stream) as writer:
        for _ in range(count):
            writer.write_many(batch)
    used = client_seconds() - own
    time.sleep(IDLE_SECONDS)
    figures = {
        "written: node, s/GB": (node_seconds(pid) - node) / payload,
        "written: client, s/GB": used / payload,
        "written: to disks, GB/GB": (written_bytes(pid) - disk) / GB / payload,
    }
    node, own = node_seconds(pid), client_seconds()
    rows = sum(part.num_rows for part in client.reader(stream, end="tail").arrow_batches())
    assert rows == count * len(batch)
    figures["read: node, s/GB"] = (node_seconds(pid) - node) / payload
    figures["read: client, s/GB"] = (client_seconds() - own) / payload
    client.seal_stream(stream)
    client.delete_stream(stream)
    return figures


def main() -> None:
    """Print the medians for events of 100 and 1,000 bytes."""
    program = str(Path(sys.executable).with_name("sarit"))
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        options = ["--data-dir", f"{folder}/data", "--memory", "1G", "--http-port", "off"]
        ports = ["--controller-port", "0", "--store-port", "0", "--log-level", "error"]
        node = subprocess.Popen([program, "standalone", *options, *ports], stdout=subprocess.PIPE, text=True)
        try:
            assert node.stdout is not None
            found = READY.search(node.stdout.readline())
            assert found is not None
            with sarit.connect(found[1]) as client:
                client.create_scope("bench")
                for size in (100, 1000):
                    turns = [one_turn(client, node.pid, f"bench/s{size}-{turn}", size) for turn in range(TURNS)]
                    for name in turns[0]:
                        values = sorted(turn[name] for turn in turns)
                        extremes = f"{values[0]:.2f}..{values[-1]:.2f}"
                        print(f"{size} B  {name:<26} {statistics.median(values):6.2f}  {extremes}", flush=True)
        finally:
            node.terminate()
            node.wait()


if __name__ == "__main__":
    main()
