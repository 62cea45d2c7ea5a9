"""A stream that background jobs of the node index for search, its writers, and searches.

The job runs in the node as production runs it: by its worker role, with its row in the controller's tables, a client of
the process that reads the stream, and its files in segments of the node.  Shards are in memory (`memory_shards.py`)
and on the node's disk, which loses them when the node dies.  Shards and garbage are made much sooner than in
production.  Searches read what the job's row names, at any moment, and take their time.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from checkers import search as checker
from checkers.search import IndexHistory, IndexView
from sarit.client.aio import open_client
from sarit.controller.jobs import JobKey, JobTable
from sarit.core.errors import SaritError, Unavailable
from sarit.core.names import StreamName
from sarit.process.jobs.event_source import StreamEvents
from sarit.process.search.site import SearchSite
from sarit.search import index_plan, indexer
from sarit.search.documents import Document
from sarit.search.indexer import Indexer
from sarit.search.mapping import Mapping as FieldMapping
from sarit.search.memory_shards import MemoryShards
from sarit.search.ports import ShardQuestion
from sarit.search.query import ALL_TEXT, Everything
from sarit.search.settings import SearchSettings, decode_settings
from sarit.search.shard_files import download, read_file
from sarit.search.state import IndexState, decode_shards
from simulation.actors.clients import SCOPE, packed, retry_forever
from simulation.actors.controllers import controller_of, in_process, running_controller
from simulation.actors.job_streams import EVENTS, JobStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from checkers.log import Violation
    from sarit.client.aio import Client
    from sarit.controller.assembly import Controller
    from sarit.controller.jobs import Job, Runner, Save
    from sarit.search.ports import Blobs
    from sarit.search.state import Shard
    from simulation.cluster import Cluster
    from simulation.world import Process

STREAM: Final = StreamName(SCOPE, "searched")
KIND: Final = "simulated-index"
_KEY: Final = JobKey(KIND, STREAM, "index")
_SETTINGS: Final = SearchSettings(FieldMapping(), interval_seconds=1)
_DIRECTORY: Final = Path("/indexes")
_SEARCH_SECONDS: Final = 3.0
_READ_SECONDS: Final = 2.0
_ALL_TIME: Final = 1 << 62


class Words:
    """`Fields` and `Maker`: an event is a text of one word."""

    def maker(self, mapping: FieldMapping) -> Words:
        """See `Fields`."""
        return self

    def infer(self, events: Sequence[bytes]) -> FieldMapping:
        """See `Fields`."""
        return FieldMapping()

    def document(self, event: bytes) -> Document:
        """See `Maker`."""
        return Document({ALL_TEXT: [[event[:8].hex()]]})


class SearchUsers:
    """The writers, the job, searches, and what the index must be."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.on = cluster.options.searched
        self.history = IndexHistory()
        self._seen: list[tuple[int, IndexView]] = []  # by the version of the job's row
        self.stream = JobStream(cluster, STREAM, "searched", "writer of searched events")
        self._rng = cluster.rng("searches")
        self._directories = 0
        if self.on:
            cluster.job_kinds[KIND] = self._runner

    def __repr__(self) -> str:
        return f"<SearchUsers, {self.stream!r}, {len(self._seen)} views>"

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and tasks to cancel."""
        if not self.on:
            return [], []
        work = self.stream.start(self._create)
        return work, [self.cluster.spawn(self._search_repeatedly(), "searches")]

    async def _create(self, client: Client) -> None:
        await client.stream(STREAM).create_job(KIND, _SETTINGS.encode(), _KEY.name)
        self.cluster.trace.probe("index_job_created")

    # -- in the processes of the node ----------------------------------------------------------------------

    def _runner(self, process: Process) -> Runner:
        async def run(job: Job, save: Save) -> None:
            await self._run(process, controller_of(self.cluster, process), job, save)

        return run

    async def _run(self, process: Process, controller: Controller, job: Job, save: Save) -> None:
        env = process.env
        site = SearchSite(controller, controller.catalog.tables, env)
        client = await open_client(self.cluster.controller_address(), env=env)
        worker = env.threads.worker("index")
        try:
            source = StreamEvents(client.session, job.key.stream, env.clock)
            engine, settings = MemoryShards(env.files), decode_settings(job.settings)
            await Indexer(
                settings,
                source,
                site.blobs,
                site.rows,
                engine,
                Words(),
                save,
                env,
                worker,
                self._directory(),
                job.state,
            ).run()
        except OSError as error:  # as the job does
            raise Unavailable(f"the files of the index cannot be written or read: {error}") from None
        finally:
            await worker.close()
            await client.close()

    def _directory(self) -> Path:
        self._directories += 1
        return _DIRECTORY / str(self._directories)

    async def _search_repeatedly(self) -> None:
        """Search now and then, until cancelled."""
        while True:
            await asyncio.sleep(_SEARCH_SECONDS * self._rng.random())
            await self._search()

    async def _search(self) -> IndexView | None:
        """Search everything, and note what was found; None: nothing can be searched now."""
        place = running_controller(self.cluster, self._rng)
        if place is None:
            return None
        process, controller = place
        try:
            found = await in_process(self.cluster, process, lambda: self._view(process, controller), "search")
        except Unavailable:
            return None
        except SaritError as error:
            self.cluster.failures.append(f"search: what the index names cannot be read: {error!r}")
            return None
        if found is None:
            return None
        self._seen.append(found)
        self.cluster.trace.probe("index_searched")
        return found[1]

    async def _view(self, process: Process, controller: Controller) -> tuple[int, IndexView] | None:
        found = await JobTable(controller.catalog).find(_KEY)
        state = IndexState.decode(b"" if found is None else found.job.state)
        if found is None or state.cut is None:
            return None
        await asyncio.sleep(_READ_SECONDS * self._rng.random())
        blobs = SearchSite(controller, controller.catalog.tables, process.env).blobs
        shards = [] if state.closed is None else decode_shards(await read_file(blobs, state.closed))
        if shards:
            self.cluster.trace.probe("index_shard_closed")
        if state.growing is not None:
            shards.append(state.growing)
        places = [place for shard in shards for place in await self._places(process, blobs, shard)]
        return found.version, IndexView(packed(state.cut), places)

    async def _places(self, process: Process, blobs: Blobs, shard: Shard) -> list[tuple[int, int]]:
        env, directory = process.env, self._directory()
        engine, worker = MemoryShards(env.files), env.threads.worker("search")
        try:
            await download(blobs, shard.files, directory, env.files, worker)
            reader = await worker.run(lambda: engine.open(directory, shard.mapping))
            question = ShardQuestion(Everything(), -_ALL_TIME, _ALL_TIME, limit=10 * EVENTS)
            answer = await worker.run(lambda: reader.search(question))
            await worker.run(lambda: engine.discard(directory))
        finally:
            await worker.close()
        return [(hit.place.segment, hit.place.offset) for hit in answer.hits]

    # -- after the faults -------------------------------------------------------------------------------

    async def converge(self) -> None:
        """Wait until the whole stream is in the index, and read both."""
        if not self.on:
            return
        client = await self.stream.client()
        self.history.events = frozenset(await self.stream.events(client))
        self.history.ranges = await retry_forever(lambda: self.stream.ranges(self._rng))
        tail = packed(await client.stream_cut_tail(STREAM))

        async def reached() -> bool:
            found = await self._search()
            return found is not None and all(found.cut.get(segment, -1) >= offset for segment, offset in tail.items())

        await self.stream.wait(client, reached, f"the index has not reached {tail}")
        await client.close()

    def check(self) -> list[Violation]:
        """All violations."""
        if not self.on or not self.history.ranges:
            return []
        # Searches overlap, so they end in another order than they began in.
        self.history.views = [view for _, view in sorted(self._seen, key=lambda seen: seen[0])]
        return checker.check_index(self.history)


@contextmanager
def hurried() -> Iterator[None]:
    """Close shards after a few events, and delete garbage after seconds."""
    plan = patch.multiple(index_plan, SHARD_HOUR_MS=3000, MIN_SHARD_EVENTS=20)
    with plan, patch.multiple(indexer, HOUSEKEEPING_SECONDS=2, GARBAGE_SECONDS=3, OLD_BLOB_SECONDS=5):
        yield


__all__ = ["KIND", "STREAM", "SearchUsers", "hurried"]
