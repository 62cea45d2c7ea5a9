"""BookKeeper's own recovery moves the copies of entries to other bookies while a log is open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt, Unavailable
from tests.unit.log.bookkeeper.test_failures import run, written
from tests.unit.log.world import expected, frames


async def opened(world):
    """A log with a closed ledger; the ledger, and its bookies."""
    await (await written(world, 1, 5)).close()
    (each,) = world.chain().ledgers
    provider = world.provider()
    log = await provider.open(1)
    return provider, log, each.ledger, world.metadata(each.ledger).ensembles[0][1]


def take_away(world, ledger, bookies):
    return [world.bookies.bookies[name].ledgers.pop(ledger) for name in bookies]


def test_moved_entries_are_found_by_the_metadata_of_now():
    async def main(world):
        provider, log, ledger, before = await opened(world)
        after = tuple(sorted(set(world.bookies.bookies) - set(before)))
        for name, copy in zip(after, take_away(world, ledger, before), strict=True):
            world.bookies.bookies[name].ledgers[ledger] = copy
        metadata, version = await provider.store.get(ledger)
        await provider.store.set(ledger, replace(metadata, ensembles=((0, after),)), version)
        assert await frames(log) == expected(range(1, 6))
        assert await frames(log, 3) == expected([4, 5])

    run(main, bookies=6)


def test_entries_that_no_bookie_has_are_lost():
    async def main(world):
        _, log, ledger, before = await opened(world)
        take_away(world, ledger, before)
        with pytest.raises(Corrupt, match=f"entry 0 of ledger {ledger} is lost"):
            await frames(log)

    run(main)


def test_ledger_that_is_deleted_while_it_is_read_is_no_damage():
    """Its container has another owner by now, which needs the ledger no more; if not, the next claim says so."""

    async def main(world):
        provider, log, ledger, before = await opened(world)
        take_away(world, ledger, before)
        await provider.store.delete(ledger)
        with pytest.raises(Unavailable, match=f"ledger {ledger} was deleted while it was read"):
            await frames(log)
        with pytest.raises(Corrupt, match="its metadata was deleted"):
            await world.provider().claim(1)

    run(main)
