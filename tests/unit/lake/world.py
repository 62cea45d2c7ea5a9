"""A stream, a job's row and processes in memory, in which a committer runs without nodes, threads or waiting."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sarit.core.cuts import StreamCut
from sarit.core.errors import Fenced, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.env.ports import Env
from sarit.lake.committer import Committer
from sarit.lake.ports import Gap
from sarit.lake.settings import IcebergSettings
from sarit.schemas.payloads import Rows
from simulation.lake_tables import Catalog, MemoryTables

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from sarit.lake.ports import LakeTables

NAME = StreamName("shop", "orders")
TABLE = ("shop", "orders")
DEAD = ("shop", "orders__dlq")
HEADER = 8


@dataclass
class MemoryStream:
    """A stream: the events of each segment with their offsets; a scale seals all segments and begins others."""

    segments: int = 2
    identity_id: str = "a" * 32
    events: dict[SegmentId, list[tuple[int, bytes]]] = field(default_factory=dict)
    starts: dict[SegmentId, int] = field(default_factory=dict)
    ends: dict[SegmentId, int] = field(default_factory=dict)
    epochs: list[list[SegmentId]] = field(default_factory=list)
    sealed: bool = False
    written: int = 0

    def __post_init__(self) -> None:
        self.scale(self.segments)

    def scale(self, segments: int) -> None:
        epoch = len(self.epochs)
        self.epochs.append([SegmentId(epoch, number) for number in range(segments)])
        for segment in self.epochs[-1]:
            self.events[segment], self.starts[segment], self.ends[segment] = [], 0, 0

    def append(self, event: bytes, place: int) -> None:
        segment = self.epochs[-1][place % len(self.epochs[-1])]
        self.events[segment].append((self.ends[segment], event))
        self.ends[segment] += HEADER + len(event)
        self.written += 1

    def truncate(self, segment: SegmentId, events: int) -> None:
        """Drop the first events of a segment."""
        dropped = [at + HEADER + len(event) for at, event in self.events[segment][:events]]
        self.events[segment] = self.events[segment][events:]
        self.starts[segment] = dropped[-1] if dropped else self.starts[segment]

    def before(self, cut: StreamCut) -> list[tuple[int, int, bytes]]:
        """Every event before a cut as (segment, offset, event)."""
        at = next(iter(cut.positions)).epoch
        return sorted(
            (segment.packed, offset, event)
            for segment, events in self.events.items()
            for offset, event in events
            if segment.epoch < at or (segment.epoch == at and offset < cut.positions[segment])
        )


class MemorySource:
    """`Source` of a stream in memory."""

    def __init__(self, stream: MemoryStream, fails: Callable[[str], bool] = lambda call: False) -> None:
        self.stream = NAME
        self._of = stream
        self._fails = fails

    def _call(self, name: str) -> None:
        if self._fails(name):
            raise Unavailable(f"{name} failed")

    async def identity(self) -> str:
        self._call("identity")
        return self._of.identity_id

    async def edge(self, which: str) -> StreamCut:
        epoch = self._of.epochs[0 if which == "head" else -1]
        ends = self._of.starts if which == "head" else self._of.ends
        return StreamCut(NAME, {segment: ends[segment] for segment in epoch})

    async def next_cut(self, start: StreamCut, distance_bytes: int) -> StreamCut:
        self._call("next_cut")
        at, left = dict(start.positions), distance_bytes
        while True:
            for segment in at:
                for offset, event in self._of.events[segment]:
                    if offset >= at[segment] and left > 0:
                        at[segment] = offset + HEADER + len(event)
                        left -= HEADER + len(event)
            epoch = next(iter(at)).epoch
            done = all(max(at[s], self._of.starts[s]) >= self._of.ends[s] for s in at)
            if left <= 0 or not done or epoch + 1 >= len(self._of.epochs):
                return StreamCut(NAME, at)
            at = dict.fromkeys(self._of.epochs[epoch + 1], 0)

    def _behind(self, cut: StreamCut) -> list[tuple[SegmentId, int, bytes]]:
        epoch = next(iter(cut.positions)).epoch
        return [
            (segment, offset, event)
            for segment, events in self._of.events.items()
            for offset, event in events
            if segment.epoch > epoch or (segment.epoch == epoch and offset >= cut.positions[segment])
        ]

    async def bytes_behind(self, cut: StreamCut) -> int:
        self._call("bytes_behind")
        return sum(HEADER + len(event) for _, _, event in self._behind(cut))

    async def is_finished(self, cut: StreamCut) -> bool:
        return self._of.sealed and not self._behind(cut)

    async def ingested_ms(self, cut: StreamCut) -> int:
        return 1_700_000_000_000

    async def read(self, start: StreamCut, end: StreamCut) -> AsyncGenerator[pa.RecordBatch | Gap, None]:
        self._call("read")
        after = {(segment, offset) for segment, offset, _ in self._behind(end)}
        found: dict[SegmentId, list[tuple[int, bytes]]] = {}
        for segment, offset, event in self._behind(start):
            if (segment, offset) not in after:
                found.setdefault(segment, []).append((offset, event))
        lost = sum(
            max(0, min(self._of.starts[s], end.positions.get(s, self._of.starts[s])) - start.positions.get(s, 0))
            for s in self._of.events
            if next(iter(start.positions)).epoch <= s.epoch <= next(iter(end.positions)).epoch
        )
        if lost:
            yield Gap(lost)
        for segment, events in found.items():
            for part in (events[:3], events[3:]):
                if part:
                    self._call("read more")
                    yield batch_of(segment, part)


def batch_of(segment: SegmentId, events: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    offsets, values = zip(*events, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "event": pa.array(values, pa.binary()),
            "segment": pa.array([segment.packed] * len(events), pa.int64()),
            "offset": pa.array(offsets, pa.int64()),
        }
    )


class Numbers:
    """Values that are decimal numbers; others are dead letters.  `known`: of words, which change with time."""

    schema = pa.schema([pa.field("number", pa.int64()), pa.field("text", pa.string())])

    def __init__(self, known: set[bytes] | None = None) -> None:
        self._known = set() if known is None else known

    def read(self, payloads: pa.Array) -> Rows:
        found = payloads.to_pylist()
        bad = np.array([not (each.isdigit() or each in self._known) for each in found], np.bool_)
        numbers = [int(each) if each.isdigit() else None for each in found]
        texts = [None if wrong else each.decode() for each, wrong in zip(found, bad, strict=True)]
        return Rows([pa.array(numbers, pa.int64()), pa.array(texts, pa.string())], bad)

    def problem(self, payload: bytes) -> str:
        return f"no number, {len(payload)} bytes"


class GrownNumbers(Numbers):
    """Numbers, and so many more columns of the same."""

    def __init__(self, known: set[bytes], more: int) -> None:
        super().__init__(known)
        self.schema = pa.schema([*Numbers.schema, *(pa.field(f"c{n}", pa.int64()) for n in range(more))])

    def read(self, payloads: pa.Array) -> Rows:
        found = super().read(payloads)
        return Rows([*found.columns, *[found.columns[0]] * (len(self.schema) - len(found.columns))], found.bad)


class NumberColumns:
    """`Columns` of numbers.  `more()`: how many more columns there are by now."""

    wants_sample = False

    def __init__(self, known: set[bytes], more: Callable[[], int]) -> None:
        self._known = known
        self._more = more

    async def choose(self, before: str, sample: Sequence[bytes]) -> str:
        return str(self._more())

    async def open(self, chosen: str) -> Numbers:
        return GrownNumbers(self._known, int(chosen))


class Row:
    """The row of a job.  A claim fences the one before."""

    def __init__(self) -> None:
        self.state = b""
        self.held: StreamCut | None = None
        self.fence = 0

    def claim(self, fails: Callable[[str], str] = lambda call: "") -> Any:
        self.fence += 1
        mine = self.fence

        async def save(state: bytes, held: StreamCut | None) -> None:
            fault = fails("save")
            if fault == "before":
                raise Unavailable("the save failed")
            if mine != self.fence:
                raise Fenced("another worker has claimed the job")
            self.state, self.held = state, held
            if fault:
                raise Unavailable("the reply to the save was lost")

        return save


class Clock:
    """A clock that moves on at each call."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms


