"""Recycled files are removed when the disk is nearly full, except the one that the next opening needs."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from sarit.core.limits import IDLE_RECYCLED_LOG_FILES, LOG_IDLE_SECONDS
from sarit.log.allocator import LogFileAllocator
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
