"""What an open log does before and after a change of its chain is stored."""

from __future__ import annotations

import asyncio

from sarit.core.errors import Unavailable
from sarit.log.bookkeeper.log import register_of
from tests.unit.log.bookkeeper.test_failures import run
from tests.unit.log.world import append, expected, frames, payload_of, start


def test_next_ledger_gets_no_frame_before_the_chain_has_it():
    """Only the register of the chain is away: the ledger itself can be made, and bookies would take its frames."""

    async def main(world):
        provider = world.provider()
        log = await provider.open(1)
        store, away = provider.registers.set, True

        async def store_unless_away(name, data, version):
            if away and name == register_of(1):
                raise Unavailable("away")
            return await store(name, data, version)

        provider.registers.set = store_unless_away
        flying = [start(log, number, payload_of(number, 3000)) for number in range(1, 11)]
        await asyncio.sleep(5)
        done = sum(future.done() for future in flying)
        # The next owner, if it came now, would read this chain.
        stored = [each.ledger for each in world.chain().ledgers]
        assert log._writer.ledger in stored, (
            f"{done} frames are acknowledged, and no chain names the ledger of the last"
        )
        assert 1 < done < 10
        away = False
        await asyncio.gather(*flying)
        assert log._writer.ledger not in stored
        world.kill()
        assert await frames(await world.provider().open(1)) == expected(range(1, 11), 3000)

    run(main)


def test_ledger_stays_in_the_chain_while_one_of_its_frames_is_needed():
    async def main(world):
        log = await world.provider().open(1)
        for number in range(1, 51):
            await append(log, number, payload_of(number, 1000))
        await asyncio.sleep(1)
        before, ledger, *_ = world.chain().ledgers
        assert ledger.closed
        assert ledger.first < ledger.last < 50
        log.truncate(ledger.last)
        await asyncio.sleep(1)
        # The chain was changed: the ledger before has left it.
        assert before.ledger in dict(world.chain().retired)
        await log.close()
        log = await world.provider().open(1)
        assert await frames(log, ledger.last - 1) == expected(range(ledger.last, 51), 1000)

    run(main)
