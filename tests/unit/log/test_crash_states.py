"""Every state a power cut can leave, enumerated: what recovery finds is compared with what was acknowledged.

A workload (appends in groups, files rolled, truncated and recycled, opened again) runs on the
simulated disk.  Before every change of the disk the power "goes": each legal subset of what was not
synced yet (all of them where they are few; else each prefix, each one alone, all but each one, and random
ones) gives a disk, on which a new owner opens and replays.  What it must find:

- every frame that was acknowledged, and then nothing but the frames submitted after it, in order;
- never Corrupt: nothing in this fault model is rot;
- the same again when it is opened once more.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from sarit.log.local import LocalLogProvider, open_files
from sarit.log.reading import LogFile, replay
from tests.unit.log.world import FILE_BYTES, Machine, append, payload_of, simulate, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.disk import SimulatedDisk

DIRECTORY = "/log/1"
READ_BYTES = 3 * 4096
MAX_EXHAUSTIVE = 5
RANDOM_SUBSETS = 12


def subsets(count: int, rng: random.Random) -> Iterator[Callable[[int], bool]]:
    if count <= MAX_EXHAUSTIVE:
        for mask in range(1 << count):
            yield lambda index, mask=mask: bool(mask >> index & 1)  # type: ignore[misc]
        return
    for size in range(count + 1):
        yield lambda index, size=size: index < size  # type: ignore[misc]
        yield lambda index, size=size: index >= size  # type: ignore[misc]
    for one in range(count):
        yield lambda index, one=one: index == one  # type: ignore[misc]
        yield lambda index, one=one: index != one  # type: ignore[misc]
    for _ in range(RANDOM_SUBSETS):
        mask = rng.getrandbits(count)
        yield lambda index, mask=mask: bool(mask >> index & 1)  # type: ignore[misc]


def recovered(disk: SimulatedDisk, after: int) -> tuple[int, list[tuple[int, bytes]]]:
    """Open in a new epoch, as a process that starts does; its end and the frames it replays."""
    machine = Machine()
    machine.disk = disk
    opened = open_files(machine.env(), DIRECTORY, 1, FILE_BYTES)
    current = LogFile(opened.file.path, opened.file.header, opened.file.position, opened.file.first, opened.end)
    windows = replay(disk, [*opened.logs, current], after, opened.end, READ_BYTES)
    frames = [(frame.number, bytes(frame.payload)) for window in windows for frame in window]
    disk.kill()
    return opened.end, frames


class Enumerator:
    """Judges every disk that a power cut could leave from now on."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine = machine
        self.rng = random.Random(seed)
        self.states = 0
        self.acked = 0
        self.submitted = 0
        self.truncated = 0
        self.sizes: dict[int, int] = {}
        self.seen_torn = 0
        self.seen_whole = 0
        machine.disk.on_change = self.on_change

    def on_change(self, what: str) -> None:
        disk = self.machine.disk
        for kept in subsets(len(disk.pending()), self.rng):
            self.judge(disk.image(kept), what)

    def judge(self, image: SimulatedDisk, what: str) -> None:
        self.states += 1
        end, frames = recovered(image, self.truncated)
        assert self.acked <= end <= self.submitted, f"before {what}: {end} not in {self.acked}..{self.submitted}"
        assert frames == [(n, payload_of(n, self.sizes[n])) for n in range(self.truncated + 1, end + 1)]
        self.seen_torn += end < self.submitted
        self.seen_whole += end > self.acked
        if self.states % 7 == 0:
            assert recovered(image, self.truncated) == (end, frames), "opened once more"

    def submit(self, number: int, size: int) -> bytes:
        self.submitted = number
        self.sizes[number] = size
        return payload_of(number, size)

    def truncate(self, below: int) -> None:
        self.truncated = max(self.truncated, below - 1)


