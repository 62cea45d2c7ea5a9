"""How fast a link copies, how exactly it keeps to its rate, and what many small streams cost.

python -m benchmarks.mirror [catch-up] [rate] [small] [--mb N] [--pairs N] [--seconds S] [--streams N]

*catch-up*: a stream of N MB is at the edge.  In one turn of each pair, a writer writes as much into the core, while a
reader reads the stream at the edge; in the other one, a new link pushes the stream to the core.  The figure is the
ratio of their speeds.  *rate*: a link of 1 MB/s with far more to copy, whose bytes a relay counts on their way: payload
a second, and the most of all bytes within any 10 s.  *small*: one event a minute in each of N streams, with the link
paused and then active: the processor time of both nodes, in percent of a core.

Events are random bytes, which no compression helps.  Both nodes, the clients and the relay share this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MB: Final = 1_000_000
RATE: Final = MB
EVENT_BYTES: Final = 1000
POOL_BYTES: Final = 16 * MB
SPAN_SECONDS: Final = 10.0
WARM_UP_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.02
PIPE_BYTES: Final = 1 << 16


# -- the processes -----------------------------------------------------------------------------------


async def node(directory: str) -> None:
    """Run a node that answers commands from standard input, a line of JSON each."""
    from sarit.controller.jobs import JobTable
    from sarit.core.links import Link, LinkDirection, LinkRole, LinkSettings, LinkState
    from sarit.core.policies import StreamConfig
    from sarit.env.real import real_env
    from sarit.mirror.link_codec import decode_status
    from sarit.mirror.link_table import job_of, stream_of
    from sarit.process.ownership.claims import claim_directory
    from sarit.process.settings import NodeConfig
    from sarit.process.standalone import open_node

    env = real_env()
    config = NodeConfig(directory, controller_port=0, store_port=0, jobs=True).validated()
    claim = claim_directory(config, env)
    served = await open_node(config, env, claim)
    await served.start(claim)
    role = served.controller_role
    print(json.dumps({"controller": f"127.0.0.1:{served.controller_port}"}), flush=True)
    jobs = JobTable(role.controller.catalog)

    async def answer(asked: dict[str, Any]) -> Any:
        links = role.mirror().links
        if (name := asked.get("create")) is not None:
            settings = LinkSettings(
                LinkDirection.PUSH, asked["peer"], include=tuple(asked["include"]), bytes_per_second=asked["rate"],
                tables=False, registry=False,
            )  # fmt: skip
            link = Link(name, os.urandom(16), env.clock.wall_ms(), LinkRole.ACTIVE, LinkState.ACTIVE, settings)
            await links.create(link)
            await role.controller.streams.create(stream_of(name), StreamConfig())
            await jobs.create(job_of(name), link.link_id)
        elif (name := asked.get("status")) is not None:
            found = await jobs.find(job_of(name))
            status = decode_status(found.job.state) if found is not None and found.job.state else None
            return None if status is None else [status.copied_bytes, status.streams, status.lag_bytes, status.note]
        elif (name := asked.get("length")) is not None:
            infos = await role.controller.segments.infos([f"{name}/0.#epoch.0"])
            return 0 if infos[0] is None else infos[0].length
        return None

    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await answer(json.loads(line))), flush=True)
    await served.stop()


async def fill(options: dict[str, Any]) -> None:
    """Write random events to streams, in turn: `bytes` at full speed, or one to each in `interval` seconds."""
    import sarit.aio
    from sarit.core.errors import Exists

    # Bytes that repeat only after more than one message of a link: zstd works on each by itself.
    events, names = os.urandom(POOL_BYTES), options["streams"]

    def event(number: int) -> bytes:
        at = number * EVENT_BYTES % POOL_BYTES
        return events[at : at + EVENT_BYTES]

    async with await sarit.aio.connect(options["controller"]) as client:
        with suppress(Exists):
            await client.create_scope("bench")
        for name in names:
            await client.create_stream("bench", name)
        writers = [client.writer(f"bench/{name}") for name in names]
        for writer in writers:
            await writer.open()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = time.monotonic()
        if total := options.get("bytes"):
            for number in range(total // EVENT_BYTES):
                writers[0].write(event(number))
                if number % 100 == 99:
                    await writers[0].drain()
            await writers[0].flush()
        turn = 0
        while time.monotonic() - began < options.get("seconds", 0):
            due = int((time.monotonic() - began) / options["interval"] * len(names))
            for number in range(turn, due):
                writers[number % len(names)].write(event(number))
            turn = max(turn, due)
            await asyncio.sleep(0.1)
        print(json.dumps(time.monotonic() - began), flush=True)
        for writer in writers:
            await writer.close()


async def read(options: dict[str, Any]) -> None:
    """Read a stream from its head again and again, until the end of standard input."""
    import sarit.aio

    async with await sarit.aio.connect(options["controller"]) as client:
        print("ready", flush=True)
        ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        while not ended.done():
            async for _ in await client.stream(options["stream"]).batch():
                if ended.done():
                    break


async def relay(target: str) -> None:
    """Pass bytes on to a node, and write the number that went there in each tenth of a second."""
    host, _, port = target.rpartition(":")
    passed: dict[int, int] = {}

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(PIPE_BYTES):
                if counted:
                    tenth = int(time.monotonic() * 10)
                    passed[tenth] = passed.get(tenth, 0) + len(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other = await asyncio.open_connection(host, int(port))
        await asyncio.gather(forward(reader, other[1], counted=True), forward(other[0], writer, counted=False))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(json.dumps(server.sockets[0].getsockname()[1]), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(sorted(passed.items())), flush=True)


class Child:
    """One of the processes above."""

    def __init__(self, kind: str, argument: str) -> None:
        self._kind = kind
        command = [sys.executable, "-m", "benchmarks.mirror", f"--{kind}", argument]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None
        found = self._process.stdout.readline()
        if not found:
            raise SystemExit(f"a process of the benchmark ended: {self._kind}")
        return found

    def ask(self, line: str) -> Any:
        """Write a line, and return the answer."""
        self.say(line)
        return json.loads(self.line())

    def say(self, line: str = "") -> None:
        """Write a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def cpu_seconds(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it as a power cut does."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Close its input, and wait."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._process.kill()


class Pair:
    """An edge and a core."""

    def __init__(self, directory: Path) -> None:
        self.edge, self.core = (Child("node", str(directory / name)) for name in ("edge", "core"))
        self.edge_address, self.core_address = (json.loads(one.line())["controller"] for one in (self.edge, self.core))

    def link(self, name: str, include: list[str], rate: int = 0, peer: str = "") -> None:
        """Create a link from the edge to the core."""
        asked = {"create": name, "peer": peer or self.core_address, "include": include, "rate": rate}
        self.edge.ask(json.dumps(asked))

    def copied(self, stream: str) -> int:
        """Return the length of a stream's mirror."""
        return int(self.core.ask(json.dumps({"length": stream})))

    def cpu_seconds(self) -> float:
        """Processor time of both nodes so far."""
        return self.edge.cpu_seconds() + self.core.cpu_seconds()

    def end(self) -> None:
        """Stop both."""
        self.edge.end()
        self.core.end()


def _fill(controller: str, stream: str, count: int) -> float:
    """Return in how many seconds one writer writes so many bytes."""
    writer = Child("fill", json.dumps({"controller": controller, "streams": [stream], "bytes": count}))
    writer.line()
    seconds = float(writer.ask(""))
    writer.end()
    return seconds


def _until(holds: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not holds():
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


# -- the parts ---------------------------------------------------------------------------------------


def catch_up(pair: Pair, total: int, pairs: int) -> dict[str, Any]:
    """Compare a link with a writer into the core beside a reader of the edge."""
    writer, link = list[float](), list[float]()
    writer_cpu, link_cpu = list[float](), list[float]()
    for number in range(pairs):
        stream = f"bulk{number}"
        _fill(pair.edge_address, stream, total)
        for turn in random.sample(("writer", "link"), 2):
            if turn == "writer":
                reader = Child("read", json.dumps({"controller": pair.edge_address, "stream": f"bench/{stream}"}))
                reader.line()
                before = pair.cpu_seconds()
                writer.append(total / MB / _fill(pair.core_address, f"own{number}", total))
                writer_cpu.append((pair.cpu_seconds() - before) / total * MB)
                reader.end()
            else:
                before = pair.cpu_seconds()
                pair.link(f"bulk{number}", [f"bench/{stream}"])
                _until(lambda name=f"bench/{stream}": pair.copied(name) > 0)  # type: ignore[misc]
                at = pair.copied(f"bench/{stream}")
                took = _until(lambda name=f"bench/{stream}": pair.copied(name) >= total)  # type: ignore[misc]
                link.append((pair.copied(f"bench/{stream}") - at) / MB / took)
                link_cpu.append((pair.cpu_seconds() - before) / total * MB)
    ratio = median(link) / median(writer)
    return {
        "writer_mb_s": writer, "link_mb_s": link, "ratio": ratio, "goal": "0.8 or more",
        "nodes_cpu_s_per_mb": {"writer": writer_cpu, "link": link_cpu},
    }  # fmt: skip


def rate(pair: Pair, seconds: float) -> dict[str, Any]:
    """Measure a link of 1 MB/s for some time."""
    _fill(pair.edge_address, "slow", int(RATE * (seconds + 20)))
    passed = Child("relay", pair.core_address)
    pair.link("slow", ["bench/slow"], RATE, f"127.0.0.1:{json.loads(passed.line())}")
    # The mirror grows a round at a time: measure from the end of one round to the end of another.
    rounds: list[tuple[float, int]] = []
    ends = time.monotonic() + seconds + WARM_UP_SECONDS
    while time.monotonic() < ends:
        copied = pair.copied("bench/slow")
        if not rounds or copied != rounds[-1][1]:
            rounds.append((time.monotonic(), copied))
        time.sleep(POLL_SECONDS)
    begun = next(one for one in rounds if one[0] >= ends - seconds)
    payload = (rounds[-1][1] - begun[1]) / (rounds[-1][0] - begun[0])
    tenths = dict(passed.ask(""))
    passed.end()
    spans = [sum(tenths.get(t, 0) for t in range(first, first + int(10 * SPAN_SECONDS))) for first in tenths]
    return {
        "payload_bytes_s": payload,
        "most_in_10_s": max(spans) / SPAN_SECONDS,
        "goal": f"{0.95 * RATE:.0f} of payload or more, {1.05 * RATE:.0f} of all bytes at most",
    }


def small(pair: Pair, streams: int, seconds: float) -> dict[str, Any]:
    """Measure the processor time of both nodes with many streams of an event a minute each."""
    names = [f"small{number:05}" for number in range(streams)]
    asked = {"controller": pair.edge_address, "streams": names, "interval": 60.0, "seconds": 4 * seconds + 30}
    writer = Child("fill", json.dumps(asked))
    writer.line()
    writer.say()

    def percent() -> list[float]:
        before = [one.cpu_seconds() for one in (pair.edge, pair.core)]
        time.sleep(seconds)
        return [
            100 * (one.cpu_seconds() - was) / seconds for one, was in zip((pair.edge, pair.core), before, strict=True)
        ]

    without = percent()
    pair.link("small", ["bench/small*"])
    _until(lambda: (found := pair.edge.ask(json.dumps({"status": "small"}))) is not None and found[1] >= streams)
    time.sleep(15)
    with_link = percent()
    status = pair.edge.ask(json.dumps({"status": "small"}))
    writer.end()
    extra = [a - b for a, b in zip(with_link, without, strict=True)]
    return {"without": without, "with_link": with_link, "extra_percent": extra, "status": status, "goal": "5 in all"}


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["catch-up", "rate", "small"])
    parser.add_argument("--mb", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=10_000)
    for kind in ("node", "fill", "read", "relay"):
        parser.add_argument(f"--{kind}", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.node:
        asyncio.run(node(chosen.node))
    elif chosen.fill:
        asyncio.run(fill(json.loads(chosen.fill)))
    elif chosen.read:
        asyncio.run(read(json.loads(chosen.read)))
    elif chosen.relay:
        asyncio.run(relay(chosen.relay))
    else:
        for part in chosen.parts:
            with tempfile.TemporaryDirectory(prefix="mirror-") as directory:
                pair = Pair(Path(directory))
                try:
                    found = {
                        "catch-up": lambda pair=pair: catch_up(pair, chosen.mb * MB, chosen.pairs),
                        "rate": lambda pair=pair: rate(pair, chosen.seconds),
                        "small": lambda pair=pair: small(pair, chosen.streams, chosen.seconds),
                    }[part]()
                    print(json.dumps({part: found}, indent=1), flush=True)
                finally:
                    pair.end()


if __name__ == "__main__":
    main()
