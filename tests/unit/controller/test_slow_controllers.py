"""A controller that is slow between two of its writes, and another one that takes its index entry for stale."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from sarit.controller import keys
from sarit.core.policies import StreamConfig
from tests.unit.controller.fakes import Crash, Faults
from tests.unit.controller.test_crashes import BY_SIZE, OPERATIONS, prepared
from tests.unit.controller.world import STREAM, World, run


@pytest.mark.parametrize(
    ("what", "entry"),
    [
        ("scale", keys.pending_stream_key(STREAM)),
        ("seal", keys.pending_stream_key(STREAM)),
        ("update group", keys.pending_group_key("s", "g")),
        ("delete group", keys.pending_group_key("s", "g")),
        ("delete table", keys.pending_table_key("s", "k")),
    ],
)
def test_work_stored_after_its_entry_was_swept_is_completed(what, entry):
    """A controller that is slow between entry and record, then dies: another one had removed the entry as stale."""

    async def main():
        world, controller = await prepared(OPERATIONS[what])
        other = await world.controller(Faults())
        entered = f"tables.update {keys.WORK_TABLE} {entry!r}"
        swept: list[int] = []

        async def sweep_between(number):
            if not swept and faults.calls and faults.calls[-1] == entered:
                swept.append(number)
                await world.sweep(other)

        def die(number, _):
            if swept:
                raise Crash

        faults = Faults(gate=sweep_between, after=die)
        world.arm(faults)
        with suppress(Crash):
            await OPERATIONS[what].act(controller, world)
        assert swept
        await asyncio.sleep(0)
        world.arm(Faults())
        await world.sweep(other)
        assert await other.catalog.pending_work() == []
        assert world.half_done() == []
        world.check(orphans=True)

    run(main())


def test_slow_creation_with_a_retention_policy_stays_maintained():
    """Maintenance removed the entry of a stream that did not exist yet, and nobody entered it again."""

    async def main():
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        other = await world.controller(Faults())
        between: list[int] = []

        async def maintain_between(number):
            if not between and faults.calls and faults.calls[-1].startswith(f"tables.update {keys.MAINTENANCE_TABLE}"):
                between.append(number)
                for _ in range(2):
                    await other.maintenance.run_retention_round()
                    world.pass_time(60)
                assert await other.catalog.maintained_streams(keys.RETENTION_INDEX) == []

        faults = Faults(gate=maintain_between)
        world.arm(faults)
        await c.streams.create(STREAM, StreamConfig(retention=BY_SIZE))
        assert between
        assert [name for name, _ in await other.catalog.maintained_streams(keys.RETENTION_INDEX)] == [STREAM]

    run(main())


def test_fresh_entry_is_not_swept_because_an_older_one_was_seen():
    """A stream that is changed again and again has an entry at each sweep, and each is another one."""

    async def main():
        world, c = await prepared(OPERATIONS["seal"])
        entry = keys.pending_stream_key(STREAM)
        for _ in range(10):
            version = await c.catalog.index_pending(entry)
            world.pass_time(1)
            await c.recovery_sweeper.sweep()
            assert await c.catalog.pending_work() == [(entry, version)]

    run(main())
