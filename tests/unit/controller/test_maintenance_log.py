"""What background work logs while it fails again and again."""

from __future__ import annotations

import asyncio
import logging

from sarit.core.errors import Corrupt
from sarit.core.limits import REPEATED_LOG_SECONDS
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScalingPolicy, StreamConfig
from tests.unit.controller.world import World


def test_lasting_failure_is_logged_once_a_minute(caplog) -> None:
    """It was logged twice a second, for each stream."""

    async def main() -> None:
        world = World()
        c = await world.controller()
        await c.scopes.create("s")
        retention = RetentionPolicy(RetentionType.TIME, 100_000, 0)
        for number in range(3):
            config = StreamConfig(ScalingPolicy(min_segments=1), retention=retention)
            await c.streams.create(StreamName("s", f"t{number}"), config)

        async def failing(*arguments):
            raise Corrupt("container 0 failed: its log is damaged")

        c.retention.apply = failing
        caplog.set_level(logging.INFO)
        caplog.clear()
        rounds = 20
        for _ in range(rounds):
            await c.maintenance.run_retention_round()
            world.pass_time(REPEATED_LOG_SECONDS / rounds)
        lines = [record.message for record in caplog.records if "is postponed" in record.message]
        assert len(lines) == 1, lines
        await c.maintenance.run_retention_round()
        lines = [record.message for record in caplog.records if "is postponed" in record.message]
        assert len(lines) == 2
        assert f"{3 * rounds - 1} times more in the last 60 s" in lines[1]

    asyncio.run(main())
