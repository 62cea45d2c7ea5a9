"""Search and continuous queries in a cluster of real servers, while workers, stores and controllers are killed.

ZooKeeper, three bookies, an S3 server, two stores, two controllers, three workers.  Two writers go on all the time, and
the stream is scaled beside each kill.  In the end the index answers, by each controller, what all events of the stream
answer; the outputs of continuous queries have each match once.  How long after each kill an event is found is printed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import time
from collections import Counter
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import pytest

from sarit.client import aio
from sarit.core.errors import Conflict
from sarit.core.names import StreamName
from sarit.search.mapping import from_document
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from tests.cluster.processes import ClusterProcess, RunningCluster
from tests.contract.s3 import s3_server
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT
from tests.search.scanned import answered, expected
from tests.test_job_processes import TESTS
from tests.test_metrics import scrape

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.long

STREAM: Final = StreamName("s", "orders")
LATE: Final = StreamName("s", "late")
MARKS: Final = StreamName("s", "marks")
MAPPING: Final = from_document({"fields": {"id": "number", "state": "keyword", "text": "text"}})
SETTINGS: Final = SearchSettings(MAPPING, interval_seconds=1).encode()
# However many orders a shard has: a beginning stands for fewer words than MAX_PREFIX_TERMS.
QUERIES: Final = (
    "late", '"is late"', "state:late", "state:refused customer7", "id:[100 TO 900}", "cust* paid order31*",
    "refused OR late", "customer3 -paid -late", "NOT paid order21*", "mark*",
)  # fmt: skip
STATES: Final = ("paid", "paid", "paid", "paid", "paid", "paid", "paid", "paid", "refused", "late")
EVENTS_AT_ONCE: Final = 50
PAUSE_SECONDS: Final = 0.1
BEGIN_EVENTS: Final = 20_000  # before the first kill: several shards
ASKED_HITS: Final = 100  # of a page, while processes are killed
RETRY_SECONDS: Final = 120.0
SEGMENTS: Final = (4, 2, 3, 1, 3, 5)  # after each kill


class Writers:
    """Writes orders without pause, from two writers; `written`: what was acknowledged."""

    def __init__(self, client: aio.Client) -> None:
        self.written: list[bytes] = []
        self._client = client
        self._numbers = itertools.count()
        self._stopping = False

    async def run(self) -> None:
        """Write until `stop`."""
        await asyncio.gather(self._write("a"), self._write("b"))

    def stop(self) -> None:
        """Let the last events be the last."""
        self._stopping = True

    async def _write(self, name: str) -> None:
        async with self._client.writer(STREAM) as writer:
            while not self._stopping:
                events = [order(next(self._numbers), name) for _ in range(EVENTS_AT_ONCE)]
                for number, event in enumerate(events):
                    writer.write(event, key=f"{name}{number}")
                await writer.flush()
                self.written += events
                await asyncio.sleep(PAUSE_SECONDS)


def order(number: int, writer: str) -> bytes:
    """Return an event; one in ten is late."""
    state = STATES[number * 7 % 10]
    text = f"order{number} of customer{number % 89} is {state}, says {writer}"
    return json.dumps({"id": number, "state": state, "text": text}).encode()


class Asker:
    """Asks for late orders, page by page, again and again: no event is on two pages, and none is gone later."""

    def __init__(self, client: aio.Client) -> None:
        self.answers = 0
        self.longest = 0.0  # seconds for an answer with its pages
        self._client = client
        self._total = 0

    async def run(self) -> None:
        """Ask for ever.  An answer that is wrong, or does not come, is an error."""
        while True:
            began = time.monotonic()
            first = await self._client.search(STREAM, "late", limit=ASKED_HITS, events=False)
            assert first.total >= self._total, f"{first.total} events are found, and {self._total} were before"
            self._total = first.total
            hits = list(first.hits)
            page = first.page
            for _ in range(3):
                if page:
                    result = await self._client.search(STREAM, "late", limit=ASKED_HITS, page=page, events=False)
                    hits += result.hits
                    page = result.page
            places = [(hit.segment, hit.offset) for hit in hits]
            assert len(set(places)) == len(places), "an event is on two pages"
            self.answers += 1
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(PAUSE_SECONDS)


class Marks:
    """Writes an event that is like no other, and waits until it is found, and its match is in an output."""

    def __init__(self, client: aio.Client) -> None:
        self.written: list[bytes] = []
        self._client = client

    async def seen(self, what: str, since: float) -> None:
        """Print how long after a moment of time.monotonic() a new event was durable, found, and matched."""
        word = f"mark{len(self.written)}"
        event = json.dumps({"id": 0, "state": "mark", "text": f"{word} after {what}"}).encode()
        async with self._client.writer(STREAM) as writer:
            writer.write(event, key=word)
            await writer.flush()
        self.written.append(event)
        durable = time.monotonic() - since

        async def is_found() -> bool:
            return (await self._client.search(STREAM, word, events=False)).total > 0

        async def is_matched() -> bool:
            return event.decode() in [match["event"] for match in await matches(self._client, MARKS)]

        found, matched = await asyncio.gather(seconds(is_found, since), seconds(is_matched, since))
        print(
            f"{what}: an event is durable after {durable:.1f} s, found {found:.1f} s, matched {matched:.1f} s",
            flush=True,
        )


async def seconds(holds: Callable[[], Awaitable[bool]], since: float) -> float:
    """Wait until something holds; return how long that was after a moment of time.monotonic()."""
    while not await holds():
        assert time.monotonic() - since < HANG_SECONDS
        await asyncio.sleep(PAUSE_SECONDS)
    return time.monotonic() - since


async def matches(client: aio.Client, output: StreamName) -> list[dict]:
    """Return the matches that are in an output."""
    async with client.reader(output, start="head", end="tail") as reader:
        return [json.loads(event) async for event in reader]


class Cluster:
    """The processes of the test.  `workers`: run all jobs, by their names."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.processes = cluster
        self.workers = {name: self._worker(name) for name in ("w1", "w2", "w3")}

    def _worker(self, name: str) -> ClusterProcess:
        command = [SARIT, "worker", "--cluster", self.processes.url, "--machine", name]
        return ClusterProcess(name, self.processes.directory, command, self.processes.environ)

    def addresses(self, first: int) -> str:
        """Return the addresses of the controllers, one of them first: a new client asks that one."""
        one, other = self.processes.controllers[first].address, self.processes.controllers[1 - first].address
        return f"{one},{other}"

    def client(self, first: int) -> aio.Connecting:
        """Return a client of all controllers that asks one of them."""
        return aio.connect(self.addresses(first), retry_timeout=RETRY_SECONDS)

    async def indexing(self, client: aio.Client) -> ClusterProcess:
        """Return the worker that indexes."""
        while True:
            for job in await client.stream(STREAM).jobs():
                if job.kind == SEARCH_KIND and job.holder:
                    return self.workers[job.holder.partition("-")[0]]
            await asyncio.sleep(PAUSE_SECONDS)


