"""Tells a client that is stuck in itself from a server that does not answer.

The official client's Python binding keeps the interpreter's lock while it waits for the network (`release_segment`,
`flush`), and its runtime's threads need that lock to finish a read for asyncio.  On a busy machine with few processors
all of them wait for each other: replies lie in the sockets' receive buffers, and nobody takes them, until the client's
30 s time-out, or for ever.  That is what is looked for here.  A reply that the server never sent leaves those buffers
empty, and is not excused.
"""

from __future__ import annotations

import os
from pathlib import Path

_LOCAL, _REMOTE, _QUEUES, _INODE = 1, 2, 4, 9


def unread_replies(process: int) -> list[str]:
    """Connections of a process in whose receive buffers bytes lie: `LOCAL REMOTE BYTES`, as the kernel writes them."""
    inodes = set()
    try:
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    except OSError:  # it ended, or closed one meanwhile
        return []
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return [
        f"{row[_LOCAL]} {row[_REMOTE]} {int(unread, 16)}"
        for row in rows
        if row[_INODE] in inodes and int(unread := row[_QUEUES].partition(":")[2], 16)
    ]


class Watch:
    """Looks at one process again and again."""

    def __init__(self, process: int, stuck_looks: int) -> None:
        self._process = process
        self._stuck_looks = stuck_looks
        self._looks: dict[str, int] = {}

    def look(self) -> str | None:
        """The connection whose replies lay there, the same, at so many looks one after the other."""
        self._looks = {row: self._looks.get(row, 0) + 1 for row in unread_replies(self._process)}
        return next((row for row, looks in self._looks.items() if looks >= self._stuck_looks), None)
