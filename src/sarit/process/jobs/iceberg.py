"""The kind of job that commits a stream into an Iceberg table.

A run is a `Committer` (`lake/committer.py`), and beside it the maintenance of the table.  A table that cannot be
committed to ends the run with an error, which the worker stores in the job's row and repeats the run after a pause: so
what an operator has put right is found by itself.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from sarit.core.errors import Fenced, SaritError
from sarit.core.extras import require
from sarit.core.texts import cut_text
from sarit.env.background import Background
from sarit.lake.description import describe
from sarit.lake.job_state import JobState
from sarit.lake.settings import decode_settings
from sarit.lake.statistics import LakeStatistics
from sarit.process.jobs.iceberg_samples import samples
from sarit.process.limits import (
    MAX_MAINTENANCE_SECONDS,
    MAX_TABLE_PROBLEM_CHARACTERS,
    MIN_MAINTENANCE_SECONDS,
    SERIES_AFTER_END_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.admin.exposition import Sample
    from sarit.controller.jobs import Job, JobKey, Runner, Save
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
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
    jobs = IcebergJobs(world)
    world.statistics.add(jobs.samples)
    return jobs.run


@dataclass(slots=True)
class _Measured:
    """The counters of one stream's table in this process.  `ended`: when its last run ended; None: it runs."""

    counters: LakeStatistics = field(default_factory=LakeStatistics)
    ended: float | None = None


class IcebergJobs:
    """The Iceberg tables that this process commits to."""

    def __init__(self, world: JobWorld) -> None:
        self._world = world
        self._measured: dict[StreamName, _Measured] = {}

    def __repr__(self) -> str:
        return f"<IcebergJobs, {len(self._measured)} tables>"

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of the tables; of one that another process has taken, not for long."""
        clock = self._world.env.clock
        oldest = clock.monotonic() - SERIES_AFTER_END_SECONDS
        for stream in [s for s, each in self._measured.items() if each.ended is not None and each.ended < oldest]:
            del self._measured[stream]
        yield from samples({stream: each.counters for stream, each in self._measured.items()}, clock.wall_ms())

    async def run(self, job: Job, save: Save) -> None:
        """Commit a stream into its table until the stream has ended.  Raises what `Committer.run` raises."""
        stream = job.key.stream
        measured = self._measured.setdefault(stream, _Measured())
        measured.ended = None
        try:
            await self._commit(job, save, measured.counters)
        except (Fenced, asyncio.CancelledError):
            self._measured.pop(stream, None)
            raise
        except SaritError as error:
            await self._note_lag(job, measured.counters)
            measured.counters.problem = cut_text(str(error), MAX_TABLE_PROBLEM_CHARACTERS)
            raise
        finally:
            measured.ended = self._world.env.clock.monotonic()

    async def _note_lag(self, job: Job, counters: LakeStatistics) -> None:
        """Note how far a table is behind, whose job has just failed: perhaps before it could tell."""
        from sarit.process.jobs.stream_source import StreamSource

        clock = self._world.env.clock
        with suppress(SaritError):
            state = JobState.decode(job.state)
            source = StreamSource(self._world.client.session, job.key.stream, clock)
            cut = state.cut or await source.edge(decode_settings(job.settings).start)
            counters.lag_bytes = await source.bytes_behind(cut)
            if counters.lag_bytes and counters.behind_since_ms is None:
                counters.behind_since_ms = state.committed_ms or clock.wall_ms()

    async def _commit(self, job: Job, save: Save, statistics: LakeStatistics) -> None:
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

        async def save_progress(state: bytes, held: StreamCut | None) -> None:
            await save(state, held)
            statistics.problem = ""

        committer = Committer(settings, source, tables, columns, save_progress, env, worker, job.state, statistics)
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
