"""One life of a writer of the proof: `python -m tests.scale.writer '{"controller": ..., "stream": ..., ...}'`.

It writes at full speed, records in its side file what it passes to the client and what is acknowledged, and on SIGTERM
flushes and ends.  kill -9 ends it too: what was not acknowledged may be stored or not, in order and once.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sarit.client.aio import connect
from tests.scale.records import EVENT_BYTES, GROUP, KEYS, SideFile, events_of

if TYPE_CHECKING:
    import numpy as np


def _as_arrow(rows: np.ndarray[Any, Any]) -> pa.Array:
    data = pa.FixedSizeBinaryArray.from_buffers(pa.binary(EVENT_BYTES), len(rows), [None, pa.py_buffer(rows)])
    return data.cast(pa.binary())


async def run(options: dict[str, Any]) -> None:
    """Until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    life, side = int(options["life"]), SideFile(Path(options["side"]))
    keys = pa.array([f"writer-{options['writer']}-key-{number}" for number in range(KEYS)] * (GROUP // KEYS))
    total = 0
    async with await connect(options["controller"]) as client, client.writer(options["stream"]) as writer:

        def marked(done: asyncio.Future[None], upto: int) -> None:
            if not done.cancelled() and done.exception() is None:
                side.acknowledged(upto)

        while not stopping.is_set():
            side.handing(total + GROUP)
            writer.write_many(_as_arrow(events_of(life, total, GROUP)), keys)
            total += GROUP
            writer.flush_barrier().add_done_callback(lambda done, upto=total: marked(done, upto))  # type: ignore[misc]
            await writer.drain()
            await asyncio.sleep(0)
        await writer.flush()
        side.acknowledged(total)


if __name__ == "__main__":
    import uvloop

    uvloop.run(run(json.loads(sys.argv[1])))
