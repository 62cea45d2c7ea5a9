"""What a fleet adds to the world: machines that stand still and go on, and services that go on without them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sarit.coordination.memory import MemoryCoordination
from sarit.coordination.port import MemberState
from sarit.core.errors import Fenced
from sarit.log.port import LogHistory
from simulation.options import draw, draw_fleet
from simulation.shared_parts import ProcessLogs, SharedLogs
from simulation.world import World, run_world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from simulation.shared_parts import ProcessLog

HOST = "10.0.0.1"


def run(main: Callable[[World], Awaitable[Any]]) -> Any:
    outcome = run_world(1, main)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


async def on_host(world: World, work: Any) -> Any:
    return await world.machine(HOST).process.spawn(work)


def test_frozen_host_runs_nothing_and_goes_on_with_all_that_is_due() -> None:
    async def main(world: World) -> None:
        seen: list[tuple[str, float]] = []

        async def ticks() -> None:
            for number in range(4):
                await asyncio.sleep(1.0)
                seen.append((f"tick {number}", world.now))

        process = world.machine(HOST).start()
        working = process.spawn(ticks())
        process.spawn(asyncio.sleep(0))
        await asyncio.sleep(1.5)
        world.loop.freeze(HOST)
        assert world.loop.is_frozen(HOST)
        await asyncio.sleep(5.0)  # others go on
        assert seen == [("tick 0", 1.0)]
        world.loop.thaw(HOST)
        assert not world.loop.is_frozen(HOST)
        await working
        # The timer that was due rings at once, the next ones a second later each.
        assert seen == [("tick 0", 1.0), ("tick 1", 6.5), ("tick 2", 7.5), ("tick 3", 8.5)]

    run(main)


def test_bytes_for_a_frozen_host_wait() -> None:
    async def main(world: World) -> None:
        received: list[float] = []

        class Receiver(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                received.append(world.now)

        async def listen() -> None:
            await asyncio.get_running_loop().create_server(Receiver, HOST, 1)

        world.machine(HOST).start()
        await on_host(world, listen())
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, HOST, 1)
        world.loop.freeze(HOST)
        transport.write(b"x")
        await asyncio.sleep(3.0)
        assert received == []
        world.loop.thaw(HOST)
        await asyncio.sleep(0.1)
        assert len(received) == 1
        assert received[0] >= 3.0

    run(main)


def test_lease_of_a_frozen_member_ends_and_it_learns_that_when_it_goes_on() -> None:
    async def main(world: World) -> None:
        service = MemoryCoordination(lease_seconds=2.0)
        states: list[tuple[MemberState, float]] = []
        process = world.machine(HOST).start()
        client = service.client("a", process.env.clock)

        async def join() -> None:
            await client.members("stores").join("a", b"", lambda state: states.append((state, world.now)))

        await on_host(world, join())
        await asyncio.sleep(5.0)
        assert list(service.members("stores")) == ["a"]
        world.loop.freeze(HOST)
        await asyncio.sleep(3.0)
        assert list(service.members("stores")) == []
        assert states == []
        world.loop.thaw(HOST)
        await asyncio.sleep(1.0)
        assert [state for state, _ in states] == [MemberState.LOST]

    run(main)


async def open_log(process: ProcessLogs) -> ProcessLog:
    return await (await process.claim(0)).open(LogHistory(None, 0, -1))


@pytest.mark.parametrize("claimed", [False, True])
def test_frames_of_a_frozen_process_arrive_and_are_acknowledged_when_it_goes_on(claimed: bool) -> None:
    async def main(world: World) -> None:
        logs = SharedLogs(lambda: 0.1, lambda: False)
        process = world.machine(HOST).start()
        done: list[tuple[Exception | None, float]] = []
        log = await on_host(world, open_log(ProcessLogs(logs)))

        async def append(number: int) -> None:
            log.append(number, [b"x"], lambda error: done.append((error, world.now)))

        await on_host(world, append(1))
        world.loop.freeze(HOST)
        await asyncio.sleep(1.0)
        assert list(logs.of(0).stored.frames) == [1]
        assert done == []
        if claimed:
            await ProcessLogs(logs).claim(0)
        world.loop.thaw(HOST)
        await on_host(world, append(2))
        await asyncio.sleep(1.0)
        assert [type(error) for error, _ in done] == [type(None), Fenced if claimed else type(None)]
        assert list(logs.of(0).stored.frames) == ([1] if claimed else [1, 2])
        assert process is world.machine(HOST).process

    run(main)


def test_power_cut_loses_what_had_not_left_the_machine() -> None:
    async def main(world: World) -> None:
        logs = SharedLogs(lambda: 0.1, lambda: False)
        process = ProcessLogs(logs)
        log = await open_log(process)
        log.append(1, [b"x"], lambda error: None)
        await asyncio.sleep(0.05)
        log.append(2, [b"x"], lambda error: None)
        process.lost_from = world.now + 0.07
        process.die()
        await asyncio.sleep(1.0)
        assert list(logs.of(0).stored.frames) == [1]

    run(main)


def test_several_stores_have_no_mirror() -> None:
    assert draw(6).mirrored
    assert not draw_fleet(6, 3).mirrored
