"""A log file that is filled to its last block, on a disk without another one."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.errors import Corrupt
from sarit.log.limits import LOG_BLOCK_BYTES, LOG_WATERMARK_SECONDS
from tests.unit.log.test_faults import names, provider, write
from tests.unit.log.world import FILE_BYTES, Machine, append, expected, frames, payload_of, simulate

# The header has a block, the last one is for the record that another file follows, and each frame is a group.
FILLING = FILE_BYTES // LOG_BLOCK_BYTES - 1


@pytest.mark.parametrize("idle", [True, False])
def test_watermark_on_full_disk_does_not_fail_the_log(idle: bool) -> None:
    """The watermark record would grow the file, which a full disk refuses."""

    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        await asyncio.sleep(1)  # the reserve is made
        await write(log, range(1, FILLING))
        await asyncio.sleep(0.1)  # and so is the next file
        machine.disk.capacity_bytes = machine.disk.used_bytes()  # another process took the rest
        if idle:
            await asyncio.sleep(3 * LOG_WATERMARK_SECONDS)
            await append(log, FILLING, payload_of(FILLING))
        await log.close()
        sizes = [len(machine.disk.content(f"/log/1/{name}")) for name in names(machine, ".log")]
        assert sizes == [FILE_BYTES] * 2
        log = await provider(machine).open(1)
        assert await frames(log) == expected(range(1, FILLING + idle))
        await log.close()

    simulate(main)


def test_next_file_exposes_rot_at_end_of_full_file() -> None:
    """Its first record says what was durable, as the watermark would have."""

    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        await write(log, range(1, FILLING))
        await asyncio.sleep(3 * LOG_WATERMARK_SECONDS)
        await append(log, FILLING, payload_of(FILLING))
        machine.crash()
        path = f"/log/1/{names(machine, '.log')[0]}"
        machine.disk.flip(path, machine.disk.content(path).index(payload_of(FILLING - 1)))
        with pytest.raises(Corrupt):
            log = await provider(machine).open(1)
            await frames(log)

    simulate(main)


def test_short_of_space_when_next_file_is_due_on_full_disk() -> None:
    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        await asyncio.sleep(1)
        assert not log.short_of_space
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        await write(log, [1])
        await asyncio.sleep(1)
        assert not log.short_of_space, "half of the file is left"
        await write(log, [2])
        await asyncio.sleep(1)
        assert log.short_of_space
        machine.disk.capacity_bytes *= 2
        await asyncio.sleep(1)
        assert not log.short_of_space
        await log.close()

    simulate(main)
