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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loads.connecting import connect
from benchmarks.loads.pace import now, percentiles

AT_A_TIME = 32
WARM_UP_SECONDS = 2.0
# Objects more than there were: CPython's own threshold, which what one client has in flight does not reach.
LOOKS_OF_ONE_CLIENT = 700


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
        gc.set_threshold(LOOKS_OF_ONE_CLIENT * self.count)
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
        await self._write(writers)
        self.bytes += self.count * self.turns * self.per_turn * self.event_bytes

    async def _write(self, writers: list[Any]) -> None:
        """All turns of all writers in the order they are due, by one task: a timer and a wake-up for each would be a
        tenth of what a turn takes, and no client's."""
        marks: list[asyncio.Future[None]] = []
        for turn in range(self.turns):
            marks.clear()  # of one writer, each is done after the one before, and fails with it
            for number, writer in enumerate(writers):
                due = self.start + (turn + number / self.count) * self.interval
                if (pause := due - now()) > 0:
                    await asyncio.sleep(pause)
                elif not number % AT_A_TIME:
                    await asyncio.sleep(0)
                event = struct.pack("<d", due).ljust(self.event_bytes, b"x")
                for _ in range(self.per_turn):
                    writer.write(event)
                mark = writer.mark()
                mark.add_done_callback(partial(self._acked, due))
                marks.append(mark)
                await writer.drain()
        await asyncio.gather(*marks)

    def _acked(self, due: float, _mark: asyncio.Future[None]) -> None:
        self.note(due)

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
