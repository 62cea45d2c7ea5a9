"""Owners of a log that were replaced, or stood still, and do not know it."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.errors import Fenced
from sarit.log.bookkeeper.limits import LEDGER_PROOF_SECONDS
from tests.unit.log.bookkeeper.test_failures import reopened, run, written
from tests.unit.log.world import append


def test_fence_outlives_a_crash_of_the_bookies():
    async def main(world):
        old = await written(world, 1, 3)
        await reopened(world, range(1, 4))
        for bookie in world.bookies.bookies.values():
            bookie.crash()
            bookie.start()
        with pytest.raises(Fenced):
            await append(old, 4, b"late")

    run(main)


def test_owner_that_stood_still_asks_who_owns_the_log():
    """Its ledger was fenced, retired and deleted, and bookies have forgotten the fence."""

    async def main(world):
        old = await written(world, 1, 3)
        stands_still = [bookie for bookie in world.bookies.bookies.values()]
        old._ticking.cancel()
        await asyncio.sleep(2 * LEDGER_PROOF_SECONDS)
        new = await reopened(world, range(1, 4))
        await written(world, 4, 4, new)
        for bookie in stands_still:
            bookie.ledgers.pop(old._writer.ledger)
        with pytest.raises(Fenced):
            await append(old, 4, b"zombie")

    run(main)


def test_owner_that_stood_still_alone_goes_on():
    async def main(world):
        log = await written(world, 1, 3)
        log._ticking.cancel()
        await asyncio.sleep(2 * LEDGER_PROOF_SECONDS)
        await written(world, 4, 6, log)

    run(main)


def test_idle_owner_needs_no_coordination():
    async def main(world):
        log = await written(world, 1, 3)
        await asyncio.sleep(5 * LEDGER_PROOF_SECONDS)
        world.faults.unavailable = True
        await written(world, 4, 6, log)

    run(main)
