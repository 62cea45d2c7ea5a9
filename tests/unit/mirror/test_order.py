"""The order and the speed of a link: windows of the day, groups for one call, and the gate that all bytes pass."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.names import StreamName
from sarit.mirror.gate import Gate
from sarit.mirror.limits import MAX_DIRECT_BYTES, MIN_MIRROR_PIECE_BYTES, MIRROR_BATCH_BYTES, MIRROR_IN_FLIGHT_BYTES
from sarit.mirror.order import LinkRate, Turn, closed_seconds, grouped
from sarit.mirror.tracks import Tracks
from simulation.world import run_world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from simulation.world import World

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("window", "hour", "seconds"),
    [
        (None, 3, 0),
        ((60, 120), 1, 0),
        ((60, 120), 1.5, 0),
        ((60, 120), 2, 23 * 3600),
        ((60, 120), 0.5, 1800),
        ((22 * 60, 6 * 60), 23, 0),
        ((22 * 60, 6 * 60), 5, 0),
        ((22 * 60, 6 * 60), 6, 16 * 3600),
    ],
)
def test_windows_of_the_day(window: tuple[int, int] | None, hour: float, seconds: float) -> None:
    for day in (0, 20_000):
        assert closed_seconds(window, int((24 * day + hour) * HOUR_MS)) == pytest.approx(seconds)


@given(st.lists(st.integers(0, 20)), st.integers(1, 30), st.integers(1, 5))
def test_groups_have_all_items_in_order_and_are_as_large_as_they_may_be(
    lengths: list[int], most_bytes: int, most_items: int
) -> None:
    groups = grouped(lengths, most_bytes, most_items)
    assert [at for group in groups for at in group] == list(range(len(lengths)))
    sizes = [sum(lengths[at] for at in group) for group in groups]
    assert all(len(group) == 1 or size <= most_bytes for group, size in zip(groups, sizes, strict=True))
    assert all(len(group) <= most_items for group in groups)
    for group, size, following in zip(groups, sizes, groups[1:], strict=False):
        assert len(group) == most_items or size + lengths[following[0]] > most_bytes


def test_slow_links_have_small_pieces_and_short_rounds() -> None:
    fast, slow, slowest = LinkRate(0, 0.0), LinkRate(100_000, 0.0), LinkRate(8192, 0.0)
    assert (fast.piece_bytes, fast.in_flight_bytes, fast.direct_bytes) == (
        MIRROR_BATCH_BYTES, MIRROR_IN_FLIGHT_BYTES, MAX_DIRECT_BYTES,
    )  # fmt: skip
    assert slow.piece_bytes == slow.direct_bytes == 12_500
    assert slow.round_bytes == 200_000
    assert slowest.piece_bytes == slowest.in_flight_bytes == MIN_MIRROR_PIECE_BYTES


def run(main: Callable[[World], Awaitable[None]]) -> None:
    outcome = run_world(1, main)
    if outcome.error is not None:
        raise outcome.error


def test_the_gate_bounds_memory_and_admits_the_first_turn_first() -> None:
    async def main(world: World) -> None:
        gate = Gate(LinkRate(0, 0.0), world.machine("edge").clock)
        inside, most, order = 0, 0, list[int]()

        async def carry(level: int) -> None:
            nonlocal inside, most
            async with gate.passing(Turn(level, 0), MIRROR_BATCH_BYTES):
                order.append(level)
                inside += MIRROR_BATCH_BYTES
                most = max(most, inside)
                try:
                    await asyncio.sleep(1)
                finally:
                    inside -= MIRROR_BATCH_BYTES

        tasks = [asyncio.ensure_future(carry(-(number % 3))) for number in range(60)]
        await asyncio.sleep(0.5)
        tasks[-1].cancel()  # one that waits
        tasks[0].cancel()  # one that is inside
        await asyncio.gather(*tasks, return_exceptions=True)
        assert most == MIRROR_IN_FLIGHT_BYTES
        assert order[8:] == sorted(order[8:])
        assert len(order) == 59
        async with gate.passing(Turn(0, 0), 100 * MIRROR_BATCH_BYTES):  # alone, whatever its length
            pass

    run(main)


def test_batches_are_of_the_highest_class_that_is_free_and_of_what_waits_longest() -> None:
    tracks = Tracks(lambda: 0.0)
    for number, (scope, level) in enumerate([("a", 0), ("b", 5), ("b", 0), ("a", 5), ("c", -1)]):
        tracks.mark(tracks.add(StreamName(scope, f"s{number}"), level), 0)
    taken = [tracks.take(10, lambda _: True) for _ in range(6)]
    assert [[str(one.name) for one in batch] for batch in taken] == [
        ["b/s1"], ["a/s3"], ["a/s0"], ["b/s2"], ["c/s4"], [],
    ]  # fmt: skip
    for batch in taken:
        for one in batch:
            tracks.put_back(one, 1000 - int(one.name.stream[1]), again=True)
    assert [str(one.name) for one in tracks.take(10, lambda level: level != 5)] == ["b/s2"]
    assert tracks.take(10, lambda level: level > 5) == []
