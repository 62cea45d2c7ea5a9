"""A reader of a group in a process of its own: `python -m tests.chaos.group_process HOST:PORT SCOPE/GROUP NAME`.

Prints `joined`; then for each batch `got SEQUENCE NUMBER` of every event and `at POSITION` in hex: all that is known of
it when it is killed.
"""

from __future__ import annotations

import asyncio
import sys

from checkers.log import TORN
from sarit.client.aio import Client, connect
from sarit.client.groups.reader import EventBatch
from sarit.core.errors import Unavailable
from simulation.events import parse


async def main(address: str, group: str, name: str) -> None:
    """Until it is killed."""
    client = await _connected(address)
    reader = await (await client.reader_groups.open(group)).reader(name)
    print("joined", flush=True)
    while True:
        batch = await reader.read_batch(300)
        if not isinstance(batch, EventBatch):
            assert batch is not None, "the stream has ended"
            continue
        events = ((parse(event) or (TORN, 0)) for event in batch.events)
        lines = "".join(f"got {sequence} {number}\n" for sequence, number in events)
        sys.stdout.write(f"{lines}at {batch.position.to_bytes().hex()}\n")
        sys.stdout.flush()


async def _connected(address: str) -> Client:
    while True:
        try:
            return await connect(address)
        except Unavailable:
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
