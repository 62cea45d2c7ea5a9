"""The controller's ports in memory, with faults; and an environment with a clock that the test advances.

The faults of a store: any call may raise Unavailable before or after it took effect, a call may be the last one
(Crash), and every call yields to the event loop at both ends.  Tables do exactly what `controller.ports` promises and
no more:  conditions are evaluated on the state before the batch, versions rise across keys, a scan may return fewer
entries than requested.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sarit.controller.ports import SegmentInfo, TableFeed, TableUpdate, TableValue
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, SaritError, Sealed, Truncated, Unavailable
from sarit.core.limits import NOT_EXISTS, NULL_ATTRIBUTE_VALUE
from sarit.core.metering import NO_RATES
from sarit.env.ports import Env
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sarit.core.metering import Rates


class Crash(BaseException):
    """The controller dies here: nothing catches this."""


class ManualClock:
    """Both clocks stand until the test advances them."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.wall_offset_ms = 1_600_000_000_000

    def monotonic(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self.seconds * 1000)


class SeededRandom:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def random(self) -> float:
        return self._random.random()


def fake_env(seed: int = 1) -> Env:
    """An Env without files, threads and network: the controller uses none."""
    nothing: Any = None
    return Env(ManualClock(), SeededRandom(seed), nothing, nothing, nothing)


@dataclass
class Faults:
    """What happens to the calls of the ports.  `before` and `after` see each call's number and name and may raise;
    `gate` may delay a call before it is made."""

    before: Callable[[int, str], None] = lambda number, call: None
    after: Callable[[int, str], None] = lambda number, call: None
    calls: list[str] = field(default_factory=list)
    gate: Callable[[int], Awaitable[None]] | None = None

    async def enter(self, call: str) -> int:
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate(len(self.calls) + 1)
        self.calls.append(call)
        number = len(self.calls)
        self.before(number, call)
        return number

    async def leave(self, number: int, call: str) -> None:
        self.after(number, call)
        await asyncio.sleep(0)


def crash_at(number: int, *, after: bool) -> Faults:
    """Die at call `number`: before it takes effect, or after."""
    faults = Faults()

    def die(at: int, call: str) -> None:
        if at >= number:
            raise Crash(f"at call {at}, {call}")

    if after:
        faults.after = die
        # Nothing continues after the crash, also not what was started at the same time.
        faults.before = lambda at, call: die(at - 1, call)
    else:
        faults.before = die
    return faults


def flaky(seed: int, rate: float) -> Faults:
    """Each call is Unavailable with probability `rate`, half of them after it took effect."""
    chance = random.Random(seed)

    def maybe(number: int, call: str) -> None:
        if chance.random() < rate / 2:
            raise Unavailable(f"injected at call {number}, {call}")

    return Faults(maybe, maybe)


