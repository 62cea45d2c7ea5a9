"""The load of each segment: events and bytes per second, as moving averages over four windows (`core.metering`).

Theory of operation.  Segments count their events and bytes anyway, so an append pays nothing for being metered.
Every few seconds the meters read the counters of all segments in memory, and add the increase to the averages
(EWMA).  Transactions count when they are merged.  A segment that is not in memory has no writer connected, so its
load is 0; when it is loaded, its meter starts again, and with it the cool-down.

    average += (1 - e^(-elapsed/window)) (rate - average)        read as  average / (1 - e^(-age/window))

The division corrects the bias of an average that starts at 0.

A segment whose scaling policy is by rate, and whose rates call for a split or a merge, is reported to `ScaleRequests`,
which passes the request on to a controller, which decides.
"""

from __future__ import annotations

import asyncio
import itertools
from math import exp
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Unavailable
from sarit.core.metering import NO_RATES, Rates, ScaleAdvice, scale_advice
from sarit.core.names import is_transaction, is_transient
from sarit.core.policies import ScaleType, ScalingPolicy
from sarit.store.limits import MAX_METRIC_SCOPES, MAX_METRIC_STREAMS
from sarit.store.metering.scale_requests import ScaleRequests
from sarit.store.metering.stream_rates import Busiest, add_rates

if TYPE_CHECKING:
    from sarit.core.metering import ScalingTimes
    from sarit.env.ports import Clock
    from sarit.store.container.segment import Segment
    from sarit.store.metering.scope_use import Serving
    from sarit.store.metering.stream_rates import Rate

# How many segments one turn of the event loop measures, in less than 1 ms.
_SEGMENTS_PER_TURN: Final = 100
# A meter with averages below this many events and bytes per second is idle.
_IDLE_BELOW: Final = 1e-6

_BY_RATE: Final = frozenset((ScaleType.KILOBYTES_PER_SECOND, ScaleType.EVENTS_PER_SECOND))
_ZERO: Final = (0.0, 0.0, 0.0, 0.0)
_NOTHING: Final = (0.0, 0.0)


class LoadMeter:
    """The averages of one segment."""

    __slots__ = ("averages", "bytes", "events", "idle", "latest", "requested_at", "since")

    def __init__(self, segment: Segment, now: float) -> None:
        # Begin at the present counters: what the segment holds already is not load.
        self.events = segment.events
        self.bytes = segment.length
        self.since = now
        self.requested_at: float | None = None
        # Events per second over the four windows, then bytes per second over the same.
        self.averages = [0.0] * 8
        # Events and bytes per second between the last two measurements.
        self.latest = _NOTHING
        self.idle = True

    def add(self, segment: Segment, elapsed: float, weights: tuple[float, ...]) -> None:
        """Add the appends of the last `elapsed` seconds to the averages, with the `weights` of the four windows."""
        events, size = segment.events, segment.length
        # Skip a segment without appends whose averages have decayed to 0.
        if self.idle and events == self.events and size == self.bytes:
            self.latest = _NOTHING
            return
        event_rate, byte_rate = (events - self.events) / elapsed, (size - self.bytes) / elapsed
        self.latest = (event_rate, byte_rate) if event_rate or byte_rate else _NOTHING
        self.events, self.bytes = events, size
        old = self.averages
        self.averages = [a + w * (event_rate - a) for a, w in zip(old[:4], weights, strict=True)]
        self.averages += [a + w * (byte_rate - a) for a, w in zip(old[4:], weights, strict=True)]
        self.idle = max(self.averages) < _IDLE_BELOW


