"""The kind of job that carries out the continuous queries of a stream (`search/continuous.py`).

A stream has one such job, which the first query makes.  A run that fails is repeated by the worker, which stores why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.streams import properties
from sarit.core import cuts
from sarit.core.errors import Invalid
from sarit.process.jobs.measured_jobs import MeasuredJobs, lag_seconds
from sarit.process.limits import MAX_CONTINUOUS_POLL_SECONDS, MAX_MEASURED_CONTINUOUS, MAX_MEASURED_INDEXES
from sarit.search.continuous import Continuous, ContinuousStatistics
from sarit.search.continuous_plan import CONTINUOUS_JOB, ContinuousState
from sarit.search.continuous_set import QuerySet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sarit.admin.exposition import Sample
    from sarit.controller.jobs import Job, JobKey, Runner, Save
    from sarit.core.names import StreamName
    from sarit.env.ports import Worker
    from sarit.process.job_kinds import JobConfig, JobWorld
    from sarit.search.continuous_ports import QueryLanguage


def check(key: JobKey, settings: bytes, config: JobConfig) -> None:
    """Check that a job may be created.  Raises Invalid."""
    if key.name != CONTINUOUS_JOB or settings:
        raise Invalid(
            f"the job of continuous queries is named {CONTINUOUS_JOB} and has no settings: make queries with `sarit "
            "continuous create`, and it is made with the first"
        )


def describe(state: bytes) -> dict[str, str]:
    """Return how far the queries of a stream are, for people.  Raises Corrupt."""
    found = ContinuousState.decode(state)
    return {
        "events": str(found.events),
        "matches": str(found.matches),
        **({"lost-bytes": str(found.lost_bytes)} if found.lost_bytes else {}),
        **({"unclear": str(found.unclear)} if found.unclear else {}),
        **({} if found.cut is None else {"cut": cuts.to_text(found.cut)}),
        **({"committed-ms": str(found.committed_ms)} if found.committed_ms else {}),
    }


def runner(world: JobWorld) -> Runner:
    """Return what runs the jobs of this kind, and add their metrics to those of the process."""
    asked = ContinuousJobs(world).ask
    jobs = MeasuredJobs(world, asked, ContinuousStatistics, samples, ContinuousState.decode)
    world.statistics.add(jobs.samples)
    return jobs.run


def samples(running: Mapping[StreamName, ContinuousStatistics], now_ms: int) -> Iterator[Sample]:
    """Yield the metrics of continuous queries by their streams: of the first MAX_MEASURED_INDEXES by name."""
    for stream in sorted(running)[:MAX_MEASURED_INDEXES]:
        found, label = running[stream], (str(stream),)
        yield "sarit_continuous_queries", label, found.queries
        yield "sarit_continuous_suspended", label, found.suspended
        yield "sarit_continuous_lag_bytes", label, found.lag_bytes
        yield "sarit_continuous_lag_seconds", label, lag_seconds(found, now_ms)
        yield "sarit_continuous_stopped", label, int(bool(found.problem))
        yield "sarit_continuous_events_total", label, found.events
        yield "sarit_continuous_matches_total", label, found.matches
        yield "sarit_continuous_repeated_total", label, found.repeated
        for name, matches in found.by_query.most_common(MAX_MEASURED_CONTINUOUS):
            yield "sarit_continuous_query_matches_total", (str(stream), name), matches


class ContinuousJobs:
    """The streams whose continuous queries this process carries out."""

    def __init__(self, world: JobWorld) -> None:
        self._world = world

    def __repr__(self) -> str:
        return f"<ContinuousJobs of {self._world.client!r}>"

    async def ask(self, job: Job, save: Save, statistics: ContinuousStatistics) -> None:
        """Ask about the events of a stream until it has ended.  Raises what `Continuous.run` raises."""
        worker = self._world.env.threads.worker("continuous")
        try:
            await self._ask(worker, job, save, statistics)
        finally:
            await worker.close()

    async def _ask(self, worker: Worker, job: Job, save: Save, statistics: ContinuousStatistics) -> None:
        world, env, session = self._world, self._world.env, self._world.client.session
        stored = await properties.read(session, job.key.stream)
        # With the first run, on the thread: a parser and an index are imported.
        language = await worker.run(lambda: _language(world, job.key.stream, stored))
        from sarit.process.jobs.event_source import StreamEvents
        from sarit.process.jobs.maker_rights import MakerRights
        from sarit.process.jobs.match_outputs import StreamOutputs

        site, tables = world.search, world.search.controller.catalog.tables
        source = StreamEvents(session, job.key.stream, env.clock, MAX_CONTINUOUS_POLL_SECONDS)
        state, stream_id = ContinuousState.decode(job.state), await source.identity()
        fresh = state.cut is None or state.stream_id != stream_id
        if fresh:
            state = ContinuousState(stream_id, await source.edge("tail"))
        outputs = StreamOutputs(session, env.clock)
        rights = MakerRights(site.controller.access, tables, env)
        queries = QuerySet(job.key.stream, stream_id, site.rows, outputs, rights, language, env, worker, fresh=fresh)
        try:
            await Continuous(source, queries, outputs, save, env, worker, state, statistics).run()
        finally:
            await outputs.close()


def _language(
    world: JobWorld, stream: StreamName, stored: Mapping[str, str]
) -> Callable[[bytes], QueryLanguage]:  # fmt: skip
    """Return what makes the language of a mapping.  `stored`: the properties of the stream, which say how its events
    name their schemas."""
    from sarit.search.event_language import EventLanguage, decode_mapping
    from sarit.search.schema_documents import stream_documents

    decode = stream_documents(stream, stored, world.schemas, world.env.clock)
    return lambda encoded: EventLanguage(decode_mapping(encoded), decode)
