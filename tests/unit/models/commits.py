"""Committing a transaction beside a scale, by two controllers that may die: with the controller's own decisions.

The controllers store the encoded records, and ask `controller.model` for the next step (`streams.step`,
`streams.roll`, `streams.scale`, `transactions.commit`, `abort`, `next_batch`), so that the search goes through the
production code's decisions in every interleaving of single effects and compare-and-sets.  A client asks for the commit,
the lease runs out (abort), somebody scales.

Invariants: all parts of a transaction are merged or none, each once, none before the commit is decided; no part is
merged into a sealed segment; a decision does not change; at the end no work is half done.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from sarit.controller.model import codec, streams, transactions
from sarit.controller.model.effects import CreateSegment, Effect, MergeSegments, SealSegment
from sarit.controller.model.epochs import stand_ins
from sarit.controller.model.records import State as StreamState
from sarit.controller.model.records import StreamRecord, TransactionRecord, TxnState, WorkKind
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId, StreamName, transaction_segment
from sarit.core.policies import ScalingPolicy, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME: Final = StreamName("s", "t")
TXN: Final = 7
CONTROLLERS: Final = 2


class Segment(NamedTuple):
    """`content`: names of what was written or merged, in order."""

    content: tuple[str, ...] = ()
    sealed: bool = False


class Worker(NamedTuple):
    """A controller in the middle of something: effects still to do, then a compare-and-set on `version`.

    `then`: the stream's record to store; `ends`: how the transaction ends with it.  `soft`: what was done before is
    success (`controller/runner.py`), else a sealed target means to read the record again (`CommitWorkers._merge`)."""

    effects: tuple[Effect, ...] = ()
    version: int = 0
    then: bytes = b""
    ends: str = ""
    soft: bool = False


class State(NamedTuple):
    """`live`: the transaction's record, None when it has ended as `end` says."""

    record: bytes
    version: int
    live: bytes | None
    end: str
    segments: tuple[tuple[str, Segment], ...]
    workers: tuple[Worker | None, ...] = (None,) * CONTROLLERS
    scales: int = 0
    deaths: int = 0
    asked: str = ""
    bug: str = ""


@cache
def _stream(record: bytes) -> StreamRecord:
    return codec.decode_stream(record)


@cache
def _transaction(record: bytes) -> TransactionRecord:
    return codec.decode_transaction(record)


def _name(segment: int) -> str:
    return NAME.segment(SegmentId.unpack(segment))


