"""Mutants of the committer of a stream into an Iceberg table: intents, conditions, dead letters, cuts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.lake import commits, cuts
from sarit.lake.committer import Committer
from sarit.lake.dead_letters import DeadLetters
from sarit.lake.layout import DeadPositions
from simulation.lake_tables import Catalog, MemoryTables
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_INVARIANT: Final = "each event once in the table"
# Fifty cases without faults come first: mutants that need a fault name the first case that fails.
_MODEL: Final = "tests/unit/lake/test_model.py::test_every_event_is_in_the_table_once"


@mutant(_INVARIANT, found_by=_MODEL)
@contextmanager
def commit_repeated_on_the_newest_snapshot() -> Iterator[None]:
    """A commit that conflicts is made on what is the newest snapshot by then, as PyIceberg repeats it."""
    right = Catalog.append

    def wrong(self: Any, name: Any, head: Any, files: Any, summary: Any, properties: Any) -> None:
        table = self.tables[tuple(name)]
        right(self, name, table.head, files, summary, properties)

    with patched(Catalog, Catalog.append, wrong):
        yield


@mutant(_INVARIANT, found_by=f"{_MODEL}[0.03-1]")
@contextmanager
def files_deleted_after_an_unknown_outcome() -> Iterator[None]:
    """The files of a commit are deleted when its outcome is not known."""
    right = MemoryTables.append

    def wrong(self: Any, view: Any, files: Any, summary: Any, properties: Any) -> None:
        try:
            right(self, view, files, summary, properties)
        except Exception:
            self.delete(view, files)
            raise

    with patched(MemoryTables, MemoryTables.append, wrong):
        yield


@mutant(_INVARIANT, found_by=f"{_MODEL}[0.03-10]")
@contextmanager
def files_deleted_after_a_false_conflict() -> Iterator[None]:
    """The files of a commit are deleted after a conflict, without a look whether the table has the commit."""
    from sarit.lake import committer

    with patched(committer, committer.has_commit, lambda table, commit: False):
        yield


@mutant(_INVARIANT, found_by=_MODEL)
@contextmanager
def intent_changed_by_its_finder() -> Iterator[None]:
    """Who finds an intent gives it another commit id, as if nobody could have written it."""
    right = Committer._finish

    async def wrong(self: Any, table: Any, intent: Any) -> None:
        if self._untried != intent.commit:
            intent = replace(intent, commit=intent.commit[::-1])
            self.state = replace(self.state, intent=intent)
        await right(self, table, intent)

    with patched(Committer, Committer._finish, wrong):
        yield


@mutant(_INVARIANT, found_by=_MODEL)
@contextmanager
def intent_not_stored() -> Iterator[None]:
    """An intent is written without having been stored."""
    right = Committer._store

    async def wrong(self: Any, state: Any) -> None:
        if state.intent is None:
            await right(self, state)
        else:
            self.state = state

    with patched(Committer, Committer._store, wrong):
        yield


@mutant(_INVARIANT, found_by=_MODEL)
@contextmanager
def dead_letters_decoded_again() -> Iterator[None]:
    """Who finishes an intent takes a committed dead letter for a row, if it can be decoded by now."""

    def wrong(self: Any, segments: Any, offsets: Any) -> Any:
        return right(self, segments, offsets) & False

    right = DeadPositions.contain
    with patched(DeadPositions, DeadPositions.contain, wrong):
        yield


@mutant(_INVARIANT, found_by=_MODEL)
@contextmanager
def dead_letters_committed_twice() -> Iterator[None]:
    """Who finishes an intent does not ask whether its dead letters are committed."""
    from sarit.lake import dead_letters

    with (
        patched(DeadLetters, DeadLetters.committed, lambda self, commit, ingested_ms: None),
        patched(dead_letters, dead_letters._count, lambda view, commit: None),
    ):
        yield


@mutant(_INVARIANT, found_by=_MODEL)
@contextmanager
def intent_taken_for_committed() -> Iterator[None]:
    """An intent counts as committed when it is stored, and not when the table has it."""
    right = commits._follow

    def wrong(settings: Any, state: Any, table: Any) -> Any:
        step = right(settings, state, table)
        if isinstance(step, commits.Finish) and len(table.snapshots) % 3 == 1:
            return commits.Complete(replace(state, cut=step.intent.end, intent=None), None)
        return step

    with patched(commits, commits._follow, wrong):
        yield


@mutant(
    "a table that was rolled back is left alone",
    found_by="tests/unit/lake/test_commits.py::test_rolled_back_table_is_refused",
)
@contextmanager
def rolled_back_table_taken() -> Iterator[None]:
    """A table that was rolled back is committed to, by its properties alone."""
    right = cuts.marks_of

    def wrong(snapshots: Any, head: Any, properties: Any) -> Any:
        return replace(right(snapshots, head, properties), whole=False)

    with patched(cuts, cuts.marks_of, wrong):
        yield
