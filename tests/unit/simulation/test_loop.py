"""The loop of the simulation: timers, cancelled ones among them, and failing callbacks."""

from __future__ import annotations

import asyncio

from simulation.world import World, run_world


def test_timers_run_in_order_of_time_and_cancelled_ones_never() -> None:
    ran: list[int] = []

    async def main(world: World) -> None:
        loop = asyncio.get_running_loop()
        timers = [loop.call_at(1.0 + (number * 7919 % 5000) / 1000, ran.append, number) for number in range(5000)]
        soon = [loop.call_soon(ran.append, -number) for number in range(1, 4)]
        soon[1].cancel()
        for number, timer in enumerate(timers):
            if number % 10:
                timer.cancel()
                assert timer.cancelled()
        assert timers[10].when() == 1.0 + (10 * 7919 % 5000) / 1000
        await asyncio.sleep(0.5)
        assert ran == [-1, -3]
        # What was cancelled is dropped while time goes on.
        assert len(world.loop._timers) < 1500
        for late in timers[:2500:10]:
            late.cancel()
        await asyncio.sleep(10)

    outcome = run_world(1, main)
    assert outcome.error is None, outcome.error
    remaining = range(2500, 5000, 10)
    assert ran[2:] == sorted(remaining, key=lambda number: number * 7919 % 5000)


def test_failing_callback_is_reported_and_does_not_end_the_run() -> None:
    async def main(_: World) -> str:
        asyncio.get_running_loop().call_soon(int, "x")
        await asyncio.sleep(1)
        return "went on"

    outcome = run_world(1, main)
    assert "ValueError" in str(outcome.failures)
    assert outcome.virtual_seconds == 1.0


def test_tasks_left_over_are_cancelled_at_the_end() -> None:
    ended: list[str] = []

    async def stay() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append("after a second")

    async def main(world: World) -> None:
        world.machine("a").start().spawn(stay())
        await asyncio.sleep(1)

    assert run_world(1, main).error is None
    assert ended == ["after a second"]
