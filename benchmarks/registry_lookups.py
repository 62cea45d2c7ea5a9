"""Look-ups of schemas by their ids: how many a second one process answers, and how long they take beside writing.

python -m benchmarks.registry_lookups [--seconds S] [--rate R] [--events N]

The node, the client that looks up and the client that writes are processes of their own.  First CLIENTS connections ask
without a pause.  Then R look-ups a second, on a schedule: one that is late counts from when it was due; alone, and
beside a writer of N events of 100 bytes a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.cost_loads import EVENT, RUN, STREAM, cpu_seconds
from sarit.client import aio

if TYPE_CHECKING:
    from collections.abc import Iterator

_READY: Final = re.compile(r"controller (\S+:\d+), store .*, schema registry (\S+:\d+)")
CLIENTS: Final = 8
SCHEMAS: Final = 100
_FIELDS: Final = 12  # of each schema: about 700 bytes of text
_BATCH: Final = [EVENT] * 1000


@contextmanager
def _node(directory: Path) -> Iterator[tuple[int, str, str]]:
    """The process, the controller and the registry of a node."""
    command = [sys.executable, "-c", RUN, "standalone", "--data-dir", str(directory), "--http-port", "off"]
    command += ["--controller-port", "0", "--store-port", "0", "--registry", "on", "--registry-port", "0"]
    env = {**os.environ, "PYTHONPATH": str(Path.cwd() / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as node:
        assert node.stdout is not None
        try:
            found = next(match for line in node.stdout if (match := _READY.search(line)))
            yield node.pid, found[1], found[2]
        finally:
            node.kill()


class Connection:
    """One connection to a registry, with one request under way at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> Connection:
        """Connect."""
        host, _, port = self._address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The body of an answer.  Raises AssertionError: it is not 200."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        size = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
        assert size is not None
        return await self._reader.readexactly(int(size[1]))


async def _register(address: str) -> list[int]:
    connection = await Connection(address).open()
    ids = []
    for number in range(SCHEMAS):
        fields = [{"name": f"field_{index}", "type": ["null", "string"], "default": None} for index in range(_FIELDS)]
        schema = json.dumps({"type": "record", "name": f"R{number}", "fields": fields})
        body = json.dumps({"schema": schema}).encode()
        ids.append(json.loads(await connection.ask("POST", f"/subjects/s{number}/versions", body))["id"])
    return ids


async def _most(address: str, ids: list[int], seconds: float) -> float:
    """Look-ups a second of connections that ask without a pause."""
    end, count = time.perf_counter() + seconds, 0

    async def one(number: int) -> None:
        nonlocal count
        connection = await Connection(address).open()
        while time.perf_counter() < end:
            await connection.ask("GET", f"/schemas/ids/{ids[(number + count) % len(ids)]}")
            count += 1

    await asyncio.gather(*map(one, range(CLIENTS)))
    return count / seconds


async def _waits(address: str, ids: list[int], rate: float, seconds: float) -> dict[str, float]:
    """Percentiles in ms of look-ups on a schedule."""
    found: list[float] = []
    began = time.perf_counter()

    async def one(number: int) -> None:
        connection = await Connection(address).open()
        step = CLIENTS / rate
        due = began + step * number / CLIENTS
        while due < began + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await connection.ask("GET", f"/schemas/ids/{ids[number % len(ids)]}")
            found.append(time.perf_counter() - due)
            due += step

    await asyncio.gather(*map(one, range(CLIENTS)))
    found.sort()
    places = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
    return {name: round(found[int(len(found) * place)] * 1e3, 2) for name, place in places.items()}


async def _write(controller: str, rate: float, seconds: float) -> None:
    """Write events at a rate; prints how many there were a second."""
    async with await aio.connect(controller, wait=60) as client:
        await client.create_scope(STREAM.partition("/")[0])
        await client.create_stream(STREAM, segments=4)
        async with client.writer(STREAM) as writer:
            began, written = time.perf_counter(), 0
            while (now := time.perf_counter()) < began + seconds:
                while written < rate * (now - began):
                    writer.write_many(_BATCH)
                    written += len(_BATCH)
                await asyncio.sleep(0.001)
            await writer.flush()
            print(written / (time.perf_counter() - began))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--events", type=float, default=500_000.0)
    parser.add_argument("--write", metavar="CONTROLLER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        asyncio.run(_write(given.write, given.events, given.seconds))
        return
    with tempfile.TemporaryDirectory(prefix="sarit-lookups-") as directory, _node(Path(directory) / "data") as node:
        pid, controller, registry = node
        ids = asyncio.run(_register(registry))
        asyncio.run(_most(registry, ids, 1.0))
        used = cpu_seconds(pid)
        most = asyncio.run(_most(registry, ids, given.seconds))
        used = (cpu_seconds(pid) - used) / given.seconds
        print(f"{most:,.0f} look-ups a second by {CLIENTS} connections; the node used {used:.2f} processors")
        alone = asyncio.run(_waits(registry, ids, given.rate, given.seconds))
        print(f"{given.rate:g} look-ups a second alone, ms: {alone}")
        command = [sys.executable, "-m", "benchmarks.registry_lookups", "--write", controller]
        command += ["--events", str(given.events), "--seconds", str(given.seconds + 4)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            time.sleep(3)
            beside = asyncio.run(_waits(registry, ids, given.rate, given.seconds))
            events = float(writer.communicate()[0])
        print(f"beside {events:,.0f} events a second, ms: {beside}")


if __name__ == "__main__":
    main()
