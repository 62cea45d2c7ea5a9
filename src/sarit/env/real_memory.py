"""Memory for large reads, used again once nobody holds the bytes any more.

The first touch of each new page, and giving it back, cost the processor more than a direct read into it does
(docs/decisions/0305)."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Final

from sarit.core.limits import READ_BLOCK_BYTES

# What is kept for the next reads when readers end; while they go on, a piece is used again at once.
_MAX_SPARES: Final = 8

_Exporter = ctypes.c_ubyte * READ_BLOCK_BYTES


class ReadMemory:
    """Takes and gives back in any thread."""

    def __init__(self) -> None:
        self._spares: list[mmap.mmap] = []

    def __repr__(self) -> str:
        return f"<ReadMemory {self.spares} spare>"

    @property
    def spares(self) -> int:
        """Pieces that wait for the next reads."""
        return len(self._spares)

    def take(self, size: int) -> memoryview:
        """`size` bytes, aligned to pages, that nobody else has until the last view of them is gone.

        They may hold what was read before."""
        if not READ_BLOCK_BYTES // 2 < size <= READ_BLOCK_BYTES:
            return memoryview(_new(size))
        try:
            memory = self._spares.pop()
        except IndexError:
            memory = _new(READ_BLOCK_BYTES)
        # Every view of it, a slice of a slice too, keeps this object; a view of `memory` would keep `memory` alone.
        exporter = _Exporter.from_buffer(memory)
        weakref.finalize(exporter, self._give_back, memory).atexit = False
        return memoryview(exporter).cast("B")[:size]

    def _give_back(self, memory: mmap.mmap) -> None:
        if len(self._spares) < _MAX_SPARES:
            self._spares.append(memory)


def _new(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
