"""What is stored when owner or bookies fail in the middle of something, and what the next owner makes of it."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from sarit.core.errors import Unavailable
from tests.unit.log.bookkeeper.test_failures import reopened, run, written
from tests.unit.log.world import expected, frames, payload_of, start


def test_entries_that_one_bookie_had_are_read_from_others_after_a_recovery():
    async def main(world):
        log = await written(world, 1, 2)
        names = log._writer.metadata.ensembles[-1][1]
        others = [world.bookies.bookies[name] for name in names[1:]]
        for bookie in others:
            bookie.stopped = True
        for number in (3, 4, 5):
            start(log, number, payload_of(number))
        await asyncio.sleep(0.1)
        world.kill()
        for bookie in others:
            bookie.crash()
            bookie.start()
            bookie.delay = lambda: 0.01  # the first one says first that it has the entries
        found = expected(range(1, 6))
        assert await frames(await world.provider().open(1)) == found
        world.bookies.bookies[names[0]].crash()
        assert await frames(await world.provider().open(1)) == found

    run(main)


def test_frame_of_which_only_the_first_part_was_stored_is_not_the_last_one():
    async def main(world):
        log = await written(world, 1, 2)
        for bookie in world.bookies.bookies.values():
            syncs = iter([0.0005])
            bookie.sync = lambda syncs=syncs: next(syncs, 5.0)
            bookie.rng = SimpleNamespace(randint=lambda low, high: low)  # nothing that is not synced survives
        start(log, 3, payload_of(3, 10_000))
        await asyncio.sleep(0.1)
        world.kill()
        for bookie in world.bookies.bookies.values():
            bookie.crash()
            bookie.start()
            bookie.sync = lambda: 0.0005
        await reopened(world, range(1, 3))

    run(main)


def test_ensemble_change_that_was_refused_is_tried_again():
    async def main(world):
        log = await written(world, 1, 5)
        outcomes = iter(["refused"])
        world.faults.fault = lambda: next(outcomes, "")
        gone = log._writer.metadata.ensembles[-1][1][0]
        world.bookies.bookies[gone].crash()
        await written(world, 6, 10, log)
        await asyncio.sleep(1)
        assert gone not in world.metadata(log._writer.ledger).ensembles[-1][1]

    run(main, bookies=4)


def test_entry_that_cannot_be_read_names_each_reason_once_with_its_bookies():
    async def main(world):
        await (await written(world, 1, 3)).close()
        log = await world.provider().open(1)
        lost, *silent = world.metadata(world.chain().ledgers[0].ledger).ensembles[-1][1]
        world.bookies.bookies[lost].ledgers.clear()
        for name in silent:
            world.bookies.bookies[name].crash()
        with pytest.raises(Unavailable) as raised:
            await frames(log)
        said = str(raised.value).partition(" cannot be read now: ")[2]
        words = "no answer, its connection was closed or could not be made"
        assert set(said.split("; ")) <= {
            f"{lost}: no ledger",
            *(f"{first}, {second}: {words}" for first, second in itertools.permutations(silent)),
        }, said
        assert said.count(words) == 1

    run(main)
