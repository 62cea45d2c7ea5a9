"""Retention: records cuts at the tails of streams that have a policy, and truncates the streams at recorded cuts.

Recording a cut, truncating, and removing cuts before the head are independent steps.  A controller may stop after any
of them; the next evaluation continues from what is stored.  Times come from the controller's `SteadyClock`, so that a
jump of the wall clock truncates nothing.  The first evaluation of a stream compares its newest cut with the clock:

| the newest cut is | |
|---|---|
| over an hour in the future | the stream's time continues from that cut for as long as this controller runs |
| over an hour old | the stream was idle, or the clock is ahead: its time continues from that cut for an hour |
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.hold_records import holds_of
from sarit.controller.jobs import held_cut
from sarit.controller.limits import MAX_CLOCK_GAP_MS
from sarit.controller.model import codec, retention, streams
from sarit.controller.model.cuts import bytes_between, follows, is_cut, to_measure
from sarit.controller.model.epochs import known_segments
from sarit.controller.model.records import CutRecord, State
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import gather_all
from sarit.core.errors import Conflict, Invalid, NotFound
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SegmentId
from sarit.core.policies import RetentionType
from sarit.core.repeated_log import RepeatedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch, SegmentRange
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import Segments
    from sarit.controller.steady_clock import SteadyClock
    from sarit.controller.streams import Streams
    from sarit.core.names import StreamName
    from sarit.core.policies import RetentionPolicy

_log = logging.getLogger("sarit.controller")


class Retention:
    """Truncates streams by their policies."""

    def __init__(self, catalog: Catalog, streams: Streams, segments: Segments, clock: SteadyClock) -> None:
        self._catalog = catalog
        self._streams = streams
        self._segments = segments
        self._clock = clock
        self._repeated = RepeatedLog(_log, lambda: clock.now_ms() / 1000)
        self._times: dict[StreamName, retention.StreamTime] = {}  # of the streams that have a policy

    def __repr__(self) -> str:
        return f"<Retention, times of {len(self._times)} streams>"

    async def apply(self, name: StreamName) -> bool:
        """Apply the policy of a stream now; False when it has none or does not exist.

        Raises Unavailable, and Conflict, NotFound, Sealed when the stream changes concurrently: try again later."""
        found = await self._catalog.find(name)
        if found is None or found.record.config.retention.type is RetentionType.NONE:
            self._times.pop(name, None)
            return False
        record, policy = found.record, found.record.config.retention
        if record.state is not State.ACTIVE:
            return record.state is not State.DELETING
        stored = await self._stored(name)
        released, held = await self._released(name), await holds_of(self._catalog, name)
        head = streams.head(record)
        others = (*(cut.cut for cut, _ in stored), *released, *(hold.cut for hold in held))
        epochs = await self._epochs(name, record, head, others)
        known = known_segments(epochs)
        # Remove cuts that are before the head, or of an earlier stream of this name.
        obsolete = [entry for entry in stored if not self._is_ahead(known, head, entry[0].cut)]
        retained = [entry for entry in stored if entry not in obsolete]
        cuts = [cut for cut, _ in retained]
        await self._forget(name, obsolete)
        now_ms = self._time(name, cuts[-1].time_ms if cuts else None)
        tail = await self._tail(name, record, known, cuts[-1] if cuts else None, now_ms)
        if retention.is_due(policy, cuts[-1] if cuts else None, tail):
            await self._store(name, tail)
        # Remove surplus cuts before the truncation, which may raise: each evaluation adds a cut, and they must not
        # pile up.
        thinned = {cut.time_ms for cut in retention.surplus(cuts)}
        await self._forget(name, [entry for entry in retained if entry[0].time_ms in thinned])
        # A subscriber whose released position is no cut of this stream has released nothing, so all data is kept.
        valid = [cut if is_cut(known, cut) else {} for cut in released]
        bound = retention.released_by_all(head, valid, epochs)
        freed = None if bound is None else await self._measured(name, policy, bound, [*cuts, tail], known)

        async def unchanged() -> bool:
            # Subscriptions after this check change the stream's record: the truncation conflicts, and asks again.
            return await self._released(name) == released

        target = retention.truncation(policy, tail, cuts, freed, epochs)
        # A hold that is no cut of this stream holds all of it.
        target = retention.held_back(target, [hold.cut if is_cut(known, hold.cut) else head for hold in held], epochs)
        if target is not None and target != head and follows(known, head, target):
            with suppress(Invalid):  # another call truncated it further
                await self._streams.truncate(name, target, unchanged)
                _log.info("%s was truncated by its retention policy", name)
        return True

    def keep_times(self, names: AbstractSet[StreamName]) -> None:
        """Forget the times of all streams except these."""
        self._times = {name: time for name, time in self._times.items() if name in names}

    def _time(self, name: StreamName, newest_ms: int | None) -> int:
        """Return the stream's time in milliseconds.  `newest_ms`: the time of its newest cut."""
        self._clock.follow_back(MAX_CLOCK_GAP_MS)
        now = self._clock.now_ms()
        before = self._times.get(name)
        time = self._times[name] = retention.time_of_stream(before, newest_ms, now)
        if time.ahead and time != before:
            hours = abs(time.ahead) / 3_600_000
            self._repeated.warning(time.ahead < 0, f"the newest cut of {name} is {hours:.1f} hours " + (
                "old: it was idle, or the clock of this host is ahead; for an hour its events are aged from that cut "
                "on, then by the clock" if time.ahead < 0 else
                "in the future: a clock was ahead, or this one is behind; its events are aged from that cut on"
            ))  # fmt: skip
        return now + time.ahead

    # -- what is stored ---------------------------------------------------------------------------

    async def _stored(self, name: StreamName) -> list[tuple[CutRecord, int]]:
        """Return the recorded cuts, each with its version, by time."""
        rows = await self._catalog.stream_records(name, keys.CUTS)
        return [(codec.decode_cut(value.value), value.version) for _, value in rows]

    async def _released(self, name: StreamName) -> list[Cut]:
        """Return the cuts up to which each subscriber, and each background job that holds data, lets the stream go."""
        subscribers, jobs = await gather_all(
            [self._catalog.stream_records(name, kind) for kind in (keys.SUBSCRIBERS, keys.JOB_PROGRESS)]
        )
        held = (held_cut(value.value) for _, value in jobs)
        return [codec.decode_subscriber(value.value).cut for _, value in subscribers] + [
            cut for cut in held if cut is not None
        ]

    async def _epochs(
        self, name: StreamName, record: StreamRecord, head: Cut, others: Iterable[Mapping[int, int]]
    ) -> tuple[Epoch, ...]:
        """Return all epochs from the first segment of these cuts on; negative ids are ignored."""
        wanted = [*head, *(segment for cut in others for segment in cut if segment >= 0)]
        return await self._catalog.epochs_of(name, record, wanted)

    @staticmethod
    def _is_ahead(known: Mapping[int, SegmentRange], head: Cut, cut: Cut) -> bool:
        return is_cut(known, cut) and follows(known, head, cut)

    async def _store(self, name: StreamName, cut: CutRecord) -> None:
        updates = [
            # A stream's number is stored while the stream does not exist: this fails when the stream was deleted.
            TableUpdate(keys.number_key(name.stream), None, NOT_EXISTS),
            TableUpdate(keys.cut_key(name.stream, cut.time_ms), codec.encode_cut(cut), NOT_EXISTS),
        ]
        with suppress(Conflict):  # another controller recorded a cut, or the stream was deleted
            await self._catalog.update(name.scope, updates)

    async def _forget(self, name: StreamName, cuts: Sequence[tuple[CutRecord, int]]) -> None:
        updates = [TableUpdate(keys.cut_key(name.stream, cut.time_ms), None, version) for cut, version in cuts]
        if updates:
            with suppress(Conflict):
                await self._catalog.update(name.scope, updates)

    # -- the tail ---------------------------------------------------------------------------------

    async def _tail(
        self, name: StreamName, record: StreamRecord, known: Mapping[int, SegmentRange], last: CutRecord | None,
        now_ms: int,
    ) -> CutRecord:  # fmt: skip
        """Return a cut at the stream's present end, with the bytes that the stream has had before it."""
        active = [s.segment for s in record.current.segments]
        end = dict(zip(active, await gather_all([self._length(name, s) for s in active]), strict=True))
        start = streams.head(record) if last is None else last.cut
        size = await self._between(name, known_segments(record.epochs) | dict(known), start, end)
        if last is None:
            return CutRecord(now_ms, size, end)
        # Times rise strictly, also when another controller with another clock stored the last one.
        return CutRecord(max(now_ms, last.time_ms + 1), last.size + size, end)

    async def _measured(
        self,
        name: StreamName,
        policy: RetentionPolicy,
        cut: Cut,
        recorded: Sequence[CutRecord],
        known: Mapping[int, SegmentRange],
    ) -> retention.Released:
        """Return a released cut, with the bytes before it if the policy is by size.  `recorded`: all cuts, in order."""
        if policy.type is not RetentionType.SIZE:
            return retention.Released(cut)
        after = retention.nearest_at_or_after(cut, recorded, known)
        return retention.Released(cut, after.size - await self._between(name, known, cut, after.cut))

    async def _between(self, name: StreamName, known: Mapping[int, SegmentRange], start: Cut, end: Cut) -> int:
        """Count the bytes from one cut to a later one."""
        ended = to_measure(known, start, end)
        lengths = dict(zip(ended, await gather_all([self._length(name, s) for s in ended]), strict=True))
        return bytes_between(known, start, end, lengths)

    async def _length(self, name: StreamName, segment: int) -> int:
        """Return the length of a segment in bytes; 0 when the segment does not exist any more."""
        try:
            return (await self._segments.info(name.segment(SegmentId.unpack(segment)))).length
        except NotFound:
            return 0