async def workload(machine: Machine, judge: Enumerator, rng: random.Random) -> None:
    number = 0
    for life in range(3):
        provider = LocalLogProvider(machine.env(), "/log", FILE_BYTES)
        log = await provider.open(1)
        for turn in range(9):
            flying = []
            for _ in range(rng.choice((1, 1, 2, 4))):
                number += 1
                payload = judge.submit(number, rng.choice((5, 300, 4048, 5000)))
                flying.append(start(log, number, payload))
            for future in flying:
                await future
            judge.acked = number
            if turn == 5:
                judge.truncate(number - 2)
                log.truncate(number - 2)
                if life == 1:
                    break
        if life == 1:  # killed while files are retired: their names may not be durable yet
            await asyncio.sleep(rng.random() * 0.002)
            machine.kill()
        else:
            await log.close()


@pytest.mark.parametrize("seed", range(4))
def test_every_crash_state_recovers_what_was_acknowledged(seed: int) -> None:
    machine = Machine(seed)
    machine.disk.make_dirs(DIRECTORY)
    judge = Enumerator(machine, seed)
    simulate(lambda: workload(machine, judge, random.Random(seed)))
    print(f"{judge.states} states, {judge.seen_torn} with a torn tail, {judge.seen_whole} with more than acknowledged")
    assert judge.states >= 3_000
    assert judge.seen_torn > 300
    assert judge.seen_whole > 300


def test_a_retired_file_whose_name_is_not_durable_yet_is_not_written_over() -> None:
    """Killed after the rename to `.spare`, before the sync of the directory; the next owner takes the spare."""
    machine = Machine()

    async def history() -> None:
        log = await LocalLogProvider(machine.env(), "/log", FILE_BYTES).open(1)
        for number in range(1, 9):
            await append(log, number, payload_of(number, 5000))
        await log.close()

    simulate(history)
    for spare in [name for name in machine.disk.list(DIRECTORY) if name.endswith(".spare")]:
        machine.disk.remove(f"{DIRECTORY}/{spare}")
    machine.disk.sync_dir(DIRECTORY)
    first = machine.disk.list(DIRECTORY)[0]
    machine.disk.rename(f"{DIRECTORY}/{first}", f"{DIRECTORY}/{first.replace('.log', '.spare')}")
    machine.kill()
    judge = Enumerator(machine, 0)
    judge.acked = judge.submitted = 8
    judge.truncated = 4
    judge.sizes = dict.fromkeys(range(1, 9), 5000)
    open_files(machine.env(), DIRECTORY, 1, FILE_BYTES)
    assert judge.states > 20


@pytest.mark.parametrize("seed", range(25))
def test_crash_after_crash(seed: int) -> None:
    """Power cuts and kills at random moments, one after the other, on one disk: also while it recovers."""
    machine = Machine(seed)
    acked: dict[int, bytes] = {}
    checkpoint = 0

    async def process() -> None:
        nonlocal checkpoint
        log = await LocalLogProvider(machine.env(), "/log", FILE_BYTES).open(1)
        found = [(frame.number, bytes(frame.payload)) async for frame in log.replay(checkpoint)]
        assert [number for number, _ in found] == list(range(checkpoint + 1, checkpoint + 1 + len(found)))
        for number, payload in acked.items():
            if number > checkpoint:
                assert found[number - checkpoint - 1] == (number, payload), f"acknowledged frame {number}"
        acked.update(found)  # what an owner has read, a later one must read too
        number = checkpoint + len(found)
        while True:
            number += 1
            payload = machine.rng.randbytes(machine.rng.choice((10, 1000, 4000, 9000)))
            await append(log, number, payload)
            acked[number] = payload
            if machine.rng.random() < 0.1:
                checkpoint = machine.rng.randint(checkpoint, number)
                log.truncate(checkpoint + 1)

    async def life() -> None:
        for _ in range(12):
            task = asyncio.ensure_future(process())
            await asyncio.wait([task], timeout=machine.rng.random() * machine.rng.choice((0.005, 0.05, 0.2)))
            if machine.rng.random() < 0.4:
                machine.kill()
            else:
                machine.crash()
            if task.done():
                task.result()
            task.cancel()

    simulate(life, seed)
    assert acked
