"""A committer against a model: random kills, lost replies, conflicts, zombies, expired snapshots, delayed commits.

At each snapshot that names a cut, the table and its dead letters must hold every event before the cut, once.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sarit.core.errors import Conflict, Fenced, Unavailable
from sarit.lake import cuts
from sarit.lake.problems import TableProblem
from tests.limits import HANG_SECONDS, examples
from tests.unit.lake.world import DEAD, TABLE, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.lake.committer import Committer

CALLS = ("load", "create", "evolve", "write", "close", "append", "positions", "save", "read", "read more", "next_cut")
STEPS = 60


class Killed(BaseException):
    """The process has died: none of its code runs any more."""


class Faults:
    """What happens to the calls of one process.  Once it is killed, every call raises Killed."""

    def __init__(self, chance: random.Random, rate: float) -> None:
        self._chance = chance
        self._rate = rate
        self.dead = False

    def __call__(self, call: str) -> str:
        if self.dead:
            raise Killed
        draw = self._chance.random()
        if call == "delete" or draw > self._rate:
            return ""
        if draw < self._rate / 3:
            self.dead = True
            raise Killed
        if call == "append":
            return self._chance.choice(("before", "after", "refused", "later"))
        return self._chance.choice(("before", "after")) if call in ("save", "create", "evolve") else "before"


def judge(world: World) -> None:
    """Check every snapshot that names a cut."""
    table = world.catalog.tables.get(TABLE)
    if table is None:
        return
    dead = world.rows(DEAD)
    assert len(dead) == len(set(dead)), "a dead letter is there twice"
    reached = []
    for snapshot in table.snapshots:
        if cuts.CUT_TO not in snapshot.summary:
            continue
        cut = cuts.parse_cut(snapshot.summary[cuts.CUT_TO])
        wanted = [(segment, offset) for segment, offset, _ in world.stream.before(cut)]
        rows = world.rows(TABLE, snapshot.id)
        assert not set(rows) & set(dead), "a dead letter is a row, too"
        assert sorted(rows + [place for place in dead if place in set(wanted)]) == wanted, (rows, dead, wanted)
        reached.append(len(wanted))
    assert reached == sorted(reached)


async def attempt(committer: Committer) -> bool:
    """Carry out one step.  Returns whether the process goes on."""
    try:
        await committer.step()
    except (Unavailable, Killed, Fenced):
        # The worker role calls the runner again with the state of the row: a new process in all that counts.
        return False
    return True


async def run(seed: int, rate: float) -> World:
    chance = random.Random(seed)
    world = World(seed)
    processes: list[Committer] = []
    for _ in range(STEPS):
        for _ in range(chance.randrange(5)):
            word = chance.choice((b"%d" % chance.randrange(1000), b"word", b"bad"))
            world.stream.append(word, chance.randrange(9))
        if chance.random() < 0.05:
            world.stream.scale(chance.randrange(1, 4))
        if chance.random() < 0.2:
            world.more_columns += 1
        if len(processes) < 2 and not world.catalog.pending and chance.random() < 0.05:
            world.known.add(b"word")  # what could not be decoded can be from now on
        await disturb(world, chance)
        if not processes or chance.random() < 0.1:
            processes.append(world.process(Faults(chance, rate)))
        # The last one holds the row; one before it may be a zombie that does not know.
        running = processes[-2:]
        ready = [each for each in running if await has_work(world, each)]
        going = await asyncio.gather(*map(attempt, ready))
        processes = [each for each in running if each not in ready or going[ready.index(each)]]
        judge(world)
    for late in world.catalog.pending:
        with suppress(Conflict):
            late()
    await world.drain(world.process())
    judge(world)
    table = world.catalog.tables[TABLE]
    assert len(world.rows()) + len(world.rows(DEAD)) == world.stream.written
    assert table.properties[cuts.COMMIT] == next(
        s.summary[cuts.COMMIT] for s in reversed(table.snapshots) if cuts.COMMIT in s.summary
    )
    return world


async def has_work(world: World, committer: Committer) -> bool:
    return committer.state.cut is None or committer.state.intent is not None or bool(await world.behind(committer))


async def disturb(world: World, chance: random.Random) -> None:
    """Do what others do with the table: late commits arrive, snapshots are added and expired."""
    table = world.catalog.tables.get(TABLE)
    if world.catalog.pending and chance.random() < 0.3:
        with suppress(Conflict):
            world.catalog.pending.pop(chance.randrange(len(world.catalog.pending)))()
    if table is None or table.head is None:
        return
    if chance.random() < 0.1:
        world.catalog.append(TABLE, table.head, [], {}, {})
    for name in (TABLE, DEAD):
        if name in world.catalog.tables and chance.random() < 0.1:
            world.catalog.compact(name)
    if chance.random() < 0.05:
        world.catalog.expire(TABLE, chance.randrange(1, 4), dangling=chance.random() < 0.5)


@pytest.mark.parametrize("seed", range(examples(12)))
@pytest.mark.parametrize("rate", [0.0, 0.03, 0.15])
def test_every_event_is_in_the_table_once(seed: int, rate: float) -> None:
    asyncio.run(run(seed, rate))


def problem_of(call: Callable[[], object]) -> str:
    with pytest.raises(TableProblem) as caught:
        call()
    return caught.value.name


def test_a_clock_that_is_set_back_does_not_hold_commits_up() -> None:
    async def run() -> None:
        world = World(interval_seconds=60, target_bytes=1 << 20)
        world.stream.append(b"1", 0)
        committer = world.process()
        while committer.state.rows < 1:
            await committer.step()
        world.clock.now_ms -= 3_600_000
        world.stream.append(b"2", 0)
        while committer.state.rows < 2:
            await asyncio.wait_for(committer.step(), HANG_SECONDS)

    asyncio.run(run())
