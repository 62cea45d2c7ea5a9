"""Two controllers at once on the same tables, calls that fail before or after they took effect, any order of turns.

Clients draw operations on a few names and repeat those whose outcome they do not know.  What was acknowledged must
hold, and nothing deleted may return.  When no call is in progress, all invariants of the records must hold.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import suppress

import pytest

from sarit.controller.model.records import GroupRecord, State, TxnState
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, SaritError, Sealed, Unavailable
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId, StreamName, transaction_segment
from tests.unit.controller.fakes import Faults, flaky
from tests.unit.controller.world import World, config, quiet, run

NAMES = [StreamName("s", "t"), StreamName("s", "u")]
LEASE = 30_000


class Clients:
    """Draws operations; records the answers."""

    def __init__(self, seed: int, world: World) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.committed: dict[int, tuple[StreamName, list[str]]] = {}
        self.aborted: set[int] = set()
        self.order: list[tuple[str, int]] = []  # ("asked" or "answered", transaction), in order

    async def one(self, c) -> None:
        name = self.random.choice(NAMES)
        draw = self.random.random()
        table = [
            (0.15, self.create), (0.3, self.scale), (0.4, self.update), (0.5, self.truncate), (0.55, self.end),
            (0.75, self.transact), (0.8, self.group), (0.85, self.ask), (1.0, self.write),
        ]  # fmt: skip
        operation = next(operation for bound, operation in table if draw <= bound)
        with suppress(NotFound, Exists, Sealed, Conflict, Invalid, Unavailable):
            await operation(c, name)

    async def create(self, c, name):
        await c.streams.create(name, config(self.random.randint(1, 3), ("a",)))

    async def scale(self, c, name):
        active = list(await c.streams.active(name))
        if not active or len(active) > 6:
            return
        first = self.random.randrange(len(active))
        last = self.random.randrange(first, min(len(active), first + 2))
        run_ = active[first : last + 1]
        ranges = KeyRange(run_[0].low, run_[-1].high).split_evenly(self.random.randint(1, 2))
        await c.streams.scale(name, [s.segment for s in run_], ranges)

    async def update(self, c, name):
        await c.streams.update(name, config(self.random.randint(1, 3), self.random.choice([(), ("a",), ("b", "c")])))

    async def truncate(self, c, name):
        record = await c.streams.ready(name)
        cut = {s.segment: 0 for s in record.epochs[self.random.randrange(len(record.epochs))].segments}
        await c.streams.truncate(name, cut)

    async def end(self, c, name):
        await c.streams.seal(name)
        if self.random.random() < 0.7:
            await c.streams.delete(name)

    async def ask(self, c, name):
        record = await c.streams.ready(name)
        for epoch in record.epochs:
            for s in epoch.segments:
                await c.streams.successors_of(name, s.segment)

    async def group(self, c, name):
        if self.random.random() < 0.5:
            await c.groups.create("s", "g", GroupRecord(State.CREATING, "i", 0, 1, 2, 3, 2, 4, ((name, ()),), ()))
        else:
            await c.groups.delete("s", "g")

    async def write(self, c, name):
        for s in await c.streams.active(name):
            with suppress(Sealed, NotFound):
                self.world.segments.append(name.segment(SegmentId.unpack(s.segment)), "plain")

    async def transact(self, c, name):
        txn, segments = await c.transactions.create(name, LEASE)
        parts = [transaction_segment(name.segment(SegmentId.unpack(s.segment)), txn) for s in segments]
        labels = []
        for at, part in enumerate(parts):
            with suppress(NotFound):  # aborted: its stream is being sealed
                labels.append(f"{txn:x}:{at}")
                self.world.segments.append(part, labels[-1])
        await asyncio.sleep(0)
        decide = c.transactions.commit if self.random.random() < 0.7 else c.transactions.abort
        for _ in range(5):
            try:
                if decide == c.transactions.commit:
                    self.order.append(("asked", txn))
                    await c.transactions.commit(name, txn, "w", 1)
                    self.order.append(("answered", txn))
                    self.committed[txn] = name, labels
                else:
                    await c.transactions.abort(name, txn)
                    self.aborted.add(txn)
                return
            except Unavailable:
                continue


async def storm(seed: int, operations: int) -> Clients:
    world = World(page=7)
    controllers = [await world.controller(), await world.controller()]
    await controllers[0].scopes.create("s")
    clients = Clients(seed, world)
    world.arm(flaky(seed, 0.03))

    async def client(number: int) -> None:
        for _ in range(operations):
            await clients.one(controllers[number % 2])

    await asyncio.gather(*(client(number) for number in range(4)))
    world.arm(Faults())
    for _ in range(3):
        for controller in controllers:
            await world.sweep(controller, LEASE / 1000)
    for name in NAMES:
        with suppress(NotFound):
            await controllers[0].streams.ready(name)
    for controller in controllers:
        await world.sweep(controller)
        await quiet(controller)
    world.check(orphans=True)
    await check_transactions(clients, controllers[0], world)
    return clients


async def check_transactions(clients, controller, world) -> None:
    moved = world.segments.moved
    assert len(moved) == len(set(moved)), "merged twice"
    for txn in clients.aborted:
        assert not any(what.startswith(f"{txn:x}:") for what in moved), "aborted, and merged"
    for txn, (name, labels) in clients.committed.items():
        assert set(labels) <= set(moved), "committed, and not merged as a whole"
        assert await state_of(controller, name, txn) in (TxnState.COMMITTED, TxnState.UNKNOWN)
    place = {what: at for at, what in enumerate(moved)}
    for first, second in itertools.permutations(clients.committed, 2):
        outcomes, asked = clients.order.index(("answered", first)), clients.order.index(("asked", second))
        same = clients.committed[first][0] == clients.committed[second][0] and first >> 96 == second >> 96
        if same and outcomes < asked:
            for a, b in zip(clients.committed[first][1], clients.committed[second][1], strict=False):
                assert place[a] < place[b], "a later commit was merged first"


async def state_of(controller, name, txn):
    try:
        return await controller.transactions.state(name, txn)
    except SaritError:
        return TxnState.UNKNOWN


@pytest.fixture(autouse=True)
def _impatience(monkeypatch):
    monkeypatch.setattr("sarit.controller.transactions.commit_worker.COMMIT_RETRY_SECONDS", 0.0)


@pytest.mark.parametrize("seed", range(25))
def test_two_controllers_and_flaky_stores(seed):
    run(storm(seed, 25))


def test_one_of_two_concurrent_creations_succeeds():
    async def main():
        for seed in range(20):
            world = World()
            controllers = [await world.controller(), await world.controller()]
            await controllers[0].scopes.create("s")

            async def create(c, segments):
                with suppress(Exists):
                    await c.streams.create(NAMES[0], config(segments))
                    return segments

            outcomes = await asyncio.gather(*(create(controllers[at % 2], at + 1) for at in range(4)))
            (winner,) = [segments for segments in outcomes if segments]
            assert len(await controllers[0].streams.active(NAMES[0])) == winner, seed
            world.check()

    run(main())


def test_concurrent_commit_and_abort_have_one_outcome():
    async def main():
        for _ in range(20):
            world = World()
            a, b = [await world.controller(), await world.controller()]
            await a.scopes.create("s")
            await a.streams.create(NAMES[0], config(2))
            txn, _ = await a.transactions.create(NAMES[0], LEASE)
            outcomes = await asyncio.gather(
                a.transactions.commit(NAMES[0], txn, "", 1), b.transactions.abort(NAMES[0], txn), return_exceptions=True
            )
            assert sum(outcome is None for outcome in outcomes) == 1
            await quiet(a)
            await quiet(b)
            expected = TxnState.COMMITTED if outcomes[0] is None else TxnState.ABORTED
            assert await a.transactions.state(NAMES[0], txn) is expected

    run(main())
