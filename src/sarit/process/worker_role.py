"""The worker role of a process: it carries out background jobs of streams (`controller/jobs.py`).

Jobs are shared out by the buckets of their streams, as the background work of controllers is
(`controller/assignment.py`).  A process whose installation knows no kind of job has no such role.

    index of jobs, or the workers, changed ─▶ those of our buckets ─▶ one task for each:

    found ─┬─ gone, or done ─▶ its entry of the index is removed; the end
           ├─ another worker that lives holds it ─▶ wait
           └─ claim ─▶ run ─┬─▶ returned: done, on the condition of the claim
                            ├─▶ Fenced: another worker has claimed it ─▶ wait
                            └─▶ another error ─▶ wait

*A worker keeps what it holds*: while it is one of the workers, and the bucket is its own.  When the bucket moves, it
stops the job, and then releases it.  Workers that know each other differently for a while would take a job from each
other at each save; so who finds a job held by one that lives waits until it is released.  Only if its row has not
changed for JOB_HOLDER_GRACE_SECONDS does it claim it all the same: the holder may have started again, and know nothing
of it.  The fence makes that safe.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.admin.reasons import Reason
from sarit.controller.jobs import JobTable, printable
from sarit.core.errors import Fenced, SaritError
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import Background
from sarit.process.job_kinds import JobStatistics
from sarit.process.limits import (
    JOB_CLAIMS_AT_ONCE,
    JOB_FAILING_SECONDS,
    JOB_HOLDER_GRACE_SECONDS,
    JOB_RETRY_SECONDS,
    JOB_STOP_SECONDS,
    JOBS_POLL_SECONDS,
    MAX_JOB_RETRY_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from sarit.admin.exposition import Sample
    from sarit.controller.assignment import Address, Assignment
    from sarit.controller.catalog import Catalog
    from sarit.controller.jobs import Claim, FoundJob, JobKey, Runner
    from sarit.env.ports import Env
    from sarit.process.admin import Admin

_log = logging.getLogger("sarit.process")


class WorkerRole:
    """Runs the jobs of one process's buckets."""

    def __init__(
        self, catalog: Catalog, runners: Mapping[str, Runner], env: Env, assignment: Assignment,
        statistics: JobStatistics | None = None, close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        """`runners`: of the kinds that this process knows, by their names.  `assignment`: among the workers.

        `close`: called when the role has stopped, to close what the runners use."""
        self.statistics = statistics or JobStatistics()
        self._close = close
        self._jobs = JobTable(catalog)
        self._runners = runners
        self._clock = env.clock
        self._assignment = assignment
        self._repeated = RepeatedLog(_log, env.clock.monotonic, counted=False)
        self._background = Background.critical(_log, "the worker of background jobs")
        self._claiming = asyncio.Semaphore(JOB_CLAIMS_AT_ONCE)
        self._works: dict[JobKey, _Work] = {}
        self._view: tuple[int | None, Sequence[Address]] | None = None  # of the index and the workers, as followed

    def __repr__(self) -> str:
        return f"<WorkerRole, {len(self._works)} jobs>"

    def show_in(self, admin: Admin) -> None:
        """Have the HTTP port of the process show its jobs."""
        admin.metrics.add(self.samples)
        admin.health.add(self.reasons)

    def samples(self) -> Iterator[Sample]:
        """Return samples of the jobs of this worker."""
        counts = {(kind, state): 0 for kind in self._runners for state in ("running", "failing", "waiting")}
        for key, work in self._works.items():
            if not work.task.done():
                counts[key.kind, work.state] += 1
        for names, count in counts.items():
            yield "sarit_jobs", names, count
        for kind in self._runners:
            yield "sarit_job_runs_total", (kind,), self.statistics.runs[kind]
            yield "sarit_job_failures_total", (kind,), self.statistics.failures[kind]
        for source in self.statistics.sources:
            yield from source()

    def reasons(self) -> list[Reason]:
        """Return the jobs that have failed for long, and what kinds of jobs report: their work waits, and nothing else
        of the process."""
        now = self._clock.monotonic()
        text = "it fails for {0:.0f} s: {1}"
        failing = [
            Reason("job-fails", f"job {key}", text.format(now - work.failed_since, work.problem), ready=True)
            for key, work in self._works.items()
            if work.failed_since is not None and work.state == "failing" and not work.task.done()
            and now - work.failed_since >= JOB_FAILING_SECONDS
        ]  # fmt: skip
        return failing + [reason for source in self.statistics.reasons for reason in source()]

    def start(self) -> None:
        """Follow the index of jobs from now on."""
        self._background.spawn(self._follow())

    async def stop(self) -> None:
        """Stop all jobs where they are.  Others claim them when this process is no worker any more.

        A job that does not end is left behind after JOB_STOP_SECONDS: its saves are refused once another has it."""
        closing = asyncio.ensure_future(self._background.close())
        if not (await asyncio.wait({closing}, timeout=JOB_STOP_SECONDS))[0]:
            left = sorted(str(key) for key, work in self._works.items() if not work.task.done())
            _log.warning("%d jobs have not stopped after %.0f s, as %s", len(left), JOB_STOP_SECONDS, left[:1])
        if self._close is not None:
            await self._close()

    async def _follow(self) -> None:
        while True:
            try:
                await self.round()
                self._repeated.ended("")
            except SaritError as error:  # the jobs that run go on
                self._repeated.warning("", f"the jobs cannot be listed: {error}")
            await asyncio.sleep(JOBS_POLL_SECONDS)

    async def round(self) -> None:
        """Start the jobs that are ours now, and hand over those that are not any more.  Raises SaritError."""
        view = await self._jobs.position(), self._assignment.members()
        if view == self._view:
            return
        mine = {
            key: entry
            for key, entry in (await self._jobs.entries()).items()
            if key.kind in self._runners and self._assignment.is_mine(str(key.stream))
        }
        for key in [key for key in self._works if key not in mine]:
            self._background.spawn(self._hand_over(key, self._works.pop(key)))
        for key, entry in mine.items():
            known = self._works.get(key)
            # A job whose work has ended begins again only with a new entry: created again, or its creation completed.
            if known is not None and not known.task.done():
                known.entry = entry
            elif known is None or known.entry != entry:
                work = self._works[key] = _Work(entry)
                work.task = self._background.spawn(self._carry_out(key, work), f"job {key}")
        self._view = view

    async def _carry_out(self, key: JobKey, work: _Work) -> None:
        pause = JOB_RETRY_SECONDS
        while True:
            try:
                if await self._attempt(key, work):
                    self._repeated.ended(key)
                    return
            except Fenced as error:
                _log.info("%s", error)
            except SaritError as error:
                self._repeated.warning(key, f"job {key} is tried again: {error}")
                await self._note(work, str(error))
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                await self._failed(key, work, "its work was cancelled")
            except (Exception, SystemExit) as error:
                await self._failed(key, work, f"{type(error).__name__}: {error}")
            if work.claim is not None and work.claim.saves:
                pause = JOB_RETRY_SECONDS
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_JOB_RETRY_SECONDS)

    async def _failed(self, key: JobKey, work: _Work, why: str) -> None:
        self._repeated.critical(key, f"job {key} failed and is tried again: internal error: {printable(why)}")
        await self._note(work, f"internal error: {why}")

    async def _note(self, work: _Work, problem: str) -> None:
        """Store why the run of a job ended, if it is still ours."""
        if work.claim is None or work.claim.job.done:
            return
        if work.failed_since is None or work.claim.saves:
            work.failed_since = self._clock.monotonic()
        work.problem = printable(problem)
        kind = work.claim.job.key.kind
        self.statistics.failures[kind] += 1
        with suppress(SaritError):  # the next claim tells who has it
            await work.claim.fail(problem)

    async def _attempt(self, key: JobKey, work: _Work) -> bool:
        """Return whether the job is over; False: another worker holds it.  Raises what its runner raises."""
        async with self._claiming:
            found = await self._jobs.find(key)
            work.claim = None
            if found is None or found.job.done:
                await self._jobs.remove_entry(key, work.entry)
                return True
            if self._is_held(found, work):
                return False
            work.claim = await self._jobs.claim(found, self._name)
        self.statistics.runs[key.kind] += 1
        work.runs = True
        try:
            await self._runners[key.kind](work.claim.job, work.claim.save)
        finally:
            work.runs = False
        await work.claim.finish()
        await self._jobs.remove_entry(key, work.entry)
        return True

    async def _hand_over(self, key: JobKey, work: _Work) -> None:
        """Stop a job, and let another worker claim it."""
        work.task.cancel()
        await asyncio.gather(work.task, return_exceptions=True)
        with suppress(SaritError):  # the others wait a little longer
            # Found again: the claim or the save that was cancelled may have been made.
            found = await self._jobs.find(key)
            if found is not None and found.job.holder == self._name and key not in self._works:
                await self._jobs.release(found)

    @property
    def _name(self) -> str:
        return _name_of(self._assignment.me)

    def _is_held(self, found: FoundJob, work: _Work) -> bool:
        holder, now = found.job.holder, self._clock.monotonic()
        if holder in ("", self._name) or holder not in map(_name_of, self._assignment.members()):
            return False
        if work.seen is None or work.seen[0] != found.version:
            work.seen = found.version, now
        return now - work.seen[1] < JOB_HOLDER_GRACE_SECONDS


class _Work:
    """One job of ours.  `entry`: the version of its entry in the index, as it was listed last."""

    task: asyncio.Task[None]

    def __init__(self, entry: int) -> None:
        self.entry = entry
        self.claim: Claim | None = None
        self.seen: tuple[int, float] | None = None  # the version of the progress of another holder, and since when
        self.runs = False
        self.failed_since: float | None = None  # when the first of the runs failed that made no progress
        self.problem = ""

    @property
    def state(self) -> str:
        """`running`; `failing`: the last run failed, and there was no progress since; `waiting`: for another holder."""
        if self.failed_since is not None and not (self.claim is not None and self.claim.saves and self.runs):
            return "failing"
        return "running" if self.runs else "waiting"


def is_cancelled() -> bool:
    """Return whether somebody asked the present task to end, rather than a task that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _name_of(worker: Address) -> str:
    return f"{worker[0]}:{worker[1]}"
