"""Users of background jobs, and the kind of job that the controllers of the simulation run.

A job counts to LAST, a save for each step.  Users create jobs at whichever controller answers, wait until they are done
or delete them, and create them again under their names.  Runs and saves are recorded for `checkers/jobs.py`; who dies
in a save leaves its outcome unknown.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from checkers import jobs as checker
from checkers.jobs import FENCED, SAVED, Began, JobHistory, Saving
from sarit.controller.jobs import JobKey
from sarit.core.cuts import StreamCut
from sarit.core.errors import Exists, Fenced, Invalid, NotFound, SaritError, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.core.policies import ScalingPolicy, StreamConfig
from sarit.process import worker_role
from simulation.actors.controllers import await_controller, in_process
from simulation.world import now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from checkers.log import Violation
    from sarit.controller.assembly import Controller
    from sarit.controller.jobs import Job, Runner, Save
    from simulation.cluster import Cluster

KIND: Final = "count"
LAST: Final = 6
_SCOPE: Final = "job-streams"
_CREATIONS: Final = 3  # of each user
_DELETED_EARLY: Final = 0.3  # of the jobs
_FAILED_RUNS: Final = 0.1  # of the steps
_HELD: Final = 0.5
# A worker takes up what a dead one left, and repeats what failed, within the time that a run waits for progress.
_GRACE_SECONDS: Final = 10.0
_MAX_RETRY_SECONDS: Final = 5.0


class JobUsers:
    """All users, the runner of their jobs, and the history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = JobHistory(LAST)
        self.rng = cluster.rng("jobs")
        if cluster.options.job_users:
            cluster.job_kinds[KIND] = lambda _: self.runner()

    def __repr__(self) -> str:
        return f"<JobUsers, {len(self.history.runs)} runs>"

    def start(self) -> list[asyncio.Task[Any]]:
        """Tasks that end by themselves."""
        users = range(self.cluster.options.job_users)
        return [self.cluster.spawn(JobUser(self, number).run(), f"job user {number}") for number in users]

    def check(self) -> list[Violation]:
        """What workers did that no single one would have."""
        return checker.check(self.history)

    def runner(self) -> Runner:
        """The kind: each step is a save."""

        async def run(job: Job, save: Save) -> None:
            history, name = self.history, job.settings.decode()
            owner, _, text = job.state.decode().rpartition("/")
            step = int(text or "0")
            history.runs.append(Began(name, job.fence, step, owner, now()))
            self.cluster.trace.note("job", repr(history.runs[-1]))
            while step < LAST:
                await asyncio.sleep(self.rng.random() * 2 * self.cluster.options.think_seconds)
                if not self.cluster.quiet and self.rng.random() < _FAILED_RUNS:
                    raise self.rng.choice((Unavailable("a drawn failure"), Invalid("a drawn failure")))
                step += 1
                await self._recorded(Saving(name, job.fence, step, now()), job, save)
            self.cluster.trace.probe("job_counted")

        return run

    async def _recorded(self, saving: Saving, job: Job, save: Save) -> None:
        held = StreamCut(job.key.stream, {SegmentId(0, 0): 0}) if self.rng.random() < _HELD else None
        self.history.saves.append(saving)
        try:
            await save(f"{saving.job}/{saving.step}".encode(), held)
        except Fenced:
            saving.outcome = FENCED
            self.cluster.trace.probe("job_fenced")
            raise
        saving.outcome = SAVED


class JobUser:
    """One user, with a stream of its own and one job at a time."""

    def __init__(self, users: JobUsers, number: int) -> None:
        self._users = users
        self._cluster = users.cluster
        self._rng = users.cluster.rng(f"job user {number}")
        self._name = f"job user {number}"
        self._stream = StreamName(_SCOPE, f"s{number}")
        self._key = JobKey(KIND, self._stream, "a")

    async def run(self) -> None:
        """Create jobs, one after the other, and see each to its end."""
        await self._until_done(lambda controller: controller.scopes.create(_SCOPE))
        config = StreamConfig(ScalingPolicy(min_segments=1))
        await self._until_done(lambda controller: controller.streams.create(self._stream, config))
        for number in range(_CREATIONS):
            name = f"{self._name}, {number}"
            await self._until_done(partial(self._create, name.encode()))
            if self._rng.random() < _DELETED_EARLY:
                await asyncio.sleep(self._rng.random() * 4 * LAST * self._cluster.options.think_seconds)
            else:
                await self._wait(name)
            await self._until_done(lambda controller: controller.jobs.delete(self._key), NotFound)
            self._users.history.over.setdefault(name, now())
            self._cluster.trace.probe("job_deleted")

    async def _create(self, settings: bytes, controller: Controller) -> None:
        await controller.jobs.create(self._key, settings)

    async def _wait(self, name: str) -> None:
        """Wait until the job is done."""
        history = self._users.history
        while True:
            with suppress(SaritError):
                found = await self._in_process(lambda controller: controller.jobs.find(self._key))
                if found is not None and found.job.done:
                    history.over[name] = now()
                    history.steps_at_end[name] = int(found.job.state.decode().rpartition("/")[2])
                    return
            await asyncio.sleep(0.2)

    async def _until_done(self, call: Callable[[Controller], Awaitable[Any]], made: type[SaritError] = Exists) -> None:
        """Repeat a call until it is known to have been made, by this attempt or earlier (then it raises `made`)."""
        while True:
            try:
                await self._in_process(call)
                return
            except made:
                return
            except SaritError as error:
                self._cluster.trace.note("job user", repr(error))
            await asyncio.sleep(0.1)

    async def _in_process(self, call: Callable[[Controller], Awaitable[Any]]) -> Any:
        """Make a call in the process of a controller.  Raises Unavailable when none runs, or when it dies."""
        process, controller = await await_controller(self._cluster, self._rng)
        return await in_process(self._cluster, process, lambda: call(controller), self._name)


def shorter_job_pauses() -> AbstractContextManager[object]:
    """The pauses of workers, shortened: a run waits for progress no longer than they are."""
    return patch.multiple(
        worker_role, JOB_HOLDER_GRACE_SECONDS=_GRACE_SECONDS, MAX_JOB_RETRY_SECONDS=_MAX_RETRY_SECONDS
    )


__all__ = ["JobUsers", "shorter_job_pauses"]
