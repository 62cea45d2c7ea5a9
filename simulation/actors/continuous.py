"""A stream whose continuous queries background jobs of the nodes carry out, its writers, and users of queries.

The job runs in the nodes as production runs it: by their worker roles, on streams, transactions and tables of the
nodes.  Users create, change and delete queries by the calls of a controller.  Runs of the job are killed where it hurts
most, beside the deaths of their processes; rivals take the job over from whoever has it, who goes on until a save is
refused; others abort transactions that a save names, and controllers forget early how transactions ended.

What must be in the outputs is computed from the rows of queries (`simulation/seen_queries.py`) and the stream alone.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from unittest.mock import patch
from uuid import UUID

from checkers.log import Violation
from checkers.search import Held, MatchHistory, check_matches
from sarit.client.aio import open_client
from sarit.client.transactions.transaction import TransactionalWriter
from sarit.controller import keys
from sarit.controller.jobs import JobKey, JobTable
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Conflict, SaritError, Unavailable
from sarit.core.names import StreamName
from sarit.process.job_kinds import JobConfig, JobStatistics, JobWorld
from sarit.process.jobs import match_outputs
from sarit.process.jobs.continuous import ContinuousJobs
from sarit.process.jobs.event_source import StreamEvents
from sarit.process.search.calls import SearchWorld
from sarit.process.search.continuous import ContinuousCalls
from sarit.process.search.site import SearchSite
from sarit.process.security import Security, SecurityConfig
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.generated import search_pb2
from sarit.search import continuous
from sarit.search.continuous import ContinuousStatistics
from sarit.search.continuous_plan import CONTINUOUS_JOB, CONTINUOUS_KIND, ContinuousState
from sarit.wire.limits import NO_VERSION
from simulation.actors.broken_output import BrokenOutput
from simulation.actors.clients import SCOPE, connect_client, packed, retry_forever, scale_now_and_then
from simulation.actors.controllers import controller_of, in_process, running_controller
from simulation.actors.job_streams import JobStream
from simulation.seen_queries import JobRun, SeenQueries, SeenTables

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from checkers.search import Cut, Position
    from sarit.client.aio import Client
    from sarit.controller.assembly import Controller
    from sarit.controller.jobs import Job, Runner, Save
    from sarit.controller.ports import Tables
    from sarit.core.cuts import StreamCut
    from sarit.search.continuous_plan import Intent
    from simulation.cluster import Cluster
    from simulation.seen_queries import Term
    from simulation.world import Process

STREAM: Final = StreamName(SCOPE, "queried")
OUTPUTS: Final = (StreamName(SCOPE, "matches-a"), StreamName(SCOPE, "matches-b"))
_KEY: Final = JobKey(CONTINUOUS_KIND, STREAM, CONTINUOUS_JOB)
_COLORS: Final = ("red", "green", "blue")
_SIZES: Final = ("small", "large")
# The texts of queries, and the words of events that they match.
_TEXTS: Final[dict[str, Callable[[set[str]], bool]]] = {
    "red": lambda words: "red" in words,
    "green OR blue": lambda words: not words.isdisjoint(("green", "blue")),
    "blue AND large": lambda words: {"blue", "large"} <= words,
    "NOT small": lambda words: "small" not in words,
}
_NAMES: Final = ("a", "b", "c")
# Of queries that users leave alone: one whose output breaks, and one that is made at the end.
_KEPT: Final = "kept"
_LAST: Final = "last"
_EVENTS: Final = 240
_USERS: Final = 2
_CHANGES: Final = 8  # of each user
_DELETED: Final = 0.4  # of the queries that a user finds
_CHANGE_SECONDS: Final = 6.0
_RIVAL_SECONDS: Final = 12.0
_BATCH_SECONDS: Final = 0.3
_LEASE_SECONDS: Final = 10.0  # the least that a controller allows
# What happens to a run of the job: of the saves, and of the saves that name transactions.
_KILLED: Final = 0.08
_SLOW: Final = 0.1
_SLOW_SECONDS: Final = 3.0
_KILLED_AFTER: Final = 0.25
_KILL_SECONDS: Final = 0.05  # after a save, at the mean
_ABORTED: Final = 0.2
_FORGET_SECONDS: Final = 2.0
_FORGOTTEN: Final = 100  # at once
_STILL: Final = 0.15
_STILL_SECONDS: Final = 2 * _LEASE_SECONDS


class ContinuousUsers:
    """The writers, the job, its rivals, users, and what the outputs must be."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.on = cluster.options.continuous
        self.stream = JobStream(cluster, STREAM, "queried", "writer of queried events", _event, _EVENTS)
        self.histories: list[MatchHistory] = []
        self._wrong: list[Violation] = []
        self._seen = SeenQueries()
        self._rng = cluster.rng("continuous")
        self._quiet = False
        self._made = asyncio.Event()
        self._cut: StreamCut | None = None  # as it was saved last
        self._broken = BrokenOutput(cluster, STREAM, OUTPUTS, lambda: self._cut)
        if self.on:
            cluster.job_kinds[CONTINUOUS_KIND] = self._runner

    def __repr__(self) -> str:
        return f"<ContinuousUsers, {self.stream!r}, {self._seen!r}>"

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and tasks to cancel."""
        if not self.on:
            return [], []
        spawn, work = self.cluster.spawn, self.stream.start(self._create)
        work += [spawn(self._scale_or_break(output), f"scaler of {output}") for output in OUTPUTS]
        work += [spawn(self._use(number), f"user {number} of queries") for number in range(_USERS)]
        return work, [spawn(self._rival(), "rival of the job of queries"), spawn(self._forget(), "forgetting")]

    # -- in the processes of the nodes ------------------------------------------------------------------

    def _runner(self, process: Process) -> Runner:
        async def run(job: Job, save: Save) -> None:
            await self._run(process, controller_of(self.cluster, process), job, save)

        return run

    async def _run(self, process: Process, controller: Controller, job: Job, save: Save) -> None:
        run = JobRun(job.fence, ContinuousState.decode(job.state).cut)
        self._seen.began(run)
        client = await open_client(self.cluster.controller_address(), env=process.env)
        site = SearchSite(controller, self._tables(controller, run), process.env)
        world = JobWorld(client, process.env, JobConfig(), cast("Any", None), JobStatistics(), cast("Any", None), site)

        async def troubled_save(state: bytes, held: StreamCut | None = None) -> None:
            found = ContinuousState.decode(state)
            await self._trouble_before(work)
            await save(state, held)
            run.cut = self._cut = found.cut
            if found.intent is not None:
                self.cluster.trace.probe("continuous_intent")
                await self._trouble_after(work, found.intent)

        work = asyncio.ensure_future(ContinuousJobs(world).ask(job, troubled_save, ContinuousStatistics()))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait([work])
        finally:
            work.cancel()
            await asyncio.wait([work])
            await client.close()
        if work.cancelled():
            raise Unavailable("the run was killed")
        work.result()

    def _tables(self, controller: Controller, run: JobRun | None = None) -> Tables:
        return cast("Tables", SeenTables(controller.catalog.tables, self._seen, run))

    def _happens(self, share: float, what: str) -> bool:
        if self._quiet or self._rng.random() >= share:
            return False
        self.cluster.trace.probe(f"continuous_{what}")
        return True

    async def _trouble_before(self, work: asyncio.Future[None]) -> None:
        """Before a save: the run is killed, or waits while others may take the job."""
        if self._happens(_KILLED, "killed_before_save"):
            await _kill(work)
        if self._happens(_SLOW, "slow_save"):
            await asyncio.sleep(_SLOW_SECONDS * self._rng.random())

    async def _trouble_after(self, work: asyncio.Future[None], intent: Intent) -> None:
        """After a save that names transactions: one is aborted, or the run is killed then or a little later, or stands
        still for so long that their leases end."""
        if self._happens(_ABORTED, "aborted"):
            each = self._rng.choice(intent.written)
            self.cluster.spawn(self._abort(each.output, each.transaction), "abort of matches")
        if self._happens(_KILLED_AFTER, "killed_after_save"):
            if self._rng.random() < 0.5:
                await _kill(work)
            asyncio.get_running_loop().call_later(self._rng.expovariate(1 / _KILL_SECONDS), work.cancel)
        elif self._happens(_STILL, "stands_still"):
            await asyncio.sleep(_STILL_SECONDS * self._rng.random())

    # -- others -----------------------------------------------------------------------------------------

    async def _abort(self, output: StreamName, transaction: str) -> None:
        client = await connect_client(self.cluster)
        with suppress(SaritError):
            await TransactionalWriter(client.session, output).abort(UUID(hex=transaction), wait=False)
        await client.close()

    async def _rival(self) -> None:
        """Take the job over now and then, until cancelled."""
        while True:
            await asyncio.sleep(_RIVAL_SECONDS * self._rng.random())
            place = None if self._quiet else running_controller(self.cluster, self._rng)
            if place is not None:
                place[0].spawn(self._take_over(*place), f"rival at {place[0].machine.address}")

    async def _take_over(self, process: Process, controller: Controller) -> None:
        jobs = JobTable(controller.catalog)
        try:
            found = await jobs.find(_KEY)
            if found is None or found.job.done:
                return
            claim = await jobs.claim(found, "a rival")
            self.cluster.trace.probe("continuous_taken_over")
            await self._run(process, controller, claim.job, claim.save)
            await claim.finish()
        except SaritError as error:
            self.cluster.trace.note("rival", repr(error))

    async def _forget(self) -> None:
        """Have controllers forget how transactions on the outputs ended, until cancelled."""
        rng = self.cluster.rng("forgetting")
        while True:
            await asyncio.sleep(_FORGET_SECONDS * rng.random())
            place = running_controller(self.cluster, rng)
            if place is not None:
                with suppress(SaritError):
                    await in_process(self.cluster, place[0], partial(_forget_ended, place[1]), "forgetting")

    # -- users ------------------------------------------------------------------------------------------

    async def _create(self, client: Client) -> None:
        for output in OUTPUTS:
            await client.create_stream(output, segments=2)
        with suppress(Conflict):  # a user has made it by now
            await self._in_process(lambda calls: _change(calls, self._wanted(self._rng), deletes=False))
        self._made.set()

    def _wanted(self, rng: random.Random) -> search_pb2.PutContinuousRequest:
        """Draw a query."""
        name, text, output = rng.choice(_NAMES), rng.choice(list(_TEXTS)), rng.choice(OUTPUTS)
        return search_pb2.PutContinuousRequest(
            scope=STREAM.scope, stream=STREAM.stream, name=name, query=text.encode(),
            output=pb.StreamInfo(scope=output.scope, stream=output.stream), withEvent=rng.random() < 0.5,
        )  # fmt: skip

    async def _scale_or_break(self, output: StreamName) -> None:
        client = await self.stream.client()
        await retry_forever(lambda: client.create_stream(output, segments=2))
        if output == self._broken.output:
            await self._made.wait()
            await retry_forever(lambda: self._in_process(partial(_add, name=_KEPT, output=output)))
            await self._broken.run(client)
        else:
            await scale_now_and_then(
                self.cluster, client, output, output.stream, times=(0, 1, 2), pause=8, segments=(1, 4)
            )
        await client.close()

    async def _use(self, number: int) -> None:
        """Create, change and delete queries."""
        rng, made = self.cluster.rng(f"user {number} of queries"), 0
        while made < _CHANGES:
            await asyncio.sleep(_CHANGE_SECONDS * rng.random())
            change = partial(_change, wanted=self._wanted(rng), deletes=rng.random() < _DELETED)
            try:
                await self._in_process(change)
                made += 1
            except SaritError as error:  # its outcome may be unknown: the rows tell
                self.cluster.trace.note("user of queries", repr(error))

    async def _in_process(self, call: Callable[[ContinuousCalls], Awaitable[None]]) -> None:
        """Make calls in the process of a controller.  Raises Unavailable when none runs, or when it dies."""
        place = running_controller(self.cluster, self._rng)
        if place is None:
            raise Unavailable("no controller runs")
        process, controller = place
        tables, security = self._tables(controller), Security(SecurityConfig())
        calls = ContinuousCalls(SearchWorld(controller, tables, controller.segments, process.env, security, list))
        await in_process(self.cluster, process, lambda: call(calls), "calls on queries")

    # -- after the faults -------------------------------------------------------------------------------

    async def converge(self) -> None:
        """Wait until everything that users want holds, and the whole stream was asked about, and read all streams."""
        if not self.on:
            return
        self._quiet = True
        client = await self.stream.client()
        if self._broken.is_broken:
            await self.stream.wait(
                client, partial(self._is_at_the_tail, client), "a broken output holds up all queries"
            )
            await self._broken.mend(client)
        await retry_forever(lambda: self._in_process(partial(_add, name=_LAST, output=OUTPUTS[0])))
        await self.stream.wait(client, partial(_holds, client), "queries do not hold as their users want")
        await self.stream.end(client, "the job of queries is not done")
        await self._read(client)
        await client.close()

    async def _is_at_the_tail(self, client: Client) -> bool:
        """Return whether the job has asked about everything that is written."""
        if self._cut is None:
            return False
        source, cut = StreamEvents(client.session, STREAM, self.cluster.clients.env.clock, 1), self._cut
        return not await retry_forever(lambda: source.bytes_behind(cut))

    async def _read(self, client: Client) -> None:
        """Read the stream, the outputs, and the rows at last."""
        present: list[str] = []

        async def listed(calls: ContinuousCalls) -> None:
            request = search_pb2.ListContinuousRequest(scope=STREAM.scope, stream=STREAM.stream)
            present[:] = [query.queryId for query in (await calls.listContinuous(request)).queries]

        await retry_forever(lambda: self._in_process(listed))
        events, end = await self.stream.events(client), packed(await client.stream_cut_tail(STREAM))
        ranges = await retry_forever(lambda: self.stream.ranges(self._rng))
        found: dict[str, list[Position]] = {number: [] for number in self._seen.by_id}
        for output in OUTPUTS:
            matches = await JobStream(self.cluster, output, output.stream, output.stream).events(client)
            before = self._broken.matches if output == self._broken.output else []
            for data in (*before, *(data for _, data in sorted(matches.items()))):
                match = json.loads(data)
                if self._is_right(match, output, events):
                    found[match["id"]].append((match["segment"], match["offset"]))
        terms: dict[str, list[Term]] = {number: [] for number in found}
        for term in self._seen.terms(present):
            terms[term.query.id].append(term)
        self.histories = [
            MatchHistory(
                f"{self._seen.by_id[number].name} {number}",
                [self._held(term, events, end) for term in terms[number]],
                places,
                ranges,
            )
            for number, places in found.items()
        ]

    def _is_right(self, match: Mapping[str, Any], output: StreamName, events: Mapping[Position, bytes]) -> bool:
        """Return whether a match is of a query, and note whether it says what it must."""
        query = self._seen.by_id.get(match["id"])
        if query is None:
            self._wrong.append(Violation("match-wrong", f"no query has the id of {match} in {output}"))
            return False
        outputs = {form.output for form in (query.wanted, query.adopted) if form is not None}
        expected = {"query": query.name, "stream": str(STREAM)}
        if "event" in match:
            self.cluster.trace.probe("continuous_match_with_event")
            expected["event"] = events.get((match["segment"], match["offset"]), b"").decode()
        if output not in outputs or {name: match.get(name) for name in expected} != expected:
            self._wrong.append(Violation("match-wrong", f"{match} in {output}: expected {expected} in {outputs}"))
        return True

    def _held(self, term: Term, events: Mapping[Position, bytes], tail: Cut) -> Held:
        matches = _TEXTS[term.form.text]
        wanted = frozenset(place for place, event in events.items() if matches(set(event.decode().split())))
        end, latest = (tail if cut is None else packed(cut) for cut in (term.end, term.latest))
        return Held(wanted, packed(term.begin), end, term.loose, latest, self._broken.gap(term.form.output))

    def check(self) -> list[Violation]:
        """All violations."""
        problems = sorted(self._seen.problems)
        if problems:
            self.cluster.trace.probe("continuous_suspended")
        suspended = [
            Violation("query-suspended", f"of {output}: {why}")
            for output, why in problems
            if not self._broken.explains(output, why)
        ]
        return [*suspended, *self._wrong, *(found for each in self.histories for found in check_matches(each))]


async def _kill(work: asyncio.Future[None]) -> None:
    """End a run where it stands; called in the run."""
    work.cancel()
    await asyncio.sleep(0)


async def _forget_ended(controller: Controller) -> None:
    """Remove how the transactions on the outputs ended, as is done of old ones.  Raises SaritError."""
    for output in OUTPUTS:
        ended = [
            key
            for key, _ in await controller.catalog.scan(
                output.scope, keys.of_stream(output.stream, keys.COMPLETED_BY_TIME), limit=_FORGOTTEN
            )
        ]
        ended += [keys.completed_key(output.stream, keys.transaction_of(key)) for key in ended]
        await controller.catalog.update(output.scope, [TableUpdate(key, None, NO_VERSION) for key in ended])


async def _change(calls: ContinuousCalls, wanted: search_pb2.PutContinuousRequest, *, deletes: bool) -> None:
    """Create a query, or change or delete the one that has its name.  Raises SaritError."""
    asked = search_pb2.ListContinuousRequest(scope=wanted.scope, stream=wanted.stream, name=wanted.name)
    for found in (await calls.listContinuous(asked)).queries:
        wanted.output.CopyFrom(found.output)
        wanted.version = found.version
    if deletes and wanted.version:
        request = search_pb2.DeleteContinuousRequest(
            scope=wanted.scope, stream=wanted.stream, name=wanted.name, output=wanted.output
        )
        await calls.deleteContinuous(request)
    else:
        await calls.putContinuous(wanted)


async def _add(calls: ContinuousCalls, name: str, output: StreamName) -> None:
    """Create a query that users leave alone.  Raises SaritError."""
    wanted = search_pb2.PutContinuousRequest(
        scope=STREAM.scope, stream=STREAM.stream, name=name, query=b"NOT small",
        output=pb.StreamInfo(scope=output.scope, stream=output.stream),
    )  # fmt: skip
    await _change(calls, wanted, deletes=False)


async def _holds(client: Client) -> bool:
    """Return whether all queries hold as their users want."""
    return all(query.state == "active" for query in await retry_forever(lambda: client.continuous.list(STREAM)))


def _event(number: int, rng: random.Random) -> bytes:
    return f"{rng.choice(_COLORS)} {rng.choice(_SIZES)} {number}".encode()


@contextmanager
def busier() -> Iterator[None]:
    """Shorter batches, and transactions with matches whose leases end within a run."""
    leases = patch.multiple(match_outputs, CONTINUOUS_LEASE_SECONDS=_LEASE_SECONDS)
    with leases, patch.multiple(continuous, CONTINUOUS_BATCH_SECONDS=_BATCH_SECONDS):
        yield


__all__ = ["OUTPUTS", "STREAM", "ContinuousUsers", "busier"]
