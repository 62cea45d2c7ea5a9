"""Pooled memory for large reads, reused when the last reference to the bytes is gone.

Faulting in new pages and returning them costs more processor time than a direct read into them
(docs/decisions/0305)."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Final

from sarit.env.limits import READ_BLOCK_BYTES

# The most free pieces that the pool retains.  While readers run, a piece is reused at once.
_MAX_SPARES: Final = 8

_Exporter = ctypes.c_ubyte * READ_BLOCK_BYTES


class ReadMemory:
    """A pool of pieces; thread-safe."""

    def __init__(self) -> None:
        self._spares: list[mmap.mmap] = []

    def __repr__(self) -> str:
        return f"<ReadMemory {self.spares} spare>"

    @property
    def spares(self) -> int:
        """The number of free pieces in the pool."""
        return len(self._spares)

    def take(self, size: int) -> memoryview:
        """Return `size` bytes, aligned to pages, that nobody else uses until the last view of them is gone.

        They may contain earlier data."""
        # Uses the pool only for sizes near a piece's: a smaller read would waste most of it, a larger does not fit.
        if not READ_BLOCK_BYTES // 2 < size <= READ_BLOCK_BYTES:
            return memoryview(_new(size))
        try:
            # Does not test first whether there is one: another thread could take the last one in between.
            memory = self._spares.pop()
        except IndexError:
            memory = _new(READ_BLOCK_BYTES)
        # Every view, also a slice of a slice, refers to this object; a view of `memory` would refer only to `memory`.
        exporter = _Exporter.from_buffer(memory)
        weakref.finalize(exporter, self._give_back, memory).atexit = False
        return memoryview(exporter).cast("B")[:size]

    def _give_back(self, memory: mmap.mmap) -> None:
        if len(self._spares) < _MAX_SPARES:
            self._spares.append(memory)


def _new(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
