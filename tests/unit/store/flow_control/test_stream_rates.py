"""The busiest streams: who has a series, and that the number of series is bounded."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from sarit.admin.collectors import rate_samples
from sarit.admin.exposition import Exposition
from sarit.core.metering import ScalingTimes
from sarit.store.limits import MAX_METRIC_SCOPES, MAX_METRIC_STREAMS
from sarit.store.metering.load_meters import LoadMeters
from sarit.store.metering.stream_rates import OTHERS, Busiest

STREAMS, SCOPES = 100_000, 400


def test_busiest_are_those_of_the_highest_rates_and_the_rest_is_their_sum():
    rates = {f"s{number}": (float(number), random.Random(number).uniform(0, 1000)) for number in range(500)}
    busiest = Busiest(7)
    for name, rate in rates.items():
        busiest.add(name, rate)
    expected = sorted(rates, key=lambda name: -rates[name][1])[:7]
    assert [name for name, _ in busiest.rates()] == expected
    others = [rate for name, rate in rates.items() if name not in expected]
    assert busiest.others == pytest.approx((sum(e for e, _ in others), sum(b for _, b in others)))


@dataclass
class Segment:
    id: int
    name: str
    length: int = 0
    events: int = 0
    created: bool = True
    sealed: bool = False
    deleted: bool = False
    scale_type: int = 0
    target_rate: int = 0
    is_table: bool = False


@dataclass
class Store:
    segments: dict[int, Segment]
    number: int = 0
    state: Any = field(init=False)

    def __post_init__(self):
        self.state = SimpleNamespace(segments=self.segments, names={})

    def serving(self):
        return [self]


def test_number_of_series_is_bounded_with_100_000_streams():
    segments = {
        number: Segment(number, f"scope{number % SCOPES}/stream{number}/0.#epoch.0") for number in range(STREAMS)
    }
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    meters = LoadMeters(Store(segments), clock, ScalingTimes())  # type: ignore[arg-type]

    async def run():
        for _ in range(2):
            clock.now += 5
            await meters.measure()
            for segment in segments.values():
                segment.events += 1 + segment.id % 3
                segment.length += 10 * segment.id
        clock.now += 5
        await meters.measure()

    asyncio.run(run())
    found: dict[str, dict[str, float]] = {}
    for name, (label,), value in rate_samples(meters):
        found.setdefault(name, {})[label] = value
    assert {name: len(series) for name, series in found.items()} == {
        "sarit_stream_append_bytes_per_second": MAX_METRIC_STREAMS + 1,
        "sarit_stream_append_events_per_second": MAX_METRIC_STREAMS + 1,
        "sarit_scope_append_bytes_per_second": MAX_METRIC_SCOPES + 1,
        "sarit_scope_append_events_per_second": MAX_METRIC_SCOPES + 1,
    }
    # Nothing is lost: what has no series of its own is in that of the others.
    for label in ("stream", "scope"):
        assert sum(found[f"sarit_{label}_append_bytes_per_second"].values()) == pytest.approx(
            sum(10 * number for number in range(STREAMS)) / 5
        )
    busiest = {f"scope{number % SCOPES}/stream{number}" for number in range(STREAMS - MAX_METRIC_STREAMS, STREAMS)}
    assert set(found["sarit_stream_append_bytes_per_second"]) == {*busiest, OTHERS}
    assert len(Exposition(lambda: rate_samples(meters))()) < 30_000


def test_stream_that_stops_leaves_the_series():
    segments = {1: Segment(1, "a/b/0.#epoch.0"), 2: Segment(2, "a/c/0.#epoch.0")}
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    meters = LoadMeters(Store(segments), clock, ScalingTimes())  # type: ignore[arg-type]

    async def step(*growing):
        clock.now += 5
        for number in growing:
            segments[number].length += 100
        await meters.measure()
        return dict(meters.busiest_streams.rates())

    async def run():
        await step()
        assert await step(1, 2) == {"a/b": (0.0, 20.0), "a/c": (0.0, 20.0)}
        assert await step(2) == {"a/c": (0.0, 20.0)}
        assert await step() == {}

    asyncio.run(run())
