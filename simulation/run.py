"""Runs one seed and checks it.

1. Faults: the workload runs while the nemesis injects faults.
2. Liveness: faults stop; all pending work must end, and make progress within LIVENESS_SECONDS of virtual time.
3. Reading again by all paths: from the running node; after a clean stop (everything from long-term storage); after a
   power cut (the log replayed over the checkpoint).  Each is a scan for the checkers; each reply must come within
   LIVENESS_SECONDS.
4. Inventory: long-term storage holds what the index names, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from detangle._context import current_host

from checkers import log as log_checker
from checkers import storage as storage_checker
from checkers import table as table_checker
from sarit.core.coverage_probes import listening
from sarit.core.errors import SaritError
from sarit.wire import commands as wire
from simulation.actors.backups import Backups
from simulation.actors.byte_users import ByteUsers
from simulation.actors.continuous import ContinuousUsers, busier
from simulation.actors.event_time import EventTimeActors
from simulation.actors.jobs import JobUsers, shorter_job_pauses
from simulation.actors.lake import TableJobs
from simulation.actors.links import Link
from simulation.actors.locators import Locators
from simulation.actors.mirrors import Mirrors
from simulation.actors.reader_groups import ReaderGroupActors
from simulation.actors.readers import TailReader, Truncator, scan
from simulation.actors.recreations import Recreations
from simulation.actors.registers import Registers
from simulation.actors.retention import RetentionActors
from simulation.actors.schemas import SchemaUsers
from simulation.actors.search import SearchUsers, hurried
from simulation.actors.streams import Streams
from simulation.actors.structures import StructureActors
from simulation.actors.synchronizers import SynchronizerActors
from simulation.actors.table_users import TableUsers
from simulation.actors.tables import TableClient, read_everything
from simulation.actors.transactions import Transactions
from simulation.actors.writers import WireWriter
from simulation.bounds import Bounds
from simulation.cluster import Cluster
from simulation.damaged_records import flip_records
from simulation.events import History
from simulation.fleet import Fleet
from simulation.inventory import awaiting_in, chunks_in, placed_in
from simulation.mutants import MUTANTS
from simulation.nemesis import Nemesis
from simulation.options import Options, draw
from simulation.restored import Restored
from simulation.services import shorter_pauses
from simulation.world import run_world

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from typing import TextIO

    from checkers.log import Violation
    from simulation.trace import Trace
    from simulation.world import Outcome, World

FAULT_SECONDS: Final = 60.0
LIVENESS_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 30.0
_MOST_READING_SECONDS: Final = 900.0
# Longer than the network delays anything.
_NETWORK_DRAIN_SECONDS: Final = 8.0


class Standstill:
    """Detects that the remaining work does not change any more.

    Its amount alone would not do: a sweep of many chunks beside a long flush may delete fewer chunks than it adds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: Hashable = None
        self._since = 0.0

    def lasts(self, now: float, seen: Hashable) -> bool:
        """Whether `seen` has been the same for the given time."""
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now >= self._since + self._seconds


@dataclass(slots=True)
class Result:
    """The result of a seed."""

    options: Options
    violations: list[str]
    outcome: Outcome
    acked_events: int = 0
    starts: int = 0

    @property
    def trace(self) -> Trace:
        """The trace of the run."""
        return self.outcome.trace

    @property
    def digest(self) -> str:
        """Equal for two runs of one seed."""
        return f"{self.outcome.digest}-{self.outcome.steps}-{self.trace.lines}"


