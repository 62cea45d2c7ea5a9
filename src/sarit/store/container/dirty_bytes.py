"""What a container holds in memory and in its log alone, counted.

Two counts of the bytes of appends: what chunks will hold (`dirty_bytes`, by which flushing goes), and what
memory holds for them (`charged_bytes`, by which appends are held back).  A block of few bytes costs many times as much.

All other operations count by their encoded size, and each entry as much as a block beside its payload, from when they
are accepted until a checkpoint that covers them is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.store.container.operations import UpdateTable

if TYPE_CHECKING:
    from sarit.store.container.operations import Operation

# What memory holds for an append beside its payload: block, views, the frame it came in (measured: 610 to 660).
BLOCK_OVERHEAD_BYTES: Final = 640


class DirtyBytes:
    """The counts of one container.  What enters by `add_block` leaves by `remove_block`, once."""

    def __init__(self) -> None:
        self.dirty_bytes = 0
        self.dirty_blocks = 0
        # What memory holds for blocks that stand in chunks, until a checkpoint of their segment is committed.
        self.written_bytes = 0
        self.operation_bytes = 0
        self._applied_operation_bytes = 0

    @property
    def charged_bytes(self) -> int:
        """What memory holds for all of it."""
        return self.dirty_bytes + self.dirty_blocks * BLOCK_OVERHEAD_BYTES + self.operation_bytes

    def add_block(self, length: int) -> None:
        """Bytes were accepted that no chunk holds; none of them make no block."""
        if length:
            self.dirty_bytes += length
            self.dirty_blocks += 1

    def remove_block(self, length: int) -> None:
        """A block stands in a chunk or in the index, or nobody will read it again."""
        self.dirty_bytes -= length
        self.dirty_blocks -= 1

    def add_operation(self, bytes_held: int) -> None:
        """An operation other than an append was accepted."""
        self.operation_bytes += bytes_held

    def operations_applied(self, bytes_held: int) -> None:
        """Operations of so many bytes are applied: the next checkpoint covers them."""
        self._applied_operation_bytes += bytes_held

    def cover_operations(self) -> int:
        """A checkpoint begins: what it will take off when it is committed."""
        covered, self._applied_operation_bytes = self._applied_operation_bytes, 0
        return covered

    def free_operations(self, covered: int) -> None:
        """A checkpoint is committed."""
        self.operation_bytes -= covered


def operation_bytes(operation: Operation, encoded_bytes: int) -> int:
    """What an operation other than an append counts for: each entry of a table costs about what a block does."""
    entries = len(operation.entries) if isinstance(operation, UpdateTable) else 1
    return encoded_bytes + max(entries, 1) * BLOCK_OVERHEAD_BYTES
