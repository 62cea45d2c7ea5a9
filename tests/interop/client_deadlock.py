"""Distinguishes a client that is deadlocked from a server that does not reply.

The official client's Python binding keeps the interpreter's lock while it waits for the network (`release_segment`,
`flush`), and its runtime's threads need that lock to finish a read for asyncio.  On a busy machine with few processors
all of them wait for each other: replies stay in the sockets' receive buffers until the client's 30 s time-out, or for
ever.  This module detects that.  Without a reply of the server those buffers are empty, and the test fails.
"""

from __future__ import annotations

import os
from pathlib import Path

_LOCAL, _REMOTE, _QUEUES, _INODE = 1, 2, 4, 9


def unread_replies(process: int) -> list[str]:
    """Connections of a process with unread bytes: `LOCAL REMOTE BYTES`, in the kernel's notation."""
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
    """Polls one process."""

    def __init__(self, process: int, stuck_polls: int) -> None:
        self._process = process
        self._stuck_polls = stuck_polls
        self._polls: dict[str, int] = {}

    def poll(self) -> str | None:
        """A connection whose unread replies did not change in `stuck_polls` consecutive polls."""
        self._polls = {row: self._polls.get(row, 0) + 1 for row in unread_replies(self._process)}
        return next((row for row, polls in self._polls.items() if polls >= self._stuck_polls), None)
