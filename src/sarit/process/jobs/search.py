"""The kind of job that makes a stream searchable: it keeps an index of its events (`search/indexer.py`).

A run that fails ends with an error, which the worker stores in the job's row and repeats the run after a pause.  A
stream that is sealed keeps its job: shards of truncated events have to be dropped.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid, Unavailable
from sarit.core.extras import require
from sarit.process.jobs.measured_jobs import MeasuredJobs
from sarit.process.jobs.search_samples import samples
from sarit.search.progress import texts_of
from sarit.search.settings import SEARCH_JOB, decode_settings
from sarit.search.state import IndexState
from sarit.search.statistics import IndexStatistics

if TYPE_CHECKING:
    from pathlib import Path

    from sarit.controller.jobs import Job, JobKey, Runner, Save
    from sarit.env.ports import Worker
    from sarit.process.job_kinds import JobConfig, JobWorld
    from sarit.search.growing_slots import GrowingSlots

_NEED = "a searchable stream"


def check(key: JobKey, settings: bytes, config: JobConfig) -> None:
    """Check that a stream may be indexed.  Raises Invalid: the settings are wrong, or packages are not installed."""
    if key.name != SEARCH_JOB:
        raise Invalid(f"the job of a stream's index is named {SEARCH_JOB}, not {key.name}: a stream has one index")
    decode_settings(settings)
    require("search", _NEED)


def describe(state: bytes) -> dict[str, str]:
    """Return how far an index is, for people.  Raises Corrupt."""
    found = IndexState.decode(state)
    return texts_of(found, found.closed_shards + (found.growing is not None))


def runner(world: JobWorld) -> Runner:
    """Return what runs the jobs of this kind, and add their metrics to those of the process."""
    jobs = MeasuredJobs(world, SearchJobs(world).index, IndexStatistics, samples, IndexState.decode, decode_settings)
    world.statistics.add(jobs.samples)
    return jobs.run


class SearchJobs:
    """The indexes that this process keeps."""

    def __init__(self, world: JobWorld) -> None:
        self._world = world
        self._runs = 0
        self._slots: GrowingSlots | None = None  # of all indexes, once there is one

    def __repr__(self) -> str:
        return f"<SearchJobs, {self._runs} runs>"

    async def index(self, job: Job, save: Save, statistics: IndexStatistics) -> None:
        """Keep the index of a stream until another worker has the job.  Raises what `Indexer.run` raises."""
        require("search", _NEED)
        worker = self._world.env.threads.worker("search-index")
        self._runs += 1
        name = f"index-{self._runs}"
        try:
            # On the thread: the library takes a moment, in which the process serves clients.
            await worker.run(lambda: import_module("sarit.search.indexer"))
            engine = await worker.run(self._world.search.engine)
            directory = await worker.run(lambda: self._world.search.directory(name))
            try:
                await self._index_in(directory, worker, job, save, statistics)
            finally:
                with suppress(OSError):
                    await worker.run(lambda: engine.discard(directory))
        except OSError as error:
            raise Unavailable(
                f"the files of the index of {job.key.stream} cannot be written or read: {error}"
            ) from None
        finally:
            await worker.close()

    async def _index_in(
        self, directory: Path, worker: Worker, job: Job, save: Save, statistics: IndexStatistics
    ) -> None:
        from sarit.client.streams import properties
        from sarit.process.jobs.event_fields import EventFields
        from sarit.process.jobs.event_source import StreamEvents
        from sarit.search.growing_slots import GrowingSlots
        from sarit.search.indexer import Indexer
        from sarit.search.schema_documents import stream_documents

        world, stream = self._world, job.key.stream
        self._slots = self._slots or GrowingSlots()
        source = StreamEvents(world.client.session, stream, world.env.clock)

        # Schemas are asked for on the worker, when an event names one that is not known yet.
        found = await properties.read(world.client.session, stream)
        fields = EventFields(stream_documents(stream, found, world.schemas, world.env.clock))

        indexer = Indexer(
            decode_settings(job.settings), source, world.search.blobs, world.search.rows, world.search.engine(),
            fields, save, world.env, worker, directory, job.state, statistics, self._slots,
        )  # fmt: skip
        await indexer.run()
