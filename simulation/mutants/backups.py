"""Mutants of backups: what the node does for one that is made while it serves."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.store.container.group_commit import GroupCommit
from sarit.store.tiering.chunk_gc import ChunkGC
from sarit.store.tiering.joint_checkpoint import JointCheckpoint
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


@mutant("a backup is of one moment", found_by="tests/unit/store/tiering/test_joint_checkpoint.py")
@contextmanager
def snapshots_at_arrival() -> Iterator[None]:
    """Each container takes its snapshot for a backup when its flusher is ready, not all in one turn."""
    right = JointCheckpoint.take_part

    async def take_part(self: Any, flusher: Any) -> None:
        if not self._begun.done() and flusher.begin():
            self._with_changes.add(self._numbers[id(flusher)])
        await right(self, flusher)

    def begin(self: Any) -> None:
        self._begun.set_result(None)

    with (
        patched(JointCheckpoint, JointCheckpoint.take_part, take_part),
        patched(JointCheckpoint, JointCheckpoint._begin, begin),
    ):
        yield


@mutant("a backup is of one moment", found_by="tests/unit/ops/backup/test_moment.py")
@contextmanager
def acknowledged_while_held() -> Iterator[None]:
    """A store goes on to apply and acknowledge while others take their snapshots."""

    def wrong(self: Any) -> None:
        return

    with patched(GroupCommit, GroupCommit.hold, wrong):
        yield
