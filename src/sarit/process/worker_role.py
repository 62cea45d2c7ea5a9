"""The worker role of a process: it carries out background jobs of streams (`controller/jobs.py`).

Jobs are shared out by the buckets of their streams, as the background work of controllers is
(`controller/assignment.py`).  A process whose installation knows no kind of job has no such role.

    table of jobs, its position changed ─▶ those of our buckets ─▶ claim ─▶ run ─┬─▶ done, or deleted: end
                                                                               ├─▶ Fenced: another worker has it
                                                                               └─▶ another error: again, after a pause
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from sarit.controller.jobs import JobTable
from sarit.core.errors import Conflict, Fenced, NotFound, SaritError
from sarit.core.repeated_log import RepeatedLog
from sarit.env.background import Background
from sarit.process.limits import JOB_RETRY_SECONDS, JOBS_POLL_SECONDS, MAX_JOB_RETRY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.controller.jobs import ClaimedJob, Job, JobKey
    from sarit.controller.ports import Tables
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.process")


class JobKind(Protocol):
    """A kind of work that is done for a stream."""

    async def run(self, claimed: ClaimedJob) -> None:
        """Work until there is nothing to do any more, saving each step.  Raises Fenced by `save`; SaritError: it is
        tried again from the state that was saved last."""


class WorkerRole:
    """Runs the jobs of one process's buckets."""

    def __init__(self, tables: Tables, kinds: Mapping[str, JobKind], env: Env, is_mine: Callable[[str], bool]) -> None:
        """`kinds`: those that this process knows, by their names.  `is_mine`: see `Assignment`."""
        self._jobs = JobTable(tables)
        self._kinds = kinds
        self._is_mine = is_mine
        self._repeated = RepeatedLog(_log, env.clock.monotonic, counted=False)
        self._background = Background.critical(_log, "the worker of background jobs")
        self._running: dict[JobKey, asyncio.Task[None]] = {}
        self._known: list[Job] = []
        self._position: int | None = None

    def __repr__(self) -> str:
        return f"<WorkerRole, {len(self._running)} jobs run>"

    def start(self) -> None:
        """Follow the table of jobs from now on."""
        self._background.spawn(self._follow())

    async def stop(self) -> None:
        """Stop all jobs where they are: the next claim goes on from the states that were saved."""
        await self._background.close()

    async def _follow(self) -> None:
        while True:
            try:
                await self.round()
                self._repeated.ended("")
            except SaritError as error:  # the jobs that run go on
                self._repeated.warning("", f"the jobs cannot be listed: {error}")
            await asyncio.sleep(JOBS_POLL_SECONDS)

    async def round(self) -> None:
        """Start the jobs that are ours now, and stop those that are not any more.  Raises SaritError."""
        position = await self._jobs.position()
        if position != self._position:
            self._known = await self._jobs.list()
            self._position = position
        wanted = {
            job.key: self._kinds[job.key.kind]
            for job in self._known
            if job.key.kind in self._kinds and self._is_mine(str(job.key.stream))
        }
        for key in [key for key in self._running if key not in wanted]:
            self._running.pop(key).cancel()
        for key, kind in wanted.items():
            if key not in self._running or self._running[key].done():
                self._running[key] = self._background.spawn(self._run(key, kind), f"job {key}")

    async def _run(self, key: JobKey, kind: JobKind) -> None:
        pause = JOB_RETRY_SECONDS
        while True:
            try:
                await kind.run(await self._jobs.claim(key))
                self._repeated.ended(key)
                return
            except (Fenced, NotFound):  # the table says whose it is
                return
            except Conflict:  # two claimed it at once
                continue
            except SaritError as error:
                self._repeated.warning(key, f"job {key} is tried again in {pause:g} s: {error}")
            except Exception as error:
                self._repeated.critical(
                    key, f"job {key} failed and is tried again in {pause:g} s: internal error: {error}"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_JOB_RETRY_SECONDS)
