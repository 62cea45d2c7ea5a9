"""A stateful test of a stream's record, with its segments and transactions.

Commands are given when nothing is pending.  The effects of a step are executed in part, or twice, before the next
record is stored: that is the state after a controller died.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sarit.controller.model import codec, cuts, streams, transactions
from sarit.controller.model.effects import (
    CreateSegment,
    DeleteSegment,
    MergeSegments,
    RemoveMark,
    SealSegment,
    TruncateSegment,
)
from sarit.controller.model.epochs import (
    check_epoch,
    creation_epoch,
    known_segments,
    place_of,
    stand_ins,
    successors,
)
from sarit.controller.model.records import State, TxnState, WorkKind
from sarit.core.errors import Conflict, Invalid, Sealed
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId, StreamName, transaction_segment
from sarit.core.policies import ScalingPolicy, StreamConfig
from tests.limits import examples

NAME = StreamName("s", "t")
MOST_EPOCHS = 40
PROMOTED = 1_000_000


def name_of(segment):
    return NAME.segment(SegmentId.unpack(segment))


class Stream(RuleBasedStateMachine):
    """See the head of the module."""

    def __init__(self):
        super().__init__()
        self.segments: dict[str, dict] = {}
        self.deleted: set[str] = set()
        self.epochs = []
        self.txns: dict[int, tuple[int, dict]] = {}  # id -> (epoch, parts by past segment)
        self.merged: dict[int, list] = {}
        self.committed: set[int] = set()
        self.made = 0
        self.promoting = False

    @initialize(count=st.integers(1, 4), first=st.integers(0, 5))
    def create(self, count, first):
        self.record = streams.create(StreamConfig(ScalingPolicy(min_segments=count)), first, 0)
        self.record_epochs()

    def record_epochs(self):
        """All epochs, past and present."""
        for epoch in self.record.epochs:
            if not self.epochs or epoch.number > self.epochs[-1].number:
                following = self.epochs[-1].number + (PROMOTED if self.promoting else 1) if self.epochs else 0
                assert epoch.number == following
                self.promoting = False
                self.epochs.append(epoch)

    # -- commands -------------------------------------------------------------------------------

    def ready(self):
        return not self.record.pending and len(self.epochs) < MOST_EPOCHS

    @precondition(lambda self: self.ready())
    @rule(data=st.data(), parts=st.integers(1, 3))
    def scale(self, data, parts):
        active = self.record.current.segments
        first = data.draw(st.integers(0, len(active) - 1))
        last = data.draw(st.integers(first, min(len(active) - 1, first + 2)))
        run = active[first : last + 1]
        ranges = KeyRange(run[0].low, run[-1].high).split_evenly(parts)
        try:
            self.record = streams.scale(self.record, [s.segment for s in run], ranges, 0)
        except Sealed:
            assert self.record.state is State.SEALED
            return
        except Conflict:
            least = self.record.config.scaling.min_segments
            assert len(active) - len(run) + parts < min(least, len(active))
            return
        assert self.record.pending or self.record.epochs[-1].number > 0

    @precondition(lambda self: self.ready() and len(self.record.current.segments) > 1)
    @rule(gap=st.booleans())
    def scale_wrongly(self, gap):
        active = self.record.current.segments
        wrong = [KeyRange(active[0].low, active[0].high / 2 if gap else active[1].high)]
        before = self.record
        try:
            streams.scale(self.record, [active[0].segment], wrong, 0)
        except (Invalid, Sealed):
            assert self.record == before
            return
        raise AssertionError("a hole in the key space")

    @precondition(lambda self: self.ready())
    @rule(count=st.integers(1, 5))
    def update(self, count):
        try:
            self.record = streams.update(self.record, StreamConfig(ScalingPolicy(min_segments=count)), 0)
        except Sealed:
            assert self.record.state is State.SEALED

    @precondition(lambda self: self.ready())
    @rule(data=st.data())
    def truncate(self, data):
        """At the beginning of an epoch, or some bytes into its segments."""
        begins = min(creation_epoch(s) for s in streams.head(self.record))
        epoch = data.draw(st.sampled_from(self.epochs[place_of(self.epochs, begins) :]))
        cut = {s.segment: data.draw(st.integers(0, 2)) for s in epoch.segments}
        epochs = self.epochs[place_of(self.epochs, begins) :]
        behind = cuts.follows(known_segments(epochs), streams.head(self.record), cut)
        try:
            self.record = streams.truncate(self.record, epochs, cut)
        except Invalid:
            assert not behind
            return
        except Sealed:
            assert self.record.state is State.SEALED
            return
        assert behind

    @precondition(lambda self: self.ready())
    @rule()
    def begin_transaction(self):
        if self.record.state is not State.ACTIVE:
            return
        self.made += 1
        epoch = self.record.current
        for s in epoch.segments:
            self.segments[transaction_segment(name_of(s.segment), self.made)] = {"sealed": False, "of": self.made}
        self.txns[self.made] = (epoch.number, {s.segment: s for s in epoch.segments})

    @precondition(lambda self: self.ready() and self.txns)
    @rule(data=st.data())
    def commit(self, data):
        """Merged in place while its epoch is active, rolled in otherwise."""
        txn = data.draw(st.sampled_from(sorted(self.txns)))
        number, past_segments = self.txns[txn]
        past = self.epochs[place_of(self.epochs, number)]
        targets = stand_ins(self.record.current, past)
        if self.record.state is State.SEALED:
            return  # it would have ended before
        if len(targets) == len(past.segments):
            for part, target in targets.items():
                self.carry_out(streams.merge(NAME, part, [txn], target))
            self.ended([txn])
        else:
            self.record = streams.roll(self.record, past, [txn], 0)
            assert self.record.work.kind is WorkKind.ROLL
        del past_segments

    @precondition(lambda self: self.ready() and not self.txns)
    @rule()
    def seal(self):
        self.record = streams.seal(self.record)

    @precondition(lambda self: self.ready() and not self.txns)
    @rule()
    def promote(self):
        """As if it had been a mirror until now."""
        number = self.record.current.number + PROMOTED
        self.record = streams.promote(replace(self.record, link="up"), number, 0)
        self.promoting = self.record.pending
        assert self.promoting == (self.record.state is State.ACTIVE)
        assert self.record.mirrored == self.promoting, "it is a mirror until its new epoch is there"

    @precondition(lambda self: self.ready())
    @rule()
    def delete_too_early(self):
        if self.record.state is not State.SEALED:
            try:
                streams.delete(self.record)
            except Conflict:
                return
            raise AssertionError("an open stream was deleted")

    # -- steps ----------------------------------------------------------------------------------

    @precondition(lambda self: self.record.pending)
    @rule(data=st.data())
    def part_of_a_step(self, data):
        """A controller begins the step and dies."""
        step = streams.step(NAME, self.record, self.record.epochs)
        effects = [effect for stage in step.stages for effect in stage]
        for effect in effects[: data.draw(st.integers(0, len(effects)))]:
            self.carry_out(effect)

    @precondition(lambda self: self.record.pending)
    @rule()
    def step(self):
        step = streams.step(NAME, self.record, self.record.epochs)
        for stage in step.stages:
            for effect in stage:
                self.carry_out(effect)
        self.record = step.then
        self.ended(step.committed)
        self.record_epochs()

    def ended(self, txns):
        for txn in txns:
            _, parts = self.txns.pop(txn)
            assert sorted(self.merged.get(txn, [])) == sorted(parts), "all parts, each once"
            self.committed.add(txn)

    def carry_out(self, effect):
        """Execute it as `controller/runner.py` does at the store."""
        match effect:
            case CreateSegment(segment):
                assert segment not in self.deleted, "a name was used twice"
                self.segments.setdefault(segment, {"sealed": False, "start": 0})
            case SealSegment(segment):
                if segment in self.segments:
                    self.segments[segment]["sealed"] = True
            case DeleteSegment(segment):
                if self.segments.pop(segment, None) is not None:
                    self.deleted.add(segment)
            case TruncateSegment(segment, offset):
                if segment in self.segments:
                    assert self.segments[segment]["start"] <= offset, "a segment's start fell"
                    self.segments[segment]["start"] = offset
            case MergeSegments(target, sources):
                if target not in self.segments or self.segments[target]["sealed"]:
                    return
                for source in sources:
                    part = self.segments.pop(source, None)
                    if part is not None:
                        number = int(source.rpartition(".")[2][-32:], 16)
                        assert number == part["of"]
                        parent = source.partition("#transaction.")[0]
                        past = next(s for s in self.txns[number][1] if name_of(s) == parent)
                        self.merged.setdefault(number, []).append(past)
            case RemoveMark(_):
                raise AssertionError("the stream is not being deleted")

    # -- what must hold -------------------------------------------------------------------------

    @invariant()
    def records_are_their_bytes(self):
        if hasattr(self, "record"):
            assert codec.decode_stream(codec.encode_stream(self.record)) == self.record

    @invariant()
    def epochs_tile_and_ids_are_never_used_twice(self):
        seen: dict[int, tuple] = {}
        for epoch in self.epochs[-3:]:
            check_epoch(epoch)
            for s in epoch.segments:
                assert seen.setdefault(s.segment, (s.low, s.high)) == (s.low, s.high)

    @invariant()
    def segments_are_as_the_record_says(self):
        if not hasattr(self, "record") or self.record.pending:
            return
        known = known_segments(self.epochs)
        head = streams.head(self.record)
        active = self.record.current.ids
        gone = set(cuts.segments_before(known, head))
        for segment in known:
            found = self.segments.get(name_of(segment))
            assert (found is None) == (segment in gone), "what lies before the head, and nothing else, is deleted"
            if found is not None:
                over = segment not in active or self.record.state is State.SEALED
                assert found["sealed"] == over
                assert found["start"] == head.get(segment, 0)

    @invariant()
    def a_sealed_segment_has_successors_until_its_stream_is_sealed(self):
        if not hasattr(self, "record") or self.record.state is not State.ACTIVE:
            return
        known = known_segments(self.record.epochs)
        for segment in known:
            found = self.segments.get(name_of(segment))
            rolling = self.record.work.kind is WorkKind.ROLL
            if found is not None and found["sealed"] and not rolling:
                epochs = [e for e in self.record.epochs if e.number >= creation_epoch(segment)]
                assert not epochs or segment not in epochs[0].ids or successors(epochs, segment)

    def teardown(self):
        """At the end the stream can be sealed and deleted, and nothing of it remains."""
        if not hasattr(self, "record"):
            return
        for _ in range(10):
            if self.record.pending:
                self.step()
        for txn in list(self.txns):
            for segment in self.txns[txn][1]:
                self.segments.pop(transaction_segment(name_of(segment), txn), None)
        self.record = streams.seal(self.record)
        while self.record.pending:
            self.step()
        doomed = streams.delete(self.record)
        step = streams.step(NAME, doomed, self.epochs)
        for stage in step.stages:
            for effect in stage:
                if not isinstance(effect, RemoveMark):
                    self.carry_out(effect)
        assert step.then is None
        assert not self.segments
        assert streams.next_number(self.record) > max(SegmentId.unpack(s).number for s in known_segments(self.epochs))


class Lease(RuleBasedStateMachine):
    """One transaction's record: once decided, always decided."""

    @initialize(epoch=st.integers(0, 100))
    def begin(self, epoch):
        self.record = transactions.begin(epoch, transactions.MIN_TRANSACTION_LEASE_MS, 0)
        self.decided = ""
        self.now = 0

    @rule()
    def commit(self):
        try:
            self.record = transactions.commit(self.record, "w", 5)
        except Conflict:
            assert self.decided == "abort"
        else:
            assert self.decided in ("", "commit")
            self.decided = "commit"

    @rule()
    def abort(self):
        try:
            self.record = transactions.abort(self.record)
        except Conflict:
            assert self.decided == "commit"
        else:
            assert self.decided in ("", "abort")
            self.decided = "abort"

    @rule(lease=st.integers(1, transactions.MAX_TRANSACTION_LEASE_MS), passed=st.integers(0, 10_000_000))
    def ping(self, lease, passed):
        self.now += passed
        renewal = self.record.renewal
        try:
            self.record = transactions.ping(self.record, lease, self.now)
        except Conflict:
            assert self.decided
        except transactions.TooOld:
            assert self.now + lease > min(transactions.MAX_EXECUTION_LEASES * lease, transactions.MAX_TRANSACTION_MS)
        else:
            assert not self.decided
            assert self.record.renewal == renewal + 1

    @invariant()
    def records_are_their_bytes(self):
        if hasattr(self, "record"):
            assert codec.decode_transaction(codec.encode_transaction(self.record)) == self.record


Stream.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=40)
TestStream = Stream.TestCase
Lease.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=20)
TestLease = Lease.TestCase


@pytest.mark.parametrize("event", transactions.Event)
@pytest.mark.parametrize("state", TxnState)
def test_a_transaction_ends_in_one_of_two_states_and_stays_there(state, event):
    ended = state in (TxnState.UNKNOWN, TxnState.COMMITTED, TxnState.ABORTED)
    if ended or (state, event) not in transactions.NEXT_STATE:
        with pytest.raises(Conflict) as refused:
            transactions.next_state(state, event)
        assert refused.value.actual is state
        return
    after = transactions.next_state(state, event)
    assert after is state or after > state, "no decision is taken back"
    if event is transactions.Event.COMPLETE:
        assert after in (TxnState.COMMITTED, TxnState.ABORTED)