class Run:
    """The actors of one seed."""

    def __init__(self, world: World, options: Options) -> None:
        self.options = options
        self.cluster = Fleet(world, options) if options.stores else Cluster(world, options)
        self.history = History(world.trace)
        self.segments = [f"sim/stream/{number}.#epoch.0" for number in range(options.segments)]
        self.tables = [f"sim/table-{number}_kvtable/0.#epoch.0" for number in range(2)] if options.table_clients else []
        self.streams = Streams(self.cluster)
        self.registers = Registers(self.cluster)
        self.transactions = Transactions(self.cluster, self.history, self.segments)
        self.locators = Locators(self.cluster, self.history, self.segments)
        self.retention = RetentionActors(self.cluster)
        self.event_time = EventTimeActors(self.cluster)
        self.synchronizers = SynchronizerActors(self.cluster)
        self.structures = StructureActors(self.cluster)
        self.reader_group = ReaderGroupActors(self.cluster)
        self.table_users = TableUsers(self.cluster)
        self.byte_users = ByteUsers(self.cluster)
        self.backups = Backups(self.cluster)
        self.recreations = Recreations(self.cluster)
        self.schema_users = SchemaUsers(self.cluster)
        self.table_jobs = TableJobs(self.cluster)
        self.job_users = JobUsers(self.cluster)
        self.mirrors = Mirrors(self.cluster, self.streams)
        self.search_users = SearchUsers(self.cluster)
        self.continuous_users = ContinuousUsers(self.cluster)
        self.nemesis = Nemesis(self.cluster)
        self.writers: list[WireWriter] = []
        self._context = contextvars.copy_context()
        self._crashes = world.chance("crash points")

    async def main(self) -> None:
        """All phases."""
        cluster = self.cluster
        self._context = contextvars.copy_context()
        supervisor = cluster.spawn(self.nemesis.supervise(), "supervisor")
        bounds = cluster.spawn(Bounds(cluster).watch(), "bounds")
        await self._create()
        work, watch = self._start_actors()
        faults = cluster.spawn(self.nemesis.run(), "nemesis")
        await asyncio.wait(work, timeout=FAULT_SECONDS)
        faults.cancel()
        self.nemesis.heal()
        pending = await self._ended(work)
        if pending:
            for task in watch:
                task.cancel()
            names = sorted(task.get_name() for task in pending)
            cluster.failures.append(f"liveness: {names} made no progress for {LIVENESS_SECONDS:.0f} s; {self.writers}")
            return
        for task in work:
            task.result()
        await self._converge()
        for task in watch:
            # One that has failed raises: readers must see nothing but what they handle.
            if task.done():
                task.result()
            task.cancel()
        if self.options.truncations:  # one may still be in flight
            await asyncio.sleep(_NETWORK_DRAIN_SECONDS)
        await self._read_again("as it is")
        supervisor.cancel()
        await asyncio.wait([supervisor])
        await cluster.shut_down()
        await self._restart_and_read("stopped in good order")
        await self._check_inventory()
        cluster.end(power=True)
        await self._restart_and_read("after a power cut")
        if not isinstance(cluster, Fleet):
            await flip_records(cluster, self.segments)
        restored = Restored(cluster, self.backups, self.history, self.transactions, self.streams)
        await restored.check(self.segments, self.tables)
        await self.streams.close()
        bounds.cancel()
        for task in watch:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _create(self) -> None:
        link = Link(self.cluster, self.cluster.rng("create"), "create", as_controller=True)
        for segment in self.segments + self.registers.segments:
            create = partial(wire.CreateSegment, segment=segment, target_rate=0, scale_type=0, token="")
            await link.retry_forever(partial(link.ask, create))
        for table in self.tables:
            await link.retry_forever(partial(link.ask, partial(wire.CreateTableSegment, segment=table, token="")))
        link.drop()

    def _start_actors(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        cluster, history, options = self.cluster, self.history, self.options
        work, watch = [], []
        for number in range(options.writers):
            writer = WireWriter(cluster, history, number, self.segments[number % len(self.segments)])
            self.writers.append(writer)
            work.append(cluster.spawn(writer.run(), f"writer {number}"))
        work += [
            cluster.spawn(TableClient(cluster, history, number, self.tables).run(), f"table {number}")
            for number in range(options.table_clients)
        ]
        watch += [
            cluster.spawn(TailReader(cluster, history, number, self.segments).run(), f"reader {number}")
            for number in range(options.readers)
        ]
        if options.truncations:
            watch.append(cluster.spawn(Truncator(cluster, history, self.segments).run(), "truncator"))
        watch += self.backups.start()
        work += (
            self.registers.start() + self.transactions.start() + self.synchronizers.start() + self.table_users.start()
        )
        work += self.recreations.start() + self.schema_users.start() + self.job_users.start()
        work += self.structures.start()
        for part in (
            self.locators, self.streams, self.retention, self.event_time, self.byte_users, self.reader_group,
            self.table_jobs, self.mirrors, self.search_users, self.continuous_users,
        ):  # fmt: skip
            more_work, more_watch = part.start()
            work += more_work
            watch += more_watch
        return work, watch

    async def _ended(self, work: list[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        """Wait for the work to end, or to make no progress for LIVENESS_SECONDS; return the tasks still pending."""
        world, done, seen = self.cluster.world, -1, self.cluster.world.now
        pending = {task for task in work if not task.done()}
        while pending and world.now < seen + LIVENESS_SECONDS:
            _, pending = await asyncio.wait(pending, timeout=1.0)
            if (now_done := self._done(work)) != done:
                done, seen = now_done, world.now
        return pending

    def _done(self, work: list[asyncio.Task[Any]]) -> int:
        """A number that grows with progress."""
        calls = sum(
            len(part.calls) for part in (self.registers, self.synchronizers, self.table_users, self.schema_users)
        )
        calls += self.recreations.scans + self.job_users.history.progress + self.structures.progress
        events = (
            self.history.acked_events
            + self.streams.acked_events
            + len(self.retention.sent)
            + self.reader_group.acked_events
            + self.table_jobs.stream.acked_events
            + self.table_jobs.commits
            + self.search_users.stream.acked_events
            + self.continuous_users.stream.acked_events
        )
        tables = len(self.history.table.updates) + len(self.history.table.reads)
        notes = sum(map(len, self.event_time.history.notes.values()))
        return calls + events + tables + notes + self.byte_users.written + sum(task.done() for task in work)

    async def _converge(self) -> None:
        """Wait for what must happen by itself after the faults."""
        async with asyncio.timeout(_MOST_READING_SECONDS):
            await self.retention.converge()
            await self.event_time.converge()
            await self.reader_group.converge()
            await self.table_jobs.converge()
            await self.mirrors.converge()
            await self.search_users.converge()
            await self.continuous_users.converge()

    async def _read_again(self, name: str) -> None:
        self.cluster.trace.note("phase", name)
        async with asyncio.timeout(_MOST_READING_SECONDS):
            await scan(self.cluster, self.history, self.segments, name)
            await self.locators.scan(name)
            await read_everything(self.cluster, self.history, self.tables, name)
            await self.registers.read_again(name)
            await self.streams.scan(name)
            await self.synchronizers.read_again(name)
            await self.table_users.read_again(name)
            await self.schema_users.read_again(name)
            await self.structures.read_again(name)
            await self.byte_users.read_again(name)

    async def _restart_and_read(self, name: str) -> None:
        if not await self.cluster.start():
            self.cluster.failures.append(f"liveness: the node does not start, {name}")
            return
        await self._read_again(name)

    async def _check_inventory(self) -> None:
        """Once all is quiet, all chunks named by the index exist, and others are deleted within a time."""
        world, still = self.cluster.world, Standstill(QUIET_SECONDS)
        end = world.now + _MOST_READING_SECONDS
        while violations := await self._inventory():
            if still.lasts(world.now, frozenset(map(str, violations))) or world.now >= end:
                break
            await asyncio.sleep(1.0)
        self.cluster.failures.extend(map(str, violations))

    async def _inventory(self) -> list[Violation]:
        cluster = self.cluster
        assert cluster.storage is not None
        chunks = await chunks_in(cluster.storage)
        extents, awaiting = {}, set(cluster.arrived_late)
        for container in range(self.options.containers):
            rows = cluster.indexes.snapshot(container)
            extents.update(placed_in(container, rows))
            awaiting |= awaiting_in(rows)
        # Listing takes time: list again the folders of chunks that were committed meanwhile.
        named = {chunk for placed in extents.values() for _, _, chunk, _ in placed if chunk}
        for folder in sorted({chunk.rpartition("/")[0] for chunk in named - set(chunks)}):
            chunks |= await chunks_in(cluster.storage, folder)
        return storage_checker.check(extents, chunks, awaiting, self.options.small_extent_bytes)

    def reached(self, name: str) -> None:
        """The node reached a coverage probe: count it, and perhaps crash the node there."""
        cluster = self.cluster
        cluster.trace.probe(name)
        if isinstance(cluster, Fleet):
            cluster.matrix.reached(current_host.get() or "", name)
        if self.options.crash_points and not cluster.quiet and self._crashes.random() < self.options.crash_points:
            cluster.trace.probe("crash_point")
            cluster.trace.note("fault", f"crash at {name}")
            power, host = self.options.power_cuts and self._crashes.random() < 0.5, current_host.get() or ""
            asyncio.get_running_loop().call_soon(lambda: self._crash(host, power=power), context=self._context)

    def _crash(self, host: str, *, power: bool) -> None:
        if not self.mirrors.crash(host, power=power):
            self.cluster.crash(host, power=power)

    def violations(self) -> Iterator[Violation | str]:
        """All violations, the most specific first."""
        yield from self.cluster.failures
        yield from self.mirrors.failures
        yield from log_checker.check(self.history.log)
        yield from table_checker.check(self.history.table)
        yield from self.registers.check()
        yield from self.transactions.check()
        yield from self.locators.check()
        yield from self.mirrors.check()
        for violation in self.streams.check():
            yield f"stream: {violation}"
        for violation in self.byte_users.check():
            yield f"bytes: {violation}"
        for part in (
            self.retention, self.event_time, self.synchronizers, self.table_users, self.reader_group, self.schema_users,
            self.table_jobs, self.job_users, self.structures, self.search_users,
            self.continuous_users,
        ):  # fmt: skip
            yield from part.check()
        yield from self.recreations.check()


class Alarms(logging.Handler):
    """Log records that no fault of the model explains: corruption, and exceptions that are bugs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Called by `logging`."""
        error = record.exc_info[1] if record.exc_info else None
        bug = error is not None and not isinstance(error, SaritError | OSError)
        # No fault damages long-term storage (`simulation/damage.py` does, in runs of its own).
        damage = record.getMessage().startswith("long-term storage is damaged")
        if record.levelno >= logging.CRITICAL or bug or damage:
            self.found.append(f"alarm: {record.getMessage()} [{error!r}]")


def run_seed(
    seed: int, mutants: Sequence[str] = (), options: Options | None = None, sink: TextIO | None = None
) -> Result:
    """Run and check one seed."""
    options = options or draw(seed)
    run: Run | None = None

    async def main(world: World) -> None:
        nonlocal run
        run = Run(world, options)
        await run.main()

    alarms = Alarms()
    with ExitStack() as stack:
        for mutant in mutants:
            stack.enter_context(MUTANTS[mutant].apply())
        stack.enter_context(shorter_pauses(options.pauses))
        stack.enter_context(shorter_job_pauses())
        if options.searched:
            stack.enter_context(hurried())
        if options.continuous:
            stack.enter_context(busier())
        log = logging.getLogger("sarit")
        log.addHandler(alarms)
        stack.callback(log.removeHandler, alarms)
        stack.enter_context(listening(lambda name: run.reached(name) if run is not None else None))
        outcome = run_world(seed, main, permuted=options.permuted, sink=sink)
    violations = list(outcome.failures)
    if run is None:
        return Result(options, violations, outcome)
    violations = [
        *alarms.found,
        *map(str, run.violations()),
        *violations,
    ]
    acked = run.history.acked_events + run.streams.acked_events
    return Result(options, violations, outcome, acked, run.cluster.starts)
