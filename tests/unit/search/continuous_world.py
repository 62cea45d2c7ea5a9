"""A stream, outputs, rows and a job's row in memory, in which continuous queries run, are killed and taken over.

Everything that a process does to the world goes through its gate, where the process may die or stand still.  Time moves
on when a process pauses; then the world takes the next step of its script.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sarit.core.cuts import StreamCut
from sarit.core.errors import Conflict, Fenced, Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.env.ports import Env
from sarit.search.continuous import Continuous
from sarit.search.continuous_matches import is_proof
from sarit.search.continuous_plan import ContinuousState, Outcome
from sarit.search.continuous_ports import OutputProblem
from sarit.search.continuous_queries import TimedBatch
from sarit.search.continuous_rows import (
    ContinuousQuery,
    Definition,
    Maker,
    changes_key,
    decode_query,
    encode_query,
    query_key,
)
from sarit.search.continuous_set import QuerySet
from sarit.search.ports import EventSlice
from sarit.search.query import ALL_TEXT, And, Not, Query, Term

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from sarit.search.continuous_plan import Proof
    from sarit.search.ports import RowChange

SOURCE = StreamName("shop", "orders")
OUTPUT = StreamName("shop", "alerts")
OTHER = StreamName("shop", "others")
STREAM_ID = "a" * 32
HEADER = 8


class Killed(BaseException):
    """The process has died: none of its code runs any more."""


class Gate:
    """The way of one process to the world.  `at`: the number of the call at which it dies, or stands still."""

    def __init__(self, at: int | None = None, held: asyncio.Event | None = None) -> None:
        self.calls: list[str] = []
        self.stands = asyncio.Event()
        self._at = at
        self._held = held
        self._dead = False

    async def __call__(self, call: str) -> None:
        if self._dead:
            raise Killed
        self.calls.append(call)
        if len(self.calls) - 1 == self._at:
            if self._held is None:
                self._dead = True
                raise Killed
            self.stands.set()
            await self._held.wait()
        await asyncio.sleep(0)


class Clock:
    """A clock that moves on when somebody pauses."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


class Worker:
    """Runs calls at once."""

    async def run(self, call: Callable[[], Any]) -> Any:
        return call()


class Words:
    """Some events, naively indexed by their words."""

    def __init__(self, events: Sequence[bytes]) -> None:
        self._events = [set(event.decode().split()) for event in events]

    def tokens(self, field: str) -> set[str]:
        assert field == ALL_TEXT
        return set().union(*self._events)

    def keywords(self, field: str) -> set[str]:
        return set()

    def match(self, query: Query) -> int:
        return sum(1 << number for number, words in enumerate(self._events) if matches(query, words))


def matches(query: Query, words: set[str]) -> bool:
    match query:
        case Term(_, token):
            return token in words
        case And(parts):
            return all(matches(part, words) for part in parts)
        case Not(part):
            return not matches(part, words)
    raise AssertionError(query)


class Language:
    """Queries of words that an event has all, or with `-` before them has not."""

    def query(self, text: str) -> Query:
        if "!" in text:
            raise Invalid("queries have no !")
        parts = [Not(Term(ALL_TEXT, w[1:])) if w[0] == "-" else Term(ALL_TEXT, w) for w in text.split()]
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def batch(self, events: Sequence[bytes], wanted: object) -> TimedBatch:
        return TimedBatch(Words(events), [None] * len(events))


@dataclass
class Stream:
    """A stream; a scale seals all segments and begins others."""

    events: dict[SegmentId, list[tuple[int, bytes]]] = field(default_factory=dict)
    ends: dict[SegmentId, int] = field(default_factory=dict)
    starts: dict[SegmentId, int] = field(default_factory=dict)
    epoch: int = -1
    sealed: bool = False

    def __post_init__(self) -> None:
        self.scale()

    def scale(self) -> None:
        self.epoch += 1
        for number in range(2):
            segment = SegmentId(self.epoch, number)
            self.events[segment], self.ends[segment], self.starts[segment] = [], 0, 0

    def append(self, *texts: str) -> None:
        for number, text in enumerate(texts):
            segment = SegmentId(self.epoch, number % 2)
            self.events[segment].append((self.ends[segment], text.encode()))
            self.ends[segment] += HEADER + len(text)

    def tail(self) -> StreamCut:
        return StreamCut(SOURCE, {s: end for s, end in self.ends.items() if s.epoch == self.epoch})