class Chance:
    """Bytes of a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def random(self) -> float:
        return self._random.random()


class Worker:
    """Runs calls after a few turns of the event loop, in which another process may run."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def run(self, call: Callable[[], Any]) -> Any:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)
        return call()


class World:
    """A stream, a catalog and a row that outlive the processes which commit."""

    def __init__(self, seed: int = 0, **chosen: Any) -> None:
        self.stream = MemoryStream()
        self.catalog = Catalog()
        self.row = Row()
        self.clock = Clock()
        self.known: set[bytes] = set()
        self.more_columns = 0
        self.settings = IcebergSettings("lake.shop.orders", **{"interval_seconds": 0, "target_bytes": 200, **chosen})
        self._seeds = random.Random(seed)

    def process(self, fault: Callable[[str], str] = lambda call: "", tables: LakeTables | None = None) -> Committer:
        """A process that has claimed the job."""
        row = self.row
        env: Any = Env(self.clock, Chance(self._seeds.getrandbits(64)), None, None, None)  # type: ignore[arg-type]
        save = row.claim(fault)
        source = MemorySource(self.stream, lambda call: fault(call) == "before")
        tables = MemoryTables(self.catalog, fault) if tables is None else tables
        return Committer(
            self.settings,
            source,
            tables,
            NumberColumns(self.known, lambda: self.more_columns),
            save,
            env,
            Worker(self._seeds),
            row.state,  # type: ignore[arg-type]
        )

    async def drain(self, committer: Committer) -> None:
        """Commit everything that is there."""
        while committer.state.intent is not None or committer.state.cut is None or await self.behind(committer):
            await committer.step()

    async def behind(self, committer: Committer) -> int:
        assert committer.state.cut is not None
        return await MemorySource(self.stream).bytes_behind(committer.state.cut)

    def rows(self, name: tuple[str, ...] = TABLE, snapshot: int | None = None) -> list[tuple[int, int]]:
        """The positions of the rows of a table."""
        found = []
        for batch in self.catalog.rows(name, snapshot):
            where = batch.column("sarit").flatten()[:2] if "sarit" in batch.schema.names else batch.columns[:2]
            found += list(zip(*(each.to_pylist() for each in where), strict=True))
        return sorted(found)
