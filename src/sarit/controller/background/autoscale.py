"""Automatic scaling: stores request it for segments; the controller decides on rates that it reads itself.

Requests are not stored.  A store repeats a lost request; a late request does no harm, since the rates are read again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.controller.model import autoscale, streams
from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Invalid, SaritError
from sarit.core.limits import MAX_SCALE_REQUESTS
from sarit.core.names import SegmentId, parse_segment_name
from sarit.core.repeated_log import RepeatedLog
from sarit.security.quotas import QuotaExceeded

if TYPE_CHECKING:
    from sarit.controller.assignment import Assignment
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.core.metering import ScaleAdvice, ScalingTimes
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")


class AutoScale:
    """Splits and merges segments of streams with a policy by rate."""

    def __init__(
        self, catalog: Catalog, streams: Streams, segments: Segments, times: ScalingTimes, env: Env,
        assignment: Assignment,
    ) -> None:  # fmt: skip
        self._assignment = assignment
        self._catalog = catalog
        self._streams = streams
        self._segments = segments
        self.times = times
        self._env = env
        self._requests: dict[str, ScaleAdvice] = {}
        self._wake = asyncio.Event()
        self._repeated = RepeatedLog(_log, env.clock.monotonic)

    def __repr__(self) -> str:
        return f"<AutoScale, {len(self._requests)} requests>"

    def request(self, segment: str, advice: ScaleAdvice) -> None:
        """Note a store's request to scale a segment, without waiting.  Every controller gets the request; the one that
        the stream is assigned to evaluates it."""
        try:
            name, _ = parse_segment_name(segment)
        except Invalid:
            return
        if self._assignment.is_mine(str(name)) and len(self._requests) < MAX_SCALE_REQUESTS:
            self._requests[segment] = advice
            self._streams.statistics.scaling_requests += 1
            self._wake.set()

    async def run(self) -> None:
        """Evaluate requests, for ever."""
        while True:
            await self._wake.wait()
            # Clear the event before taking requests, so that one that comes during an evaluation sets it again.
            self._wake.clear()
            while self._requests:
                segment = next(iter(self._requests))
                advice = self._requests.pop(segment)
                try:
                    await self.evaluate(segment)
                except SaritError as error:
                    _log.info("segment %s is not scaled (a %s was requested): %s", segment, advice.value, error)
                except Exception:  # the other requests go on
                    _log.exception("segment %s is not scaled: unexpected error", segment)

    async def evaluate(self, segment: str) -> bool:
        """Scale the stream of a segment if its rates require it now.  Returns whether it was scaled.

        Raises Unavailable, NotFound, Invalid (not the name of a stream's segment)."""
        name, identity = parse_segment_name(segment)
        found = await self._catalog.find(name)
        if found is None:
            return False
        near = [s.segment for s in autoscale.segments_to_measure(found.record, identity.packed)]
        if not near:
            return False
        names = [name.segment(SegmentId.unpack(s)) for s in near]
        rates = dict(zip(near, await self._segments.rates(names), strict=True))
        # Plan once before `change`, which takes the stream's lock: mostly there is nothing to do.
        first = autoscale.plan(found.record, identity.packed, rates, self.times)
        if first is None:
            return False
        try:
            await self._streams.admit(name.scope, 0, len(first.ranges) - len(first.replaced))
        except QuotaExceeded as error:  # no error for any client: writers go on without scaling
            self._repeated.info(name.scope, f"{name} is not scaled by its rates: {error}")
            return False
        planned: list[autoscale.Plan] = []

        def decide(record: StreamRecord, _: object) -> StreamRecord:
            # After a conflict `change` calls this again, with the newest record.
            planned.clear()
            plan = autoscale.plan(record, identity.packed, rates, self.times)
            if plan is None:
                return record
            planned.append(plan)
            return streams.scale(record, plan.replaced, plan.ranges, self._env.clock.wall_ms())

        await self._streams.change(name, decide)
        for plan in planned:
            coverage_probe("auto_scaled")
            self._streams.statistics.scales_by_rate += 1
            _log.info(
                "%s: %d segments were replaced by %d because of their rates", name, len(plan.replaced), len(plan.ranges)
            )
        return bool(planned)