class FakeTables:
    """`controller.ports.Tables` in dictionaries."""

    def __init__(self, faults: Faults | None = None, page: int = 1 << 30) -> None:
        self.faults = faults or Faults()
        self.tables: dict[str, dict[bytes, TableValue]] = {}
        self.page = page
        self._position = [0]  # shared by all handles on these tables
        self._ever: set[tuple[str, bytes]] = set()
        self._changed: dict[str, int] = {}

    async def create(self, table: str) -> None:
        at = await self.faults.enter(f"tables.create {table}")
        if table in self.tables:
            raise Exists(table)
        self.tables[table] = {}
        await self.faults.leave(at, "tables.create")

    async def get(self, table: str, keys: Sequence[bytes]) -> list[TableValue | None]:
        at = await self.faults.enter(f"tables.get {table}")
        entries = self._table(table)
        values = [entries.get(key) for key in keys]
        await self.faults.leave(at, "tables.get")
        return values

    async def update(self, table: str, updates: Sequence[TableUpdate]) -> list[int]:
        keys = " ".join(repr(update.key) for update in updates[:3])
        at = await self.faults.enter(f"tables.update {table} {keys}")
        entries = self._table(table)
        for update in updates:
            present = entries.get(update.key)
            actual = NOT_EXISTS if present is None else present.version
            if update.expected not in (NO_VERSION, actual):
                raise Conflict(f"{update.key!r}", expected=update.expected, actual=actual)
        versions = []
        for update in updates:
            assert not (update.fresh and (table, update.key) in self._ever), f"{update.key!r} was there before"
            self._ever.add((table, update.key))
            if update.value is not None or update.key in entries:
                self._position[0] += 1
                self._changed[table] = self._position[0]
            if update.value is None:
                entries.pop(update.key, None)
                versions.append(NOT_EXISTS)
            else:
                entries[update.key] = TableValue(update.value, self._position[0])
                versions.append(self._position[0])
        await self.faults.leave(at, "tables.update")
        return versions

    async def update_at(self, table: str, updates: Sequence[TableUpdate], position: int) -> int:
        at = await self.faults.enter(f"tables.update_at {table}")
        self._table(table)
        actual = self._changed.get(table, 0)
        if actual != position:
            raise Conflict(table, expected=position, actual=actual)
        await self.update(table, updates)
        await self.faults.leave(at, "tables.update_at")
        return self._changed.get(table, 0)

    async def changes(self, table: str, position: int, limit: int) -> TableFeed | None:
        at = await self.faults.enter(f"tables.changes {table}")
        self._table(table)
        await self.faults.leave(at, "tables.changes")
        return TableFeed((), position) if position == self._changed.get(table, 0) else None

    async def scan(self, table: str, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, TableValue]]:
        at = await self.faults.enter(f"tables.scan {table}")
        found = sorted((k, v) for k, v in self._table(table).items() if k >= start and (end is None or k < end))
        await self.faults.leave(at, "tables.scan")
        return found[: min(limit, self.page)]

    async def position(self, table: str) -> int:
        at = await self.faults.enter(f"tables.position {table}")
        self._table(table)
        position = self._changed.get(table, 0)
        await self.faults.leave(at, "tables.position")
        return position

    async def delete(self, table: str, *, must_be_empty: bool = False, unchanged_since: int | None = None) -> None:
        at = await self.faults.enter(f"tables.delete {table}")
        if self._table(table) and must_be_empty:
            raise Exists(f"{table} is not empty")
        if unchanged_since not in (None, self._changed.get(table, 0)):
            raise Conflict(f"{table} changed", expected=unchanged_since)
        del self.tables[table]
        await self.faults.leave(at, "tables.delete")

    def _table(self, table: str) -> dict[bytes, TableValue]:
        if table not in self.tables:
            raise NotFound(f"table {table}")
        return self.tables[table]


@dataclass
class FakeSegment:
    """A segment; `parts` is what was appended, each with its length in bytes."""

    policy: tuple[int, int] = (0, 0)
    rollover_bytes: int = 0
    key_length: int | None = None
    parts: list[tuple[str, int]] = field(default_factory=list)
    start: int = 0
    sealed: bool = False
    attributes: dict[bytes, int] = field(default_factory=dict)
    begin: int = 0  # where the first part begins
    mirror: bool = False
    within: list[int] = field(default_factory=list)  # offsets of parts that do not begin with an event

    @property
    def length(self) -> int:
        return self.begin + sum(length for _, length in self.parts)

    @property
    def data(self) -> bytes:
        return b"".join(bytes.fromhex(what) for what, _ in self.parts)


