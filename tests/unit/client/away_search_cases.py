"""The cases of `away_cases.py` for searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.unit.client.away_cases import CASES, case, wait

if TYPE_CHECKING:
    from tests.unit.client.away_cases import World

__all__ = ["CASES"]


@case("Searches.__call__", "Searches.info")
async def searches(world: World, method: str) -> Any:
    await wait(world.client.create_stream(world.stream))
    arguments = [world.stream, "word"] if method == "__call__" else [world.stream]
    return lambda: getattr(world.client.search, method)(*arguments)