async def kill(process: ClusterProcess, client: aio.Client, marks: Marks, asker: Asker, segments: int) -> None:
    """Kill a process while the stream is scaled; wait until the index goes on, and searches; start it again."""
    began = time.monotonic()
    await asyncio.to_thread(process.kill)
    scaled = asyncio.ensure_future(scale(client, segments))
    await marks.seen(f"{process.name} killed", began)
    answers = asker.answers
    await seconds(lambda: more_than(asker, answers + 1), began)
    await scaled
    await asyncio.to_thread(lambda: process.begin().wait())


async def pause(controller: ClusterProcess, asker: Asker) -> None:
    """Pause a controller that is not asked, but holds shards: its connections stay open, and it answers nothing."""
    # After its restart it is not asked for some seconds.
    await seconds(lambda: has_copies(controller), time.monotonic())
    asker.longest, answers = 0.0, asker.answers
    controller.signal(signal.SIGSTOP)
    try:
        await seconds(lambda: more_than(asker, answers + 2), time.monotonic())
    finally:
        controller.signal(signal.SIGCONT)
    print(f"a controller that holds shards paused: pages after {asker.longest:.1f} s at most", flush=True)


async def copied_bytes(controller: ClusterProcess) -> float:
    """Return how many bytes of shards a controller has read since its start."""
    samples = await asyncio.to_thread(scrape, controller.http)
    return samples.get(("sarit_searches_copied_bytes_total",), 0.0)


async def has_copies(controller: ClusterProcess) -> bool:
    return await copied_bytes(controller) > 0


async def more_than(asker: Asker, answers: int) -> bool:
    return asker.answers > answers


async def scale(client: aio.Client, segments: int) -> None:
    with suppress(Conflict):  # an attempt whose answer was lost has done it
        await client.stream(STREAM).scale(segments)


async def create(client: aio.Client) -> None:
    """Make the stream searchable, with two continuous queries, before it has any event."""
    await client.create_scope(STREAM.scope)
    await client.create_stream(STREAM, segments=3)
    await client.stream(STREAM).create_job(SEARCH_KIND, SETTINGS, SEARCH_JOB)
    for output, query in ((LATE, "late"), (MARKS, "mark*")):
        await client.create_stream(output, segments=2)
        made = await client.continuous.create(STREAM, output.stream, query, output, with_event=True)
        assert made.state == "active", made


