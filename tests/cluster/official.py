"""The official Python client, in a process of its own: `official.py HOST:PORT EVENTS`.

Prints the number of acknowledged events now and then, then those that it reads back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

EVENTS_AT_ONCE = 10


async def main(endpoint: str, wanted: int) -> None:
    """Write, then read all with a reader group."""
    from tests.interop.scenarios.tools import follow
    from tests.secured import official_manager

    manager = official_manager(endpoint)
    manager.create_scope("official")
    manager.create_stream("official", "events", 4)
    loop = asyncio.get_running_loop()
    writer = manager.create_writer("official", "events")
    for number in range(wanted):
        await writer.write_event_async(f"{number % 7}:{number}", str(number % 7))
        if number % EVENTS_AT_ONCE == EVENTS_AT_ONCE - 1:
            await loop.run_in_executor(None, writer.flush)
            print(f"acknowledged {number + 1}", flush=True)
            await asyncio.sleep(0.02)
    reader = manager.create_reader_group("readers", "official", "events").create_reader("one")
    seen: list[bytes] = []
    reading = asyncio.create_task(follow(reader, seen))
    while len(seen) < wanted:
        await asyncio.sleep(0.05)
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    print("read " + " ".join(event.decode() for event in seen), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    os._exit(0)  # the client's runtime may abort when the interpreter ends
