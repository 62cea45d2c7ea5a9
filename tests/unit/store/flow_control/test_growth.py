"""Segments that grew are found by comparing lengths."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from sarit.core.names import transaction_segment, transient_segment
from sarit.store.limits import GROWTH_SLACK_MS
from sarit.store.metering.growth import GrowthMonitor

NAME = "s/t/{}.#epoch.0"
NOW = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def wall_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


def segment(number: int, length: int, modified_ms: int = NOW, name: str = "", **more: Any) -> SimpleNamespace:
    fields = {"deleted": False, "is_table": False} | more
    return SimpleNamespace(
        id=number, name=name or NAME.format(number), length=length, modified_ms=modified_ms, **fields
    )


def monitored(*segments: SimpleNamespace) -> tuple[GrowthMonitor, dict[int, Any], Clock]:
    held = {one.id: one for one in segments}
    containers = [SimpleNamespace(number=0, state=SimpleNamespace(segments=held))]
    clock = Clock()
    return GrowthMonitor(SimpleNamespace(serving=lambda: containers), clock), held, clock  # type: ignore[arg-type]


def grown(monitor: GrowthMonitor) -> list[str]:
    return asyncio.run(monitor.grown())


def test_segments_that_grew_are_found_once() -> None:
    monitor, held, _ = monitored(segment(1, 10), segment(2, 0), segment(3, 5))
    assert grown(monitor) == [NAME.format(1), NAME.format(3)]
    assert grown(monitor) == []
    held[2].length = held[3].length = 7
    assert grown(monitor) == [NAME.format(2), NAME.format(3)]
    assert grown(monitor) == []


def test_a_segment_that_comes_into_memory_counts_if_it_was_changed_lately() -> None:
    monitor, held, clock = monitored()
    assert grown(monitor) == []
    clock.now += 10 * GROWTH_SLACK_MS
    held[1] = segment(1, 10, NOW - 2 * GROWTH_SLACK_MS)
    held[2] = segment(2, 10, NOW + 5)
    assert grown(monitor) == [NAME.format(2)]
    del held[2]
    assert grown(monitor) == []
    held[2] = segment(2, 10, NOW + 5)
    assert grown(monitor) == [], "it has left memory and come back, unchanged"


def test_what_grew_before_a_container_failed_is_found_when_it_serves_again() -> None:
    monitor, held, clock = monitored(segment(1, 10), segment(2, 10))
    assert len(grown(monitor)) == 2
    served = list(monitor._store.serving())
    for _ in range(3):
        monitor._store.serving = list  # type: ignore[method-assign,assignment]
        clock.now += 10 * GROWTH_SLACK_MS
        assert grown(monitor) == []
    held[1].length += 1
    monitor._store.serving = lambda: served  # type: ignore[method-assign]
    assert grown(monitor) == [NAME.format(1)]


def test_tables_deleted_segments_and_those_merged_later_are_left_out() -> None:
    monitor, held, _ = monitored(
        segment(1, 10, is_table=True),
        segment(2, 10, deleted=True),
        segment(3, 10, name=transaction_segment(NAME.format(0), 1)),
        segment(4, 10, name=transient_segment(NAME.format(0), b"w" * 16, b"n" * 16)),
    )
    assert grown(monitor) == []
    for one in held.values():
        one.length += 1
    assert grown(monitor) == []


def test_others_run_in_between() -> None:
    monitor, _, _ = monitored(*(segment(number, 1) for number in range(3000)))

    async def main() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        assert len(await monitor.grown()) == 3000
        counting.cancel()
        return turns

    assert asyncio.run(main()) >= 5
