"""Ports of the loopback interface for servers of tests and benchmarks.

A process reserves a block of ports for as long as it runs, and gives them to its servers one after the other.  So a
server that was killed finds its port free when it comes back: no other process gives it away, and the system, which
has ports for outgoing connections, chooses them above all blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO, Final

FIRST_PORT: Final = 10_000
BLOCK_PORTS: Final = 400
# They end below what systems give to outgoing connections: 32768 and up on Linux.
BLOCKS: Final = 55


def free_ports(count: int) -> list[int]:
    """Free ports that follow each other, for servers that bind them later.

    Each call goes on behind the ports of the one before, and from the end of the block to its begin.  Raises
    RuntimeError when all blocks are reserved, or when the block has no such ports."""
    global _mine
    if _mine is None:
        _mine = Block(Path(tempfile.gettempdir(), f"sarit-ports-{os.getuid()}"))
    return _mine.take(count)


class Block:
    """A block of ports that this process has reserved, by a locked file of `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        # At random, since another process may have reserved the first ones by another directory.
        for number in random.sample(range(BLOCKS), BLOCKS):
            lock = (directory / str(number)).open("w")
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._lock: IO[str] = lock  # locked until it is closed, with the process
                self.first = FIRST_PORT + number * BLOCK_PORTS
                self._next = self.first
                return
            lock.close()
        raise RuntimeError(f"all {BLOCKS} blocks of ports are reserved: end other tests, or delete {directory}")

    def take(self, count: int) -> list[int]:
        """Return the next ports of the block that follow each other and are free.  Raises RuntimeError."""
        end = self.first + BLOCK_PORTS
        for _ in range(BLOCK_PORTS):
            if self._next + count > end:
                self._next = self.first
            ports = range(self._next, self._next + count)
            if all(map(_is_free, ports)):
                self._next += count
                return list(ports)
            self._next += 1
        raise RuntimeError(f"no {count} ports from {self.first} to {end - 1} are free: end other servers")


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


_mine: Block | None = None
