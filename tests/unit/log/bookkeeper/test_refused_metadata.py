"""Metadata of a ledger that coordination refuses to store for a while."""

from __future__ import annotations

import asyncio

from sarit.core.errors import Invalid
from tests.unit.log.bookkeeper.test_failures import reopened, run, written


def test_ensemble_changes_once_coordination_allows_it(caplog):
    """As when the rights of a user are taken away and given back."""

    async def main(world):
        log = await written(world, 1, 2)
        store = log._writer._store
        right, refused = store.set, []

        async def refuse(ledger, metadata, expected):
            refused.append(ledger)
            raise Invalid("ZooKeeper does not allow it")

        store.set = refuse
        gone = log._writer.metadata.ensembles[-1][1][0]
        world.bookies.bookies[gone].crash()
        await written(world, 3, 4, log)
        await asyncio.sleep(2)
        assert len(refused) > 1
        store.set = right
        await asyncio.sleep(2)
        assert gone not in world.metadata(log._writer.ledger).ensembles[-1][1]
        await log.close()
        await reopened(world, range(1, 5))

    run(main, bookies=4)
    assert sum("ZooKeeper does not allow it" in record.message for record in caplog.records) == 1