@dataclass(frozen=True, slots=True)
class Committing:
    """Bounds, and the mutants to apply."""

    scales: int = 1
    deaths: int = 1
    merges_into_first_alone: bool = False
    seals_before_publishing: bool = False
    aborts_what_is_committing: bool = False
    version_unchecked: bool = False

    def first(self) -> State:
        """A stream of two segments and a transaction with a part in each."""
        made = streams.create(StreamConfig(ScalingPolicy(min_segments=2)), 0, 0)
        # It may shrink to one segment: a scale below the policy's minimum is refused.
        active = StreamRecord(StreamState.ACTIVE, StreamConfig(ScalingPolicy(min_segments=1)), 0, 0, made.epochs)
        segments = {}
        for found in active.current.segments:
            name = _name(found.segment)
            segments[name] = Segment()
            segments[transaction_segment(name, TXN)] = Segment((f"part {found.segment}",))
        record = codec.encode_transaction(transactions.begin(0, transactions.MIN_TRANSACTION_LEASE_MS, 0))
        return State(codec.encode_stream(active), 1, record, "", tuple(sorted(segments.items())))

    # -- steps --------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """See the head of the module."""
        record = _stream(state.record)
        if state.live is not None:
            yield from self._decisions(state, _transaction(state.live))
        if state.scales < self.scales and not record.pending:
            active = [found.segment for found in record.current.segments]
            ranges = KeyRange(0.0, 1.0).split_evenly(1 if len(active) > 1 else 2)
            scaled = streams.scale(record, active, ranges, 0)
            yield "scales", self._stored(state, scaled)._replace(scales=state.scales + 1)
        for at, worker in enumerate(state.workers):
            if worker is None:
                begun = self._begin(state)
                if begun is not None:
                    yield f"{at} begins", _working(state, at, begun)
                continue
            if state.deaths < self.deaths:
                yield f"{at} dies", _working(state, at, None)._replace(deaths=state.deaths + 1)
            yield from ((f"{at} {name}", after) for name, after in self._go_on(state, at, worker))

    def _decisions(self, state: State, record: TransactionRecord) -> Iterator[tuple[str, State]]:
        if record.state is TxnState.OPEN:
            committed = codec.encode_transaction(transactions.commit(record, "", transactions.NO_TIMESTAMP))
            yield "commit is decided", state._replace(live=committed, asked="committed")
        may_abort = record.state is TxnState.OPEN
        if may_abort or (self.aborts_what_is_committing and record.state is TxnState.COMMITTING):
            open_one = transactions.begin(record.epoch, record.lease_ms, 0)
            aborted = codec.encode_transaction(transactions.abort(open_one))
            yield "abort is decided", state._replace(live=aborted, asked=state.asked or "aborted")

    def _begin(self, state: State) -> Worker | None:
        """The next work of a controller that reads the record now."""
        record = _stream(state.record)
        step = streams.step(NAME, record, record.epochs)
        if step is not None:
            stages = step.stages
            if self.seals_before_publishing and record.work.kind is WorkKind.SCALE:
                old = tuple(SealSegment(_name(s.segment)) for s in record.current.segments)
                stages = (*stages, old)
            assert step.then is not None
            ends = "committed" if step.committed else ""
            flat = tuple(effect for stage in stages for effect in stage)
            return Worker(flat, state.version, codec.encode_stream(step.then), ends, True)
        if state.live is None:
            return None
        txn = _transaction(state.live)
        past = record.epochs[0]
        if txn.state is TxnState.ABORTING:
            parts = [transaction_segment(_name(s.segment), TXN) for s in past.segments]
            return Worker(tuple(_Delete(part) for part in parts), state.version, state.record, "aborted")
        batch = transactions.next_batch([(TXN, txn, state.version)], 10)
        if not batch:
            return None
        targets = stand_ins(record.current, past)
        if len(targets) < len(past.segments):
            rolled = streams.roll(record, past, [TXN], 0)
            return Worker((), state.version, codec.encode_stream(rolled))
        merges = tuple(streams.merge(NAME, part, [TXN], target) for part, target in targets.items())
        chosen = merges[:1] if self.merges_into_first_alone else merges
        return Worker(chosen, state.version, state.record, "committed")

    def _go_on(self, state: State, at: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if not worker.effects:
            idle = _working(state, at, None)
            if worker.version != state.version and not self.version_unchecked:
                yield "finds it changed", idle
                return
            ended = {"live": None, "end": worker.ends} if worker.ends else {}
            yield "stores", self._stored(idle, _stream(worker.then))._replace(**ended)
            return
        first, rest = worker.effects[0], worker.effects[1:]
        segments = dict(state.segments)
        conflict = self._carry_out(segments, first) and not worker.soft
        if conflict:
            yield f"{type(first).__name__} meets a conflict", _working(state, at, None)
            return
        after = state._replace(segments=tuple(sorted(segments.items())))
        yield f"{first}", _working(after, at, worker._replace(effects=rest))

    def _carry_out(self, segments: dict[str, Segment], effect: object) -> bool:
        """As the store does it; True when it was sealed or is gone."""
        if isinstance(effect, CreateSegment):
            segments.setdefault(effect.segment, Segment())
        elif isinstance(effect, SealSegment):
            if effect.segment in segments:
                segments[effect.segment] = segments[effect.segment]._replace(sealed=True)
        elif isinstance(effect, _Delete):
            segments.pop(effect.segment, None)
        elif isinstance(effect, MergeSegments):
            target = segments.get(effect.target)
            if target is None or target.sealed:
                return True
            for source in effect.sources:
                part = segments.pop(source, None)
                if part is not None:
                    target = target._replace(content=target.content + part.content)
            segments[effect.target] = target
        else:
            raise AssertionError(effect)
        return False

    def _stored(self, state: State, record: StreamRecord) -> State:
        return state._replace(record=codec.encode_stream(record), version=state.version + 1)

    # -- what must hold -------------------------------------------------------------------------------

    def wrong(self, state: State) -> str:
        """See the head of the module."""
        merged = [part for name, found in state.segments if "#transaction." not in name for part in found.content]
        left = [name for name, _ in state.segments if "#transaction." in name]
        if len(merged) != len(set(merged)):
            return "a part was merged twice"
        if merged and state.asked != "committed":
            return "a part is visible, and nobody decided for the commit"
        if state.end and state.end != state.asked:
            return f"it ended {state.end}, though {state.asked} was decided"
        if state.end == "committed" and (len(merged) != 2 or left):
            return f"it was committed with {merged}, and {left} are left"
        if state.end == "aborted" and merged:
            return f"it was aborted, and {merged} are visible"
        sealed_early = [
            s for s in _stream(state.record).current.segments if dict(state.segments)[_name(s.segment)].sealed
        ]
        if sealed_early and _stream(state.record).work.kind is not WorkKind.ROLL:
            return f"active segments {sealed_early} are sealed, and nothing says what follows them"
        return ""

    def unfinished(self, state: State) -> str:
        """All work is done."""
        left = [name for name, _ in state.segments if "#transaction." in name]
        if state.live is not None or left or _stream(state.record).pending:
            return f"left half done: {left}, {_stream(state.record)}"
        return ""


class _Delete(NamedTuple):
    segment: str


def _working(state: State, at: int, worker: Worker | None) -> State:
    workers = tuple(worker if one == at else other for one, other in enumerate(state.workers))
    return state._replace(workers=workers)


__all__ = ["Committing", "State"]