class Source:
    """`EventSource` of the stream."""

    stream = SOURCE

    def __init__(self, stream: Stream, gate: Gate) -> None:
        self._of = stream
        self._gate = gate

    async def identity(self) -> str:
        return STREAM_ID

    async def edge(self, which: str) -> StreamCut:
        await self._gate("edge")
        assert which == "tail"
        return self._of.tail()

    async def bytes_behind(self, cut: StreamCut) -> int:
        await self._gate("bytes behind")
        return sum(
            HEADER + len(event) for s, found in self._of.events.items() for o, event in found if not before(cut, s, o)
        )

    async def is_before(self, earlier: StreamCut, later: StreamCut) -> bool:
        early, late = dict(earlier.positions), dict(later.positions)
        return min(early) < min(late) if early.keys() != late.keys() else all(early[s] <= late[s] for s in early)

    async def is_finished(self, cut: StreamCut) -> bool:
        return self._of.sealed and not await self.bytes_behind(cut)

    async def follow(self, start: StreamCut) -> AsyncGenerator[EventSlice | None, None]:
        at = dict(start.positions)
        while True:
            await self._gate("follow")
            for segment in sorted(at):
                found = [(offset, event) for offset, event in self._of.events[segment] if offset >= at[segment]][:2]
                if found:
                    at[segment] = found[-1][0] + HEADER + len(found[-1][1])
                    offsets, events = zip(*found, strict=True)
                    yield EventSlice(segment.packed, offsets, events, StreamCut(SOURCE, at))
                    break
            else:
                epoch = min(at).epoch
                if epoch < self._of.epoch:
                    at = {segment: 0 for segment in self._of.events if segment.epoch == epoch + 1}
                else:
                    yield None


def before(cut: StreamCut, segment: SegmentId, offset: int) -> bool:
    """Return whether an event is before a cut."""
    epoch = min(cut.positions).epoch
    return segment.epoch < epoch or (segment.epoch == epoch and offset < cut.positions[segment])


class MemoryOutputs:
    """Output streams and their transactions, for all processes."""

    def __init__(self) -> None:
        self.committed: dict[StreamName, list[bytes]] = {OUTPUT: [], OTHER: []}
        self.open: dict[str, tuple[StreamName, list[bytes]]] = {}
        self.ended: dict[str, Outcome] = {}
        self.begun = 0

    def expire(self) -> None:
        """Abort what is open, as its lease has ended."""
        self.ended |= dict.fromkeys(self.open, Outcome.ABORTED)
        self.open.clear()

    def forget(self) -> None:
        """Forget how transactions ended."""
        self.ended.clear()

    def by(self, gate: Gate) -> Outputs:
        return Outputs(self, gate)


class Transaction:
    """A transaction of one process."""

    def __init__(self, outputs: MemoryOutputs, number: str, gate: Gate) -> None:
        self.id = number
        self._outputs = outputs
        self._gate = gate
        self._buffer: list[bytes] = []

    async def write(self, events: Sequence[tuple[str, bytes]]) -> None:
        await self._gate("write")
        self._buffer += [data for _, data in events]

    async def flush(self) -> None:
        await self._gate("flush")
        if self.id in self._outputs.open:
            self._outputs.open[self.id][1].extend(self._buffer)
        self._buffer.clear()
        await self._gate("flushed")

    async def abort(self) -> None:
        await self._gate("abort")
        if self._outputs.open.pop(self.id, None):
            self._outputs.ended[self.id] = Outcome.ABORTED

    def release(self) -> None:
        pass


