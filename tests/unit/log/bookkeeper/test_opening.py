"""Opening a log on BookKeeper: beside another owner, and with outcomes that stay unknown."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from sarit.core.errors import Fenced, Unavailable
from sarit.log.bookkeeper.limits import LEDGER_DELETION_SECONDS
from sarit.log.port import LogHistory
from tests.unit.log.bookkeeper.test_failures import reopened, run, written
from tests.unit.log.world import append, expected, frames, payload_of


@pytest.mark.parametrize("outcome", ["applied", "refused"])
@pytest.mark.parametrize("fresh", [False, True])
def test_opening_whose_outcome_stays_unknown_leaves_no_ledger_that_nobody_knows(outcome, fresh):
    """Coordination answers nothing from some call on, for longer than the opening waits: each call in turn."""

    async def main(world):
        if not fresh:
            await (await written(world, 1, 3)).close()
        opened = False
        for call in range(12):
            claim = await world.provider().claim(1)
            calls = itertools.count()
            world.faults.fault = lambda calls=calls, call=call: outcome if next(calls) >= call else ""
            try:
                await claim.open(None)
                opened = True
            except (Unavailable, Fenced):
                pass
            finally:
                world.faults.fault = lambda: ""
            world.kill()
            made = range(1, world.bookies.next_ledger)
            existing = {ledger for ledger in made if world.coordination.get(f"ledgers/{ledger}")}
            if existing:
                chain = world.chain()
                assert existing <= {each.ledger for each in chain.ledgers} | {ledger for ledger, _ in chain.retired}
        assert opened
        assert len(existing) > 3
        log = await reopened(world, () if fresh else range(1, 4))
        await asyncio.sleep(LEDGER_DELETION_SECONDS + 60)
        existing = {ledger for ledger in made if world.coordination.get(f"ledgers/{ledger}")}
        assert existing <= {each.ledger for each in world.chain().ledgers}
        await log.close()

    run(main)


@pytest.mark.parametrize("first", [False, True])
def test_index_of_an_owner_that_came_after_the_claim_is_no_damage(first):
    """The index is opened after the claim: its history may be that of an owner in between."""

    async def main(world):
        if not first:
            await written(world, 1, 3)
        claim = await world.provider().claim(1)
        log = await world.provider().open(1)
        await append(log, 1 if first else 4, b"x")
        with pytest.raises(Fenced):
            await claim.open(LogHistory(log.identity, log.epoch, 1 if first else 4))
        await append(log, 2 if first else 5, b"x")

    run(main)


def test_claim_confirmed_too_long_ago_fences_no_later_owner():
    """The map gave the log to another store after the confirmation, and that one has opened it."""

    async def main(world):
        await (await written(world, 1, 3)).close()
        owner = None

        async def confirm():
            nonlocal owner
            owner = await world.provider().open(1)

        late = await world.provider().claim(1, confirm)
        await written(world, 4, 5, owner)
        with pytest.raises(Fenced):
            await late.open(None)
        await written(world, 6, 7, owner)

    run(main)


def test_claim_that_is_not_confirmed_fences_nobody():
    async def main(world):
        owner = await written(world, 1, 3)

        async def confirm():
            raise Fenced("the map names another store")

        with pytest.raises(Fenced):
            await world.provider().claim(1, confirm)
        await written(world, 4, 5, owner)

    run(main)


def test_opening_finds_frames_of_a_ledger_that_the_claim_did_not_know():
    """The owner before goes on with its next ledger after the claim has read the chain, and before it fences."""

    async def main(world):
        old = await world.provider().open(1)
        known = world.chain().ledgers

        async def confirm():
            for number in range(1, 11):
                await append(old, number, payload_of(number, 3000))
            assert old._writer.ledger not in {each.ledger for each in known}

        claim = await world.provider().claim(1, confirm)
        log = await claim.open(None)
        assert await frames(log) == expected(range(1, 11), 3000)
        with pytest.raises(Fenced):
            await append(old, 11, b"x")

    run(main)
