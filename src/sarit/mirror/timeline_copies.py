"""Recorded cuts of streams (`controller/background/timeline.py`), from a source to its mirrors.

A cut is recorded at the mirror as soon as the mirror reaches it, under the source's time.  So a question for a time has
the same answer on both sides, as far as the mirror is.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec, streams, timeline
from sarit.controller.model.cuts import follows, is_cut
from sarit.controller.model.epochs import known_segments
from sarit.controller.model.records import CutRecord
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Conflict, Invalid, NotFound
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SegmentId
from sarit.mirror.attachments import StreamCuts
from sarit.mirror.limits import MIRROR_CUTS_PER_CALL
from sarit.mirror.mirror_records import decode_mirror

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.catalog import Catalog, Found
    from sarit.controller.ports import Segments, TableValue
    from sarit.core.names import StreamName
    from sarit.mirror.values import LinkIdentity

# A time in the key of a cut has 12 hexadecimal digits.
_TIMES = 1 << 48


async def cuts_after(catalog: Catalog, after: Sequence[tuple[StreamName, int]]) -> list[StreamCuts]:
    """Return the recorded cuts of streams.  See `sides.AttachedSource.cuts`."""
    found: list[StreamCuts] = []
    count = 0
    for name, time in after:
        if count >= MIRROR_CUTS_PER_CALL:
            break
        if not 0 <= time < _TIMES:
            raise Invalid(f"{time} is no time of a cut of {name}")
        prefix = keys.of_stream(name.stream, keys.TIMELINE)
        with suppress(NotFound):
            rows = await catalog.scan(name.scope, prefix, keys.timeline_key(name.stream, time))
            if rows:
                # The order of recording counts, which is another one when the clock was set back.
                ordered = sorted(rows, key=lambda row: row[1].version)
                found.append(StreamCuts(name, tuple(codec.decode_cut(value.value) for _, value in ordered)))
                count += len(rows)
    return found


class TimelineTarget:
    """The recorded cuts of mirrors."""

    def __init__(self, catalog: Catalog, segments: Segments) -> None:
        self._catalog = catalog
        self._segments = segments

    async def times(self, names: Sequence[StreamName]) -> list[int]:
        """Return the time of the last recorded cut of streams, in order; 0: none."""
        return [max((time for time, _ in await self._stored(name)), default=0) for name in names]

    async def add(self, link: LinkIdentity, cuts: StreamCuts) -> None:
        """Record cuts of a mirror, in order, up to the first that it does not reach yet.

        A stream that is no mirror of the link is left alone.  Raises Invalid (a cut that is none)."""
        name = cuts.name
        found = await self._catalog.find(name)
        if found is None or not found.record.mirrored or not cuts.cuts:
            return
        (row,) = await self._catalog.get(name.scope, [keys.mirror_key(name.stream)])
        if row is None or decode_mirror(name, row.value).link.link_id != link.link_id:
            return
        stored = await self._stored(name)
        times = {time for time, _ in stored}
        new = [one for one in await self._reached(name, found, cuts.cuts) if one.time_ms not in times]
        if not new:
            return
        # A stream's number is stored while the stream does not exist: this fails when the stream was deleted.
        updates = [TableUpdate(keys.number_key(name.stream), None, NOT_EXISTS)]
        for one in new:
            value = codec.encode_cut(CutRecord(one.time_ms, 0, dict(one.cut)))
            updates.append(TableUpdate(keys.timeline_key(name.stream, one.time_ms), value, NOT_EXISTS))
        with suppress(Conflict):  # deleted, or recorded by another call
            await self._catalog.update(name.scope, updates)
            # At the times at which the source thins its own, so that both keep the same.
            await self._thin(name, max(times, default=new[0].time_ms), max(one.time_ms for one in new))

    async def _reached(self, name: StreamName, found: Found, cuts: Sequence[CutRecord]) -> list[CutRecord]:
        """Return the first cuts, as far as the mirror reaches them.  Raises Invalid."""
        record, head = found.record, streams.head(found.record)
        named = sorted({segment for one in cuts for segment in one.cut})
        if min(named, default=0) < 0 or not all(0 < one.time_ms < _TIMES for one in cuts):
            raise Invalid(f"the source sends a cut of {name} that is none")
        known = known_segments(await self._catalog.epochs_of(name, record, [*head, *named]))
        mine = [segment for segment in named if segment in known]
        infos = await self._segments.infos([name.segment(SegmentId.unpack(segment)) for segment in mine])
        # A segment that is gone here was whole before.
        ends = {segment: info.length for segment, info in zip(mine, infos, strict=True) if info is not None}
        reached: list[CutRecord] = []
        for one in cuts:
            if not one.cut.keys() <= known.keys():
                break  # epochs that are still to come
            if not is_cut(known, one.cut):
                raise Invalid(f"the source sends a cut of {name} that does not cover the stream once")
            if any(offset > ends.get(segment, 0) for segment, offset in one.cut.items() if segment in ends):
                break
            if follows(known, head, one.cut):
                reached.append(one)
        return reached

    async def _thin(self, name: StreamName, last_ms: int, now_ms: int) -> None:
        """Remove what recorded cuts the timeline of any stream does not keep."""
        phase = zlib.crc32(str(name).encode()) % timeline.THINNING_INTERVAL_MS
        if not timeline.is_thinning_due(phase, last_ms, now_ms):
            return
        versions = {time: value.version for time, value in await self._stored(name)}
        surplus = timeline.surplus(sorted(versions), now_ms)
        updates = [TableUpdate(keys.timeline_key(name.stream, time), None, versions[time]) for time in surplus]
        if updates:
            await self._catalog.update(name.scope, updates)

    async def _stored(self, name: StreamName) -> list[tuple[int, TableValue]]:
        try:
            rows = await self._catalog.stream_records(name, keys.TIMELINE)
        except NotFound:
            return []
        return [(int(keys.last_part(key), 16), value) for key, value in rows]
