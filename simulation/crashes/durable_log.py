"""Crash states of the durable log: group commits, files rolled, truncated and recycled, opened again.

Before every change of the disk the power "fails".  On each disk image that this can leave, a new owner opens the log
and replays it.  It must find every acknowledged frame, then only frames submitted after those, in order.  It must not
raise Corrupt, as this fault model has no bit rot, and find the same when it opens the log again.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from sarit.log.file_reader import replay
from sarit.log.local import LocalLogProvider, open_files
from sarit.log.records import LogFile
from simulation.crashes.machine import Machine, simulate
from simulation.crashes.states import States, subsets

if TYPE_CHECKING:
    from sarit.log.port import DurableLog
    from simulation.disk import SimulatedDisk

DIRECTORY: Final = "/log/1"
FILE_BYTES: Final = 4 * 4096
# Files of that length are preceded by shorter ones.
LONG_FILE_BYTES: Final = 16 * 4096
_READ_BYTES: Final = 3 * 4096
_TURNS: Final = 9


def payload_of(number: int, size: int = 20) -> bytes:
    """Bytes that identify their frame."""
    return random.Random(number).randbytes(size)


def start(log: DurableLog, number: int, payload: bytes) -> asyncio.Future[None]:
    """Append; the future ends as `done` says."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: BaseException | None) -> None:
        assert not future.done(), f"frame {number} was reported twice"
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    log.append(number, [payload], done)
    future.add_done_callback(lambda f: f.cancelled() or f.exception())
    return future


def recovered(disk: SimulatedDisk, after: int, file_bytes: int) -> tuple[int, list[tuple[int, bytes]]]:
    """Open in a new epoch, as a process that starts; return its end and the frames it replays."""
    machine = Machine()
    machine.disk = disk
    opened = open_files(machine.env(), DIRECTORY, 1, file_bytes)
    current = LogFile(opened.file.path, opened.file.header, opened.file.position, opened.file.first, opened.end)
    windows = replay(disk, [*opened.logs, current], after, opened.end, _READ_BYTES)
    frames = [(frame.number, bytes(frame.payload)) for window in windows for frame in window]
    disk.kill()
    return opened.end, frames


class LogJudge:
    """Checks every disk image that a power cut could leave at each step."""

    def __init__(self, machine: Machine, seed: int, file_bytes: int = FILE_BYTES, most_per_step: int = 1000) -> None:
        self.machine = machine
        self.file_bytes = file_bytes
        self.most_per_step = most_per_step
        self.rng = random.Random(seed)
        self.states = States()
        self.acked = 0
        self.submitted = 0
        self.truncated = 0
        self.sizes: dict[int, int] = {}
        machine.disk.listeners.append(self.on_change)

    def __repr__(self) -> str:
        return f"<LogJudge {self.acked} of {self.submitted} acknowledged, {self.states}>"

    def on_change(self, what: str) -> None:
        """Called before the disk changes."""
        disk = self.machine.disk
        self.states.steps[what] += 1
        found = list(subsets(len(disk.pending()), self.rng))
        for subset in found if len(found) <= self.most_per_step else self.rng.sample(found, self.most_per_step):
            self.judge(disk.image(subset), what)

    def judge(self, image: SimulatedDisk, what: str) -> None:
        """Check one disk.  Raises AssertionError."""
        self.states.count += 1
        end, frames = recovered(image, self.truncated, self.file_bytes)
        assert self.acked <= end <= self.submitted, f"before {what}: {end} not in {self.acked}..{self.submitted}"
        assert frames == [(n, payload_of(n, self.sizes[n])) for n in range(self.truncated + 1, end + 1)], what
        self.states.torn += end < self.submitted
        self.states.ahead += end > self.acked
        if self.states.count % 7 == 0:
            self.states.twice += 1
            assert recovered(image, self.truncated, self.file_bytes) == (end, frames), "recovered twice"

    def submit(self, number: int, size: int) -> bytes:
        """Record a frame that is submitted to the log."""
        self.submitted = number
        self.sizes[number] = size
        return payload_of(number, size)

    def truncate(self, below: int) -> None:
        """Frames below a number may be gone."""
        self.truncated = max(self.truncated, below - 1)


async def _workload(machine: Machine, judge: LogJudge, rng: random.Random) -> None:
    number = 0
    for life in range(3):
        provider = LocalLogProvider(machine.env(), "/log", judge.file_bytes)
        log = await provider.open(1)
        for turn in range(_TURNS):
            in_flight = []
            for _ in range(rng.choice((1, 1, 2, 4))):
                number += 1
                in_flight.append(start(log, number, judge.submit(number, rng.choice((5, 300, 4048, 5000)))))
            for future in in_flight:
                await future
            judge.acked = number
            if turn == 5:
                judge.truncate(number - 2)
                log.truncate(number - 2)
                if life == 1:
                    break
        if life == 1:  # killed while files are retired: the renames may not be durable yet
            await asyncio.sleep(rng.random() * 0.002)
            machine.kill()
        else:
            await log.close()


def crash_log(seed: int, most_per_step: int = 1000) -> States:
    """Recover the crash states of one workload, with files that grow at every third seed.  Raises AssertionError."""
    machine = Machine(seed)
    machine.disk.make_dirs(DIRECTORY)
    judge = LogJudge(machine, seed, LONG_FILE_BYTES if seed % 3 == 2 else FILE_BYTES, most_per_step)
    simulate(lambda: _workload(machine, judge, random.Random(seed)))
    return judge.states
