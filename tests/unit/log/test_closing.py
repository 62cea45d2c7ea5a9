"""Files whose close fails, as file systems over a network may: the log is closed all the same, and opens again."""

from __future__ import annotations

import asyncio
import errno

import pytest

from sarit.core.errors import Unavailable
from simulation.disk import SimulatedFile
from tests.unit.log.test_faults import provider, write
from tests.unit.log.world import FILE_BYTES, Machine, append, expected, frames, payload_of, simulate


@pytest.fixture
def closes_that_fail(monkeypatch):
    """The paths of files whose close raises, once each."""
    failing: list[str] = []
    right = SimulatedFile.close

    def close(self):
        right(self)
        if self._path in failing:
            failing.remove(self._path)
            raise OSError(errno.EIO, "injected failure of close")

    monkeypatch.setattr(SimulatedFile, "close", close)
    return failing


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("which", ["current", "next", "directory"])
def test_log_opens_again_after_failed_close(closes_that_fail, which, broken):
    async def main():
        machine = Machine()
        logs = provider(machine)
        log = await logs.open(1)
        await write(log, [1], FILE_BYTES // 3)  # more than half full: the next file is made
        await asyncio.sleep(0.1)
        writer = log._writer
        paths = {"current": writer.file.file._path, "next": writer.next_file.file._path, "directory": "/log/1"}
        closes_that_fail.append(paths[which])
        if broken:
            machine.disk.faults.sync_error_in = 1
            with pytest.raises(Unavailable):
                await append(log, 2, b"x")
        await log.close()
        assert not closes_that_fail
        log = await logs.open(1)
        found = await frames(log)
        assert found[:1] == expected([1], FILE_BYTES // 3)
        await append(log, len(found) + 1, payload_of(4))
        await log.close()

    simulate(main)


def test_failed_close_releases_the_lock():
    async def main():
        machine = Machine()
        log = await provider(machine).open(1)
        await write(log, [1])

        def finish():
            raise RuntimeError("a bug")

        log._writer.finish = finish
        with pytest.raises(RuntimeError, match="a bug"):
            await log.close()
        log = await provider(machine).open(1)
        assert await frames(log) == expected([1])
        await log.close()

    simulate(main)
