"""Some of many clients: `python -m benchmarks.loads.sarit_many_clients '{"controller": ..., "role": "write", ...}'`.

`count` writers or readers, each a client of its own with its own connections, of the streams `scope/s{first}` on.  A
writer writes `interval` seconds' worth of events of `event_bytes` at a time, due at fixed times; of every MARKED_TURNS
turns one is marked, and its latency counts from when it was due.  Readers start at the tail and read until they have
all events, each.  Prints "ready" when all are connected, begins when the file `go` is there, and prints one line of
JSON: `mb_per_s` from the begin until all is acknowledged, or read, `steady_mb_per_s` what was acknowledged, or read, in
the last two thirds of that time: less than the due rate means a growing backlog.

It runs at the priority `nice`, below the node: on a separate machine it would not compete with the node for CPU.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import now, percentiles
from sarit.core.limits import EVENT_HEADER_BYTES

AT_A_TIME = 32
# A flush barrier costs a tenth of a turn: measure every fifth turn, 60,000 of 300,000 in 30 s.
MARKED_TURNS = 5
WARM_UP_SECONDS = 2.0
# Extra objects before a garbage collection: CPython's default threshold, which one client alone does not reach.
GC_THRESHOLD_OF_ONE_CLIENT = 700


class _Run:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.count, self.first = int(options["count"]), int(options["first"])
        self.seconds, self.interval = float(options["seconds"]), float(options["interval"])
        self.event_bytes, self.per_turn = int(options["event_bytes"]), int(options["per_turn"])
        self.turns = int(self.seconds / self.interval)
        self.took: list[float] = []
        self.bytes = 0  # of events written, or read
        self.writers: list[Any] = []
        self.done: list[tuple[float, float]] = []  # when, bytes acknowledged or read by then
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
        # Hundreds of clients share this interpreter, unlike a user's: repeated garbage collections over all of their
        # objects took a third of its time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD_OF_ONE_CLIENT * self.count)
        print("ready", flush=True)
        go = Path(self.options["go"])
        while not go.exists():
            await asyncio.sleep(0.02)
        self.start = now()

    def note(self, due: float) -> None:
        if due > self.start + WARM_UP_SECONDS:
            self.took.append(now() - due)

    async def watch(self) -> None:
        """Note what is done when a third of the time has passed, and when all has."""
        for at in (self.seconds / 3, self.seconds):
            await asyncio.sleep(max(self.start + at - now(), 0.0))
            pending = sum(writer.pending_bytes() for writer in self.writers)
            self.done.append((now(), self.bytes - pending * self.event_bytes / (self.event_bytes + EVENT_HEADER_BYTES)))

    async def write(self) -> None:
        self.writers = writers = [client.writer(self._name(number)) for number, client in enumerate(self.clients)]
        gate = asyncio.Semaphore(AT_A_TIME)

        async def first(writer: Any) -> None:
            async with gate:
                writer.write(bytes(self.event_bytes))
                await writer.flush()

        await asyncio.gather(*map(first, writers))
        await self.go()
        await asyncio.gather(self._write(writers), self.watch())

    async def _write(self, writers: list[Any]) -> None:
        """All turns of all writers in the order they are due, by one task: a timer and a wake-up for each would be a
        tenth of a turn, and would not be the client's cost."""
        turn_bytes = self.per_turn * self.event_bytes
        for turn in range(self.turns):
            for number, writer in enumerate(writers):
                due = self.start + (turn + number / self.count) * self.interval
                if (pause := due - now()) > 0:
                    await asyncio.sleep(pause)
                elif not number % AT_A_TIME:
                    await asyncio.sleep(0)
                event = struct.pack("<d", due).ljust(self.event_bytes, b"x")
                for _ in range(self.per_turn):
                    writer.write(event)
                self.bytes += turn_bytes
                if not (turn + number) % MARKED_TURNS:
                    writer.flush_barrier().add_done_callback(partial(self._acked, due))
                await writer.drain()
        await asyncio.gather(*(writer.flush() for writer in writers))

    def _acked(self, due: float, barrier: asyncio.Future[None]) -> None:
        if barrier.exception() is None:  # it fails as the writer does, which `write` and `flush` say
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
            await asyncio.gather(self.watch(), *map(self._read, readers))

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
        (begun, before), (ended, after) = self.done
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "clients": self.count, "mb_per_s": round(self.bytes / elapsed / 1e6, 2), "seconds": round(elapsed, 1),
            "steady_mb_per_s": round((after - before) / (ended - begun) / 1e6, 2),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 1), **percentiles(np.array(self.took)),
        }  # fmt: skip


async def main(options: dict[str, Any]) -> None:
    """One run."""
    os.nice(int(options["nice"]))
    run = _Run(options)
    await run.connect()
    await (run.write if options["role"] == "write" else run.read)()
    print(json.dumps(run.result()), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
