"""How long log files are, which recycled files stay, and what the next opening finds on a full disk."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from sarit.core.limits import KIB, MIB
from sarit.log.allocator import LogFileAllocator, first_file_bytes
from sarit.log.limits import IDLE_RECYCLED_LOG_FILES, LOG_FILE_GROWTH, LOG_IDLE_SECONDS
from sarit.log.local import LocalLogProvider
from tests.unit.log.test_faults import names, provider
from tests.unit.log.world import FILE_BYTES, Machine, append, expected, frames, payload_of, simulate


def test_release_removes_recycled_files_but_one() -> None:
    async def main() -> None:
        machine = Machine()
        logs = provider(machine)
        log = await logs.open(1)
        for number in range(1, 101):
            await append(log, number, payload_of(number, 5000))
        log.truncate(100)
        await asyncio.sleep(1)
        assert len(names(machine, ".spare")) > 3
        log.release_recycled_files()
        await asyncio.sleep(1)
        assert len(names(machine, ".spare")) == 1
        log.release_recycled_files()
        for number in range(101, 131):
            await append(log, number, payload_of(number, 5000))
        await log.close()
        log.release_recycled_files()
        log = await logs.open(1)
        assert (await frames(log, 100)) == expected(range(101, 131), 5000)
        await log.close()

    simulate(main)


def test_idle_log_keeps_a_few_recycled_files() -> None:
    """Each container kept 16 of 64 MiB for ever."""

    async def main() -> None:
        machine = Machine()
        logs = provider(machine)
        log = await logs.open(1)
        for number in range(1, 101):
            await append(log, number, payload_of(number, 5000))
        log.truncate(100)
        await asyncio.sleep(LOG_IDLE_SECONDS / 2)
        assert len(names(machine, ".spare")) > IDLE_RECYCLED_LOG_FILES
        await asyncio.sleep(LOG_IDLE_SECONDS)
        assert len(names(machine, ".spare")) == IDLE_RECYCLED_LOG_FILES
        await append(log, 101, payload_of(101, 5000))
        await log.close()

    simulate(main)


class FullFiles:
    """The files of a machine whose disk refuses the next header, as a copy-on-write file system may."""

    def __init__(self, files: Any, refusals: int) -> None:
        self._files, self.refusals = files, refusals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: str, mode: str) -> Any:
        file = self._files.open(path, mode)
        if mode == "blocks":
            write = file.pwrite

            def pwrite(parts: Any, offset: int) -> int:
                self.refusals -= 1
                if self.refusals >= 0:
                    raise OSError(errno.ENOSPC, "injected: no space")
                return write(parts, offset)

            file.pwrite = pwrite
        return file


def test_recycled_file_stays_recycled_after_failed_reuse() -> None:
    async def main() -> None:
        env = Machine().env()
        files = FullFiles(env.files, 3)
        env.files.make_dirs("/log/1")
        maker = LogFileAllocator(files, env.random, "/log/1", 1, FILE_BYTES, 4)  # type: ignore[arg-type]
        maker.reserve()
        recycled = list(maker.recycled)
        for _ in range(3):
            with pytest.raises(OSError, match="no space"):
                maker.make(1, 0, 0, opening=True)
            assert maker.recycled == recycled
        maker.make(1, 0, 0, opening=True).file.close()
        assert maker.recycled == []
        assert env.files.list("/log/1") == ["000000000005.log"]

    simulate(main)


def lengths(machine: Machine, kind: str) -> list[int]:
    return [len(machine.disk.content(f"/log/1/{name}")) for name in names(machine, kind)]


@pytest.mark.parametrize(
    ("most", "first"),
    [(64 * MIB, MIB), (16 * MIB, MIB), (4 * MIB, MIB), (MIB, 256 * KIB), (64 * KIB, 20 * KIB), (16 * KIB, 16 * KIB)],
)
def test_first_files_are_short(most: int, first: int) -> None:
    assert first_file_bytes(most) == first


FULL = 64 * KIB * LOG_FILE_GROWTH**2
FIRST = FULL // LOG_FILE_GROWTH


def test_log_grows_its_files_while_a_checkpoint_lags_and_not_otherwise() -> None:
    """The directory of a node without an event took 513 MB."""

    async def main() -> None:
        machine = Machine()
        log = await LocalLogProvider(machine.env(), "/log", FULL).open(1)
        await asyncio.sleep(1)
        assert lengths(machine, ".log") + lengths(machine, ".spare") == [FIRST] * 2
        for number in range(1, 401):
            await append(log, number, payload_of(number, 5000))
            log.truncate(number)
        assert {*lengths(machine, ".log"), *lengths(machine, ".spare")} == {FIRST}
        for number in range(401, 701):
            await append(log, number, payload_of(number, 5000))
        await asyncio.sleep(1)
        found = lengths(machine, ".log")
        assert found[0] == FIRST
        assert found == sorted(found)
        assert found[-3:] == [FULL] * 3
        # The one that the next opening takes.
        assert max(lengths(machine, ".spare")) == FULL
        await log.close()
        log = await LocalLogProvider(machine.env(), "/log", FULL).open(1)
        assert lengths(machine, ".log")[-1] == FULL
        await log.close()

    simulate(main)


def test_long_frame_lets_the_next_file_be_longer() -> None:
    async def main() -> None:
        machine = Machine()
        log = await LocalLogProvider(machine.env(), "/log", FULL).open(1)
        await append(log, 1, payload_of(1, 2 * FIRST))
        await asyncio.sleep(1)
        assert lengths(machine, ".log")[-1] == FULL
        assert lengths(machine, ".spare") == [FULL]
        await log.close()

    simulate(main)


@pytest.mark.parametrize("seed", range(5))
def test_last_group_of_a_grown_file_is_copied_on_a_full_disk(seed: int) -> None:
    """The reserve of a log that has grown takes as much as its files: with a short one no opening succeeds."""

    async def main() -> None:
        machine = Machine(seed)
        log = await LocalLogProvider(machine.env(), "/log", FULL).open(1)
        for number in range(1, 101):
            await append(log, number, payload_of(number, 5000))
        await asyncio.sleep(1)
        log.truncate(60)  # short files are recycled after the reserve was made
        await asyncio.sleep(1)
        for number in range(101, 103):
            await append(log, number, payload_of(number, FIRST + 4000))
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        machine.kill()
        log = await LocalLogProvider(machine.env(), "/log", FULL).open(1)
        assert (await frames(log, 60)) == [*expected(range(61, 101), 5000), *expected(range(101, 103), FIRST + 4000)]
        await log.close()

    simulate(main)


def test_short_recycled_file_serves_as_it_is_on_a_full_disk() -> None:
    async def main() -> None:
        machine = Machine()
        log = await LocalLogProvider(machine.env(), "/log", FULL).open(1)
        await asyncio.sleep(1)
        env = machine.env()
        maker = LogFileAllocator(env.files, env.random, "/log/1", 1, FULL, 4)
        maker.next_sequence = 100
        maker.reserve()
        maker.recycle([maker._allocate(102, FIRST)])
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        made = maker.make(1, 0, 0, length=FULL)
        assert made.capacity == FIRST
        with pytest.raises(OSError, match="No space"):
            maker.make(1, 0, 0, length=FULL)
        made.file.close()
        await log.close()

    simulate(main)


def test_longest_file_of_earlier_epochs_is_the_reserve() -> None:
    env = Machine().env()
    env.files.make_dirs("/log/1")
    maker = LogFileAllocator(env.files, env.random, "/log/1", 1, FULL, 4)
    paths = [maker._allocate(number, length) for number, length in enumerate((FIRST, FULL, FIRST), 1)]
    maker.adopt(paths)
    assert maker.recycled[-1] == paths[1]
    assert maker.make(1, 0, 0, opening=True).capacity == FULL
