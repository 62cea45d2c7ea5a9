"""Dirty bytes: what a container holds in memory and in its log alone, until a checkpoint covers it.

Appends have two counts.  `append_bytes` is what chunks will hold; the flusher is triggered by it.
`charged_bytes` is what memory holds for them; appends are throttled by it.  A block of few bytes costs many
times as much as its payload.

All other operations count by their encoded size plus the overhead of one block for each entry, from when they
are accepted until a checkpoint that covers them is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.limits import BLOCK_OVERHEAD_BYTES
from sarit.store.container.operations import UpdateTable

if TYPE_CHECKING:
    from sarit.store.container.operations import Operation


class DirtyBytes:
    """The counters of one container.  What `add_block` adds, `remove_block` takes off, once."""

    __slots__ = (
        "_applied_operation_bytes",
        "append_blocks",
        "append_bytes",
        "charged_bytes",
        "operation_bytes",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.append_bytes = 0
        self.append_blocks = 0
        # Memory held for blocks that are in chunks already, until the checkpoint of their segment is committed.
        self.written_bytes = 0
        self.operation_bytes = 0
        # Memory held for all of it: the container's charge on the memory budget.  A counter, not a sum: it is read
        # twice for each append.
        self.charged_bytes = 0
        self._applied_operation_bytes = 0

    def __repr__(self) -> str:
        return f"<DirtyBytes of {self.append_blocks} blocks: {self.append_bytes}, operations: {self.operation_bytes}>"

    def add_block(self, length: int) -> None:
        """Bytes that no chunk holds were accepted; an append of 0 bytes makes no block."""
        if length:
            self.append_bytes += length
            self.append_blocks += 1
            self.charged_bytes += length + BLOCK_OVERHEAD_BYTES

    def remove_block(self, length: int) -> None:
        """A block is in a chunk or in the index, or nobody will read it again."""
        self.append_bytes -= length
        self.append_blocks -= 1
        self.charged_bytes -= length + BLOCK_OVERHEAD_BYTES
        assert self.append_bytes >= 0, self  # with `add_block`: each block is counted once and taken off once

    def add_operation(self, charged_bytes: int) -> None:
        """An operation other than an append was accepted."""
        self.operation_bytes += charged_bytes
        self.charged_bytes += charged_bytes

    def operations_applied(self, charged_bytes: int) -> None:
        """Operations of so many bytes are applied: the next checkpoint covers them."""
        self._applied_operation_bytes += charged_bytes

    def check(self) -> None:
        """Assert that the charge is the sum of its parts."""
        blocks = self.append_bytes + self.append_blocks * BLOCK_OVERHEAD_BYTES
        assert self.charged_bytes == blocks + self.operation_bytes, self

    def begin_checkpoint(self) -> int:
        """The operation bytes that this checkpoint covers; pass them to `end_checkpoint`."""
        covered, self._applied_operation_bytes = self._applied_operation_bytes, 0
        return covered

    def end_checkpoint(self, covered: int) -> None:
        """The checkpoint is committed."""
        assert 0 <= covered <= self.operation_bytes, (covered, self)
        self.check()
        self.operation_bytes -= covered
        self.charged_bytes -= covered
        self.written_bytes = 0


def operation_bytes(operation: Operation, encoded_bytes: int) -> int:
    """The charge of an operation other than an append: each entry of a table costs about as much as a block."""
    entries = len(operation.entries) if isinstance(operation, UpdateTable) else 1
    return encoded_bytes + max(entries, 1) * BLOCK_OVERHEAD_BYTES
