"""Mutants of reader groups: updates of the shared state."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sarit.client.groups import state as groups
from sarit.client.groups.state import AcquireSegment, CheckpointReader, RemoveReader
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def _step(kind: type, wrong: Callable[[Any, Any], Any]) -> Iterator[Callable[[Any, Any], Any]]:
    """Apply updates of this kind with `wrong(state, update)`."""
    right = groups._STEPS[kind]
    groups._STEPS[kind] = wrong
    try:
        yield right
    finally:
        groups._STEPS[kind] = right


_acquire, _remove, _checkpoint = groups._acquire, groups._remove_reader, groups._checkpoint_reader


@mutant("reader group")
@contextmanager
def group_segment_owned_twice() -> Iterator[None]:
    """A segment stays unassigned when a reader acquires it."""

    def wrong(state: Any, update: Any) -> Any:
        return replace(_acquire(state, update), unassigned=state.unassigned)

    with _step(AcquireSegment, wrong):
        yield


@mutant("reader group")
@contextmanager
def group_lost_reader_position_dropped() -> Iterator[None]:
    """The position of a lost reader is dropped: others continue at its last checkpoint."""
    with _step(RemoveReader, lambda state, update: _remove(state, replace(update, owned={}))):
        yield


@mutant(
    "reader group",
    found_by="tests/unit/client/groups/test_reader_group.py::test_position_stored_before_a_segment_came_back_repeats_nothing",
)
@contextmanager
def group_lost_reader_goes_back() -> Iterator[None]:
    """A lost reader's segments continue at the position stored for it also where the group knows a later one."""
    right = groups.removal

    def wrong(state: Any, reader: Any, position: Any, *, rewind: bool = False) -> Any:
        return right(state, reader, position, rewind=True)

    with patched(groups, right, wrong):
        yield


@mutant("checkpoint is a consistent cut")
@contextmanager
def group_checkpoint_at_old_positions() -> Iterator[None]:
    """A reader passes a checkpoint with the offsets at which it acquired its segments, not with its position."""

    def wrong(state: Any, update: Any) -> Any:
        return _checkpoint(state, replace(update, positions=dict(state.assigned.get(update.reader, {}))))

    with _step(CheckpointReader, wrong):
        yield
