"""A model of the world around the sink's protocol: a table, transactions, tasks and drivers that die at any request.

Time is steps: one request of one process, and of a request for many transactions one of them.  Between two steps
anything may happen: other processes go on, leases end, a reply is lost, a change of the table arrives late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Conflict, Corrupt, Invalid, Unavailable

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from types import ModuleType

STREAMS = ("s/a", "s/b")
PARTITIONS = 2
ROWS = 2  # of each partition in each stream

Row = tuple[int, str, int, int]  # batch, stream, partition, number


def expected(batch: int) -> Counter[Row]:
    """What is visible of a batch when it was written once."""
    return Counter(
        (batch, stream, partition, number)
        for stream in STREAMS
        for partition in range(PARTITIONS)
        for number in range(ROWS)
    )


@dataclass
class Written:
    """A transaction of the model."""

    stream: str
    state: str = "open"
    rows: list[Row] = field(default_factory=list)
    long: bool = False  # it has the long lease


class World:
    """The table and the transactions."""

    def __init__(self, protocol: ModuleType) -> None:
        self.protocol = protocol
        self.records: dict[int, tuple[Any, int]] = {}
        self.oldest = 0
        self.registered: set[Any] = set()
        self.transactions: dict[Any, Written] = {}
        self.visible: Counter[Row] = Counter()
        self.late: list[tuple[int, Any]] = []  # changes of records that are still on their way
        self.expired = False  # a lease of a registered transaction has ended
        self._versions = 0

    def found(self, batch: int) -> Any:
        record, version = self.records.get(batch, (None, None))
        return self.protocol.Found(record, version, self.oldest)

    def store(self, batch: int, request: Any) -> int | None:
        if self.records.get(batch, (None, None))[1] != request.version:
            return None
        self._versions += 1
        self.records[batch] = (request.record, self._versions)
        return self._versions

    def begin(self, stream: str) -> Any:
        made = self.protocol.Transaction(stream, f"{len(self.transactions):032x}")
        self.transactions[made] = Written(stream)
        return made

    def commit(self, transaction: Any) -> str:
        written = self.transactions[transaction]
        if written.state == "open":
            written.state = "committed"
            self.visible.update(written.rows)
            twice = [row for row, count in self.visible.items() if count > 1]
            assert not twice, f"visible twice: {twice}"
        return written.state

    def abort(self, transaction: Any) -> None:
        written = self.transactions[transaction]
        if written.state == "open":
            written.state = "aborted"

    def renewed(self, transaction: Any) -> bool:
        written = self.transactions[transaction]
        written.long |= written.state == "open"
        return written.state == "open"

    def expire(self, transaction: Any) -> None:
        """The lease of a transaction ends."""
        self.expired |= self.transactions[transaction].state == "open"
        self.abort(transaction)


@dataclass(frozen=True)
class Write:
    """The model's own request: append rows to a transaction."""

    transaction: Any
    rows: tuple[Row, ...]


