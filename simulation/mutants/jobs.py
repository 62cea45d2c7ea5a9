"""Mutants of the background jobs of streams: claims, saves, the end."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.controller.background import retention
from sarit.controller.jobs import Claim, JobTable, held_cut
from sarit.process.worker_role import WorkerRole
from sarit.wire.limits import NO_VERSION
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEST: Final = "tests/unit/controller/test_jobs.py::test"
_MODEL: Final = f"{_TEST}_workers_that_die_and_disagree_do_each_step_once_and_no_step_after_the_end"


@mutant("one worker of a job", stores=3)
@contextmanager
def job_saved_after_another_claim() -> Iterator[None]:
    """A worker saves the state of a job that another one has claimed since."""
    right = Claim._write

    async def wrong(self: Any, job: Any) -> None:
        self._version = NO_VERSION
        await right(self, job)

    with patched(Claim, Claim._write, wrong):
        yield


@mutant("one worker of a job", stores=3)
@contextmanager
def claim_without_a_fence() -> Iterator[None]:
    """The claim of a job raises no fencing number."""
    right = JobTable.claim

    async def wrong(self: Any, found: Any, holder: str) -> Any:
        return await right(self, found._replace(job=replace(found.job, fence=found.job.fence - 1)), holder)

    with patched(JobTable, JobTable.claim, wrong):
        yield


@mutant("one worker of a job", found_by=_MODEL)
@contextmanager
def done_job_claimed_again() -> Iterator[None]:
    """A worker that finds the entry of a job which is done claims it again."""
    right = JobTable.find

    async def wrong(self: Any, key: Any) -> Any:
        found = await right(self, key)
        return found and found._replace(job=replace(found.job, done=False))

    with patched(JobTable, JobTable.find, wrong):
        yield


_HELD: Final = "tests/unit/controller/test_retention.py::test"


@mutant("retention", found_by=f"{_HELD}_jobs_that_hold_data_protect_it_up_to_the_maximum")
@contextmanager
def retention_ignores_jobs() -> Iterator[None]:
    """Retention truncates what a background job still needs."""
    with patched(retention, held_cut, lambda progress: None):
        yield


@mutant("retention", found_by=f"{_HELD}_job_that_begins_to_hold_data_during_an_evaluation_stops_the_truncation")
@contextmanager
def job_holds_data_behind_the_back_of_retention() -> Iterator[None]:
    """A job that begins to hold data does not conflict with a truncation that was decided before."""
    with patched(Claim, Claim._begin_to_hold, Claim._write):
        yield


@mutant("one worker of a job", found_by=f"{_TEST}_job_is_left_to_a_holder_that_lives_until_it_hands_it_over")
@contextmanager
def job_taken_from_a_worker_that_lives() -> Iterator[None]:
    """A worker claims a job of its bucket although another one that lives holds it."""
    with patched(WorkerRole, WorkerRole._is_held, lambda self, found, work: False):
        yield
