"""The local log of a container that was restored from a backup."""

from __future__ import annotations

import pytest

from sarit.core.errors import Invalid
from sarit.log.local import LocalLogProvider
from sarit.log.port import LogHistory
from tests.unit.log.world import FILE_BYTES, Machine, append, expected, frames, payload_of, simulate

CHECKPOINT = LogHistory(b"o" * 16, 7, 40)


def provider(machine: Machine) -> LocalLogProvider:
    return LocalLogProvider(machine.env(), "/log", FILE_BYTES)


def test_new_log_continues_after_the_checkpoint_in_a_later_epoch() -> None:
    async def main() -> None:
        machine = Machine(1)
        log = await provider(machine).create_after(1, CHECKPOINT)
        assert log.epoch > CHECKPOINT.epoch
        assert log.identity != CHECKPOINT.identity
        await log.close()
        machine.crash()
        known = LogHistory(log.identity, log.epoch, CHECKPOINT.frame)
        owner = await (await provider(machine).claim(1)).open(known)
        assert await frames(owner, CHECKPOINT.frame) == []
        await append(owner, 41, payload_of(41))
        await owner.close()
        machine.crash()
        again = await (await provider(machine).claim(1)).open(known)
        assert await frames(again, CHECKPOINT.frame) == expected([41])
        await again.close()

    simulate(main)


def test_log_that_is_there_is_not_taken() -> None:
    async def main() -> None:
        machine = Machine(1)
        log = await provider(machine).open(1)
        await append(log, 1, payload_of(1))
        await log.close()
        with pytest.raises(Invalid, match="holds a log already"):
            await provider(machine).create_after(1, CHECKPOINT)
        log = await provider(machine).open(1)
        assert await frames(log) == expected([1])
        await log.close()

    simulate(main)
