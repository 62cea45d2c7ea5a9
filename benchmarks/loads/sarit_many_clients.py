"""Some of many clients: `python -m benchmarks.loads.sarit_many_clients '{"controller": ..., "role": "write", ...}'`.

`count` writers or readers, each a client of its own with its own connections, of the streams `scope/s{first}` on.  A
writer writes `interval` seconds' worth of events of `event_bytes` at a time, due at fixed times, and its latency counts
from there; readers start at the tail and read until they have `events` each, or `seconds` have passed twice.  Prints
"ready" when all are connected, begins when the file `go` is there, and prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loads.connecting import connect
from benchmarks.loads.pace import now, percentiles
from sarit.core.limits import GC_THRESHOLDS

AT_A_TIME = 32
WARM_UP_SECONDS = 2.0


class _Run:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.count, self.first = int(options["count"]), int(options["first"])
        self.seconds, self.interval = float(options["seconds"]), float(options["interval"])
        self.event_bytes, self.per_turn = int(options["event_bytes"]), int(options["per_turn"])
        self.turns = int(self.seconds / self.interval)
        self.took: list[float] = []
        self.bytes = 0
        self.start = 0.0
        self.clients: list[Any] = []

    def _name(self, number: int) -> str:
        return f"{self.options['scope']}/s{self.first + number}"

    async def connect(self) -> None:
        gate = asyncio.Semaphore(AT_A_TIME)

        async def one() -> Any:
            async with gate:
                return await connect(self.options["controller"])

        self.clients = await asyncio.gather(*(one() for _ in range(self.count)))

    async def go(self) -> None:
        # Hundreds of clients share this interpreter, which no user's clients do: looking through all of their objects
        # for garbage again and again took it a third of its time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        print("ready", flush=True)
        go = Path(self.options["go"])
        while not go.exists():
            await asyncio.sleep(0.02)
        self.start = now()

    def note(self, due: float) -> None:
        if due > self.start + WARM_UP_SECONDS:
            self.took.append(now() - due)

    async def write(self) -> None:
        writers = [client.writer(self._name(number)) for number, client in enumerate(self.clients)]
        gate = asyncio.Semaphore(AT_A_TIME)

        async def first(writer: Any) -> None:
            async with gate:
                writer.write(bytes(self.event_bytes))
                await writer.flush()

        await asyncio.gather(*map(first, writers))
        await self.go()
        await asyncio.gather(*(self._write(writer, number) for number, writer in enumerate(writers)))

    async def _write(self, writer: Any, number: int) -> None:
        offset = self.interval * number / self.count
        acked: list[asyncio.Future[None]] = []
        for turn in range(self.turns):
            due = self.start + offset + turn * self.interval
            if (pause := due - now()) > 0:
                await asyncio.sleep(pause)
            event = struct.pack("<d", due).ljust(self.event_bytes, b"x")
            for _ in range(self.per_turn):
                writer.write(event)
            mark = writer.mark()
            mark.add_done_callback(lambda _, due=due: self.note(due))
            acked = [one for one in acked if not one.done()] + [mark]
            await writer.drain()
        await asyncio.gather(*acked)
        self.bytes += self.turns * self.per_turn * self.event_bytes

    async def read(self) -> None:
        readers = [client.reader(self._name(number), "tail") for number, client in enumerate(self.clients)]
        gate = asyncio.Semaphore(AT_A_TIME)

        async def first(reader: Any) -> None:
            async with gate:
                await reader.open()

        await asyncio.gather(*map(first, readers))
        await self.go()
        async with asyncio.timeout(self.seconds * 3 + 30):
            await asyncio.gather(*map(self._read, readers))

    async def _read(self, reader: Any) -> None:
        left = self.turns * self.per_turn
        while left > 0:
            events = list((await reader.next_events()).left)
            left -= len(events)
            self.bytes += len(events) * self.event_bytes
            due = struct.unpack_from("<d", events[0])[0]
            if due:
                self.note(due)
            else:
                left += 1  # the event that opened the connection

    def result(self) -> dict[str, Any]:
        elapsed = now() - self.start
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "clients": self.count, "mb_per_s": round(self.bytes / elapsed / 1e6, 2), "seconds": round(elapsed, 1),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 1), **percentiles(np.array(self.took)),
        }  # fmt: skip


async def main(options: dict[str, Any]) -> None:
    """One run."""
    run = _Run(options)
    await run.connect()
    await (run.write if options["role"] == "write" else run.read)()
    print(json.dumps(run.result()), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
