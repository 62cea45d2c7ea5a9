"""Mutants of the segment store."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.core.errors import SaritError
from sarit.store import store
from sarit.store.container.container import Container
from sarit.store.container.departure import Departure
from sarit.store.container.group_commit import GroupCommit
from sarit.store.container.segment import Segment
from sarit.store.container.state import ContainerState
from sarit.store.container.tables import Tables, _applied
from sarit.store.tiering.checkpoint import BatchBuilder
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@mutant("exactly once")
@contextmanager
def event_number_unchecked() -> Iterator[None]:
    """An append is accepted without a check of its writer's last event number."""
    right: Any = ContainerState.append

    def wrong(self: Any, segment: Any, attribute: Any, owner: Any, previous: int, *rest: Any) -> Any:
        saved, attribute.owner = attribute.owner, owner
        try:
            return right(self, segment, attribute, owner, attribute.assigned, *rest)
        finally:
            attribute.owner = saved

    with patched(ContainerState, ContainerState.append, wrong):
        yield


@mutant("log truncated below the checkpoint alone")
@contextmanager
def log_truncated_before_commit() -> Iterator[None]:
    """The log is truncated after the chunks are written, before the commit of the index."""
    right = BatchBuilder.build

    async def wrong(self: Any, snapshot: Any, *rest: Any) -> Any:
        self._container.log.truncate(snapshot.frame + 1)
        return await right(self, snapshot, *rest)

    with patched(BatchBuilder, BatchBuilder.build, wrong):
        yield


@mutant("tables")
@contextmanager
def table_read_not_revalidated() -> Iterator[None]:
    """A read of several keys does not notice that a checkpoint moved some of them (found by the simulation)."""

    async def wrong(self: Any, name: str, wanted: Any) -> Any:
        segment = await self._require(name)
        table = segment.table
        unknown = [key for key in wanted if _applied(table, key) is None]
        stored = await self._container.metadata.stored_entries(segment, unknown) if unknown else {}
        found = [_applied(table, key) or stored.get(key) for key in wanted]
        return [None if entry is None or entry.value is None else entry for entry in found]

    with patched(Tables, Tables.get, wrong):
        yield


@mutant("log truncated below the checkpoint alone", found_by="tests/unit/store/test_stop.py")
@contextmanager
def checkpoint_cancelled_on_stop() -> Iterator[None]:
    """A stop cancels the running checkpoint and makes another one (found by the simulation)."""

    async def wrong(opened: Any, running: Any) -> None:
        running.cancel()
        await asyncio.wait((running,))
        opened.flusher._in_progress = False
        try:
            await opened.container.group_commit.wait_durable()
            await opened.flusher.checkpoint()
        except SaritError:
            return

    with patched(store, store._last_checkpoint, wrong):
        yield


@mutant("sealed is for ever; truncation monotone", found_by="tests/unit/store/test_stop.py")
@contextmanager
def unsaved_segment_evicted() -> Iterator[None]:
    """A segment that was sealed or truncated counts as idle before that is saved (found by review)."""
    right = Segment.idle.fget  # type: ignore[attr-defined]  # mypy sees the function, not the property
    assert right is not None

    def wrong(self: Any) -> bool:
        saved, self.saved = self.saved, True
        try:
            return bool(right(self))
        finally:
            self.saved = saved

    with patched(Segment, Segment.idle, property(wrong)):
        yield


@mutant("nothing readable that can vanish")
@contextmanager
def read_before_durable() -> Iterator[None]:
    """Operations are applied, and so readable, when they are submitted to the log."""
    right = GroupCommit._send_batches

    def wrong(self: Any) -> None:
        before = len(self._in_flight)
        right(self)
        for frame in list(self._in_flight)[before:]:
            for operation in frame.operations:
                self._state.apply(operation, frame.wall_ms)
            frame.operations = []

    with patched(GroupCommit, GroupCommit._send_batches, wrong):
        yield


@mutant("what is refused as moved did not happen", stores=3)
@contextmanager
def container_left_with_appends_in_flight() -> Iterator[None]:
    """A container that leaves refuses what is in flight as moved, and does not wait until it is settled."""

    async def wrong(self: Any) -> None:
        self._container.fail(self.moved())

    with patched(Departure, Departure.complete_pending, wrong):
        yield


@mutant("every append gets an answer", found_by="tests/unit/store/test_hand_over.py")
@contextmanager
def waiting_appends_forgotten() -> Iterator[None]:
    """A container that has left sends nobody away whose append waited."""

    def wrong(self: Any) -> None:
        return

    with patched(Departure, Departure.send_away, wrong):
        yield


@mutant(
    "one owner answers",
    found_by="tests/unit/store/test_right_to_answer.py::test_questions_share_proofs_of_which_one_is_in_flight",
)
@contextmanager
def old_frame_proves_ownership() -> Iterator[None]:
    """A store without a lease answers when a frame is durable that it had sent before it was asked."""
    right = GroupCommit.prove

    def wrong(self: Any, done: Any) -> None:
        (GroupCommit.barrier if self._in_flight else right)(self, done)

    with patched(GroupCommit, right, wrong):
        yield


@mutant("one owner answers", stores=3)
@contextmanager
def answer_without_a_lease() -> Iterator[None]:
    """A store without a lease answers without a proof that no other store has its container."""

    async def wrong(self: Any) -> None:
        return

    with patched(Container, Container.confirm, wrong):
        yield
