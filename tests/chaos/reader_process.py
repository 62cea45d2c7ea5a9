"""A reader in a process of its own: `python -m tests.chaos.reader_process HOST:PORT SCOPE/STREAM CUT`.

For each batch it prints `got SEGMENT OFFSET WRITER NUMBER LENGTH` of every event, then `at CUT`: where to continue.
"""

from __future__ import annotations

import asyncio
import sys

from checkers.log import TORN
from sarit.client.aio import connect
from sarit.core.errors import Unavailable
from simulation.events import parse

_HEADER_BYTES = 8


async def main(address: str, stream: str, position: str) -> None:
    """Until it is killed."""
    while True:
        try:
            client = await connect(address)
            break
        except Unavailable:
            await asyncio.sleep(0.2)
    reader = client.reader(stream, position)
    while True:
        batch = await reader.read_arrow(500)
        assert batch is not None, "the stream has ended"
        lines = []
        for event, segment, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            writer, number = parse(event) or (TORN, 0)
            lines.append(f"got {segment} {offset} {writer} {number} {len(event) + _HEADER_BYTES}\n")
        sys.stdout.write("".join(lines) + f"at {reader.position()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
