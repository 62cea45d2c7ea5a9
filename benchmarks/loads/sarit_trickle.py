"""A little for each of many segments: `python -m benchmarks.loads.sarit_trickle '{"controller": ..., ...}'`.

Each of `segments` segments of one stream takes one event of `least_bytes` to `most_bytes` in every `interval` seconds,
in turn and in open loop, for `seconds`.  Prints "ready" once it begins, and one line of JSON at the end.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any, Final

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import now
from benchmarks.loads.sarit_many_segments import keys_of

STREAM: Final = "trickle/events"
BATCHES_PER_INTERVAL: Final = 200


async def main(options: dict[str, Any]) -> None:
    """One run."""
    count, interval = int(options["segments"]), float(options["interval"])
    least, most = int(options["least_bytes"]), int(options["most_bytes"])
    rng = random.Random(1)
    async with await connect(options["controller"]) as client:
        await client.create_scope("trickle")
        await client.create_stream(STREAM, segments=count)
        keys, written, sent = keys_of(count), 0, 0
        async with client.writer(STREAM) as writer:
            print("ready", flush=True)
            start, batch = now(), 0
            while now() < start + float(options["seconds"]):
                end = (batch + 1) * count // BATCHES_PER_INTERVAL
                for number in range(batch * count // BATCHES_PER_INTERVAL, end):
                    event = rng.randbytes(rng.randint(least, most))
                    writer.write(event, keys[number % count])
                    written, sent = written + 1, sent + len(event)
                batch += 1
                await asyncio.sleep(max(0.0, start + batch * interval / BATCHES_PER_INTERVAL - now()))
            late = now() - (start + batch * interval / BATCHES_PER_INTERVAL)
            await writer.flush()
    print(json.dumps({"events": written, "bytes": sent, "late_s": round(late, 2)}), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
