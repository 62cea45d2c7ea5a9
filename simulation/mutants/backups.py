"""Mutants of backups: what the node does for one that is made while it serves."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.store.tiering.chunk_gc import ChunkGC
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("a backup is whole", stores=2)
@contextmanager
def container_without_a_hold() -> Iterator[None]:
    """The hold of a backup does not reach the first container: it deletes chunks that the backup copies."""
    right = ChunkGC.collect

    async def wrong(self: Any, *, storage_full: bool = False) -> None:
        hold = self.hold
        if self._container.number == 0:
            self.hold = None
        try:
            await right(self, storage_full=storage_full)
        finally:
            self.hold = hold

    with patched(ChunkGC, ChunkGC.collect, wrong):
        yield
