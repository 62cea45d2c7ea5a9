"""Spare files of the log are given back when the disk is nearly full, but for the one that opening needs."""

from __future__ import annotations

import asyncio

from tests.unit.log.test_faults import names, provider
from tests.unit.log.world import Machine, append, expected, frames, payload_of, simulate


def test_spares_are_given_back_but_one() -> None:
    async def main() -> None:
        machine = Machine()
        logs = provider(machine)
        log = await logs.open(1)
        for number in range(1, 101):
            await append(log, number, payload_of(number, 5000))
        log.truncate(100)
        await asyncio.sleep(1)
        assert len(names(machine, ".spare")) > 3
        log.release_spares()
        await asyncio.sleep(1)
        assert len(names(machine, ".spare")) == 1
        log.release_spares()
        for number in range(101, 131):
            await append(log, number, payload_of(number, 5000))
        await log.close()
        log.release_spares()
        log = await logs.open(1)
        assert (await frames(log, 100)) == expected(range(101, 131), 5000)
        await log.close()

    simulate(main)
