"""What is lost, and how long nobody can write, when the source of a link dies and its mirror is promoted.

A client writes 1 MB/s to the source: events of 1,000 bytes, as many as are due, flushed every 10 ms.  At a drawn moment
the source is killed by SIGKILL.  At once, as by somebody who knows, the mirror is promoted without its source (`sarit
link promote NAME --unplanned`), and a new client writes to it.  Measured each time, on a new pair of nodes:

- lost: acknowledged by the source and not there at the promoted mirror, in bytes (RPO);
- age: how long before the kill the oldest of these was acknowledged;
- again: the seconds from the kill to the first acknowledgement of the promoted mirror (RTO), without the time that it
  takes to see that the source is dead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import sarit.aio
from benchmarks.mirror import EVENT_BYTES, RATE, Pair

SCOPE: Final = "bench"
STREAM: Final = "bench/load"
LINK: Final = "load"
TICK_SECONDS: Final = 0.01
STEADY_SECONDS: Final = 6.0
DRAWN_SECONDS: Final = 2.0
COPIED_SECONDS: Final = 120.0
_NUMBER_BYTES: Final = 8
_PADDING: Final = os.urandom(EVENT_BYTES - _NUMBER_BYTES)


class Load:
    """A writer of 1 MB/s, and when its events were acknowledged."""

    def __init__(self) -> None:
        self.written = 0
        self.acknowledged: list[tuple[float, int]] = [(time.monotonic(), 0)]  # when, and how many of the first events

    async def run(self, client: sarit.aio.Client) -> None:
        """Write until cancelled."""
        async with client.writer(STREAM) as writer:
            began = time.monotonic()
            while True:
                due = int((time.monotonic() - began) * RATE / EVENT_BYTES)
                for number in range(self.written, due):
                    writer.write(number.to_bytes(_NUMBER_BYTES, "big") + _PADDING)
                self.written = max(self.written, due)
                await writer.flush()
                self.acknowledged.append((time.monotonic(), self.written))
                await asyncio.sleep(TICK_SECONDS)

    def time_of(self, number: int) -> float:
        """Return when an event was acknowledged."""
        return next(at for at, count in self.acknowledged if count > number)


async def promoted(core: sarit.aio.Client) -> None:
    """Promote all mirrors of the link."""
    while True:
        done = await core.links.promote(LINK, planned=False)
        if not done.left:
            if done.problems:
                raise SystemExit(f"not promoted: {done.problems}")
            return


async def first_write(address: str) -> float:
    """Promote the mirror, write to it, and return when that was acknowledged."""
    async with await sarit.aio.connect(address) as core:
        await promoted(core)
        async with core.writer(STREAM) as writer:
            writer.write(b"first")
            await writer.flush()
            return time.monotonic()


async def there(address: str) -> set[int]:
    """Return the numbers of all events of the load that the promoted mirror has."""
    async with await sarit.aio.connect(address) as core, core.reader(STREAM, end="tail") as reader:
        events = [bytes(event) async for event in reader]
    return {int.from_bytes(event[:_NUMBER_BYTES], "big") for event in events if len(event) == EVENT_BYTES}


async def failover(pair: Pair, segments: int) -> dict[str, Any]:
    """Kill the source once, and measure."""
    load = Load()
    edge = await sarit.aio.connect(pair.edge_address)
    await edge.create_scope(SCOPE)
    await edge.create_stream(STREAM, segments=segments)
    pair.link(LINK, [STREAM])
    writing = asyncio.create_task(load.run(edge))
    until = time.monotonic() + COPIED_SECONDS
    while not pair.copied(STREAM):
        if time.monotonic() > until:
            raise SystemExit("the link copies nothing")
        await asyncio.sleep(TICK_SECONDS)
    await asyncio.sleep(STEADY_SECONDS + random.random() * DRAWN_SECONDS)
    pair.edge.kill()
    killed, count = time.monotonic(), load.acknowledged[-1][1]
    rate = count * EVENT_BYTES / (load.acknowledged[-1][0] - load.acknowledged[0][0])
    again = await first_write(pair.core_address) - killed
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    missing = set(range(count)) - await there(pair.core_address)
    with suppress(asyncio.CancelledError, Exception):  # its node is gone
        await asyncio.wait_for(edge.close(), 2)
    return {
        "lost_bytes": len(missing) * EVENT_BYTES,
        "age_seconds": killed - load.time_of(min(missing)) if missing else 0.0,
        "again_seconds": again,
        "written_bytes_s": rate,
    }


def main() -> None:
    """Print each time, then the median and the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--segments", type=int, default=1)
    chosen = parser.parse_args()
    found: list[dict[str, Any]] = []
    for _ in range(chosen.times):
        with tempfile.TemporaryDirectory(prefix="failover-") as directory:
            pair = Pair(Path(directory))
            try:
                found.append(asyncio.run(failover(pair, chosen.segments)))
            finally:
                pair.end()
        print(json.dumps(found[-1]), flush=True)
    for key in found[0]:
        values = [one[key] for one in found]
        print(f"{key}: median {median(values):,.3f}, least {min(values):,.3f}, most {max(values):,.3f}")
    print(f"load average {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
