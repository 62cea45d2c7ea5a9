"""A stream that background jobs of the nodes commit into a table, and its writers.

The job runs in the nodes, as production runs it: by their worker roles, with its row in the controller's tables, and a
client of the process that reads the stream.  Its tables (`simulation/lake_tables.py`) outlive all processes.  One event
of seven is not decoded, and becomes a dead letter.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from checkers import lake as checker
from checkers.lake import TableCommit, TableHistory
from sarit.client.aio import open_client
from sarit.core.names import StreamName
from sarit.lake import cuts
from sarit.lake.committer import Committer
from sarit.lake.cuts import parse_cut
from sarit.lake.settings import IcebergSettings, decode_settings
from sarit.process.jobs.stream_source import StreamSource
from sarit.schemas.payloads import Rows
from sarit.serializers.payload_columns import binary_columns
from simulation.actors.clients import SCOPE, packed
from simulation.actors.job_streams import JobStream
from simulation.lake_tables import Catalog, MemoryTables

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from checkers.log import Violation
    from sarit.client.aio import Client
    from sarit.controller.jobs import Job, Runner, Save
    from simulation.cluster import Cluster
    from simulation.world import Process

STREAM: Final = StreamName(SCOPE, "tabled")
KIND: Final = "simulated-table"
_SETTINGS: Final = IcebergSettings("lake.app.tabled", interval_seconds=1)
_DEAD_ONE_IN: Final = 7
_FAULTS: Final = 0.05  # of the requests to the catalog and to files
_FAULTS_OF_COMMITS: Final = 0.5
_FAULTS_OF: Final = {
    "append": ("before", "after", "refused", "later"), "create": ("before", "after"), "evolve": ("before", "after"),
}  # fmt: skip


class LettersOfSeven:
    """`Columns` and `ValueColumns`: bytes, of which one event of seven is not decoded."""

    wants_sample = False

    def __init__(self) -> None:
        self._columns = binary_columns()
        self.schema: pa.Schema = self._columns.schema

    async def choose(self, before: str, sample: Sequence[bytes]) -> str:
        """See `Columns`."""
        return "letters of seven"

    async def open(self, chosen: str) -> LettersOfSeven:
        """See `Columns`."""
        return self

    def read(self, payloads: pa.Array) -> Rows:
        """See `ValueColumns`."""
        bad = np.array([is_dead(payload) for payload in payloads.to_pylist()], bool)
        return Rows(self._columns.read(payloads).columns, bad)

    def problem(self, payload: bytes) -> str:
        """See `ValueColumns`."""
        return "one of seven"


def is_dead(payload: bytes) -> bool:
    """Whether an event becomes a dead letter."""
    return sum(payload[:16]) % _DEAD_ONE_IN == 0


class TableJobs:
    """The writers, the job, and what the table must be."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.on = bool(cluster.options.table_jobs)
        self.catalog = Catalog()
        self._tables = MemoryTables(self.catalog, self._fault)
        self._rng = cluster.rng("catalog")
        self._quiet = False
        self.history = TableHistory()
        self.stream = JobStream(cluster, STREAM, "tabled", "table writer")
        if self.on:
            cluster.job_kinds[KIND] = self._runner

    def __repr__(self) -> str:
        return f"<TableJobs, {self.stream!r}, {self.catalog!r}>"

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and tasks to cancel."""
        if not self.on:
            return [], []
        work = self.stream.start(self._create)
        return work, [self.cluster.spawn(self._maintain(), "maintenance of tables")]

    async def _create(self, client: Client) -> None:
        await client.stream(STREAM).create_job(KIND, _SETTINGS.encode())
        self.cluster.trace.probe("table_job_created")

    @property
    def commits(self) -> int:
        """How many commits were made."""
        return len(self.catalog.commits)

    def _fault(self, call: str) -> str:
        share = _FAULTS_OF_COMMITS if call == "append" else _FAULTS
        if self._quiet or call == "delete" or self._rng.random() >= share:
            return ""
        fault = self._rng.choice(_FAULTS_OF.get(call, ("before",)))
        self.cluster.trace.probe(f"table_{call}_{fault}")
        return fault

    async def _maintain(self) -> None:
        """Compact, expire, and carry out late commits, as others do, until cancelled."""
        rng, catalog = self.cluster.rng("maintenance of tables"), self.catalog
        while True:
            await asyncio.sleep(6 * rng.random())
            for name in catalog.tables:
                if rng.random() < 0.3:
                    catalog.compact(name)
                    self.cluster.trace.probe("table_compacted")
                if rng.random() < 0.3:
                    catalog.expire(name, rng.randint(1, 3), dangling=rng.random() < 0.5)
                    self.cluster.trace.probe("table_snapshots_expired")
            while catalog.pending and rng.random() < 0.7:
                catalog.carry_out(rng.randrange(len(catalog.pending)))

    # -- in the processes of the nodes ------------------------------------------------------------------

    def _runner(self, process: Process) -> Runner:
        async def run(job: Job, save: Save) -> None:
            await self._run(process, job, save)

        return run

    async def _run(self, process: Process, job: Job, save: Save) -> None:
        client = await open_client(self.cluster.controller_address(), env=process.env)
        worker = process.env.threads.worker("table")
        try:
            source = StreamSource(client.session, job.key.stream, process.env.clock)
            letters = LettersOfSeven()
            settings = decode_settings(job.settings)
            await Committer(settings, source, self._tables, letters, save, process.env, worker, job.state).run()
        finally:
            await worker.close()
            await client.close()

    # -- after the faults -------------------------------------------------------------------------------

    async def converge(self) -> None:
        """Wait until the whole stream is in the table, and read both."""
        if not self.on:
            return
        self._quiet = True
        client = await self.stream.client()
        await self.stream.end(client, "the table job is not done")
        await self._read(client)
        await client.close()

    async def _read(self, client: Client) -> None:
        history = self.history
        history.head = packed(await client.stream_cut_head(STREAM))
        history.events = await self.stream.events(client)
        history.commits, history.letters, history.deleted = [], [], []
        for commit in self.catalog.commits:
            files = self.catalog.files
            history.deleted += [name for name in commit.files if name not in files]
            rows = [row for name in commit.files for batch in files.get(name, ()) for row in batch.to_pylist()]
            number = commit.summary[cuts.COMMIT]
            if commit.table == _SETTINGS.dead_letters:
                self.cluster.trace.probe("table_dead_letters")
                history.letters.append((number, [((row["segment"], row["offset"]), row["raw"]) for row in rows]))
                continue
            start, end = (packed(parse_cut(commit.summary[name])) for name in (cuts.CUT_FROM, cuts.CUT_TO))
            places = [((row["sarit"]["segment"], row["sarit"]["offset"]), row["value"]) for row in rows]
            history.commits.append(TableCommit(number, start, end, places))

    def check(self) -> list[Violation]:
        """All violations."""
        return checker.check(self.history) if self.on and self.history.head else []


__all__ = ["KIND", "STREAM", "LettersOfSeven", "TableJobs", "is_dead"]