class Process:
    """A task or a driver: a generator that can be dropped between any two steps."""

    def __init__(self, world: World, name: str, batch: int, work: Any) -> None:
        self.name = name
        self.batch = batch
        self._world = world
        self._work = work
        self._request: Any = None
        self._steps: Iterator[Any] | None = None
        self.done = False
        self.result: Any = None
        self.error: Exception | None = None
        self._advance(None)

    def __repr__(self) -> str:
        return f"{self.name} of batch {self.batch} at {self._request}"

    @property
    def stores(self) -> bool:
        """Whether its next step changes the record."""
        return type(self._request).__name__ == "Store"

    def step(self, reply: str = "arrives") -> None:
        """One step.  `reply` of a change of the record: it "arrives", is "lost", or the change itself comes "late"."""
        if reply == "late" and self.stores:
            self._world.late.append((self.batch, self._request))
            self._advance(None)
            return
        if self._steps is None:
            self._steps = self._micro_steps()
        try:
            next(self._steps)
        except StopIteration as ended:
            self._steps = None
            self._advance(None if reply == "lost" and self.stores else ended.value)

    def fail(self) -> None:
        """The node stays away for too long: the next request is not answered."""
        self.done, self.error = True, Unavailable("the node is away")

    def run(self) -> Process:
        """All steps."""
        while not self.done:
            self.step()
        return self

    def _advance(self, answer: Any) -> None:
        try:
            self._request = self._work.send(answer)
        except StopIteration as ended:
            self.done, self.result = True, ended.value
        except (Conflict, Corrupt, Invalid) as error:
            self.done, self.error = True, error

    def _micro_steps(self) -> Iterator[Any]:
        """The steps of the request; returns its answer."""
        world, request, batch = self._world, self._request, self.batch
        match type(request).__name__:
            case "ReadBatch":
                return world.found(batch)
            case "Store":
                return world.store(batch, request)
            case "Begin":
                return world.begin(request.stream)
            case "Register":
                world.registered.add(world.protocol.Registration(batch, request.transaction))
            case "Status":
                return world.transactions[request.transaction].state
            case "Write":
                if world.transactions[request.transaction].state == "open":
                    world.transactions[request.transaction].rows.extend(request.rows)
                    return True
                return False
            case "Renew":
                ended = []
                for one in request.transactions:
                    if not world.renewed(one):
                        ended.append(one)
                    yield
                return tuple(ended)
            case "Commit":
                outcomes = {}
                for one in request.transactions:
                    outcomes[one] = world.commit(one)
                    yield
                return outcomes
            case "Abort":
                for one in request.transactions:
                    world.abort(one)
                    yield
            case "ListRegistered":
                return tuple(sorted(one for one in world.registered if one.batch <= batch))
            case "Unregister":
                world.registered -= set(request.registrations)
            case "Prune":
                world.oldest = request.oldest
                yield
                world.records = {found: kept for found, kept in world.records.items() if found >= request.oldest}
            case _:
                raise AssertionError(request)
        return None


def task(protocol: ModuleType, batch: int, partition: int) -> Any:
    """One attempt of a task; returns its transactions, or None when it was skipped."""
    if not (yield from protocol.start_task(batch)):
        return None
    mine = []
    for stream in STREAMS:
        transaction = yield from protocol.open_transaction(stream)
        if transaction is None:
            yield from protocol.give_up_task(batch, mine)
            return None
        mine.append(transaction)
        rows = tuple((batch, stream, partition, number) for number in range(ROWS))
        if not (yield Write(transaction, rows)):
            yield from protocol.give_up_task(batch, mine)
            raise Conflict("the transaction has ended")
    return tuple(mine)


class Run:
    """One run of a batch: a driver with its tasks.  Attempts may be repeated, doubled, and killed."""

    def __init__(self, world: World, batch: int) -> None:
        self.world = world
        self.batch = batch
        self.attempts: list[tuple[int, Process]] = []
        self.results: dict[int, Any] = {}
        self.driver: Process | None = None
        self.aborting = False
        self.dead = False
        for partition in range(PARTITIONS):
            self.attempt(partition)

    def attempt(self, partition: int) -> None:
        """Start another attempt of a partition."""
        work = task(self.world.protocol, self.batch, partition)
        self.attempts.append((partition, Process(self.world, f"task {partition}", self.batch, work)))

    @property
    def processes(self) -> list[Process]:
        """What can make a step."""
        found = [process for _, process in self.attempts if not process.done]
        if self.driver is not None and not self.driver.done:
            found.append(self.driver)
        return found

    def progress(self) -> None:
        """What Spark does after a step: takes results, repeats failed attempts, commits, or gives up."""
        if self.dead:
            return
        for partition, process in list(self.attempts):
            if process.done:
                self.attempts.remove((partition, process))
                if process.error is not None:
                    if partition not in self.results:
                        self.attempt(partition)
                else:
                    self.results.setdefault(partition, process.result)
        if self.driver is None and len(self.results) == PARTITIONS:
            found = self.results.values()
            prepared = [one for result in found if result is not None for one in result]
            work = self.world.protocol.commit_batch(self.batch, prepared, skipped=None in found)
            self.driver = Process(self.world, "commit", self.batch, work)
        if self.driver is not None and self.driver.error is not None and not self.aborting:
            self.aborting = True
            self.error = self.driver.error
            self.driver = Process(self.world, "abort", self.batch, self.world.protocol.abort_batch())

    @property
    def committed(self) -> bool:
        """Whether the commit has returned without an error."""
        return self.driver is not None and self.driver.done and self.driver.error is None and not self.aborting

    def finish(self) -> None:
        """Every process makes its steps, in turn."""
        self.progress()
        while self.processes:
            for process in self.processes:
                process.step()
            self.progress()

    def kill_driver(self) -> None:
        """The driver dies: nothing is repeated any more; its attempts live on for a while."""
        self.dead = True
        self.driver = None


