"""The partitioner: written segments, sticky segments, mixed intakes, through unfinished scales."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sarit.client.core.framing import split_events
from sarit.client.core.values import SegmentRange, Successor
from sarit.client.limits import STICKY_BYTES, STICKY_SECONDS
from sarit.client.writer.bulk import Bulk
from sarit.client.writer.partitioner import Partitioner
from sarit.core.errors import Corrupt
from sarit.core.names import SegmentId, StreamName
from tests.unit.controller.fakes import fake_env

A, B = SegmentId(0, 0), SegmentId(0, 1)
AB = SegmentId(1, 2)
LEFT, RIGHT = SegmentId(2, 3), SegmentId(2, 4)
FOLLOWS = {
    A: [Successor(AB, 0.0, 1.0, frozenset((A, B)))],
    B: [Successor(AB, 0.0, 1.0, frozenset((A, B)))],
    AB: [Successor(LEFT, 0.0, 0.5, frozenset((AB,))), Successor(RIGHT, 0.5, 1.0, frozenset((AB,)))],
}


class Target:
    """A stream of two segments that are merged, then split."""

    stream = StreamName("s", "t")

    async def ranges(self) -> list[SegmentRange]:
        return [SegmentRange(A, 0.0, 0.5), SegmentRange(B, 0.5, 1.0)]

    async def successors(self, segment: SegmentId) -> list[Successor]:
        return FOLLOWS[segment]

    def name(self, segment: SegmentId) -> str:
        return self.stream.segment(segment)


class Session:
    """Nothing is sent in these tests."""

    env = fake_env()

    def backoff(self) -> Any:
        return None

    def assume_endpoint(self, stream: StreamName, segment: SegmentId, before: SegmentId) -> None:
        pass


async def partitioner() -> Partitioner:
    made = Partitioner(Session(), Target(), lambda: None, lambda error: None)  # type: ignore[arg-type]
    await made.open()
    return made


def acknowledge(made: Partitioner, *segments: SegmentId) -> None:
    for driver in made._drivers.values():
        if driver.segment in segments:
            driver.appender.acked_events += 1


async def sealed(made: Partitioner, segment: SegmentId) -> None:
    (driver,) = [driver for driver in made._drivers.values() if driver.segment == segment]
    await made._move_on(driver)


def test_written_segments_lists_segments_with_acknowledged_events() -> None:
    async def main() -> None:
        made = await partitioner()
        assert made.written_segments() == []
        acknowledge(made, A)
        assert made.written_segments() == [A]
        acknowledge(made, B)
        assert sorted(made.written_segments()) == [A, B]

    asyncio.run(main())


def test_written_segments_omits_predecessors_of_written_ones() -> None:
    """In the middle of a merge, B is not sealed yet: a note of B after one of AB was refused (simulation seed 30)."""

    async def main() -> None:
        made = await partitioner()
        acknowledge(made, A)
        await sealed(made, A)
        acknowledge(made, AB)
        assert made.written_segments() == [AB]
        acknowledge(made, B)
        assert made.written_segments() == [AB]

    asyncio.run(main())


def test_written_segments_includes_sealed_segments() -> None:
    async def main() -> None:
        made = await partitioner()
        acknowledge(made, A, B)
        await sealed(made, A)
        assert sorted(made.written_segments()) == [A, B], "nothing is in its successor yet"
        await sealed(made, B)
        await sealed(made, AB)
        acknowledge(made, RIGHT)
        assert sorted(made.written_segments()) == [A, RIGHT]

    asyncio.run(main())


def held(made: Partitioner) -> dict[SegmentId, int]:
    return {driver.segment: driver.appender.accepted_events for driver in made._drivers.values()}


def test_events_without_keys_are_sticky_up_to_a_bound() -> None:
    """Else a writer of many small batches keeps all segments at work at once, and each batch waits for its own sync."""

    async def main() -> None:
        made = await partitioner()
        event = b"x" * 1016
        made.place([event] * (2 * STICKY_BYTES // 1024), None)
        assert set(held(made).values()) == {STICKY_BYTES // 1024}, "each has its share of a large batch"
        first = made.sticky_driver()
        for _ in range(STICKY_BYTES // 1024):
            assert made.sticky_driver() is first, "neither the bytes nor the time are over"
            made.place([event], None)
        assert sorted(held(made).values()) == [STICKY_BYTES // 1024, 2 * STICKY_BYTES // 1024]
        others = set()
        for _ in range(50):
            made.place([event] * (STICKY_BYTES // 1024), None)
            others.add(made.sticky_driver().segment)
        assert others == {A, B}, "after so many bytes another is drawn"

    asyncio.run(main())


async def wide_partitioner(segments: int) -> Partitioner:
    class Wide(Target):
        async def ranges(self) -> list[SegmentRange]:
            return [SegmentRange(SegmentId(0, at), at / segments, (at + 1) / segments) for at in range(segments)]

    made = Partitioner(Session(), Wide(), lambda: None, lambda error: None)  # type: ignore[arg-type]
    await made.open()
    return made


@pytest.mark.parametrize("batches", [1, 10, 100])
def test_a_hundred_small_events_without_keys_reach_all_segments(batches: int) -> None:
    """They all went to one: `sarit write` of a short file left three of four segments empty."""

    async def main() -> None:
        for _ in range(20):
            made = await wide_partitioner(4)
            events = [b"event %d" % at for at in range(100)]
            for at in range(0, 100, 100 // batches):
                made.place(events[at : at + 100 // batches], None)
            assert all(count >= 10 for count in held(made).values()), held(made)

    asyncio.run(main())


def test_a_round_of_draws_leaves_out_no_segment() -> None:
    """Fifty thousand events left one of four empty: ten independent draws do that at one time of five."""

    async def main() -> None:
        made = await wide_partitioner(7)
        for _ in range(30):
            made._sticky_bytes = 0
            drawn = set()
            for _ in range(7):
                drawn.add(made.sticky_driver().segment)
                made._sticky_bytes = 0
            assert len(drawn) == 7

    asyncio.run(main())


def test_slow_writer_draws_a_segment_per_event() -> None:
    async def main() -> None:
        made = await partitioner()
        clock: Any = made._session.env.clock
        for _ in range(1000):
            made.place([b"x"], None)
            clock.seconds += STICKY_SECONDS
        assert all(400 < events < 600 for events in held(made).values()), held(made)

    asyncio.run(main())


def test_sealed_segment_is_sticky_no_more() -> None:
    async def main() -> None:
        made = await partitioner()
        left = made.sticky_driver()
        await sealed(made, left.segment)
        assert made.sticky_driver() is not left
        made.place([b"x"] * 100, None)
        assert not left.appender.unacked_bytes

    asyncio.run(main())


def test_successors_with_a_hole_fail_the_writer() -> None:
    """It was only logged: a flush of what the sealed segment had not taken waited for ever."""

    class Holed(Target):
        async def successors(self, segment: SegmentId) -> list[Successor]:
            return [Successor(AB, 0.0, 0.25, frozenset((A,)))]

    async def main() -> None:
        failures: list[BaseException] = []
        made = Partitioner(Session(), Holed(), lambda: None, failures.append)  # type: ignore[arg-type]
        await made.open()
        await sealed(made, A)
        (failure,) = failures
        assert isinstance(failure, Corrupt)

    asyncio.run(main())


def placed(made: Partitioner) -> list[tuple[bytes, str | None]]:
    """What the appenders were given: each event with its key, by appender."""
    found: list[tuple[bytes, str | None]] = []
    for driver in made._drivers.values():
        for chunk in driver.take():
            events = split_events(chunk.data)
            found += zip(events, chunk.keys or [None] * len(events), strict=True)
    return found


def test_partition_places_a_mixed_intake_in_order() -> None:
    """Events of one length and of several, keys as long as the events, batches: wherever the first key stands."""
    bulk = Bulk.of([b"bulk"], None)
    intakes: list[tuple[list[Any], list[tuple[bytes, str | None]]]] = [
        ([b"a", b"b"], [(b"a", None), (b"b", None)]),
        ([b"a", b"long"], [(b"a", None), (b"long", None)]),
        ([b"a", "k", b"b"], [(b"a", None), (b"b", "k")]),
        ([b"a", b"long", "k", b"b"], [(b"a", None), (b"long", None), (b"b", "k")]),
        ([b"a", "key", b"long", b"c"], [(b"a", None), (b"long", "key"), (b"c", None)]),
        (["k", b"a", b"b"], [(b"a", "k"), (b"b", None)]),
        ([b"a", bulk, b"b"], [(b"a", None), (b"bulk", None), (b"b", None)]),
        ([bulk, b"a"], [(b"bulk", None), (b"a", None)]),
    ]

    async def main() -> None:
        for intake, expected in intakes:
            made = await partitioner()
            made.partition(intake)
            assert made.unacked_bytes == sum(8 + len(event) for event, _ in expected)
            assert sorted(placed(made), key=repr) == sorted(expected, key=repr)
            assert made.unacked_bytes == 0

    asyncio.run(main())
