"""Makes scopes and streams: `python -m benchmarks.loads.sarit_admin '{"controller": ..., ...}'`.

`streams`: {"scope/stream": segments} to make; or `many`: make so many streams in the scope `many`, 16 at a time, and
say how fast that went.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import now

AT_A_TIME = 16


async def _many(client: Any, count: int, first: int) -> dict[str, Any]:
    await client.create_scope("many")
    numbers = iter(range(first, first + count))

    async def some() -> None:
        for number in numbers:
            await client.create_stream(f"many/s{number}")

    start = now()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_A_TIME):
            tasks.create_task(some())
    elapsed = now() - start
    return {"streams": count, "seconds": round(elapsed, 2), "streams_per_s": round(count / elapsed)}


async def main(options: dict[str, Any]) -> None:
    """One run."""
    async with await connect(options["controller"]) as client:
        result: dict[str, Any] = {}
        for name, segments in options.get("streams", {}).items():
            await client.create_scope(name.partition("/")[0])
            await client.create_stream(name, segments=segments)
        if options.get("many"):
            result = await _many(client, int(options["many"]), int(options.get("first", 0)))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
