"""How many calls a copier makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.mirror.memory_sides import LossyCalls
from tests.unit.mirror.test_copier import Scene, run

if TYPE_CHECKING:
    from simulation.world import World


def test_a_thousand_small_streams_share_calls() -> None:
    async def main(world: World) -> None:
        scene = Scene(world)
        calls = LossyCalls(scene.source), LossyCalls(scene.target)
        scene.calls = calls
        streams = [scene.source.create(f"scope/s{n:04}") for n in range(1000)]
        async with scene.copying():
            await scene.until(scene.is_copied)
            for side in calls:
                side.calls.clear()
            for stream in streams:
                stream.append(0, b"abc")
            await scene.until(scene.is_copied)
        assert calls[1].calls["write"] <= 4
        assert calls[0].calls["offers"] <= 4
        assert "finish" not in calls[1].calls

    run(main)
