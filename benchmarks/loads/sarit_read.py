"""Reads with Sarit's own client: `python -m benchmarks.loads.sarit_read '{"controller": ..., "stream": ...}'`.

`mode`: "arrow" or "events" read from the head to the tail as of now (catch-up); "follow" reads `events` events that
carry their due time, from the tail on, and says how old they were when they came.  Prints "ready" when it begins and
one line of JSON at the end.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import struct
import sys
from typing import Any

import numpy as np

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import now, percentiles

FOLLOW_SECONDS = 120.0


async def _arrow(reader: Any, seconds: float) -> int:
    count, end = 0, now() + seconds
    async for batch in reader.arrow_batches():
        count += batch.num_rows
        if now() > end:
            break
    return count


async def _events(reader: Any, seconds: float) -> int:
    count, end = 0, now() + seconds
    async for _ in reader:
        count += 1
        if not count % 100_000 and now() > end:
            break
    return count


async def _catch_up(client: Any, options: dict[str, Any]) -> dict[str, Any]:
    reader = client.reader(options["stream"], "head", None if options.get("no_end") else "tail")
    await reader.open()
    if options["mode"] == "arrow":
        importlib.import_module("pyarrow")  # not part of the read, nor of its effect on others
    print("ready", flush=True)
    start = now()
    count = await (_arrow if options["mode"] == "arrow" else _events)(reader, float(options.get("seconds", 600)))
    elapsed = now() - start
    reader.close()
    return {"events": count, "seconds": round(elapsed, 2), "events_per_s": round(count / elapsed)}


async def _follow(client: Any, options: dict[str, Any]) -> dict[str, Any]:
    reader = client.reader(options["stream"], "tail")
    await reader.open()
    print("ready", flush=True)
    wanted, skip = int(options["events"]), int(options.get("skip", 0))
    ages: list[float] = []
    while len(ages) < wanted:
        events = await reader.next_events()
        moment = now()
        for event in events.left:
            due = struct.unpack_from("<d", event)[0]
            if due:
                ages.append(moment - due)
    reader.close()
    return {"events": len(ages)} | percentiles(np.array(ages[skip:]))


async def main(options: dict[str, Any]) -> None:
    """One run."""
    async with await connect(options["controller"]) as client:
        if options["mode"] == "follow":
            result = await asyncio.wait_for(_follow(client, options), FOLLOW_SECONDS)
        else:
            result = await _catch_up(client, options)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