class FakeSegments:
    """`controller.ports.Segments` in a dictionary.  A segment name must never be used twice."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.segments: dict[str, FakeSegment] = {}
        self.deleted: set[str] = set()
        self.created: list[str] = []
        self.measured: dict[str, Rates] = {}  # what stores would have measured
        self.read_bytes = 1 << 30  # the most that one read gives
        self.compared: dict[str, int] = {}  # lengths at the last call of `grown`
        self.moved: list[str] = []  # sources of merges, once for each merge

    def append(self, segment: str, what: str, length: int = 10) -> None:
        """Append as a writer does."""
        if self._segment(segment).sealed:
            raise Sealed(segment)
        self._segment(segment).parts.append((what, length))

    async def create(self, segment: str, *, scale_type: int = 0, target_rate: int = 0, rollover_bytes: int = 0) -> None:
        await self._create(segment, FakeSegment((scale_type, target_rate), rollover_bytes))

    async def create_fresh(self, segments: Sequence[str]) -> None:
        for segment in segments:
            with suppress(Exists):
                await self._create(segment, FakeSegment())

    async def create_table(self, segment: str, *, key_length: int) -> None:
        try:
            await self._create(segment, FakeSegment(key_length=key_length))
        except Exists:
            if self.segments[segment].key_length != key_length:
                raise Conflict(segment) from None
            raise

    async def _create(self, segment: str, new: FakeSegment) -> None:
        at = await self.faults.enter(f"segments.create {segment}")
        if segment in self.segments:
            raise Exists(segment)
        self.segments[segment] = new
        self.created.append(segment)
        await self.faults.leave(at, "segments.create")

    async def create_at(
        self,
        segment: str,
        offset: int,
        *,
        mirror: bool,
        scale_type: int = 0,
        target_rate: int = 0,
        rollover_bytes: int = 0,
    ) -> None:
        new = FakeSegment((scale_type, target_rate), rollover_bytes, start=offset, begin=offset, mirror=mirror)
        await self._create(segment, new)

    async def create_table_at(self, segment: str, *, key_length: int, position: int, mirror: bool = False) -> None:
        try:
            await self._create(segment, FakeSegment(key_length=key_length, begin=position, mirror=mirror))
        except Exists:
            if self.segments[segment].key_length != key_length:
                raise Conflict(segment) from None
            raise

    async def set_mirror(self, segment: str, mirror: bool) -> None:
        at = await self.faults.enter(f"segments.set_mirror {segment} {mirror}")
        self._segment(segment).mirror = mirror
        await self.faults.leave(at, "segments.set_mirror")

    async def merge_at(self, target: str, source: str, expected_offset: int) -> int:
        at = await self.faults.enter(f"segments.merge_at {target} {expected_offset}")
        into, what = self._segment(target), self._segment(source)
        if into.sealed:
            raise Sealed(target)
        if into.length != expected_offset:
            raise Conflict(target, expected=expected_offset, actual=into.length)
        into.parts += what.parts
        del self.segments[source]
        length = into.length
        await self.faults.leave(at, "segments.merge_at")
        return length

    async def append_at_many(
        self, writes: Sequence[tuple[str, int, bytes]], *, begin_events: bool = True
    ) -> list[int | SaritError]:
        at = await self.faults.enter(f"segments.append_at_many {len(writes)}")
        outcomes: list[int | SaritError] = []
        for segment, offset, data in writes:
            found = self.segments.get(segment)
            if found is None:
                outcomes.append(NotFound(segment))
            elif found.sealed:
                outcomes.append(Sealed(segment))
            elif found.length != offset:
                outcomes.append(Conflict(segment, expected=offset, actual=found.length))
            else:
                found.parts.append((data.hex(), len(data)))
                found.within += [] if begin_events else [offset]
                outcomes.append(found.length)
        await self.faults.leave(at, "segments.append_at_many")
        return outcomes

    async def read_many(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes | SaritError]:
        at = await self.faults.enter(f"segments.read_many {len(ranges)}")
        outcomes: list[bytes | SaritError] = []
        for segment, offset, length in ranges:
            found = self.segments.get(segment)
            if found is None:
                outcomes.append(NotFound(segment))
            elif offset > found.length:
                outcomes.append(Invalid(segment))
            elif offset < found.start:
                outcomes.append(Truncated(segment, found.start))
            else:
                outcomes.append(found.data[offset - found.begin :][:length])
        await self.faults.leave(at, "segments.read_many")
        return outcomes

    async def infos(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        at = await self.faults.enter(f"segments.infos {len(segments)}")
        found = [self.segments.get(segment) for segment in segments]
        await self.faults.leave(at, "segments.infos")
        return [None if one is None else SegmentInfo(one.length, one.start, one.sealed, 0) for one in found]

    async def locate(self, segment: str, offset: int) -> int:
        at = await self.faults.enter(f"segments.locate {segment} {offset}")
        found = self._segment(segment)
        begin = found.begin
        for _, length in found.parts:
            if begin >= max(offset, found.start) and begin not in found.within:
                break
            begin += length
        await self.faults.leave(at, "segments.locate")
        return min(begin, found.length)

    async def seal(self, segment: str) -> None:
        at = await self.faults.enter(f"segments.seal {segment}")
        self._segment(segment).sealed = True
        await self.faults.leave(at, "segments.seal")

    async def delete(self, segment: str) -> None:
        at = await self.faults.enter(f"segments.delete {segment}")
        self._segment(segment)
        del self.segments[segment]
        self.deleted.add(segment)
        await self.faults.leave(at, "segments.delete")

    async def truncate(self, segment: str, offset: int) -> None:
        at = await self.faults.enter(f"segments.truncate {segment} {offset}")
        found = self._segment(segment)
        if offset > found.length:
            raise Invalid(f"{segment} has {found.length} bytes")
        found.start = max(found.start, offset)
        await self.faults.leave(at, "segments.truncate")

    async def merge(self, target: str, sources: Sequence[str]) -> list[int]:
        at = await self.faults.enter(f"segments.merge {target} {len(sources)}")
        into = self._segment(target)
        lengths = []
        for source in sources:
            if source in self.segments:
                if into.sealed:
                    raise Sealed(target)
                parts = self.segments.pop(source).parts
                self.moved += (what for what, _ in parts)
                into.parts += parts
            lengths.append(into.length)
        await self.faults.leave(at, "segments.merge")
        return lengths

    async def info(self, segment: str) -> SegmentInfo:
        at = await self.faults.enter(f"segments.info {segment}")
        found = self._segment(segment)
        await self.faults.leave(at, "segments.info")
        return SegmentInfo(found.length, found.start, found.sealed, 0)

    async def update_policy(self, segment: str, *, scale_type: int, target_rate: int) -> None:
        at = await self.faults.enter(f"segments.update_policy {segment}")
        self._segment(segment).policy = (scale_type, target_rate)
        await self.faults.leave(at, "segments.update_policy")

    async def rates(self, segments: Sequence[str]) -> list[Rates]:
        at = await self.faults.enter(f"segments.rates {len(segments)}")
        out = [self.measured.get(segment, NO_RATES) for segment in segments]
        await self.faults.leave(at, "segments.rates")
        return out

    async def grown(self) -> list[str]:
        at = await self.faults.enter("segments.grown")
        before, self.compared = self.compared, {name: one.length for name, one in self.segments.items()}
        await self.faults.leave(at, "segments.grown")
        return [name for name, length in self.compared.items() if length > before.get(name, 0)]

    async def scope_bytes(self, scope: str) -> int:
        at = await self.faults.enter("segments.scope_bytes")
        await self.faults.leave(at, "segments.scope_bytes")
        mine = [one for name, one in self.segments.items() if name.startswith(f"{scope}/")]
        return sum(one.length - one.start for one in mine)

    async def read(self, segment: str, offset: int, limit: int) -> bytes:
        at = await self.faults.enter(f"segments.read {segment} {offset}")
        found = self._segment(segment)
        if offset > found.length:
            raise Invalid(f"{segment} has {found.length} bytes")
        if offset < found.start:
            raise Truncated(segment, found.start)
        await self.faults.leave(at, "segments.read")
        offset -= found.begin
        return found.data[offset : offset + min(limit, self.read_bytes)]

    async def write(self, segment: str, data: bytes, expected_offset: int) -> None:
        at = await self.faults.enter(f"segments.write {segment} {expected_offset}")
        found = self._segment(segment)
        if found.sealed:
            raise Sealed(segment)
        if found.length != expected_offset:
            raise Conflict(segment, expected=expected_offset, actual=found.length)
        found.parts.append((data.hex(), len(data)))
        await self.faults.leave(at, "segments.write")

    async def get_attribute(self, segment: str, key: bytes) -> int:
        at = await self.faults.enter(f"segments.get_attribute {segment}")
        value = self._segment(segment).attributes.get(key, NULL_ATTRIBUTE_VALUE)
        await self.faults.leave(at, "segments.get_attribute")
        return value

    async def update_attribute(self, segment: str, key: bytes, value: int, expected: int) -> bool:
        at = await self.faults.enter(f"segments.update_attribute {segment} {value}")
        attributes = self._segment(segment).attributes
        done = attributes.get(key, NULL_ATTRIBUTE_VALUE) == expected
        if done:
            attributes[key] = value
        await self.faults.leave(at, "segments.update_attribute")
        return done

    def endpoint(self, segment: str) -> tuple[str, int]:
        return "127.0.0.1", 12345

    def _segment(self, segment: str) -> FakeSegment:
        if segment not in self.segments:
            raise NotFound(f"segment {segment}")
        return self.segments[segment]