class Outputs:
    """`Outputs` of one process."""

    def __init__(self, outputs: MemoryOutputs, gate: Gate) -> None:
        self._of = outputs
        self._gate = gate

    def _check(self, output: StreamName) -> None:
        if output not in self._of.committed:
            raise OutputProblem(output, f"stream {output} does not exist")

    async def problem(self, output: StreamName) -> str:
        await self._gate("problem")
        return "" if output in self._of.committed else f"stream {output} does not exist"

    async def tail(self, output: StreamName) -> StreamCut:
        await self._gate("tail")
        self._check(output)
        return StreamCut(output, {SegmentId(0, 0): len(self._of.committed[output])})

    async def begin(self, output: StreamName) -> Transaction:
        await self._gate("begin")
        self._check(output)
        self._of.begun += 1
        number = f"{self._of.begun:032x}"
        self._of.open[number] = output, []
        return Transaction(self._of, number, self._gate)

    async def commit(self, output: StreamName, transaction: str) -> Outcome:
        await self._gate("commit")
        if output not in self._of.committed:
            return Outcome.GONE
        found = self._of.open.pop(transaction, None)
        if found is not None:
            self._of.committed[output] += found[1]
            self._of.ended[transaction] = Outcome.COMMITTED
        outcome = self._of.ended.get(transaction, Outcome.UNKNOWN)
        await self._gate("committed")
        return outcome

    async def has(self, output: StreamName, after: StreamCut, proof: Proof) -> bool | None:
        await self._gate("has")
        return any(is_proof(data, proof) for data in self._of.committed[output][after.positions[SegmentId(0, 0)] :])


