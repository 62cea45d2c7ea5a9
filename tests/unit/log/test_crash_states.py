"""Every state a power cut can leave, enumerated (`simulation/crashes`): recovery finds what was acknowledged.

More of the same, also on whole containers: `tests/test_crash_states.py` and `python -m simulation crashes`.
"""

from __future__ import annotations

import asyncio

import pytest

from sarit.log.local import LocalLogProvider, open_files
from simulation.crashes.durable_log import DIRECTORY, LogJudge, crash_log
from tests.unit.log.world import FILE_BYTES, Machine, append, payload_of, simulate

PER_STEP = 12  # `make prove`: all


@pytest.mark.parametrize(("seed", "least"), [(0, 500), (2, 80)], ids=["short", "growing"])
def test_every_crash_state_recovers_acknowledged_frames(seed: int, least: int) -> None:
    states = crash_log(seed, PER_STEP)
    print(states)
    assert states.count >= 3 * least
    assert states.torn > least
    assert states.ahead > least


def test_recycled_file_is_not_overwritten_before_its_name_is_durable() -> None:
    """Killed after the rename to `.spare`, before the sync of the directory; the next owner reuses the file."""
    machine = Machine()

    async def history() -> None:
        log = await LocalLogProvider(machine.env(), "/log", FILE_BYTES).open(1)
        for number in range(1, 9):
            await append(log, number, payload_of(number, 5000))
        await log.close()

    simulate(history)
    for recycled in [name for name in machine.disk.list(DIRECTORY) if name.endswith(".spare")]:
        machine.disk.remove(f"{DIRECTORY}/{recycled}")
    machine.disk.sync_dir(DIRECTORY)
    first = machine.disk.list(DIRECTORY)[0]
    machine.disk.rename(f"{DIRECTORY}/{first}", f"{DIRECTORY}/{first.replace('.log', '.spare')}")
    machine.kill()
    judge = LogJudge(machine, 0)
    judge.acked = judge.submitted = 8
    judge.truncated = 4
    judge.sizes = dict.fromkeys(range(1, 9), 5000)
    open_files(machine.env(), DIRECTORY, 1, FILE_BYTES)
    assert judge.states.count > 20


@pytest.mark.parametrize("seed", range(10))
def test_second_crash_during_recovery_loses_nothing(seed: int) -> None:
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

    async def scenario() -> None:
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

    simulate(scenario, seed)
    assert acked
