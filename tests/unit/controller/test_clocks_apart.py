"""Controllers whose wall clocks are a minute apart: leases of transactions last as long as with one clock."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sarit.controller.model.records import TxnState
from tests.unit.controller.fakes import ManualClock
from tests.unit.controller.test_crashes import with_transaction
from tests.unit.controller.world import STREAM, World, quiet, run

MINUTE_MS = 60_000
LEASE_MS = 10_000


class ApartClock(ManualClock):
    """The monotonic clock of `other`, and a wall clock that is `apart_ms` from its."""

    def __init__(self, other: ManualClock, apart_ms: int) -> None:
        self._other, self._apart_ms = other, apart_ms

    def monotonic(self) -> float:
        return self._other.monotonic()

    def wall_ms(self) -> int:
        return self._other.wall_ms() + self._apart_ms


async def controller_apart(world, apart_ms):
    """A controller on a machine with such a clock."""
    env, world.env = world.env, replace(world.env, clock=ApartClock(world.env.clock, apart_ms))
    try:
        return await world.controller()
    finally:
        world.env = env


async def sweep(controllers):
    for controller in controllers:
        await controller.recovery_sweeper.sweep()
        await quiet(controller)


async def states(world, controllers):
    return {await controller.transactions.state(STREAM, world.txns[0]) for controller in controllers}


@pytest.mark.parametrize("order", list(itertools.permutations((0, MINUTE_MS, -MINUTE_MS))))
def test_lease_is_measured_by_no_wall_clock(order):
    async def main():
        world = World()
        controllers = [await controller_apart(world, apart) for apart in order]
        await sweep(controllers)
        await with_transaction(controllers[0], world, LEASE_MS)
        for number in range(12):
            await sweep(controllers)
            world.pass_time(LEASE_MS / 1000 - 1)
            await sweep(controllers)
            renewed = await controllers[number % 3].transactions.ping(STREAM, world.txns[0], LEASE_MS)
            assert renewed is TxnState.OPEN, number
        # Nobody renews it any more.
        await sweep(controllers)
        for seconds, state in ((LEASE_MS / 1000 - 1, TxnState.OPEN), (2, TxnState.ABORTED)):
            world.pass_time(seconds)
            await sweep(controllers)
            assert await states(world, controllers) == {state}
        world.check()

    run(main())


@pytest.mark.parametrize("apart_ms", [MINUTE_MS, -MINUTE_MS])
def test_controller_that_starts_with_another_clock_leaves_the_writer_time_to_renew(apart_ms):
    async def main():
        world = World()
        first = await controller_apart(world, 0)
        await sweep([first])
        await with_transaction(first, world, LEASE_MS)
        controllers = [first]
        for number in range(4):
            controllers.append(await controller_apart(world, apart_ms))
            await sweep(controllers)
            world.pass_time(LEASE_MS / 1000 - 1)
            await sweep(controllers)
            renewed = await first.transactions.ping(STREAM, world.txns[0], LEASE_MS)
            assert renewed is TxnState.OPEN, number
        await controllers[-1].transactions.commit(STREAM, world.txns[0], "", -1)
        await sweep(controllers)
        assert await states(world, controllers) == {TxnState.COMMITTED}
        world.check()

    run(main())
