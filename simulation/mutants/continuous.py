"""Mutants of the job of continuous queries: what is saved before what, takeovers, repeats, adoption."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.controller.jobs import Claim
from sarit.core.errors import Fenced
from sarit.process.jobs.match_outputs import StreamOutputs
from sarit.process.search.site import TableRows
from sarit.search.continuous import Continuous
from sarit.search.continuous_plan import CONTINUOUS_KIND, Outcome
from sarit.search.continuous_set import QuerySet
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONCE: Final = "each match once in the output"
_STATED: Final = "a query holds from its stated cut"
_ADOPTED: Final = "what users want comes to hold"
_ALONE: Final = "a broken output harms its own queries alone"


async def _commit_all(job: Any, begun: Any) -> None:
    for output, each in begun.items():
        await job._outputs.commit(output, each.transaction.id)


@mutant(_ONCE)
@contextmanager
def matches_committed_before_recorded() -> Iterator[None]:
    """The transactions of a batch are committed before a save names them."""
    right = Continuous._record

    async def wrong(self: Any, state: Any, begun: Any) -> None:
        await _commit_all(self, begun)
        await right(self, state, begun)

    with patched(Continuous, right, wrong):
        yield


@mutant(_ONCE)
@contextmanager
def matches_committed_by_who_lost_the_job() -> Iterator[None]:
    """A worker commits the transactions of its batch although its save was refused."""
    right = Continuous._record

    async def wrong(self: Any, state: Any, begun: Any) -> None:
        try:
            await right(self, state, begun)
        except Fenced:
            await _commit_all(self, begun)
            raise

    with patched(Continuous, right, wrong):
        yield


@mutant(_ONCE)
@contextmanager
def generation_of_the_job_not_compared() -> Iterator[None]:
    """A save of the progress of queries replaces that of a worker which has taken the job over."""
    right = Claim._write

    async def wrong(self: Any, job: Any) -> None:
        if job.key.kind == CONTINUOUS_KIND:
            found = await self._tables.get(self._table, [job.key.rows()[1]])
            self._version = found[0].version
        await right(self, job)

    with patched(Claim, right, wrong):
        yield


@mutant(_ONCE)
@contextmanager
def recorded_batch_forgotten_at_takeover() -> Iterator[None]:
    """Who takes the job over asks about the batch of an intent again, and does not commit its transactions first."""
    right = Continuous.run

    async def wrong(self: Any) -> None:
        self.state = replace(self.state, intent=None)
        await right(self)

    with patched(Continuous, right, wrong):
        yield


@mutant(_ONCE)
@contextmanager
def recorded_batch_taken_for_committed() -> Iterator[None]:
    """Who takes the job over goes on behind the batch of an intent, whose transactions nobody may have committed."""
    right = Continuous.run

    async def wrong(self: Any) -> None:
        if self.state.intent is not None:
            self.state = self.state.done(0)
        await right(self)

    with patched(Continuous, right, wrong):
        yield


@mutant(_ONCE)
@contextmanager
def aborted_matches_taken_for_committed() -> Iterator[None]:
    """The cut moves on behind a batch although a transaction with its matches was aborted."""
    right = Continuous._outcome

    async def wrong(self: Any, each: Any) -> Outcome:
        found = await right(self, each)
        return Outcome.COMMITTED if found is Outcome.ABORTED else found

    with patched(Continuous, right, wrong):
        yield


@mutant(_ONCE)
@contextmanager
def batch_repeated_for_all_outputs() -> Iterator[None]:
    """A batch of which one transaction was aborted is repeated for the outputs of the others, too."""
    right = QuerySet.asked_for

    async def wrong(self: Any, outputs: Any) -> Any:
        return await self.asked()

    with patched(QuerySet, right, wrong):
        yield


@mutant(_ONCE)
@contextmanager
def forgotten_matches_taken_for_aborted() -> Iterator[None]:
    """Matches whose transaction the controller has forgotten are written again, and not searched for in the output."""
    right = StreamOutputs.has

    async def wrong(self: Any, output: Any, after: Any, proof: Any) -> bool | None:
        return False

    with patched(StreamOutputs, right, wrong):
        yield


@mutant(_ONCE)
@contextmanager
def forgotten_matches_taken_for_committed() -> Iterator[None]:
    """Matches whose transaction the controller has forgotten count as committed."""
    right = StreamOutputs.has

    async def wrong(self: Any, output: Any, after: Any, proof: Any) -> bool | None:
        return True

    with patched(StreamOutputs, right, wrong):
        yield


@mutant(_STATED)
@contextmanager
def query_adopted_before_its_cut_is_saved() -> Iterator[None]:
    """The row of a query says since which cut it holds, and the progress of the job is not saved there before."""
    right = Continuous._adopt

    async def wrong(self: Any) -> bool:
        async def unsaved(state: Any) -> None:
            self.state = state

        self._store = unsaved
        try:
            return await right(self)
        finally:
            del self._store

    with patched(Continuous, right, wrong):
        yield


@mutant(_STATED)
@contextmanager
def query_adopted_a_batch_late() -> Iterator[None]:
    """The batch that begins at the stated cut of a query is asked about without it."""
    apply, load = QuerySet.apply, QuerySet.load
    late: dict[int, set[bytes]] = {}

    async def applied(self: Any, changes: Any) -> None:
        await apply(self, changes)
        late.setdefault(id(self), set()).update(self._touched)
        self._touched = set()

    async def loaded(self: Any) -> None:
        await load(self)
        self._touched |= late.pop(id(self), set())

    with patched(QuerySet, apply, applied), patched(QuerySet, load, loaded):
        yield


@mutant(_STATED)
@contextmanager
def rows_read_behind_the_batch() -> Iterator[None]:
    """Changes of queries are adopted after a batch was asked about, and said to hold since its begin."""
    right = Continuous._process

    async def wrong(self: Any, batch: Any) -> bool:
        await self._queries.load()
        changes = await self._queries.changes(self.cut)
        found = await right(self, batch)
        await self._queries.apply(changes)
        return found

    with patched(Continuous, right, wrong):
        yield


@mutant(_ADOPTED)
@contextmanager
def change_of_a_query_without_its_mark() -> Iterator[None]:
    """A row of a query is changed, and the row of changes is not written with it: the job does not look."""
    right = TableRows.put_all

    async def wrong(self: Any, changes: Any, mark: Any = None) -> list[int]:
        return await right(self, changes)

    with patched(TableRows, right, wrong):
        yield


@mutant(_ALONE)
@contextmanager
def queries_of_a_broken_output_not_suspended() -> Iterator[None]:
    """A batch whose matches cannot be written to an output is asked about again with the queries of that output."""
    right = QuerySet.changes

    async def wrong(self: Any, cut: Any) -> Any:
        found = await right(self, cut)
        held = {key for key, (query, _) in self._found.items() if query.holds_from is not None}
        return [change for change in found if change.key not in held or not (change.query and change.query.problem)]

    with patched(QuerySet, right, wrong):
        yield


__all__ = [
    "aborted_matches_taken_for_committed",
    "batch_repeated_for_all_outputs",
    "change_of_a_query_without_its_mark",
    "forgotten_matches_taken_for_aborted",
    "forgotten_matches_taken_for_committed",
    "generation_of_the_job_not_compared",
    "matches_committed_before_recorded",
    "matches_committed_by_who_lost_the_job",
    "queries_of_a_broken_output_not_suspended",
    "query_adopted_a_batch_late",
    "query_adopted_before_its_cut_is_saved",
    "recorded_batch_forgotten_at_takeover",
    "recorded_batch_taken_for_committed",
    "rows_read_behind_the_batch",
]
