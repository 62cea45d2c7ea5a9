"""The log of a container that was restored from a backup."""

from __future__ import annotations

import pytest

from sarit.core.errors import Invalid
from sarit.log.port import LogHistory
from tests.unit.log.bookkeeper.test_failures import run, written
from tests.unit.log.world import append, expected, frames


def test_new_log_continues_after_the_checkpoint_and_an_unfinished_one_is_taken():
    async def main(world):
        checkpoint = LogHistory(b"o" * 16, 7, 40)
        first = await world.provider().create_after(1, checkpoint)
        await first.close()
        with pytest.raises(Invalid, match="with frames"):  # it was made for another checkpoint
            await world.provider().create_after(1, LogHistory(b"o" * 16, 7, 41))
        log = await world.provider().create_after(1, checkpoint)
        assert log.epoch > first.epoch > 7
        known = LogHistory(log.identity, log.epoch, 40)
        await log.close()
        owner = await (await world.provider().claim(1)).open(known)
        assert await frames(owner) == []
        await append(owner, 41, b"x")
        await owner.close()
        with pytest.raises(Invalid, match="with frames"):
            await world.provider().create_after(1, checkpoint)
        again = await (await world.provider().claim(1)).open(known)
        assert [frame.number async for frame in again.replay(40)] == [41]
        await again.close()

    run(main)


def test_log_of_another_container_is_not_taken():
    async def main(world):
        log = await written(world, 1, 3)
        await log.close()
        with pytest.raises(Invalid, match="with frames"):
            await world.provider().create_after(1, LogHistory(b"o" * 16, 7, 3))
        assert await frames(await world.provider().open(1)) == expected(range(1, 4))

    run(main)
