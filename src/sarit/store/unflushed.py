"""What a container holds in memory and in its log alone, counted.

Two counts of the bytes of appends: what chunks will hold (`unflushed_bytes`, by which flushing goes), and what
memory holds for them (`held_bytes`, by which appends are held back).  A block of few bytes costs many times as much.
"""

from __future__ import annotations

from typing import Final

# What memory holds for an append beside its payload: block, views, the frame it came in (measured: 610 to 660).
BLOCK_OVERHEAD_BYTES: Final = 640


class Unflushed:
    """The counts of one container.  What enters by `take_block` leaves by `free_block`, once."""

    def __init__(self) -> None:
        self.unflushed_bytes = 0
        self.unflushed_blocks = 0

    @property
    def held_bytes(self) -> int:
        """What memory holds for all of it."""
        return self.unflushed_bytes + self.unflushed_blocks * BLOCK_OVERHEAD_BYTES

    def take_block(self, length: int) -> None:
        """Bytes were accepted that no chunk holds; none of them make no block."""
        if length:
            self.unflushed_bytes += length
            self.unflushed_blocks += 1

    def free_block(self, length: int) -> None:
        """A block stands in a chunk or in the index, or nobody will read it again."""
        self.unflushed_bytes -= length
        self.unflushed_blocks -= 1
