"""Records when streams reached which cuts, and answers which cut a stream had reached at a time.

Theory of operation.  At intervals the stores report which segments grew.  For each user stream among them the
controller reads the lengths of the active segments, and then the clock: every event appended at or after that time is
behind the cut.  It stores the cut, and about once an hour thins the stream's records (`model/timeline.py`).  A stream
that does not grow costs nothing.

A cut is *clean* if no transaction was half merged at it.  Links copy long streams of several segments from one clean
cut to the next (`mirror/offers.py`).  While it is measured, transactions may be committed; then it is measured again,
and at last recorded as it is, for its time.

Nothing else depends on these records.  Retention records cuts of its own, as often as the policy needs.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.growth import Growth
from sarit.controller.limits import CLEAN_CUT_ATTEMPTS, MAX_TIMELINE_STREAMS, MIN_ROUND_PAUSE_SECONDS
from sarit.controller.model import codec, streams, timeline
from sarit.controller.model.cuts import follows, is_cut
from sarit.controller.model.epochs import known_segments
from sarit.controller.model.records import CutRecord, State
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import for_each_bounded, gather_all
from sarit.controller.transactions.merged_parts import Parts, committing
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SegmentId, is_user_name, parse_segment_name
from sarit.core.repeated_log import RepeatedLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.assignment import Assignment
    from sarit.controller.catalog import Catalog, Found
    from sarit.controller.model.cuts import Cut
    from sarit.controller.ports import Segments, TableValue
    from sarit.core.names import StreamName
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")


class Timeline:
    """The recorded cuts of all streams."""

    def __init__(
        self, catalog: Catalog, segments: Segments, interval: float, env: Env, assignment: Assignment,
        growth: Growth | None = None,
    ) -> None:  # fmt: skip
        """`growth`: which segments have grown; None: nobody else asks the stores by `segments`."""
        self._growth = (growth or Growth(segments)).listen(MAX_TIMELINE_STREAMS)
        self._assignment = assignment
        self._catalog = catalog
        self._segments = segments
        self._interval = interval
        self._env = env
        self._repeated = RepeatedLog(_log, env.clock.monotonic)
        self._began_ms = env.clock.wall_ms()
        # Streams that grew since their last record.
        self._due: dict[StreamName, None] = {}
        # When each stream was last recorded, in ms: thinning is due when a fixed time of the hour lies between that
        # record and the next.
        self._recorded: OrderedDict[StreamName, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Timeline of {len(self._recorded)} streams, {len(self._due)} due>"

    async def run(self) -> None:
        """Record at each interval, for ever."""
        while True:
            await asyncio.sleep(max(self._interval, MIN_ROUND_PAUSE_SECONDS))
            try:
                await self.run_round()
            except SaritError as error:
                self._repeated.info(str(error), f"recording cuts is postponed: {error}")

    async def run_round(self) -> None:
        """Record the cut of each stream that grew.  Raises what the stores raise."""
        for segment in await self._growth.grown():
            with suppress(Invalid):  # not the segment of a stream
                name, _ = parse_segment_name(segment)
                wanted = is_user_name(name.stream) and self._assignment.is_mine(str(name))
                if wanted and len(self._due) < MAX_TIMELINE_STREAMS:
                    self._due[name] = None
        await for_each_bounded(list(self._due), self._record_due)

    async def _record_due(self, name: StreamName) -> None:
        try:
            await self.record(name)
        except NotFound:  # the stream was deleted meanwhile
            pass
        except SaritError as error:  # the stream stays in `_due`
            self._repeated.info(str(error), f"recording a cut of {name} is postponed: {error}")
            return
        except Exception:  # the other streams go on
            _log.exception("a cut of %s is not recorded: unexpected error", name)
        self._due.pop(name, None)

    async def record(self, name: StreamName) -> None:
        """Record the present end of a stream as a cut.  Raises Unavailable, NotFound."""
        for _ in range(CLEAN_CUT_ATTEMPTS):
            found = await self._catalog.find(name)
            # A mirror has the cuts of its source, which a link copies: those of its own would name later times.
            if found is None or found.record.state is not State.ACTIVE or found.record.mirrored:
                return
            active = [s.segment for s in found.record.current.segments]
            lengths = await gather_all([self._segments.info(name.segment(SegmentId.unpack(s))) for s in active])
            if clean := await self._is_clean(name, found):
                break
        # Read the clock after the lengths, and round up, so that later events are behind the cut.  The wall clock,
        # since users ask by it; `timeline.newest_at` copes with a clock that was set back.
        now = self._env.clock.wall_ms() + 1
        cut = {segment: info.length for segment, info in zip(active, lengths, strict=True)}
        recorded = CutRecord(now, timeline.CLEAN if clean else 0, cut)
        updates = [
            # A stream's number is stored while the stream does not exist: this fails when the stream was deleted.
            TableUpdate(keys.number_key(name.stream), None, NOT_EXISTS),
            TableUpdate(keys.timeline_key(name.stream, now), codec.encode_cut(recorded), NOT_EXISTS),
        ]
        with suppress(Conflict):  # deleted, or recorded by another controller in the same millisecond
            await self._catalog.update(name.scope, updates)
        last = self._recorded.pop(name, self._began_ms)
        self._recorded[name] = now
        if len(self._recorded) > MAX_TIMELINE_STREAMS:
            self._recorded.popitem(last=False)
        # Thin each stream at its own time of the hour, the same for all controllers.
        phase = zlib.crc32(str(name).encode()) % timeline.THINNING_INTERVAL_MS
        if timeline.is_thinning_due(phase, last, now):
            await self._thin(name, now)

    async def _is_clean(self, name: StreamName, found: Found) -> bool:
        """Return whether no transaction was half merged while the lengths of the active segments were read, before.

        `found`: the stream's record before that.  Each batch of commits gives it another version when it is merged."""
        if found.record.pending:
            return False
        if len(found.record.current.segments) == 1:  # each merge is one operation
            return True
        parts = await committing(self._catalog, self._segments.infos, name, found.record)
        if any(left is not Parts.ALL for left in parts.values()):
            return False
        # Read the version last: a transaction that ended meanwhile has changed it.
        after = await self._catalog.find(name)
        return after is not None and after.version == found.version

    async def _thin(self, name: StreamName, now_ms: int) -> None:
        versions = {time: value.version for time, value in await self._stored(name)}
        surplus = timeline.surplus(list(versions), now_ms)
        if surplus:
            with suppress(Conflict):  # another controller does the same
                await self._catalog.update(
                    name.scope,
                    [TableUpdate(keys.timeline_key(name.stream, time), None, versions[time]) for time in surplus],
                )

    async def at(self, name: StreamName, time_ms: int) -> tuple[Cut, int | None]:
        """Return the newest cut recorded at or before a time, and when it was recorded: every event appended at or
        after `time_ms` is behind it.

        Returns the head and None if there is no such cut, or if it lies before the head.  Raises NotFound,
        Unavailable."""
        # Read the cuts before the stream's record, so that the record has every segment that a cut names.
        stored = await self._stored(name)
        record = (await self._catalog.require(name)).record
        head = streams.head(record)
        place = timeline.newest_at([(time, value.version) for time, value in stored], time_ms)
        if place is None:
            return head, None
        found = codec.decode_cut(stored[place][1].value)
        known = known_segments(await self._catalog.epochs_of(name, record, [*head, *found.cut]))
        if not is_cut(known, found.cut) or not follows(known, head, found.cut):
            return head, None
        return found.cut, found.time_ms

    async def clean_cuts(self, name: StreamName) -> list[Cut]:
        """Return the recorded cuts of a stream at which no transaction was half merged, in the order of their times."""
        found = [codec.decode_cut(value.value) for _, value in await self._stored(name)]
        return [one.cut for one in found if one.size == timeline.CLEAN]

    async def _stored(self, name: StreamName) -> Sequence[tuple[int, TableValue]]:
        """Return the records by time, undecoded."""
        rows = await self._catalog.stream_records(name, keys.TIMELINE)
        return [(int(keys.last_part(key), 16), value) for key, value in rows]
