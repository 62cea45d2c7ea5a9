"""Closing a log on BookKeeper ends, whatever is away."""

from __future__ import annotations

import asyncio

from sarit.core.errors import Unavailable
from sarit.log.bookkeeper import chain_register
from sarit.log.bookkeeper.limits import LEDGER_CLOSE_TIMEOUT_SECONDS, LEDGER_LAST_FRAMES_SECONDS
from tests.unit.log.bookkeeper.test_failures import reopened, run, seconds, written
from tests.unit.log.world import expected, frames, payload_of, start

LONGEST_SECONDS = LEDGER_LAST_FRAMES_SECONDS + LEDGER_CLOSE_TIMEOUT_SECONDS + 1.0


async def waiting_for_a_ledger(log, first):
    """Frames until one waits for the next ledger; these frames, and their outcomes."""
    flying = [start(log, number, payload_of(number, 3000)) for number in range(first, first + 40)]
    await asyncio.sleep(5)
    assert log._queue
    assert not log._sent
    return flying


def outcomes(flying):
    assert all(future.done() for future in flying)
    done = [future.exception() is None for future in flying]
    assert done == sorted(done, reverse=True), "the first frames are durable, the others are not"
    assert all(isinstance(future.exception(), Unavailable) for future in flying if future.exception())
    return sum(done)


def test_log_closes_while_coordination_is_away_during_a_roll_over(caplog):
    async def main(world):
        log = await written(world, 1, 2)
        world.faults.unavailable = True
        flying = await waiting_for_a_ledger(log, 3)
        began = seconds()
        await log.close()
        assert seconds() - began < LONGEST_SECONDS
        await asyncio.sleep(0)
        durable = outcomes(flying)
        assert 0 < durable < len(flying)
        world.faults.unavailable = False
        found = await frames(await world.provider().open(1))
        assert found == expected([1, 2]) + expected(range(3, 3 + durable), 3000)
        assert any("frames did not become durable" in line for line in caplog.messages)

    run(main)


def test_log_closes_when_its_chain_is_full(monkeypatch):
    monkeypatch.setattr(chain_register, "MAX_CHAIN_LEDGERS", 2)

    async def main(world):
        log = await written(world, 1, 2)
        flying = await waiting_for_a_ledger(log, 3)
        assert log.short_of_space
        began = seconds()
        await log.close()
        assert seconds() - began < LONGEST_SECONDS
        await asyncio.sleep(0)
        assert 0 < outcomes(flying) < len(flying)

    run(main)


def test_log_closes_when_coordination_goes_away_at_its_end():
    async def main(world):
        log = await written(world, 1, 5)
        world.faults.unavailable = True
        began = seconds()
        await log.close()
        assert seconds() - began < LEDGER_CLOSE_TIMEOUT_SECONDS + 1.0
        world.faults.unavailable = False
        await reopened(world, range(1, 6))

    run(main)


def test_closing_waits_for_a_ledger_that_comes_late():
    """Frames that wait for the next ledger are written by the close, when coordination is back in time."""

    async def main(world):
        log = await written(world, 1, 2)
        world.faults.unavailable = True
        flying = await waiting_for_a_ledger(log, 3)
        closing = asyncio.ensure_future(log.close())
        await asyncio.sleep(LEDGER_CLOSE_TIMEOUT_SECONDS - 8)
        world.faults.unavailable = False
        await closing
        await asyncio.sleep(0)
        assert outcomes(flying) == len(flying)

    run(main)
