"""Fills streams: `python -m benchmarks.loads.sarit_fill '{"controller": ..., "streams": {"a/b": [events, bytes]}}'`."""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.loads.clients import connect

GROUP_BYTES = 1_000_000
GROUP = 1_000


async def main(options: dict[str, Any]) -> None:
    """Fill one stream after the other, with as many events of as many bytes."""
    async with await connect(options["controller"]) as client:
        for stream, (events, size) in options["streams"].items():
            writer, event = client.writer(stream), b"x" * size
            group = max(1, min(GROUP, GROUP_BYTES // size))
            for sent in range(0, events, group):
                writer.write_many([event] * min(group, events - sent))
                await writer.drain()
            await writer.close()
    print(json.dumps({"streams": len(options["streams"])}), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
