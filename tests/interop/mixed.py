"""One of several processes on a stream: `python -m tests.interop.mixed sarit|official HOST:PORT SCOPE/STREAM NAME ALL`.

Writes EVENTS events of its own keys, reads until it has the events of ALL processes, and prints what it read, a line
each in the order it came: `SEGMENT OFFSET EVENT`, where the official client does not report the segment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Final

EVENTS: Final = 600
KEYS: Final = 5
SECONDS: Final = 80.0


def events_of(name: str) -> list[str]:
    """What a process writes: `NAME-KEY:NUMBER`."""
    return [f"{name}-{number % KEYS}:{number}" for number in range(EVENTS)]


async def sarit(endpoint: str, stream: str, name: str, wanted: int) -> list[str]:
    """With the client of this repository."""
    from sarit.client.aio import connect

    lines: list[str] = []
    async with await connect(endpoint) as client:

        async def write() -> None:
            writer = client.writer(stream)
            for event in events_of(name):
                writer.write(event, key=event.partition(":")[0])
                if len(lines) % 7 == 0:
                    await writer.flush()
            await writer.close()

        async def read() -> None:
            async with client.reader(stream) as reader:
                while len(lines) < wanted:
                    batch = await reader.read_arrow(50)
                    assert batch is not None
                    rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                    lines.extend(f"{segment} {offset} {event.decode()}" for event, segment, offset in rows)

        async with asyncio.timeout(SECONDS):
            await asyncio.gather(write(), read())
    return lines


async def official(endpoint: str, stream: str, name: str, wanted: int) -> list[str]:
    """With the official client."""
    from tests.interop.scenarios.tools import follow
    from tests.secured import official_manager

    manager = official_manager(endpoint)
    scope, _, short = stream.partition("/")
    reader = manager.create_reader_group(f"{name}-group", scope, short).create_reader("one")
    writer = manager.create_writer(scope, short)
    seen: list[bytes] = []

    async def write() -> None:
        for event in events_of(name):
            await writer.write_event_async(event, event.partition(":")[0])

    reading = asyncio.create_task(follow(reader, seen))
    async with asyncio.timeout(SECONDS):
        await write()
        await asyncio.get_running_loop().run_in_executor(None, writer.flush)
        while len(seen) < wanted:
            await asyncio.sleep(0.05)
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    return [f"- - {event.decode()}" for event in seen]


def main() -> None:
    kind, endpoint, stream, name, processes = sys.argv[1:]
    work = sarit if kind == "sarit" else official
    lines = asyncio.run(work(endpoint, stream, name, EVENTS * int(processes)))
    print("\n".join([*lines, "done"]), flush=True)
    os._exit(0)  # the official client's runtime may abort when the interpreter ends


if __name__ == "__main__":
    main()
