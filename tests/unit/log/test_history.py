"""A log and what the index knows of it: missing, foreign and older logs, rot below a checkpoint and above it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sarit.core.errors import Corrupt
from sarit.log.file_reader import examine_log
from sarit.log.limits import LOG_BLOCK_BYTES, LOG_WATERMARK_SECONDS
from sarit.log.local import LocalLogProvider
from sarit.log.port import LogHistory
from tests.limits import examples
from tests.unit.log.world import FILE_BYTES, Machine, append, expected, frames, payload_of, simulate

DIRECTORY = "/log/1"
FRAMES = 9
SAMPLE = 60  # bytes of a file that rot, one by one


def provider(machine: Machine) -> LocalLogProvider:
    return LocalLogProvider(machine.env(), "/log", FILE_BYTES)


async def open_known(machine: Machine, history: LogHistory, *, accept_loss: bool = False):
    claim = await provider(machine).claim(1)
    try:
        return await claim.open(history, accept_loss=accept_loss)
    except BaseException:
        await claim.release()
        raise


async def two_epochs(machine: Machine, size: int = 5000) -> LogHistory:
    """Frames 1 to 9 in several files and two epochs; returns what an index with its checkpoint at 0 knows."""
    for numbers in (range(1, 6), range(6, FRAMES + 1)):
        log = await provider(machine).open(1)
        for number in numbers:
            await append(log, number, payload_of(number, size))
        await log.close()
    return LogHistory(log.identity, log.epoch, 0)


def log_files(machine: Machine) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in machine.disk.list(DIRECTORY) if name.endswith(".log")]


def at_frame(history: LogHistory, frame: int) -> LogHistory:
    return LogHistory(history.identity, history.epoch, frame)


def test_identity_is_that_of_the_first_file_in_all_epochs() -> None:
    async def main() -> None:
        machine, other = Machine(1), Machine(2)
        known, foreign = await two_epochs(machine), await two_epochs(other)
        assert known.identity != foreign.identity
        log = await open_known(machine, known)
        assert log.identity == known.identity
        assert await frames(log) == expected(range(1, FRAMES + 1), 5000)
        await log.close()

    simulate(main)


def test_log_that_the_index_does_not_know_is_refused_unchanged() -> None:
    async def refused(machine: Machine, history: LogHistory, match: str) -> None:
        before = machine.disk.list(DIRECTORY)
        with pytest.raises(Corrupt, match=match):
            await open_known(machine, history)
        assert machine.disk.list(DIRECTORY) == before

    async def main() -> None:
        machine = Machine()
        known = await two_epochs(machine)
        await refused(machine, LogHistory(None, 0, 0), "the index is missing")
        await refused(machine, LogHistory(bytes(16), 1, 0), "a log of another history")
        await refused(machine, LogHistory(known.identity, 3, 0), "older copy.*epoch 2, the index knows epoch 3")
        await refused(machine, at_frame(known, 10), "ends with frame 9, the checkpoint covers frame 10")
        for path in log_files(machine):
            machine.disk.remove(path)
        await refused(machine, known, "the durable log is missing")

    simulate(main)


def test_files_of_another_log_among_its_own_are_refused() -> None:
    async def main() -> None:
        machine, other = Machine(1), Machine(2)
        known = await two_epochs(machine)
        await two_epochs(other)
        path = log_files(other)[0]
        file = machine.disk.open(path, "write")
        file.pwrite([other.disk.content(path)], 0)
        file.datasync()
        with pytest.raises(Corrupt, match="mixes files of different logs"):
            await open_known(machine, known)

    simulate(main)


def test_accepted_loss_of_the_log_goes_on_after_the_checkpoint_and_refuses_the_old_log(caplog) -> None:
    async def main() -> None:
        machine = Machine()
        known = await two_epochs(machine)
        old = {path: machine.disk.content(path) for path in log_files(machine)}
        for path in old:
            machine.disk.remove(path)
        log = await open_known(machine, at_frame(known, 7), accept_loss=True)
        assert log.epoch == known.epoch + 1
        assert log.identity != known.identity
        await append(log, 8, b"new")
        await log.close()
        (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert "what was acknowledged above frame 7" in warning
        again = LogHistory(log.identity, log.epoch, 7)
        log = await open_known(machine, again)
        assert await frames(log, after=7) == [(8, b"new")]
        await log.close()
        for path in log_files(machine):
            machine.disk.remove(path)
        for path, content in old.items():
            file = machine.disk.open(path, "create")
            file.pwrite([content], 0)
            file.datasync()
        with pytest.raises(Corrupt, match="another history"):
            await open_known(machine, again)

    simulate(main)


def test_accepted_log_of_another_history_is_set_aside() -> None:
    async def main() -> None:
        machine = Machine()
        await two_epochs(machine)
        old = {path: machine.disk.content(path) for path in log_files(machine)}
        log = await open_known(machine, LogHistory(bytes(16), 5, 3), accept_loss=True)
        assert (log.epoch, await frames(log, after=3)) == (6, [])
        await log.close()
        for path, content in old.items():
            assert machine.disk.content(path.replace(".log", ".aside")) == content

    simulate(main)


def test_whole_log_without_an_index_is_replayed_when_loss_is_accepted(caplog) -> None:
    async def main() -> None:
        machine = Machine()
        await two_epochs(machine)
        log = await open_known(machine, LogHistory(None, 0, 0), accept_loss=True)
        assert await frames(log) == expected(range(1, FRAMES + 1), 5000)
        await log.close()
        assert "nothing is lost" in caplog.text

    simulate(main)


def every_place(machine: Machine):
    """(file, byte) of every byte that is not zero, a sample."""
    for path in log_files(machine):
        content = machine.disk.content(path)
        places = [at for at in range(len(content)) if content[at]]
        yield from ((path, at) for at in machine.rng.sample(places, min(examples(SAMPLE), len(places))))


@pytest.mark.parametrize("checkpoint", [0, 3, 7, FRAMES])
def test_rot_is_passed_where_covered_and_named_where_not(checkpoint) -> None:
    """Never a wrong frame, never a claim of loss for frames that the checkpoint covers."""
    refused = passed = 0

    async def main() -> None:
        nonlocal refused, passed
        machine = Machine(checkpoint)
        known = at_frame(await two_epochs(machine), checkpoint)
        for path, at in every_place(machine):
            damaged = Machine(1)
            damaged.disk = machine.disk.image(lambda _: True)
            damaged.disk.flip(path, at, machine.rng.randrange(8))
            report = examine_log(damaged.disk, DIRECTORY, 1, known)
            assert report.problem is None
            lost = [damage for damage in report.damage if damage.needed]
            try:
                log = await open_known(damaged, known)
                found = await frames(log, after=checkpoint)
                await log.close()
            except Corrupt as error:
                said = str(error)
                refused += 1
                assert lost, (path, at)
                assert all(damage.first > checkpoint for damage in lost)
                assert f"frames {lost[0].first} to {lost[0].last}" in said
            else:
                passed += 1
                assert not lost, (path, at)
                assert found == expected(range(checkpoint + 1, FRAMES + 1), 5000), (path, at)

    simulate(main)
    assert passed > examples(20)
    assert (refused > examples(20)) == (checkpoint < FRAMES)


def test_frames_after_a_damaged_watermark_are_read() -> None:
    async def main() -> None:
        machine = Machine()
        log = await provider(machine).open(1)
        await append(log, 1, payload_of(1))
        await asyncio.sleep(2 * LOG_WATERMARK_SECONDS + 0.1)
        await append(log, 2, payload_of(2))
        machine.crash()
        (path,) = log_files(machine)
        machine.disk.flip(path, 2 * LOG_BLOCK_BYTES)  # the block after that of frame 1
        assert await frames(await provider(machine).open(1)) == expected([1, 2])

    simulate(main)


def test_accepted_damage_keeps_the_frames_before_it() -> None:
    async def main() -> None:
        machine = Machine()
        known = at_frame(await two_epochs(machine), 2)
        piece = payload_of(5, 5000)[:40]
        path = next(path for path in log_files(machine) if piece in machine.disk.content(path))
        machine.disk.flip(path, machine.disk.content(path).index(piece))
        with pytest.raises(Corrupt, match="frames 5 to 5"):
            log = await open_known(machine, known)
            try:
                await frames(log, after=2)
            finally:
                await log.close()
        log = await open_known(machine, known, accept_loss=True)
        assert await frames(log, after=2) == expected(range(3, 5), 5000)
        await append(log, 5, b"new")
        await log.close()
        log = await open_known(machine, LogHistory(log.identity, log.epoch, 2))
        assert await frames(log, after=2) == [*expected(range(3, 5), 5000), (5, b"new")]
        await log.close()

    simulate(main)


def test_unreadable_file_is_passed_only_if_a_later_one_begins_at_the_checkpoint() -> None:
    async def main() -> None:
        machine = Machine()
        known = await two_epochs(machine)
        first = log_files(machine)[0]
        for at in (0, LOG_BLOCK_BYTES // 2):
            machine.disk.flip(first, at)
        with pytest.raises(Corrupt, match="the header of this log file is damaged.*frames above 0"):
            await open_known(machine, known)
        log = await open_known(machine, at_frame(known, 7))
        assert await frames(log, after=7) == expected(range(8, FRAMES + 1), 5000)
        await log.close()

    simulate(main)
