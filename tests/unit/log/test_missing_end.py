"""The newest files of a log are missing or cut: what they held is not known, so the log is refused and names them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sarit.core.errors import Corrupt
from sarit.log.file_reader import examine_log, list_files
from sarit.log.limits import LOG_BLOCK_BYTES
from sarit.log.port import LogHistory
from tests.unit.log.test_history import DIRECTORY, at_frame, log_files, open_known, provider
from tests.unit.log.world import FILE_BYTES, Machine, append, expected, frames, payload_of, simulate, start

FRAMES = 12


async def one_epoch(machine: Machine, *, pause: float, size: int) -> LogHistory:
    """Frames 1 to 12 in several files of one epoch, then a power cut.

    With a pause after each frame, a file exists before the one before it is full; without, frames wait for it."""
    log = await provider(machine).open(1)
    if pause:
        for number in range(1, FRAMES + 1):
            await append(log, number, payload_of(number, size))
            await asyncio.sleep(pause)
    else:
        await asyncio.gather(*[start(log, number, payload_of(number, size)) for number in range(1, FRAMES + 1)])
    machine.crash()
    return LogHistory(log.identity, log.epoch, 0)


@pytest.mark.parametrize(
    ("pause", "size"),
    [(0.0, 5000), (0.0, FILE_BYTES), (0.1, 20), (0.1, 5000), (0.1, FILE_BYTES), (2.0, 20), (2.0, 5000)],
)
def test_log_without_its_newest_files_is_refused_however_many_are_missing(pause: float, size: int, caplog) -> None:
    async def main() -> None:
        machine = Machine()
        known = await one_epoch(machine, pause=pause, size=size)
        files = list_files(machine.disk, DIRECTORY, 1).logs
        # A file that was just made holds nothing, and need not be missed.
        last = max(at for at, log in enumerate(files) if log.first is not None)
        taken = [(log.path, machine.disk.take(log.path)) for log in files[last + 1 :]]
        assert last > 1
        for at in range(last, 0, -1):
            path = files[at].path
            taken.append((path, machine.disk.take(path)))
            before = machine.disk.list(DIRECTORY)
            with pytest.raises(Corrupt, match="newest file of the durable log is missing|were on the disk once"):
                await open_known(machine, known)
            assert machine.disk.list(DIRECTORY) == before, "a refusal changes nothing"
            assert any(damage.needed for damage in examine_log(machine.disk, DIRECTORY, 1, known).damage)
            # The index holds all that is left: what was in the missing files is not known all the same.
            end = examine_log(machine.disk, DIRECTORY, 1, known).end
            with pytest.raises(Corrupt):
                await open_known(machine, at_frame(known, end))
        for path, inode in taken:
            machine.disk.put_back(path, inode)
        log = await open_known(machine, known)
        assert await frames(log) == expected(range(1, FRAMES + 1), size)
        await log.close()

    simulate(main)


def test_frames_before_a_missing_newest_file_stay_when_its_loss_is_accepted(caplog) -> None:
    async def main() -> None:
        machine = Machine()
        known = await one_epoch(machine, pause=0.1, size=5000)
        for path in log_files(machine)[2:]:
            machine.disk.remove(path)
        end = examine_log(machine.disk, DIRECTORY, 1, known).end
        assert 1 < end < FRAMES
        log = await open_known(machine, known, accept_loss=True)
        (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert f"all frames above {end} are lost" in warning
        await append(log, end + 1, b"new")
        await log.close()
        log = await open_known(machine, LogHistory(log.identity, log.epoch, 0))
        assert await frames(log) == [*expected(range(1, end + 1), 5000), (end + 1, b"new")]
        await log.close()

    simulate(main)


@pytest.mark.parametrize("length", [0, 1, LOG_BLOCK_BYTES, 2 * LOG_BLOCK_BYTES, FILE_BYTES - 1])
def test_newest_file_that_was_cut_is_refused_and_named(length: int) -> None:
    async def main() -> None:
        machine = Machine()
        known = await one_epoch(machine, pause=0.0, size=20)
        path = log_files(machine)[-1]
        file = machine.disk.open(path, "write")
        file.truncate(length)
        file.datasync()
        with pytest.raises(Corrupt, match=f"{path}: the (end of this log file is missing|header of this log file)"):
            await open_known(machine, known)
        assert any(damage.needed for damage in examine_log(machine.disk, DIRECTORY, 1, known).damage)

    simulate(main)


def test_file_that_nothing_was_written_to_is_missed_too() -> None:
    """Whether it held frames is not known once it is gone."""

    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        for number in range(1, 4):
            await append(log, number, payload_of(number))
            await asyncio.sleep(1)
        await log.close()
        *_, last = log_files(machine)
        assert len(log_files(machine)) == 2
        machine.disk.remove(last)
        with pytest.raises(Corrupt, match="newest file of the durable log is missing"):
            await open_known(machine, LogHistory(log.identity, log.epoch, 0))

    simulate(main)