class MemoryRows:
    """Rows of all processes.  `seen`: called with each change."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[bytes, int]] = {}
        self.changes = 0

    def put(self, key: bytes, value: bytes | None, version: int | None) -> int:
        if self.rows.get(key, (b"", None))[1] != version:
            raise Conflict("the row was changed")
        self.changes += 1
        if value is None:
            del self.rows[key]
            return -1
        self.rows[key] = value, self.changes
        return self.changes

    def mark(self, key: bytes, value: bytes) -> None:
        self.changes += 1
        self.rows[key] = value, self.changes


class Rows:
    """`Rows` of one process."""

    def __init__(self, world: World, gate: Gate, process: Callable[[], Continuous], fence: int) -> None:
        self._world = world
        self._fence = fence
        self._gate = gate
        self._process = process

    async def get(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        await self._gate("get")
        return [self._world.rows.rows.get(key) for key in keys]

    async def put(self, key: bytes, value: bytes | None, version: int | None) -> int:
        await self._gate("put")
        found = self._put(key, value, version)
        await self._gate("was put")
        return found

    async def put_all(self, changes: Sequence[RowChange], mark: tuple[bytes, bytes] | None = None) -> list[int]:
        await self._gate("put")
        rows = self._world.rows.rows
        if any(rows.get(key, (b"", None))[1] != version for key, _, version in changes):
            raise Conflict("a row was changed")
        if mark is not None:
            self._world.rows.mark(*mark)
        found = [self._put(*change) for change in changes]
        await self._gate("was put")
        return found

    def _put(self, key: bytes, value: bytes | None, version: int | None) -> int:
        before = self._world.rows.rows.get(key)
        found = self._world.rows.put(key, value, version)
        assert before is not None
        after = None if value is None else decode_query(value)
        self._world.note(decode_query(before[0]), after, self._process().cut, owns=self._fence == self._world.fence)
        return found

    async def scan(self, prefix: bytes) -> list[tuple[bytes, bytes, int]]:
        await self._gate("scan")
        return [(key, *row) for key, row in sorted(self._world.rows.rows.items()) if key.startswith(prefix)]


@dataclass
class Span:
    """The events that a query held for: from one cut to another."""

    query: ContinuousQuery
    definition: Definition
    begin: StreamCut
    end: StreamCut | None = None
    loose: bool = False  # a worker that had lost the job has ended it: the other one has learnt it a batch later


class World:
    """Everything that outlives processes.  `script`: the steps of users, one at each pause of a process."""

    def __init__(self, script: Iterable[Callable[[World], None]] = ()) -> None:
        self.stream = Stream()
        self.outputs = MemoryOutputs()
        self.rows = MemoryRows()
        self.clock = Clock()
        self.state = b""
        self.held: StreamCut | None = None
        self.fence = 0
        self.refused: set[str] = set()  # makers without rights
        self.spans: dict[str, list[Span]] = {}
        self._script = iter(script)
        self._ids = 0

    # -- users ------------------------------------------------------------------------------------

    def want(self, name: str, text: str | None, output: StreamName = OUTPUT, maker: str = "") -> None:
        """Create, change, or delete (None) a query."""
        key = query_key(STREAM_ID, name)
        found = self.rows.rows.get(key)
        wanted = None if text is None else Definition(text, output, maker=Maker(maker))
        if found is None:
            self._ids += 1
            query, version = ContinuousQuery(name, str(self._ids), SOURCE, wanted), None
        else:
            query, version = replace(decode_query(found[0]), wanted=wanted), found[1]
        self.rows.put(key, encode_query(query), version)
        self.rows.mark(changes_key(STREAM_ID), str(SOURCE).encode())

    def query(self, name: str) -> ContinuousQuery:
        return decode_query(self.rows.rows[query_key(STREAM_ID, name)][0])

    # -- processes --------------------------------------------------------------------------------

    def process(self, gate: Gate | None = None, source: Any = None) -> Continuous:
        """Return a process that has just claimed the job.  `source`: read in place of the stream."""
        gate = Gate() if gate is None else gate
        self.fence += 1
        mine = self.fence

        async def save(state: bytes, held: StreamCut | None) -> None:
            await gate("save")
            if mine != self.fence:
                raise Fenced("another worker has claimed the job")
            self.state, self.held = state, held
            await gate("saved")

        async def pause(seconds: float) -> None:
            await gate("pause")
            self.clock.now += seconds
            step = next(self._script, None)
            if step is not None:
                step(self)

        env: Any = Env(self.clock, random.Random(0), None, None, None)  # type: ignore[arg-type]
        worker: Any = Worker()
        outputs = self.outputs.by(gate)
        rows = Rows(self, gate, lambda: made, mine)
        fresh = not self.state
        queries = QuerySet(SOURCE, STREAM_ID, rows, outputs, self, lambda _: Language(), env, worker, fresh=fresh)
        state = ContinuousState.decode(self.state) if self.state else ContinuousState(STREAM_ID, self.stream.tail())
        read = Source(self.stream, gate) if source is None else source
        made = Continuous(read, queries, outputs, save, env, worker, state, pause=pause)
        return made

    async def refresh(self) -> None:
        """The rights: they are as they are."""

    def problem(self, maker: Maker, source: StreamName, output: StreamName) -> str:
        """The rights: `Rights`."""
        return f"{maker.name} may not change {output}" if maker.name in self.refused else ""

    # -- the truth --------------------------------------------------------------------------------

    def note(self, old: ContinuousQuery, new: ContinuousQuery | None, cut: StreamCut, *, owns: bool) -> None:
        """Note since when a query holds, or that it holds no longer, as a process has just written it."""
        spans = self.spans.setdefault(old.id, [])
        last = spans[-1] if spans and spans[-1].end is None else None
        if new is None or new.holds_from is None:
            if last is not None:
                last.end, last.loose = cut, not owns
            return
        assert new.adopted is not None
        if last is not None and old.adopted == new.adopted and old.wanted == new.wanted:
            spans.pop()  # a worker that had lost the job has adopted it before
        elif last is not None:
            last.end = new.holds_from
        spans.append(Span(new, new.adopted, new.holds_from))

    def judge(self) -> None:
        """Check that the outputs have every match, and each once."""
        written, expected = self.written(), self.expected()
        assert expected <= written
        assert written <= expected | self.expected(loosely=True)

    def expected(self, *, loosely: bool = False) -> Counter[tuple[StreamName, str, int, int]]:
        """Return the matches that have to be in the outputs; `loosely`: that may be there."""
        found: Counter[tuple[StreamName, str, int, int]] = Counter()
        language = Language()
        for number, spans in self.spans.items():
            for span in spans:
                query = language.query(span.definition.text)
                for segment, events in self.stream.events.items():
                    for offset, event in events:
                        behind = not before(span.begin, segment, offset)
                        end = None if loosely and span.loose else span.end
                        within = behind and (end is None or before(end, segment, offset))
                        if within and matches(query, set(event.decode().split())):
                            found[span.definition.output, number, segment.packed, offset] += 1
        return found

    def written(self) -> Counter[tuple[StreamName, str, int, int]]:
        """Return the matches that are in the outputs."""
        found: Counter[tuple[StreamName, str, int, int]] = Counter()
        for output, events in self.outputs.committed.items():
            for data in events:
                document = json.loads(data)
                found[output, document["id"], document["segment"], document["offset"]] += 1
        return found


async def run_to_the_end(process: Continuous) -> None:
    """Run a process until its stream has ended."""
    async with asyncio.timeout(20):
        await process.run()