async def check(cluster: Cluster, client: aio.Client, written: list[bytes], marks: list[bytes]) -> None:
    """Compare the index by each controller, and the outputs, with all events, and these with what was written."""
    await seconds(lambda: is_indexed(client, len(written) + len(marks)), time.monotonic())
    count, wanted = await expected(client, STREAM, MAPPING, QUERIES)
    assert count == len(written) + len(marks)
    for controller in cluster.processes.controllers:
        async with await aio.connect(controller.address, retry_timeout=RETRY_SECONDS) as own:
            for text, places in zip(QUERIES, wanted, strict=True):
                found = await answered(own, STREAM, text)
                assert Counter(found) == Counter(places), (text, controller.address)
            assert (await own.search(STREAM, "*", limit=1, events=False)).total == count
    late, marked = set(wanted[QUERIES.index("late")]), set(wanted[QUERIES.index("mark*")])
    for output, places, events in (
        (LATE, late, [event for event in written if json.loads(event)["state"] == "late"]), (MARKS, marked, marks),
    ):  # fmt: skip
        await seconds(lambda output=output, events=events: has_matches(client, output, len(events)), time.monotonic())
        written_out = await matches(client, output)
        assert Counter((match["segment"], match["offset"]) for match in written_out) == Counter(places)
        assert Counter(match["event"] for match in written_out) == Counter(event.decode() for event in events)
    info = await client.search.info(STREAM)
    print(f"{count} events in {info.shards} shards, {len(late)} of them late: the index and the outputs have each once")


async def is_indexed(client: aio.Client, count: int) -> bool:
    info = await client.search.info(STREAM)
    assert info.events <= count, info
    return info.events == count and not info.bytes_behind


async def has_matches(client: aio.Client, output: StreamName, count: int) -> bool:
    return len(await matches(client, output)) >= count


async def through_kills(cluster: Cluster) -> None:
    # A task that fails ends everything with its error.
    async with cluster.client(0) as client, asyncio.TaskGroup() as group:
        await create(client)
        writers, marks = Writers(client), Marks(client)
        writing = group.create_task(writers.run())
        await seconds(lambda: has_events(client), time.monotonic())
        # One controller was asked, for the first time, and the other one has answered for its shards.
        async with cluster.client(0) as one:
            await one.search(STREAM, "late", events=False)
        copied = [await copied_bytes(controller) for controller in cluster.processes.controllers]
        print(f"the controllers have read {copied[0] / 1e6:.1f} and {copied[1] / 1e6:.1f} MB of shards", flush=True)
        assert all(copied)
        await marks.seen("nothing", time.monotonic())
        segments = iter(SEGMENTS)
        for number in (0, 1):
            async with cluster.client(number) as asking:
                asker = Asker(asking)
                task = group.create_task(asker.run())
                controller = cluster.processes.controllers[number]
                for process in (
                    await cluster.indexing(client), cluster.processes.stores[f"s{number + 1}"], controller,
                ):  # fmt: skip
                    await kill(process, client, marks, asker, next(segments))
                print(f"{asker.answers} answers meanwhile", flush=True)
                await pause(controller, asker)
                task.cancel()
        writers.stop()
        await writing
        await check(cluster, client, writers.written, marks.written)


async def has_events(client: aio.Client) -> bool:
    return (await client.search.info(STREAM)).events >= BEGIN_EVENTS


def test_index_and_matches_are_exact_after_kills(tmp_path: Path) -> None:
    for name in ("s3", "temporary"):
        (tmp_path / name).mkdir()
    # Workers alone run jobs.
    environ = {
        "SARIT_JOBS": "off", "PYTHONPATH": str(TESTS / "small_shards"), "TMPDIR": str(tmp_path / "temporary"),
    }  # fmt: skip
    with ExitStack() as stack:
        s3 = stack.enter_context(s3_server(tmp_path / "s3"))
        running = RunningCluster(
            tmp_path / "cluster", 2, 2, containers=6, bookies=3, s3=s3, http=True, environ=environ
        )  # fmt: skip
        cluster = Cluster(stack.enter_context(running))
        for worker in cluster.workers.values():
            stack.callback(worker.kill)
            worker.begin()
        for worker in cluster.workers.values():
            worker.wait()
        asyncio.run(asyncio.wait_for(through_kills(cluster), 2 * HANG_SECONDS))
