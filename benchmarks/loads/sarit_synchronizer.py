"""Conditional updates: `python -m benchmarks.loads.sarit_synchronizer '{"controller": ..., "stream": ..., ...}'`.

`processes` copies of one counter, each with a connection of its own, add one as fast as they can for `seconds`; every
update waits until it is durable, and is computed again when another process was faster.  The sum is checked at the end.
Prints "ready" when it begins and one line of JSON at the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import now, percentiles


async def _count(shared: Any, until: float, took: list[float]) -> None:
    while (began := now()) < until:
        await shared.update(lambda _: [b"1"])
        took.append(now() - began)


async def run(options: dict[str, Any]) -> dict[str, Any]:
    """Count, and compare what was counted with what is there."""
    clients = [await connect(options["controller"]) for _ in range(int(options.get("processes", 1)))]
    copies = [
        await client.coordination.synchronizer(
            options["stream"], int, lambda state, update, _: state + int(update), snapshot=lambda state: b"%d" % state
        )
        for client in clients
    ]
    await copies[0].initialize(b"0")
    before = copies[0].state
    print("ready", flush=True)
    took: list[float] = []
    began = now()
    await asyncio.gather(*(_count(copy, began + float(options["seconds"]), took) for copy in copies))
    elapsed = now() - began
    await copies[0].fetch()
    assert copies[0].state - before == len(took), f"{len(took)} updates counted {copies[0].state - before}"
    for client in clients:
        await client.close()
    return {"updates": len(took), "updates_per_s": round(len(took) / elapsed), **percentiles(np.array(took))}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.loads(sys.argv[1])))))
