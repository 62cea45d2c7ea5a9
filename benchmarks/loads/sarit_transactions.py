"""Transactions of one client: `python -m benchmarks.loads.sarit_transactions '{"controller": ..., "stream": ...}'`.

Each is begun, written to (`events` events of different keys), and committed until readers can see it.  Without `rate`
there are always `open` of them under way; with it one begins every 1 / rate seconds, whatever the server does, and its
time counts from when it was due.  Prints one line of JSON: how many a second, how long a whole one took, and how long
its commit.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import EVENT_BYTES, now, percentiles

WARM_UP_SECONDS = 1.0
KEYS = [f"key-{number}" for number in range(64)]


class _Run:
    def __init__(self, writer: Any, options: dict[str, Any]) -> None:
        self.writer = writer
        self.events = int(options.get("events", 4))
        self.open = int(options.get("open", 16))
        self.seconds = float(options["seconds"])
        self.rate = float(options.get("rate", 0))
        self.whole: list[float] = []
        self.commit: list[float] = []
        self.start = 0.0
        self.ended = 0

    async def one(self, due: float) -> None:
        transaction = await self.writer.begin()
        for number in range(self.events):
            transaction.write(b"x" * EVENT_BYTES, key=KEYS[(self.ended + number) % len(KEYS)])
        committing = now()
        await transaction.commit()
        done = now()
        self.ended += 1
        if due - self.start > WARM_UP_SECONDS:
            self.whole.append(done - due)
            self.commit.append(done - committing)

    async def _closed(self) -> None:
        while now() < self.start + self.seconds:
            await self.one(now())

    async def run(self) -> dict[str, Any]:
        self.start = now()
        async with asyncio.TaskGroup() as tasks:
            if self.rate:
                for number in range(int(self.rate * self.seconds)):
                    due = self.start + number / self.rate
                    await asyncio.sleep(max(0.0, due - now()))
                    tasks.create_task(self.one(due))
            else:
                for _ in range(self.open):
                    tasks.create_task(self._closed())
        elapsed = now() - self.start
        return {
            "transactions": self.ended, "commits_per_s": round(self.ended / elapsed), "open": self.open,
            "whole": percentiles(np.array(self.whole)), "commit": percentiles(np.array(self.commit)),
        }  # fmt: skip


async def main(options: dict[str, Any]) -> None:
    """One run."""
    async with (
        await connect(options["controller"]) as client,
        client.transactional_writer(options["stream"]) as writer,
    ):
        print(json.dumps(await _Run(writer, options).run()), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
