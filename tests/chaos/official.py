"""The official client in a process of its own: `python -m tests.chaos.official write|read HOST:PORT NUMBER`.

`write`: events of writer OFFICIAL_WRITER from NUMBER on, until a line comes on stdin.  Prints `sending LAST` before a
batch, `acked LAST` after its flush, `done` at the end.
`read`: NUMBER events through a reader group; prints `got WRITER NUMBER` for each, in order, then `done`.

It leaves by `os._exit`: the client's runtime may abort when the interpreter ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any, Final

from simulation.events import parse
from tests.chaos.events import OFFICIAL_WRITER, SCOPE, STREAM, event, key
from tests.interop.scenarios.tools import take
from tests.secured import official_manager

BATCH: Final = 20
READ_SECONDS: Final = 150.0


def write(manager: Any, first: int) -> None:
    """Until a line comes on stdin."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    writer = manager.create_writer(SCOPE, STREAM)
    number = first
    while not stop.is_set():
        print(f"sending {number + BATCH - 1}", flush=True)
        for _ in range(BATCH):
            writer.write_event_bytes(event(OFFICIAL_WRITER, number), routing_key=key(OFFICIAL_WRITER))
            number += 1
        writer.flush()
        print(f"acked {number - 1}", flush=True)
        stop.wait(0.02)


def read(manager: Any, count: int) -> None:
    """All events there are."""
    group = manager.create_reader_group(f"referee-{os.getpid()}", SCOPE, STREAM)
    for one in asyncio.run(take(group.create_reader("one"), count, READ_SECONDS)):
        found = parse(one)
        print(f"got {found[0]} {found[1]}" if found is not None else f"got -1 {len(one)}")


def main() -> None:
    what, endpoint, number = sys.argv[1:]
    manager = official_manager(endpoint)
    (write if what == "write" else read)(manager, int(number))
    print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
