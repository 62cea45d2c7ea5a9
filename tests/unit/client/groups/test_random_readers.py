"""Readers that join, leave and die at random while the stream scales at random: each event counts once, in order per
key, and no segment has two owners."""

import asyncio
import random

import pytest

from checkers.group import check_counted
from sarit.client.groups.reader import CheckpointEvent, GroupEvent
from sarit.core.errors import Conflict
from tests.limits import HANG_SECONDS
from tests.unit.client.groups.harness import Worker, fill
from tests.unit.client.nodes import create_shrinkable, in_keys, on_node

STEPS = 14


class Ledger:
    """What counted: (segment, offset) and the event, in the order in which results and positions were stored."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, int]] = []
        self.events: list[bytes] = []


class Clerk(Worker):
    """A worker whose results and position are stored in one step."""

    def __init__(self, ledger: Ledger, *given, **options) -> None:
        super().__init__(*given, **options)
        self.ledger = ledger

    async def _work(self) -> None:
        while True:
            found = await self.reader.read(0.3)
            if isinstance(found, GroupEvent):
                self.ledger.counted.append((str(found.segment), found.offset))
                self.ledger.events.append(found.event)
                self.position = found.position
            elif isinstance(found, CheckpointEvent):
                self.position = found.position
            elif self.reader.at_end:
                return


@pytest.mark.parametrize(("seed", "checkpoint"), [(1, 0.05), (2, None), (3, 0.2)])
def test_every_event_counts_once_under_random_actions(seed, checkpoint, tmp_path):
    @on_node
    async def test(local):
        chance, ledger = random.Random(seed), Ledger()
        await create_shrinkable(local.client, "s/t", 3)
        stream = local.client.stream("s/t")
        group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=checkpoint)
        events: list[bytes] = []
        workers = [await Clerk(ledger, group, "w0").start()]
        for step in range(1, STEPS + 1):
            events += await fill(local.client, "s/t", 60, len(events), keys=7)
            act = chance.choice(("join", "join", "die", "leave", "scale", "scale", "cut"))
            if act == "join" or not workers:
                workers.append(await Clerk(ledger, group, f"w{step}").start())
            elif act == "die":
                gone = workers.pop(chance.randrange(len(workers)))
                await gone.die()
                await group.reader_offline(gone.name, gone.position)
            elif act == "leave":
                await workers.pop(chance.randrange(len(workers))).leave()
            elif act == "scale":
                await stream.scale(chance.randint(1, 5))
            else:
                local.cut_connections()
            await asyncio.sleep(chance.random() * 0.2)
        if not workers:
            workers.append(await Clerk(ledger, group, "last").start())
        await local.client.seal_stream("s/t")
        await asyncio.gather(*(worker.task for worker in workers))
        assert sorted(ledger.events) == sorted(events)
        assert not check_counted([], ledger.counted)
        for numbers in in_keys(ledger.events).values():
            assert numbers == sorted(numbers)
        for worker in workers:
            await worker.leave()

    test(tmp_path)


@on_node
async def test_live_reader_declared_offline_raises_conflict(local):
    """Its segments are assigned to other readers: it hands out nothing more, also when a later reader has its name."""
    await local.client.create_stream("s/t")
    events = await fill(local.client, "s/t", 2000)
    group = await local.client.reader_groups.create("s/g", "s/t", automatic_checkpoint=None)
    old = await group.reader("r")
    for _ in range(10):
        found = await old.read(HANG_SECONDS)
    await group.reader_offline("r", found.position)
    new = await Worker(group, "r").start()
    late = []
    with pytest.raises(Conflict, match="not in group"):
        while True:
            found = await old.read(HANG_SECONDS)
            late.append(found.event)
            await asyncio.sleep(0.001)
    assert len(late) < 1000
    while len(new.done) < len(events) - 10:
        await asyncio.sleep(0.01)
    assert new.done == events[10:]
    await new.leave()
