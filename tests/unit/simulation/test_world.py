"""The world is deterministic, and has the faults of its model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simulation.world import World, run_world
from tests.unit.simulation import toy

ROOT = Path(__file__).resolve().parents[3]


def digest_in_another_process(seed: int, hash_seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.simulation.toy", str(seed)],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(hash_seed)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()[0]


def test_seed_gives_same_run_in_any_process() -> None:
    here = run_world(7, toy.run, permuted=0.3)
    assert here.error is None, here.error
    assert here.digest == digest_in_another_process(7, 1) == digest_in_another_process(7, 2)


def test_different_seeds_give_different_runs() -> None:
    assert run_world(1, toy.run).digest != run_world(2, toy.run).digest


@pytest.mark.parametrize("seed", range(8))
def test_toy_server_retains_what_it_acknowledged(seed: int) -> None:
    outcome = run_world(seed, toy.run, permuted=0.5 * (seed % 2))
    assert outcome.error is None, outcome.error
    assert 0 < outcome.value["acked"] <= outcome.value["stored"]


class Counter(asyncio.BufferedProtocol):
    """Counts bytes and calls."""

    def __init__(self) -> None:
        self.received = 0
        self.paused: list[bool] = []
        self.lost: list[BaseException | None] = []
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(bytearray(1000))

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)


async def pair(world: World) -> tuple[Counter, Counter]:
    server, client = world.machine("10.0.0.1").start(), world.machine("10.0.0.2").start()
    made: list[Counter] = []

    def make() -> Counter:
        made.append(Counter())
        return made[-1]

    await server.spawn(server.env.network.serve(make, "10.0.0.1", 5))
    _, protocol = await client.spawn(client.env.network.connect(Counter, "10.0.0.1", 5))
    return made[0], protocol


def simulated(main: Any) -> None:
    outcome = run_world(1, main)
    if outcome.error is not None:
        raise outcome.error


def test_peer_that_does_not_read_pauses_writer() -> None:
    async def main(world: World) -> None:
        server, client = await pair(world)
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=10_000)
        for _ in range(30):
            client.transport.write(bytes(1000))
        await asyncio.sleep(1)
        assert client.paused == [True]
        assert server.received == 0
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert client.paused == [True, False]
        assert server.received == 30_000
        assert client.transport.get_write_buffer_size() == 0

    simulated(main)


def test_reading_can_pause_between_two_buffers() -> None:
    async def main(world: World) -> None:
        server, client = await pair(world)
        updated = server.buffer_updated
        server.buffer_updated = lambda n: (updated(n), server.transport.pause_reading())  # type: ignore[method-assign]
        client.transport.write(bytes(2500))
        for expected in (1000, 2000, 2500):
            await asyncio.sleep(0.1)
            assert server.received == expected
            server.transport.resume_reading()

    simulated(main)


def test_cut_delays_bytes_in_one_direction_only() -> None:
    async def main(world: World) -> None:
        server, client = await pair(world)
        world.net.cut("10.0.0.2", "10.0.0.1")
        client.transport.write(b"held")
        server.transport.write(b"passes")
        await asyncio.sleep(1)
        assert (server.received, client.received) == (0, 6)
        world.net.mend_all()
        await asyncio.sleep(1)
        assert server.received == 4

    simulated(main)


def test_reset_reaches_both_peers_and_power_cut_is_noticed_late() -> None:
    async def main(world: World) -> None:
        server, client = await pair(world)
        assert world.net.reset_one()
        await asyncio.sleep(0.01)
        assert [len(side.lost) for side in (server, client)] == [1, 1]
        assert not world.net.reset_one()

    async def dark(world: World) -> None:
        server, client = await pair(world)
        world.machine("10.0.0.1").power_off(peers_learn_after=5.0)
        await asyncio.sleep(4)
        assert not client.lost
        await asyncio.sleep(2)
        assert isinstance(client.lost[0], ConnectionResetError)
        assert not server.lost, "a dead process is not notified"

    simulated(main)
    simulated(dark)


def test_dead_process_has_no_more_effects() -> None:
    async def main(world: World) -> None:
        machine = world.machine("10.0.0.1")
        process = machine.start()
        deaths: list[str] = []
        process.on_death(lambda: deaths.append("port"))
        process.env.files.make_dirs("/d")
        file = process.env.files.open("/d/a", "create")
        worker = process.env.threads.worker("w")

        async def work() -> None:
            try:
                while True:
                    await worker.run(lambda: file.pwrite([b"x"], file.size()))
            finally:
                deaths.append("task")

        process.spawn(work())
        await asyncio.sleep(0.1)
        machine.kill()
        size = len(machine.disk.content("/d/a"))
        assert size > 10
        await asyncio.sleep(1)
        assert len(machine.disk.content("/d/a")) == size
        assert deaths == ["port", "task"]

    simulated(main)


def test_libraries_see_virtual_time() -> None:
    async def main(world: World) -> None:
        import time

        before = time.monotonic()
        await asyncio.sleep(1000)
        assert time.monotonic() - before == pytest.approx(1000)

    simulated(main)
