"""Owners of a log that were replaced, or stood still, and do not know it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Fenced, Unavailable
from sarit.log.bookkeeper.limits import LEDGER_CLOCK_STEP_SECONDS, LEDGER_DELETION_SECONDS, LEDGER_PROOF_SECONDS
from tests.unit.log.bookkeeper.test_failures import reopened, run, written
from tests.unit.log.world import SimulatedClock, append, expected, frames, payload_of


class MachineClock(SimulatedClock):
    """Of a machine that stood still for `stopped` seconds; its wall clock is set right, and off by `off_ms`."""

    stopped = 0.0
    off_ms = 0

    def monotonic(self) -> float:
        return super().monotonic() - self.stopped

    def wall_ms(self) -> int:
        return SimulatedClock().wall_ms() + self.off_ms


async def owner_with_a_clock(world):
    """A log with three frames, and the clock of its machine; nothing happens by itself."""
    logs, clock = world.provider(), MachineClock()
    logs.env = replace(logs.env, clock=clock)
    log = await written(world, 1, 3, await logs.open(1))
    log._ticking.cancel()
    return log, clock


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


def test_owner_whose_machine_was_suspended_asks_who_owns_the_log():
    """Its monotonic clock stood still, too; bookies have collected its ledger, and the fence with it."""

    async def main(world):
        old, clock = await owner_with_a_clock(world)
        ledger = old._writer.ledger
        new = await reopened(world, range(1, 4))
        await written(world, 4, 4, new)
        pause = LEDGER_DELETION_SECONDS + 60
        await asyncio.sleep(pause)
        clock.stopped += pause
        for bookie in world.bookies.bookies.values():
            bookie.ledgers.pop(ledger)
        with pytest.raises(Fenced):
            await append(old, 4, b"zombie")

    run(main)


@pytest.mark.parametrize("step", [-LEDGER_DELETION_SECONDS, LEDGER_CLOCK_STEP_SECONDS - 1])
def test_wall_clock_that_is_corrected_asks_nobody(step):
    async def main(world):
        log, clock = await owner_with_a_clock(world)
        clock.off_ms += int(step * 1000)
        world.faults.unavailable = True
        await written(world, 4, 6, log)

    run(main)


def test_large_step_of_the_wall_clock_asks_once_and_the_owner_goes_on():
    async def main(world):
        log, clock = await owner_with_a_clock(world)
        clock.off_ms += 60_000
        await written(world, 4, 5, log)
        world.faults.unavailable = True
        await written(world, 6, 7, log)
        # Set back, and on again: each step on counts.
        clock.off_ms -= 60_000
        await written(world, 8, 8, log)
        clock.off_ms += 60_000
        asking = asyncio.ensure_future(append(log, 9, b"x"))
        await asyncio.sleep(LEDGER_PROOF_SECONDS / 10)
        assert not asking.done()
        world.faults.unavailable = False
        await asking

    run(main)


async def fenced_in_use(world):
    """A log with three frames whose ledger BookKeeper's own recovery closes while it is written, and its provider."""
    provider = world.provider()
    log = await written(world, 1, 3, await provider.open(1))
    await world.close_by_own_recovery(log._writer.ledger)
    # Nobody has changed the chain: it is no reason to leave the container to another store.
    with pytest.raises(Unavailable, match="was fenced|has fenced the ledger, and no other store has the log yet"):
        await append(log, 4, payload_of(4))
    await log.close()
    return provider, log


def test_recovery_of_bookkeeper_itself_is_no_other_owner(caplog):
    async def main(world):
        provider, old = await fenced_in_use(world)
        assert provider.statistics.ledgers_recovered == 0
        log = await provider.open(1)
        assert await frames(log) == expected(range(1, 4))
        assert provider.statistics.ledgers_recovered == 1
        assert f"ledger {old._writer.ledger} was closed by BookKeeper's own recovery" in caplog.text
        await written(world, 4, 6, log)
        await log.close()
        await (await provider.open(1)).close()
        assert provider.statistics.ledgers_recovered == 1

    run(main)


def test_store_that_opens_the_log_after_a_fence_is_not_called_bookkeeper(caplog):
    async def main(world):
        provider, _ = await fenced_in_use(world)
        await (await reopened(world, range(1, 4))).close()
        await (await provider.open(1)).close()
        assert provider.statistics.ledgers_recovered == 0
        assert "own recovery" not in caplog.text.replace("recovery, or a store", "")

    run(main)


def test_changed_metadata_of_a_ledger_is_no_other_owner():
    """BookKeeper replaces a bookie of the entries before, while the ledger is written."""

    async def main(world):
        provider = world.provider()
        log = await written(world, 1, 3, await provider.open(1))
        ledger = log._writer.ledger
        await world.replace_metadata(ledger)
        world.bookies.bookies[log._writer.metadata.ensembles[-1][1][0]].crash()
        await append(log, 4, payload_of(4))
        await asyncio.sleep(1)
        with pytest.raises(Unavailable, match="somebody else has changed its metadata: it is OPEN"):
            await append(log, 5, payload_of(5))
        await log.close()
        assert await frames(await provider.open(1)) == expected(range(1, 5))
        assert provider.statistics.ledgers_recovered == 1

    run(main, bookies=4)