def complete(world: World, batch: int) -> Exception | None:
    """Run a batch, again and again as Spark is restarted, until it is committed; or the error that stays."""
    for _ in range(6):
        run = Run(world, batch)
        run.finish()
        if run.committed:
            return None
        if isinstance(run.error, Corrupt):
            return run.error
    raise AssertionError(f"batch {batch} is not committed after 6 runs: {run.error}")


def check_end(world: World, batch: int) -> None:
    """After everything was killed or has ended: the batch is visible once, and no registered transaction is open."""
    for late_batch, request in world.late:
        world.store(late_batch, request)
    world.late.clear()
    error = complete(world, batch)
    if error is not None:
        assert world.expired, f"no lease ended, and yet: {error}"
        return
    assert complete(world, batch + 1) is None
    assert world.visible == expected(batch) + expected(batch + 1)
    left = [one for one, written in world.transactions.items() if written.state == "open" and written.long]
    assert not left, f"open at the end: {left}"
    assert not world.registered, f"registered at the end: {world.registered}"


def late_attempt(protocol: ModuleType) -> None:
    """An attempt begins just before the driver decides, and goes on after the driver has ended."""
    world = World(protocol)
    run = Run(world, 1)
    run.attempt(0)
    _, late = run.attempts.pop()
    late.step()  # it has read: nothing is decided
    run.finish()
    assert run.committed
    late.run()
    assert not [one for one, written in world.transactions.items() if written.state == "open" and written.long]
    check_end(world, 1)


def withdrawn_while_tasks_run(protocol: ModuleType) -> None:
    """One task finds the batch decided; then the leases of its winners end, and another task writes."""
    world = World(protocol)
    dead = Run(world, 1)
    while not world.records:
        for process in dead.processes:
            process.step()
        dead.progress()
    dead.kill_driver()
    run = Run(world, 1)
    run.attempts[0][1].run()
    for winner in world.records[1][0].winners:
        world.expire(winner)
    run.finish()
    assert not run.committed
    assert complete(world, 1) is None
    assert world.visible == expected(1)


def explore(protocol: ModuleType, chance: random.Random) -> None:
    """One random history of a batch, then what must hold at its end.  Raises AssertionError."""
    world = World(protocol)
    batch = chance.choice([1, 3])
    runs = [Run(world, batch)]
    with_leases = chance.random() < 0.3
    for _ in range(chance.randrange(10, 150)):
        action = chance.random()
        live = [(run, process) for run in runs for process in run.processes]
        if action < 0.03 and len(runs) < 4:  # a restart, or a second driver of the same query
            if chance.random() < 0.7:
                runs[-1].kill_driver()
            runs.append(Run(world, batch))
        elif action < 0.06:  # an attempt dies; Spark starts another
            run = chance.choice(runs)
            tasks = [found for found in run.attempts if not found[1].done]
            if tasks:
                partition, process = chance.choice(tasks)
                run.attempts.remove((partition, process))
                if not run.dead and partition not in run.results:
                    run.attempt(partition)
        elif action < 0.09:  # speculation
            run = chance.choice(runs)
            if not run.dead and run.driver is None:
                run.attempt(chance.randrange(PARTITIONS))
        elif action < 0.11 and with_leases:
            registered = sorted(world.registered)
            if registered:
                world.expire(chance.choice(registered).transaction)
        elif action < 0.13 and world.late:
            world.store(*world.late.pop(chance.randrange(len(world.late))))
        elif action < 0.15 and live:
            run, process = chance.choice(live)
            process.fail()
            run.progress()
        elif live:
            run, process = chance.choice(live)
            process.step(chance.choices(["arrives", "lost", "late"], [8, 1, 1])[0])
            run.progress()
    for run in runs:
        if chance.random() < 0.5:  # late attempts run on
            run.dead = True
            run.finish()
    check_end(world, batch)
