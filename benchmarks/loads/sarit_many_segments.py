"""All of many segments written at once: `python -m benchmarks.loads.sarit_many_segments '{"controller": ..., ...}'`.

`segments` in streams of `per_stream`, one writer each, one client.  In every round each segment takes one event (keys
are chosen so); a round ends when all are acknowledged.  At the end every segment must hold as many events as there were
rounds.  One line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np

from benchmarks.loads.clients import connect
from benchmarks.loads.open_loop import EVENT_BYTES, now, percentiles
from sarit.core.keyspace import hash_key
from sarit.core.limits import EVENT_HEADER_BYTES

EVENT = b"x" * EVENT_BYTES


def keys_of(count: int) -> list[str]:
    """A key for each of `count` segments of equal width."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        key = f"key-{number}"
        found.setdefault(min(int(hash_key(key) * count), count - 1), key)
        number += 1
    return [found[slot] for slot in range(count)]


async def main(options: dict[str, Any]) -> None:
    """One run."""
    count, per_stream = int(options["segments"]), int(options.get("per_stream", 500))
    async with await connect(options["controller"]) as client:
        await client.create_scope("many")
        names = [f"many/s{number}" for number in range(count // per_stream)]
        start = now()
        for name in names:
            await client.create_stream(name, segments=per_stream)
        made = now() - start
        keys, writers = keys_of(per_stream), [client.writer(name) for name in names]

        async def one_round() -> None:
            for writer in writers:
                for key in keys:
                    writer.write(EVENT, key)
            await asyncio.gather(*(writer.flush() for writer in writers))

        start = now()
        await one_round()
        first, took = now() - start, []
        start = now()
        while now() < start + float(options["seconds"]):
            begun = now()
            await one_round()
            took.append(now() - begun)
        elapsed = now() - start
        for name in names:
            segments = [found.segment for found in await client.stream(name).segments()]
            infos = await client.segment_infos(name, segments)
            expected = (len(took) + 1) * (EVENT_BYTES + EVENT_HEADER_BYTES)
            wrong = [info for info in infos.values() if info.end_offset != expected]
            assert len(infos) == per_stream, f"{name} has {len(infos)} segments"
            assert not wrong, f"{len(wrong)} segments do not hold {expected} bytes, as {wrong[0]}"
        for writer in writers:
            await writer.close()
    result = {"segments": count, "create_s": round(made, 2), "first_round_s": round(first, 2), "rounds": len(took),
              "events_per_s": round(count * len(took) / elapsed)}  # fmt: skip
    print(json.dumps(result | {"round": percentiles(np.array(took))}), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
