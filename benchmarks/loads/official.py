"""Writes and reads with the official Python client: `python -m benchmarks.loads.official '{"endpoint": ..., ...}'`.

`mode`: "write" (100 B events without keys, `events` of them, the last flush included) or "read" (a reader group with
one reader, from the head, `events` of them).  The client's runtime may abort when the interpreter ends, so this
leaves by `os._exit`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pravega_client as pravega

from benchmarks.loads.open_loop import EVENT_BYTES, now

READ_SECONDS = 120.0
IN_FLIGHT = 100_000  # at its default of 0 the client waits for the acknowledgement of every single event


def _write(manager: Any, options: dict[str, Any]) -> float:
    writer = manager.create_writer(options["scope"], options["stream"], IN_FLIGHT)
    event = b"x" * EVENT_BYTES
    for _ in range(100):
        writer.write_event_bytes(event)
    writer.flush()
    start = now()
    for _ in range(int(options["events"]) - 100):
        writer.write_event_bytes(event)
    writer.flush()
    return now() - start


async def _take(reader: Any, wanted: int) -> int:
    count = 0
    while count < wanted:
        segment = await reader.get_segment_slice_async()
        if segment is None:
            continue
        for event in segment:
            event.data()
            count += 1
        reader.release_segment(segment)
    return count


def _read(manager: Any, options: dict[str, Any]) -> float:
    group = manager.create_reader_group(f"group-{os.getpid()}", options["scope"], options["stream"])
    start = now()
    reader = group.create_reader("one")
    asyncio.run(asyncio.wait_for(_take(reader, int(options["events"])), READ_SECONDS))
    return now() - start


def main(options: dict[str, Any]) -> None:
    """One run."""
    manager = pravega.StreamManager(f"tcp://{options['endpoint']}", False, False)
    elapsed = (_write if options["mode"] == "write" else _read)(manager, options)
    events = int(options["events"])
    result = {"events": events, "seconds": round(elapsed, 2), "events_per_s": round(events / elapsed)}
    print(json.dumps(result), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
