"""The kind of job that commits a stream into an Iceberg table.

A run is a `Committer` (`lake/committer.py`), and beside it the maintenance of the table.  A table that cannot be
committed to ends the run with an error, which the worker stores in the job's row and repeats the run after a pause: so
what an operator has put right is found by itself.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from sarit.core.errors import SaritError
from sarit.core.extras import require
from sarit.env.background import Background
from sarit.lake.description import describe
from sarit.lake.job_state import JobState
from sarit.lake.settings import decode_settings
from sarit.lake.statistics import LakeStatistics
from sarit.process.jobs.iceberg_samples import samples
from sarit.process.jobs.measured_jobs import MeasuredJobs
from sarit.process.limits import MAX_MAINTENANCE_SECONDS, MIN_MAINTENANCE_SECONDS

if TYPE_CHECKING:
    from sarit.controller.jobs import Job, JobKey, Runner, Save
    from sarit.env.ports import Worker
    from sarit.lake.settings import IcebergSettings
    from sarit.process.job_kinds import JobConfig, JobWorld

__all__ = ["check", "describe", "runner"]

_log = logging.getLogger("sarit.lake")


def check(key: JobKey, settings: bytes, config: JobConfig) -> None:
    """Check that a stream may become this table.  Raises Invalid: the settings are wrong, the node has no such catalog,
    or packages are not installed."""
    chosen = decode_settings(settings)
    config.catalogs.for_scope(chosen.catalog, key.stream.scope)
    require("lake", "a stream's Iceberg table")


def _import_libraries() -> None:
    import_module("sarit.process.jobs.iceberg_columns")
    import_module("sarit.lake.committer")
    import_module("sarit.lake.pyiceberg_tables").import_library()


def runner(world: JobWorld) -> Runner:
    """Return what runs the jobs of this kind, and add their metrics to those of the process."""
    jobs = MeasuredJobs(world, IcebergJobs(world).commit, LakeStatistics, samples, JobState.decode, decode_settings)
    world.statistics.add(jobs.samples)
    return jobs.run


class IcebergJobs:
    """The Iceberg tables that this process commits to."""

    def __init__(self, world: JobWorld) -> None:
        self._world = world

    def __repr__(self) -> str:
        return f"<IcebergJobs of {self._world.client!r}>"

    async def commit(self, job: Job, save: Save, statistics: LakeStatistics) -> None:
        """Commit a stream into its table until the stream has ended.  Raises what `Committer.run` raises."""
        require("lake", "a stream's Iceberg table")
        worker = self._world.env.threads.worker("iceberg")
        try:
            # On the thread: the libraries take a second, in which the process serves clients.
            await worker.run(_import_libraries)
            await self._commit_by(worker, job, save, statistics)
        finally:
            await worker.close()

    async def _commit_by(self, worker: Worker, job: Job, save: Save, statistics: LakeStatistics) -> None:
        from sarit.lake.committer import Committer
        from sarit.lake.pyiceberg_tables import PyIcebergTables
        from sarit.process.jobs.iceberg_columns import StreamColumns
        from sarit.process.jobs.stream_source import StreamSource

        world, settings = self._world, decode_settings(job.settings)
        world.config.catalogs.for_scope(settings.catalog, job.key.stream.scope)  # what the operator says now
        env, session = world.env, world.client.session
        source = StreamSource(session, job.key.stream, env.clock)
        tables = PyIcebergTables(world.config.catalogs, settings.catalog)
        columns = StreamColumns(world.client, job.key.stream, settings, tables, world.schemas, worker)

        committer = Committer(settings, source, tables, columns, save, env, worker, job.state, statistics)
        beside = Background.critical(_log, "the maintenance of Iceberg tables")
        try:
            beside.spawn(self._maintain(settings))
            await committer.run()
        finally:
            await beside.close()

    async def _maintain(self, settings: IcebergSettings) -> None:
        """Expire snapshots as the settings say, now and then.  A failure is logged, and tried again."""
        if not settings.expire_after_seconds:
            return
        from sarit.lake.maintenance import expire_tables

        env, catalogs = self._world.env, self._world.config.catalogs
        pause = min(max(settings.expire_after_seconds / 4, MIN_MAINTENANCE_SECONDS), MAX_MAINTENANCE_SECONDS)
        while True:
            await asyncio.sleep(pause)
            worker = env.threads.worker("iceberg-maintenance")
            try:
                now_ms = env.clock.wall_ms()
                done = await worker.run(lambda now_ms=now_ms: expire_tables(catalogs, settings, now_ms))  # type: ignore[misc]
                if done.snapshots:
                    _log.info("%d snapshots of table %s have expired", done.snapshots, settings.table)
            except SaritError as error:
                _log.warning("old snapshots of table %s stay: %s", settings.table, error)
            finally:
                with suppress(SaritError):
                    await worker.close()
