"""A controller on fakes, a readable form of its records, and their invariants while no call is in progress."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from sarit.controller import keys
from sarit.controller.assembly import Controller
from sarit.controller.hold_records import decode_hold
from sarit.controller.limits import PROMOTED_EPOCHS
from sarit.controller.model import codec, groups, streams
from sarit.controller.model.cuts import segments_before
from sarit.controller.model.epochs import check_epoch, known_segments
from sarit.controller.model.records import State, TxnState, WorkKind
from sarit.core.keyspace import KeyRange
from sarit.core.names import TABLE_SUFFIX, SegmentId, StreamName, segment_name, transaction_segment
from sarit.core.policies import ScalingPolicy, StreamConfig
from sarit.mirror.mirror_records import decode_mirror
from tests.limits import HANG_SECONDS
from tests.unit.controller.fakes import FakeSegments, FakeTables, Faults, fake_env

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sarit.controller.assignment import Address
    from sarit.controller.model.epochs import Epoch

STREAM = StreamName("s", "t")

DECODERS: dict[bytes, Callable[[bytes], Any]] = {
    b"s/": codec.decode_stream,
    b"d/": codec.decode_number,
    b"g/": codec.decode_group,
    b"m/": codec.decode_maker,
    b"k/": codec.decode_table,
    b"t/": lambda value: value,
    b"o/i": codec.decode_creation,
    b"o/p": codec.decode_properties,
    b"o/e": codec.decode_chunk,
    b"o/b": codec.decode_subscriber,
    b"o/c": codec.decode_cut,
    b"o/l": lambda value: decode_mirror(STREAM, value),
    b"o/t": codec.decode_cut,
    b"o/h": decode_hold,
    b"o/w": codec.decode_writer,
    b"o/x": codec.decode_transaction,
    b"o/z": codec.decode_completed,
    b"o/y": lambda value: value,
}

PENDING: dict[bytes, Callable[[Any], bool]] = {
    b"s/": lambda stream: stream.pending,
    b"g/": groups.is_pending,
    b"k/": lambda table: table.state is not State.ACTIVE,
}


class World:
    """Tables and segments that outlive controllers."""

    def __init__(self, page: int = 1 << 30) -> None:
        self.tables = FakeTables(page=page)
        self.segments = FakeSegments()
        self.env = fake_env()
        self.controllers: list[Controller] = []

    async def controller(
        self, faults: Faults | None = None, address: Address = ("127.0.0.1", 9090),
        members: Callable[[], Sequence[Address]] | None = None,
    ) -> Controller:  # fmt: skip
        """Another controller, without its recovery sweeper: tests sweep.  `faults`: for its calls alone."""
        tables, segments = self.tables, self.segments
        if faults is not None:
            tables, segments = copy.copy(tables), copy.copy(segments)
            tables.faults = segments.faults = faults
        controller = Controller(tables, segments, self.env, address, members=members)
        await controller.catalog.start()
        self.controllers.append(controller)
        return controller

    def arm(self, faults: Faults) -> None:
        """Inject these faults into calls from now on."""
        self.tables.faults = self.segments.faults = faults

    def pass_time(self, seconds: float) -> None:
        self.env.clock.seconds += seconds  # type: ignore[attr-defined]

    async def sweep(self, controller: Controller, seconds: float = 10.0) -> None:
        """One round of the recovery sweeper."""
        await controller.recovery_sweeper.sweep()
        self.pass_time(seconds)
        await controller.recovery_sweeper.sweep()
        await quiet(controller)
        await controller.recovery_sweeper.sweep()
        self.pass_time(seconds)
        await controller.recovery_sweeper.sweep()
        await quiet(controller)

    # -- what is stored ---------------------------------------------------------------------------

    def scopes(self) -> dict[str, dict[bytes, bytes]]:
        """The tables of all scopes."""
        out = {}
        for key, value in self.tables.tables[keys.SCOPES_TABLE].items():
            record = codec.decode_scope(value.value)
            table = self.tables.tables.get(keys.scope_table(key.decode(), record.incarnation))
            out[key.decode()] = {k: v.value for k, v in (table or {}).items()}
        return out

    def picture(self) -> dict[str, Any]:
        """Everything, without times and random ids, to compare two worlds."""
        out: dict[str, Any] = {"segments": {}, "pending": sorted(self.tables.tables[keys.WORK_TABLE])}
        for scope, entries in self.scopes().items():
            for key, value in entries.items():
                kind = key[:2] if key[:2] != b"o/" else b"o/" + key.split(b"/")[2]
                record = DECODERS[kind](value)
                out.setdefault(f"{scope}: {_anonymous(key)}", []).append(_timeless(record))
        for name, segment in sorted(self.segments.segments.items()):
            out["segments"][name.split("#transaction")[0]] = dataclasses.asdict(segment)
        for values in out.values():
            if isinstance(values, list):
                values.sort(key=repr)
        return out

    def half_done(self) -> list[str]:
        """Unfinished work; without creations, which the next query of their object finishes."""
        out = []
        for scope, entries in self.scopes().items():
            for key, value in entries.items():
                if key[:2] not in PENDING:
                    continue
                record = DECODERS[key[:2]](value)
                if record.state is not State.CREATING and PENDING[key[:2]](record):
                    out.append(f"{scope}: {key.decode()}")
        return out

    # -- what must hold ---------------------------------------------------------------------------

    def check(self, *, orphans: bool = False) -> None:
        """The invariants between calls.  `orphans`: empty segments of lost creations are permitted."""
        owned: set[str] = set()
        for scope, entries in self.scopes().items():
            for key, value in entries.items():
                if key.startswith(b"s/"):
                    name = StreamName(scope, key[2:].decode())
                    owned |= self._check_stream(name, codec.decode_stream(value), _all_epochs(entries, name.stream))
                elif key.startswith(b"k/"):
                    owned |= self._check_table(scope, key[2:].decode(), codec.decode_table(value))
                elif key.startswith(b"o/"):
                    owned |= self._check_owned(scope, key, value, entries)
                elif key.startswith(b"t/"):
                    tag, stream = key[2:].split(b"\0")
                    assert tag.decode() in codec.decode_stream(entries[b"s/" + stream]).config.tags
        lost = set(self.segments.segments) - owned
        if orphans:
            lost = {name for name in lost if self.segments.segments[name].length}
        assert not lost, f"segments that belong to nobody: {sorted(lost)}"

    def _check_stream(self, name: StreamName, record: Any, epochs: list[Epoch]) -> set[str]:
        present = self.segments.segments
        for epoch in epochs:
            check_epoch(epoch)
        numbers = [epoch.number for epoch in epochs]
        assert numbers == sorted(set(numbers))
        assert numbers == list(range(len(numbers))) or numbers[-1] >= PROMOTED_EPOCHS
        active = {name.segment(SegmentId.unpack(s)) for s in record.current.ids}
        replaced = {name.segment(SegmentId.unpack(s)) for s in known_segments(epochs)} - active
        if record.state in (State.ACTIVE, State.SEALING, State.SEALED):
            assert active <= set(present), f"{name} lacks {active - set(present)}"
        if record.state is State.SEALED:
            assert all(present[s].sealed for s in active)
        if record.state is State.ACTIVE:
            assert not any(present[s].sealed for s in active)
            if record.work.kind is not WorkKind.SEAL:
                assert all(present[s].sealed for s in replaced if s in present)
                alive = known_segments(epochs)
                before = {name.segment(SegmentId.unpack(s)) for s in segments_before(alive, streams.head(record))}
                if record.work.kind is not WorkKind.TRUNCATE:
                    assert not before & set(present), f"{name} keeps {before & set(present)}, which lie before its head"
        planned = {s.segment for epoch in record.work.epochs for s in epoch.segments}
        return active | replaced | {name.segment(SegmentId.unpack(s)) for s in planned}

    def _check_table(self, scope: str, table: str, record: Any) -> set[str]:
        first = record.first_number
        ids = [SegmentId(0, first + i) for i in range(record.partitions)]
        names = {segment_name(scope, f"{table}_kvtable", i) for i in ids}
        if record.state is State.ACTIVE:
            assert names <= set(self.segments.segments)
        return names

    def _check_owned(self, scope: str, key: bytes, value: bytes, entries: dict[bytes, bytes]) -> set[str]:
        _, stream, kind, *rest = key.decode().split("/")
        if kind == "i" and stream.endswith(TABLE_SUFFIX):
            assert keys.table_key(stream.removesuffix(TABLE_SUFFIX)) in entries, f"an id of no table: {stream}"
            return set()
        record = codec.decode_stream(entries[b"s/" + stream.encode()])
        name = StreamName(scope, stream)
        if kind != "x":
            return set()
        assert record.state is not State.SEALED, f"{name} is sealed and has a transaction"
        txn = codec.decode_transaction(value)
        epoch = _all_epochs(entries, stream)[txn.epoch]
        parts = {transaction_segment(name.segment(SegmentId.unpack(s)), int(rest[0], 16)) for s in epoch.ids}
        if txn.state is TxnState.OPEN and self.controllers and txn.renewal:
            assert parts <= set(self.segments.segments)
        return parts


def _all_epochs(entries: dict[bytes, bytes], stream: str) -> list[Epoch]:
    prefix = keys.of_stream(stream, keys.EPOCHS)
    chunks = [codec.decode_chunk(value) for key, value in sorted(entries.items()) if key.startswith(prefix)]
    return [*itertools.chain(*chunks), *codec.decode_stream(entries[keys.stream_key(stream)]).epochs]


async def quiet(controller: Controller) -> None:
    """Wait until no transaction is being completed in the background."""
    for _ in range(1000):
        if not controller.transactions.workers._workers:
            return
        await asyncio.gather(*(f.task for f in list(controller.transactions.workers._workers.values())))
    raise AssertionError("transactions are being ended for ever")


def config(segments: int = 2, tags: tuple[str, ...] = ()) -> StreamConfig:
    return StreamConfig(ScalingPolicy(min_segments=segments), tags=tags)


async def stream_with(controller: Controller, segments: int = 2, tags: tuple[str, ...] = ()) -> None:
    """Scope "s" with stream "t"."""
    await controller.scopes.create("s")
    await controller.streams.create(STREAM, config(segments, tags))


def halves(low: float, high: float) -> list[KeyRange]:
    return KeyRange(low, high).split_evenly(2)


def segment(number: int, epoch: int = 0, name: StreamName = STREAM) -> str:
    return name.segment(SegmentId(epoch, number))


def run(test: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(test, HANG_SECONDS))


_TIMES = {"created_ms", "ended_ms", "time_ms", "creation_id"}


def _timeless(record: Any) -> Any:
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
        return {k: 0 if k in _TIMES else _timeless(v) for k, v in fields.items()}
    if isinstance(record, tuple | list):
        return [_timeless(item) for item in record]
    return record


def _anonymous(key: bytes) -> str:
    """A key without the transaction's random id and the time."""
    parts = key.decode().split("/")
    return "/".join("*" if len(p) in (12, 32) and set(p) <= set("0123456789abcdef") else p for p in parts)
