"""The state of a group under random orders of its readers' updates, against a model of the unread events (invariants
26, 27).

A stream of the model scales by itself: each segment knows its successors.  Readers read, release, complete, pass
checkpoints, leave and are lost with or without a position.  At every step each segment is in one place, and what is
owned, unassigned and waiting is exactly what is reachable and unread.  A checkpoint, once complete, is a cut: with what
comes after it read again, each event is read once before or once after it.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sarit.client.groups import assignment, codec
from sarit.client.groups.state import (
    AcquireSegment,
    AddReader,
    CheckpointReader,
    ClearCheckpointsBefore,
    Compact,
    CreateCheckpoint,
    Init,
    ReleaseSegment,
    RemoveOutstandingCheckpoints,
    RemoveReader,
    SegmentCompleted,
    apply,
)
from sarit.client.groups.values import GroupConfig, GroupSegment
from sarit.core.names import SegmentId, StreamName
from tests.limits import examples

STREAMS = (StreamName("s", "a"), StreamName("s", "b"))
LENGTH = 2
READERS = ("r0", "r1")


def segments(stream, epoch, *numbers):
    return [GroupSegment(stream, SegmentId(epoch, number)) for number in numbers]


def history(stream):
    """Successors: 0 splits into 2, 3; 1 and 3 merge into 4; 4 and 2 merge into 5, which nothing follows."""
    (zero, one), (two, three), (four,), (five,) = (
        segments(stream, 0, 0, 1),
        segments(stream, 1, 2, 3),
        segments(stream, 2, 4),
        segments(stream, 3, 5),
    )
    following = {zero: [two, three], one: [four], three: [four], four: [five], two: [five], five: []}
    preceding = {s: frozenset(p for p in following if s in following[p]) for s in following}
    return following, preceding


FOLLOWING: dict = {}
PRECEDING: dict = {}
for name in STREAMS:
    following, preceding = history(name)
    FOLLOWING |= following
    PRECEDING |= preceding
FIRST = [segment for segment in FOLLOWING if not PRECEDING[segment]]


class Group(RuleBasedStateMachine):
    """`at`: where each online reader is in its segments; `read`: what was read of each segment, and stored by whom."""

    @initialize()
    def begin(self):
        config = GroupConfig(dict.fromkeys(STREAMS), dict.fromkeys(STREAMS))
        self.state = apply(None, Init(config, dict.fromkeys(FIRST, 0), {}))
        self.at: dict[str, dict] = {}
        self.stored_at: dict[str, dict] = {}  # where each reader's stored position is
        self.read = dict.fromkeys(FOLLOWING, 0)
        self.completed: set = set()
        self.number = 0
        for reader in READERS:
            self.join(reader)
        for reader in READERS:
            self.acquire(reader)

    def write(self, *done):
        for update in done:
            data = codec.encode(update)
            assert codec.decode(data) == update
            self.state = apply(self.state, update)

    def free(self, reader):
        return self.state.checkpoints.next_for(reader) is None

    @rule(reader=st.sampled_from(READERS))
    def join(self, reader):
        if reader not in self.at:
            self.write(AddReader(reader))
            self.at[reader], self.stored_at[reader] = {}, {}

    @rule(reader=st.sampled_from(READERS))
    def acquire(self, reader):
        if reader in self.at and self.free(reader):
            for segment in assignment.to_acquire(self.state, reader):
                offset = self.state.unassigned[segment]
                self.write(AcquireSegment(reader, segment))
                assert offset == self.read[segment], (
                    "another continues where the last one stopped, or its position was stored"
                )
                self.at[reader][segment] = self.stored_at[reader][segment] = offset

    @rule(reader=st.sampled_from(READERS), pick=st.integers(0, 99))
    def read_one(self, reader, pick):
        mine = [s for s, at in self.at.get(reader, {}).items() if at < LENGTH]
        if mine:
            segment = mine[pick % len(mine)]
            assert PRECEDING[segment] <= self.completed, "a successor is read before its predecessors"
            self.at[reader][segment] += 1
            self.read[segment] = self.at[reader][segment]

    @rule(reader=st.sampled_from(READERS))
    def keep(self, reader):
        if reader in self.at:
            self.stored_at[reader] = dict(self.at[reader])

    @rule(reader=st.sampled_from(READERS))
    def let_go(self, reader):
        """What a reader does after a checkpoint: its position is stored then."""
        if reader not in self.at or not self.free(reader):
            return
        self.stored_at[reader] = dict(self.at[reader])
        for segment in assignment.to_release(self.state, reader):
            self.write(ReleaseSegment(reader, segment, self.at[reader].pop(segment)))
        for segment in [s for s, at in self.at[reader].items() if at == LENGTH]:
            successors = {s: PRECEDING[s] for s in FOLLOWING[segment]}
            self.write(SegmentCompleted(reader, segment, successors, dict.fromkeys((segment, *successors))))
            self.completed.add(segment)
            del self.at[reader][segment]
        self.stored_at[reader] = dict(self.at[reader])

    @rule(reader=st.sampled_from(READERS), pick=st.integers(0, 99))
    def finish_one(self, reader, pick):
        """The shortest way on."""
        while self.state.checkpoints.next_for(reader) is not None:
            self.pass_checkpoint(reader)
        if reader in self.at:
            self.acquire(reader)
            for _ in range(LENGTH):
                self.read_one(reader, pick)
            self.let_go(reader)

    @rule(silent=st.booleans())
    def checkpoint(self, silent):
        self.number += 1
        name = f"{'_SILENT_' if silent else 'c'}{self.number}"
        self.write(CreateCheckpoint(name))
        if self.number % 3 == 0:
            self.write(ClearCheckpointsBefore(name))

    @rule(reader=st.sampled_from(READERS))
    def pass_checkpoint(self, reader):
        name = self.state.checkpoints.next_for(reader)
        if name is not None:
            self.stored_at[reader] = dict(self.at[reader])
            self.write(CheckpointReader(name, reader, dict(self.at[reader])))

    @rule(reader=st.sampled_from(READERS), stored=st.booleans())
    def lose(self, reader, stored):
        """A reader is lost: with its stored position, or without one, and then what it read since goes again."""
        if reader not in self.at:
            return
        owned = dict(self.state.assigned[reader])
        known = self.stored_at.pop(reader) if stored else {}
        self.write(RemoveReader(reader, known))
        del self.at[reader]
        self.stored_at.pop(reader, None)
        for segment, offset in owned.items():
            self.read[segment] = known.get(segment, offset)

    @rule()
    def give_up(self):
        self.write(RemoveOutstandingCheckpoints())

    @rule()
    def compact(self):
        whole = codec.decode(codec.encode(Compact(self.state)))
        after = apply(self.state, whole)
        assert (after.assigned, after.unassigned, after.future) == (
            self.state.assigned,
            self.state.unassigned,
            self.state.future,
        )
        assert after.checkpoints == self.state.checkpoints

    @precondition(lambda self: self.state.checkpoints.last is not None)
    @rule()
    def the_last_checkpoint_is_a_cut(self):
        """No segment is in the cut with one that follows it; a missing one was read, its successor waits."""
        last = self.state.checkpoints.last
        for segment in last:
            assert not ancestors(segment) & set(last)
        for segment in FOLLOWING:
            before = any(segment in ancestors(other) for other in last)
            after = any(other in ancestors(segment) for other in last)
            if not (segment in last or before or after):
                assert segment in self.completed, f"{segment} is neither before, in nor after the cut"

    @invariant()
    def all_is_somewhere(self):
        self.state.check()
        reachable = set(FOLLOWING) - self.completed
        here = set(self.state.positions()) | set(self.state.future)
        beyond = {s for s in reachable if not PRECEDING[s] & self.completed and s not in FIRST}
        assert here == reachable - beyond
        assert set(self.state.future) == {s for s in reachable - beyond if PRECEDING[s] - self.completed}
        for reader, at in self.at.items():
            assert set(self.state.assigned[reader]) == set(at)
        assert self.state.at_end == (not reachable)


def ancestors(segment):
    found, ahead = set(), [segment]
    while ahead:
        for other in PRECEDING[ahead.pop()]:
            if other not in found:
                found.add(other)
                ahead.append(other)
    return found


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=examples(60), stateful_step_count=50)
