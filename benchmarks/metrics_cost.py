"""What metrics cost: processor time for an append, with and without counting, of one node in turns.

python -m benchmarks.metrics_cost [--load small|large] [--rounds N]

The node (`benchmarks.metrics_node`) is at full load.  Every few milliseconds it changes between three variants of its
code: one that counts, one that does not, and again one that counts.  Neighbouring blocks have the same machine, however
busy it is, and each consists of the same reads, frames and answers.  Compared are the blocks that were disturbed least:
a tenth of each variant was quicker.  The third variant to the first is the control: by how much it differs from 1 is
what this method cannot see.  A scrape is measured apart, and added as one in each second: more often than Prometheus
asks.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sarit
from benchmarks.cost_loads import EVENT
from benchmarks.figures import certain_range
from benchmarks.metrics_node import AGAIN, OFF, ON
from sarit.core.names import SegmentId, segment_name
from sarit.core.policies import RetentionPolicy, RetentionType
from sarit.wire import commands as wire
from sarit.wire.frames import FrameReader, append_block_end_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    # Of each round, microseconds of processor time for an event in its blocks, by variant.
    Rounds = Sequence[Mapping[str, Sequence[float]]]

GOAL: Final = 0.02
QUANTILE: Final = 0.1
KEPT_BYTES: Final = 256 << 20
SEGMENTS: Final = 4
READY: Final = re.compile(r"controller (\S+:\d+), store (\S+:\d+), HTTP (\S+:\d+),")


@dataclass(frozen=True)
class Load:
    """`block`: events, of some milliseconds of processor time; `batch`: see `Lockstep`."""

    block: int
    rounds: int
    batch: tuple[int, int]


LOADS: Final = {"small": Load(512, 2000, (16, 1)), "large": Load(40_000, 1000, (1, 5000))}


def undisturbed(values: Iterable[float]) -> float:
    """The figure of blocks that nothing disturbed: what a busy machine adds is only ever more."""
    ordered = sorted(values)
    return ordered[int(QUANTILE * (len(ordered) - 1))]


def share(rounds: Rounds, one: str, other: str) -> float:
    """By what share of the other one variant costs more."""
    return undisturbed(chain.from_iterable(each[one] for each in rounds)) / undisturbed(
        chain.from_iterable(each[other] for each in rounds)
    ) - 1  # fmt: skip


def certain(rounds: Rounds, one: str, other: str) -> tuple[float, float, float]:
    """`share`, and the two values between which it is in 95 of 100 drawings of as many rounds from these."""
    return share(rounds, one, other), *certain_range(lambda draw: share(draw(rounds), one, other))


class Lockstep:
    """One connection to a store, with a writer on each segment: batches of appends, each answered before the next.

    So each block of each variant is made of the same reads, frames and answers, however busy the machine is."""

    def __init__(self, store: str, segments: Sequence[str], appends: int, events: int) -> None:
        """`appends`: of each segment in a batch; `events`: in each of them."""
        host, _, port = store.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameReader()
        self._appends, self._events, self._last = appends, events, 0
        self._data = (struct.pack(">ii", 0, len(EVENT)) + EVENT) * events
        self._writers = [bytes([number]) * 16 for number in range(1, 1 + len(segments))]
        self._ask(wire.encode(wire.Hello(17, 5)), 1)
        for writer, segment in zip(self._writers, segments, strict=True):
            self._ask(wire.encode(wire.SetupAppend(1, writer, segment, "")), 1)

    def batch(self) -> None:
        """Send one, and wait until all of it is durable."""
        parts = []
        for _ in range(self._appends):
            self._last += self._events
            for writer in self._writers:
                prefix, suffix = append_block_end_header(writer, len(self._data), self._events, self._last, 1)
                parts += [prefix, self._data, suffix]
        self._ask(b"".join(parts), len(self._writers) * self._appends)

    def _ask(self, request: bytes, answers: int) -> None:
        self._socket.sendall(request)
        while answers > 0:
            data = self._socket.recv(1 << 20)
            if not data:
                raise RuntimeError("the store closed the connection")
            for code, payload in self._frames.feed(data):
                answer = wire.decode(code, payload)
                if isinstance(answer, wire.DataAppended):
                    # An answer may be for several appends of its writer.
                    answers -= (answer.event_number - max(answer.previous_event_number, 0)) // self._events
                else:
                    assert isinstance(answer, wire.Hello | wire.AppendSetup), answer
                    answers -= 1


def _stream(controller: str) -> list[str]:
    """The segments of a new stream."""
    with sarit.connect(controller, wait=60) as client:
        client.create_scope("cost")
        retention = RetentionPolicy(RetentionType.SIZE, KEPT_BYTES)
        client.create_stream("cost/s", segments=SEGMENTS, retention=retention)
    return [segment_name("cost", "s", SegmentId(0, number)) for number in range(SEGMENTS)]


def measure(name: str, rounds: int, directory: Path) -> dict[str, Any]:
    """The node's report of one load."""
    plan, report = directory / "plan.json", directory / "report.json"
    plan.write_text(json.dumps({"block_events": LOADS[name].block, "rounds": rounds, "after_seconds": 3}))
    command = [sys.executable, "-m", "benchmarks.metrics_node", str(plan), str(report), "standalone"]
    command += ["--data-dir", str(directory / "data"), "--controller-port", "0", "--store-port", "0"]
    command += ["--http-port", "0", "--retention-interval", "2"]
    log = (directory / "log").open("w")
    with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as node:
        assert node.stdout is not None
        try:
            found = next((match for line in node.stdout if (match := READY.search(line))), None)
            if found is None:
                raise RuntimeError((directory / "log").read_text()[-2000:])
            load = Lockstep(found[2], _stream(found[1]), *LOADS[name].batch)
            while not report.exists():
                load.batch()
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f"{error}: {(directory / 'log').read_text()[-2000:]}") from None
        finally:
            node.kill()
    return dict(json.loads(report.read_text()))


