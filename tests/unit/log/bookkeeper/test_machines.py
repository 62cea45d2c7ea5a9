"""The pure machines of one ledger: a writer and two recoveries, with answers in any order, lost, doubled and late.

Hypothesis chooses every step.  A bookie here is a set of entries and a fence; what it stored is durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.log.bookkeeper import recovery_decisions as recovering
from sarit.log.bookkeeper import write_decisions as writing
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState
from sarit.log.bookkeeper.port import Code, EntryReply
from sarit.log.bookkeeper.recovery_decisions import AddAgain, Close, LedgerRecovering
from sarit.log.bookkeeper.write_decisions import Done, LedgerWriting, Send, State, Store
from tests.limits import examples

NAMES = ("a", "b", "c", "d", "e")


@dataclass
class Bookie:
    """`entries`: the last add confirmed and the length that each was sent with."""

    entries: dict[int, tuple[int, int]] = field(default_factory=dict)
    fenced: bool = False
    up: bool = True


class World:
    """Messages that are under way, and who waits for them.  `steps`: calls that may happen next, in any order."""

    def __init__(self, choices: list[int], spares: int) -> None:
        self.choices = choices
        self.bookies = {name: Bookie() for name in NAMES[: 3 + spares]}
        self.metadata = LedgerMetadata(3, 3, 2, LedgerState.OPEN, ((0, NAMES[:3]),))
        self.version = 0
        self.now = 0.0
        self.under_way: list = []
        self.packets: dict[int, tuple[int, int]] = {}
        self.acknowledged = -1
        self.writer = LedgerWriting(self.metadata, 0.0)
        self.recoveries: list[LedgerRecovering] = []

    def choose(self, count: int) -> int:
        return self.choices.pop() % count if self.choices else 0

    def run(self) -> None:
        while self.choices:
            acts = [self.add, self.tick, self.crash, self.recover, self.close]
            picked = self.choose(len(acts) + 3 * (1 + len(self.under_way)))
            if picked < len(acts):
                acts[picked]()
            elif self.under_way:
                self.under_way.pop(self.choose(len(self.under_way)))()
            self.check()
        while self.under_way:
            self.under_way.pop(0)()
            self.check()

    # -- the writer ------------------------------------------------------------------------------

    def add(self) -> None:
        if self.writer.state is State.OPEN and self.writer.next_entry < 6:
            entry, effects = self.writer.add(10, self.now)
            self.packets[entry] = (self.writer.last_add_confirmed, self.writer.length)
            self.execute(effects)

    def tick(self) -> None:
        self.now += (0.3, 3.0, 11.0)[self.choose(3)]
        self.writer.spares(sorted(name for name, bookie in self.bookies.items() if bookie.up))
        self.execute(self.writer.tick(self.now))

    def close(self) -> None:
        if self.writer.state in (State.OPEN, State.FAILED) and self.choose(4) == 0:
            self.execute(self.writer.close())

    def crash(self) -> None:
        bookie = self.bookies[NAMES[self.choose(len(self.bookies))]]
        bookie.up = not bookie.up

    def execute(self, effects) -> None:
        for effect in effects:
            match effect:
                case Send(bookie, entry, _):
                    self.under_way.append(lambda bookie=bookie, entry=entry: self.arrive(bookie, entry))
                case Store(metadata):
                    self.under_way.append(lambda metadata=metadata, seen=self.version: self.store(metadata, seen))
                case Done(entry):
                    assert entry > self.acknowledged
                    self.acknowledged = entry

    def arrive(self, name: str, entry: int) -> None:
        bookie = self.bookies[name]
        code = Code.LOST
        if bookie.up:
            code = Code.FENCED if bookie.fenced else Code.OK
            if code is Code.OK:
                bookie.entries.setdefault(entry, self.packets[entry])
            if self.choose(6) == 1:
                code = Code.LOST  # it is stored, and the answer does not come
        for _ in range(1 + (self.choose(5) == 1)):
            self.under_way.append(lambda: self.execute(self.writer.answered(name, entry, code, self.now)))

    def store(self, metadata: LedgerMetadata, seen: int) -> None:
        if seen == self.version:
            self.metadata, self.version = metadata, self.version + 1
            self.under_way.append(lambda: self.execute(self.writer.stored(metadata, self.now)))
        else:
            self.under_way.append(lambda: self.execute(self.writer.store_refused("changed")))

    # -- recoveries ------------------------------------------------------------------------------

    def recover(self) -> None:
        if len(self.recoveries) < 2 and self.choose(3) == 0 and self.metadata.state is not LedgerState.CLOSED:
            if self.metadata.state is LedgerState.OPEN:
                self.metadata, self.version = replace(self.metadata, state=LedgerState.IN_RECOVERY), self.version + 1
            machine = LedgerRecovering(self.metadata)
            self.recoveries.append(machine)
            self.carry_out(machine, self.version, machine.start())

    def carry_out(self, machine: LedgerRecovering, version: int, effects) -> None:
        for effect in effects:
            match effect:
                case recovering.Read(bookie, entry):
                    self.under_way.append(
                        lambda bookie=bookie, entry=entry: self.read(machine, version, bookie, entry)
                    )  # fmt: skip
                case AddAgain():
                    self.under_way.append(lambda add=effect: self.add_again(machine, version, add))
                case Close(last, length) if version == self.version:
                    closed = replace(self.metadata, state=LedgerState.CLOSED, last_entry=last, length=length)
                    self.metadata, self.version = closed, self.version + 1

    def read(self, machine: LedgerRecovering, version: int, name: str, entry: int) -> None:
        bookie = self.bookies[name]
        reply = EntryReply(Code.LOST)
        if bookie.up:
            bookie.fenced = True
            at = max(bookie.entries, default=-1) if entry == -1 else entry
            reply = EntryReply(Code.NO_ENTRY)
            if at in bookie.entries:
                confirmed, length = bookie.entries[at]
                reply = EntryReply(Code.OK, memoryview(b"x" * 10), confirmed, at, length)
        self.under_way.append(lambda: self.carry_out(machine, version, machine.read(name, entry, reply)))

    def add_again(self, machine: LedgerRecovering, version: int, add: AddAgain) -> None:
        bookie = self.bookies[add.bookie]
        code = Code.OK if bookie.up else Code.LOST
        if bookie.up:
            bookie.entries.setdefault(add.entry, (add.last_add_confirmed, add.length))
        self.under_way.append(lambda: self.carry_out(machine, version, machine.added(add.bookie, add.entry, code)))

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        for entry in range(self.acknowledged + 1):
            copies = sum(entry in bookie.entries for bookie in self.bookies.values())
            assert copies >= 2, f"entry {entry} was acknowledged with {copies} copies"
        assert self.writer.last_add_confirmed == self.acknowledged
        if self.metadata.state is LedgerState.CLOSED:
            last = self.metadata.last_entry
            assert self.acknowledged <= last, f"{self.acknowledged} was acknowledged, and the ledger ends with {last}"
            assert self.metadata.length == 10 * (last + 1)
            for entry in range(last + 1):
                members = self.metadata.ensemble_at(entry)
                assert sum(entry in self.bookies[name].entries for name in members) >= 2
        firsts = [first for first, _ in self.metadata.ensembles]
        assert firsts == sorted(set(firsts))


@settings(max_examples=examples(150))
@given(st.lists(st.integers(0, 1000), min_size=30, max_size=300), st.integers(0, 2))
def test_acknowledged_entries_are_below_the_end_in_any_order_of_answers(choices, spares):
    World(choices, spares).run()


def test_recovery_gives_up_where_the_end_is_not_known():
    machine = LedgerRecovering(LedgerMetadata(3, 3, 2, LedgerState.IN_RECOVERY, ((0, NAMES[:3]),)))
    machine.start()
    machine.read("a", -1, EntryReply(Code.NO_ENTRY))
    effects = machine.read("b", -1, EntryReply(Code.NO_ENTRY))
    assert {effect.entry for effect in effects} >= {0, 1}
    machine.read("a", 0, EntryReply(Code.NO_ENTRY))
    machine.read("b", 0, EntryReply(Code.LOST))
    (end,) = machine.read("c", 0, EntryReply(Code.FAILED))
    assert isinstance(end, recovering.Inconclusive)


def test_acknowledgement_after_a_pause_waits_for_the_owner_to_be_known():
    machine = LedgerWriting(LedgerMetadata(3, 3, 2, LedgerState.OPEN, ((0, NAMES[:3]),)), 0.0)
    machine.add(10, 100.0)
    machine.answered("a", 0, Code.OK, 100.1)
    assert machine.answered("b", 0, Code.OK, 100.1) == [writing.AskOwner()]
    assert machine.answered("c", 0, Code.OK, 100.2) == []
    assert machine.owner_confirmed(100.15, 100.3) == [Done(0)]
    machine.add(10, 140.0)
    machine.answered("a", 1, Code.OK, 140.1)
    assert machine.answered("b", 1, Code.OK, 140.1) == [Done(1)]
