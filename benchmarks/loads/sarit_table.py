"""One client and one key-value table: `python -m benchmarks.loads.sarit_table '{"controller": ..., "seconds": ...}'`.

Puts and gets in batches of `batch` as fast as they go, then single ones, open loop at `rate` a second: a request is due
at its time whatever the server does, and its latency counts from there.  One line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import EVENT_BYTES, now, percentiles

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TABLE = "tables/bench"
KEYS = 100_000
WARM_UP_SECONDS = 1.0
VALUE = b"v" * EVENT_BYTES


def _key(number: int) -> bytes:
    return (number % KEYS).to_bytes(8, "big")


async def _batches(call: Callable[[int], Awaitable[Any]], batch: int, seconds: float) -> dict[str, Any]:
    start, done = now(), 0
    while now() < start + seconds:
        await call(done)
        done += batch
    return {"per_s": round(done / (now() - start)), "done": done}


async def _open_loop(call: Callable[[int], Awaitable[Any]], rate: float, seconds: float) -> dict[str, Any]:
    took: list[float] = []
    start = now()

    async def one(number: int, due: float) -> None:
        await call(number)
        if due - start > WARM_UP_SECONDS:
            took.append(now() - due)

    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds)):
            due = start + number / rate
            if (pause := due - now()) > 0:
                await asyncio.sleep(pause)
            tasks.create_task(one(number * 7919, due))
    return {"per_s": round(rate * seconds / (now() - start))} | percentiles(np.array(took))


async def main(options: dict[str, Any]) -> None:
    """One run."""
    seconds, batch, rate = float(options["seconds"]), int(options.get("batch", 1000)), float(options["rate"])
    async with await connect(options["controller"]) as client:
        await client.create_scope("tables")
        await client.tables.create(TABLE, primary_key_bytes=8, partitions=int(options.get("partitions", 4)))
        table = client.table(TABLE)

        async def put(first: int) -> None:
            await table.put_many([(_key(first + number), VALUE) for number in range(batch)])

        async def get(first: int) -> None:
            found = await table.get_many([_key((first + number) * 7919) for number in range(batch)])
            assert all(entry is not None and entry.value == VALUE for entry in found)

        for first in range(0, KEYS, batch):
            await put(first)
        found = {"puts": await _batches(put, batch, seconds), "gets": await _batches(get, batch, seconds)}
        found["paced_puts"] = await _open_loop(lambda number: table.put(_key(number), VALUE), rate, seconds)
        found["paced_gets"] = await _open_loop(lambda number: table.get(_key(number)), rate, seconds)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