def show(name: str, found: dict[str, Any]) -> bool:
    """Print the figures of one load; whether the goal is met with certainty."""
    rounds = found["rounds"]
    cost, low, high = certain(rounds, ON, OFF)
    noise, least, most = certain(rounds, AGAIN, ON)
    scrape = found["scrape_seconds"]
    usual = statistics.median(chain.from_iterable(each[OFF] for each in rounds))
    least_cost = undisturbed(chain.from_iterable(each[OFF] for each in rounds))
    print(
        f"{name}: {least_cost:.3f} µs an event without counting (half of the blocks: {usual:.3f}), {len(rounds)} rounds"
    )
    print(f"  counting: {cost:+.2%} (95 %: {low:+.2%} to {high:+.2%})")
    print(f"  control:  {noise:+.2%} (95 %: {least:+.2%} to {most:+.2%})")
    print(f"  a scrape of {found['series']} series: {scrape * 1e3:.1f} ms, one a second: {scrape:+.2%}")
    met: bool = high + scrape <= GOAL
    print(f"  together: {cost + scrape:+.2%}, at most {high + scrape:+.2%} (goal {GOAL:.0%})"
          f"{'' if met else ': MISSED'}", flush=True)  # fmt: skip
    return met


def main() -> None:
    """Measure, and print; ends with 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", choices=list(LOADS), action="append")
    parser.add_argument("--rounds", type=int, help="of six blocks each")
    parser.add_argument("--dir", type=Path, help="for the data of the nodes")
    options = parser.parse_args()
    met = True
    for name in options.load or list(LOADS):
        with tempfile.TemporaryDirectory(prefix="metrics-cost-", dir=options.dir) as place:
            met &= show(name, measure(name, options.rounds or LOADS[name].rounds, Path(place)))
    sys.exit(not met)


if __name__ == "__main__":
    main()