class LoadMeters:
    """The meters of all segments of a store that are in memory."""

    def __init__(
        self, store: Serving, clock: Clock, times: ScalingTimes, requests: ScaleRequests | None = None
    ) -> None:
        """`requests`: receives the requests to scale a segment."""
        self._store = store
        self._clock = clock
        self._times = times
        self._meters: dict[tuple[int, int], LoadMeter] = {}
        self._began = self._measured_at = clock.monotonic()
        # The rates of the whole store between the last two measurements, in events and bytes per second.
        self.event_rate = self.byte_rate = 0.0
        self._new_events = self._new_bytes = 0
        self._requests = requests or ScaleRequests()
        # The busiest at the last measurement.
        self.busiest_streams, self.busiest_scopes = Busiest(MAX_METRIC_STREAMS), Busiest(MAX_METRIC_SCOPES)

    def change_times(self, times: ScalingTimes) -> None:
        """Use other windows from the next measurement on; the averages keep their values."""
        self._times = times

    def __repr__(self) -> str:
        return f"<LoadMeters of {len(self._meters)} segments>"

    async def run(self) -> None:
        """Measure all segments at every interval, until it is cancelled."""
        while True:
            await asyncio.sleep(self._times.interval)
            await self.measure()

    async def measure(self) -> None:
        """Measure all segments in memory once."""
        now = self._clock.monotonic()
        elapsed, self._measured_at = now - self._measured_at, now
        # Rates are quotients of `elapsed`.
        if elapsed <= 0:
            return
        weights = tuple(1 - exp(-elapsed / window) for window in self._times.windows)
        # Begin a new dict, so that the meters of segments that have left memory are dropped.
        measured: dict[tuple[int, int], LoadMeter] = {}
        totals: dict[str, Rate] = {}  # by stream
        for container in self._store.serving():
            number = container.number
            # Copy the list, because segments are created and evicted in other turns of the loop.
            segments = iter(list(container.state.segments.values()))
            while batch := list(itertools.islice(segments, _SEGMENTS_PER_TURN)):
                for segment in batch:
                    self._measure(number, segment, now, elapsed, weights, measured)
                    meter = measured.get((number, segment.id))
                    if meter is not None and meter.latest is not _NOTHING:
                        add_rates(totals, ((segment.name.rpartition("/")[0], meter.latest),))
                await asyncio.sleep(0)
        self._meters = measured
        self.event_rate, self.byte_rate = self._new_events / elapsed, self._new_bytes / elapsed
        self._new_events = self._new_bytes = 0
        await self._find_busiest(totals)

    async def _find_busiest(self, totals: dict[str, Rate]) -> None:
        streams, scopes = Busiest(MAX_METRIC_STREAMS), Busiest(MAX_METRIC_SCOPES)
        by_scope: dict[str, Rate] = {}
        left = iter(totals.items())
        while batch := list(itertools.islice(left, _SEGMENTS_PER_TURN)):
            for name, rate in batch:
                streams.add(name, rate)
            add_rates(by_scope, ((name.partition("/")[0], rate) for name, rate in batch))
            await asyncio.sleep(0)
        for name, rate in by_scope.items():
            scopes.add(name, rate)
        self.busiest_streams, self.busiest_scopes = streams, scopes

    def _measure(
        self, container: int, segment: Segment, now: float, elapsed: float, weights: tuple[float, ...],
        measured: dict[tuple[int, int], LoadMeter],
    ) -> None:  # fmt: skip
        if segment.is_table or segment.sealed or segment.deleted or not segment.created:
            return
        key = container, segment.id
        meter = self._meters.get(key)
        if meter is None:
            # Do not meter a segment that is merged later: the target's counters rise at the merge.
            if not _is_merged_later(segment.name):
                measured[key] = LoadMeter(segment, now)
            return
        measured[key] = meter
        self._new_events += segment.events - meter.events
        self._new_bytes += segment.length - meter.bytes
        meter.add(segment, elapsed, weights)
        times = self._times
        # Request nothing by a young average, nor before the controller had time to act on the last request.
        if now - meter.since < times.cool_down or (
            meter.requested_at is not None and now - meter.requested_at < times.mute
        ):
            return
        if segment.scale_type in _BY_RATE:
            policy = ScalingPolicy(ScaleType(segment.scale_type), segment.target_rate)
            advice = scale_advice(policy, self._rates(meter, now), times)
            if advice is not ScaleAdvice.NONE:
                # Mute the segment even if no controller acts on the request, which is repeated later if necessary.
                meter.requested_at = now
                self._requests.request(segment.name, advice)

    def rates(self, name: str) -> Rates:
        """Return the rates of a segment; one that is not in memory has rates of 0 since the store started."""
        now = self._clock.monotonic()
        try:
            container = self._store.container(name)
        except Unavailable:
            return NO_RATES
        segment = container.state.names.get(name)
        if segment is None:
            return Rates(_ZERO, _ZERO, now - self._began)
        meter = self._meters.get((container.number, segment.id))
        # A segment in memory without a meter was not measured yet, or is of a kind that is never metered.
        return NO_RATES if meter is None else self._rates(meter, now)

    def _rates(self, meter: LoadMeter, now: float) -> Rates:
        # `age` ends at the last measurement, when the averages changed last.
        age = self._measured_at - meter.since
        if age <= 0:
            return Rates(_ZERO, _ZERO, now - meter.since)
        two, five, ten, twenty = (1 / (1 - exp(-age / window)) for window in self._times.windows)
        a = meter.averages
        return Rates(
            (a[0] * two, a[1] * five, a[2] * ten, a[3] * twenty),
            (a[4] * two, a[5] * five, a[6] * ten, a[7] * twenty),
            now - meter.since,
        )


def _is_merged_later(name: str) -> bool:
    """Return whether a segment will be merged into another one: its load counts at the merge."""
    return is_transaction(name) or is_transient(name)
