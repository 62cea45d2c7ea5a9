"""Watermarks: reads writers' notes, appends watermarks to the mark streams, removes idle writers.

A watermark is a conditional append after the last one: of two controllers one succeeds.  Then an attribute of the mark
segment is set to the offset of the newest watermark, where readers and the next evaluation start.  After a crash
between append and attribute the attribute lags, and the next evaluation reads from there to the end.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.controller import keys
from sarit.controller.limits import WATERMARK_READ_BYTES
from sarit.controller.model import codec, streams, watermarks
from sarit.controller.model.records import State
from sarit.controller.model.watermarks import MARK_ATTRIBUTE, Noted, Watermark
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Conflict, NotFound, Truncated, Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.core.names import SegmentId

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.model.watermarks import WatermarkTimes
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.core.names import StreamName
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")

# How many notes' first-seen times are kept in memory; beyond that the oldest are forgotten, and count as new.
MAX_NOTES_SEEN: Final = 100_000


class Watermarks:
    """Writes the watermarks of streams whose writers note times."""

    def __init__(self, catalog: Catalog, streams: Streams, segments: Segments, times: WatermarkTimes, env: Env) -> None:
        self._catalog = catalog
        self._streams = streams
        self._segments = segments
        self.times = times
        self._env = env
        self._seen: dict[tuple[StreamName, str], tuple[int, float]] = {}

    def __repr__(self) -> str:
        return f"<Watermarks, {len(self._seen)} writers seen>"

    async def advance(self, name: StreamName) -> bool:
        """Write the next watermark of a stream if it is due.  Returns False when no writer notes times.

        Raises Unavailable; NotFound, Conflict, Sealed when the stream changes concurrently."""
        # Read the notes before the stream's record, so that the record has every segment that a note names.
        try:
            rows = await self._catalog.stream_records(name, keys.WRITERS)
        except NotFound:
            return False
        found = await self._catalog.find(name)
        if found is None or found.record.state is State.DELETING:
            return False
        record = found.record
        prefix = len(keys.of_stream(name.stream, keys.WRITERS))
        notes = [(key[prefix:].decode(), codec.decode_writer(value.value), value.version) for key, value in rows]
        if not notes:
            return False
        mark_segment = await self._mark_segment(name)
        end, last = await self._last(mark_segment)
        writers = [Noted(writer, note, self._idle(name, writer, version)) for writer, note, version in notes]
        wanted = [s for _, note, _ in notes for s in note.position if s >= 0]
        wanted += [s.segment for s, _ in last.cut] if last is not None else []
        epochs = await self._catalog.epochs_of(name, record, wanted)
        verdict = watermarks.verdict(last, writers, self._time_out(record), epochs)
        if verdict.mark is not None:
            attribute = await self._segments.get_attribute(mark_segment, MARK_ATTRIBUTE)
            # Append only if the segment still ends at `end`, so that one of several controllers writes.  Update the
            # attribute after the append: after a crash in between it lags, and `_last` reads on from there.
            await self._segments.write(mark_segment, watermarks.encode_entry(verdict.mark), end)
            await self._segments.update_attribute(mark_segment, MARK_ATTRIBUTE, end, attribute)
        versions = {writer: version for writer, _, version in notes}
        for writer in verdict.gone:
            # Remove the note of a writer that is behind the last watermark and leaving or idle: the note would hold
            # the next watermark back.
            self._seen.pop((name, writer), None)
            with suppress(Conflict):  # the writer noted a new time
                update = TableUpdate(keys.writer_key(name.stream, writer), None, versions[writer])
                await self._catalog.update(name.scope, [update])
        return True

    def _time_out(self, record: StreamRecord) -> float:
        return record.config.timestamp_aggregation_ms / 1000 or self.times.writer_time_out

    def _idle(self, name: StreamName, writer: str, version: int) -> float:
        """Return the seconds since this controller first saw this version of a writer's note."""
        now, key = self._env.clock.monotonic(), (name, writer)
        seen = self._seen.get(key)
        if seen is None or seen[0] != version:
            # Remove the key before it is set, so that it moves to the end: the first key is dropped below.
            self._seen.pop(key, None)
            self._seen[key] = (version, now)
            if len(self._seen) > MAX_NOTES_SEEN:
                del self._seen[next(iter(self._seen))]
            return 0.0
        return now - seen[1]

    # -- the mark stream ----------------------------------------------------------------------------

    async def _mark_segment(self, name: StreamName) -> str:
        """Return the name of the segment that watermarks are appended to.  Raises Unavailable: there is none now."""
        mark = streams.mark_of(name)
        active = await self._streams.active(mark)
        if len(active) != 1:
            raise Unavailable(f"the mark stream of {name} accepts no watermarks")
        return mark.segment(SegmentId.unpack(active[0].segment))

    async def _last(self, segment: str) -> tuple[int, Watermark | None]:
        """Return the end of the mark segment, and the last watermark.  Updates the attribute if it lags."""
        attribute = await self._segments.get_attribute(segment, MARK_ATTRIBUTE)
        info = await self._segments.info(segment)
        # The attribute holds the offset of the last entry, or of an earlier one if it lags.
        begin = info.start_offset if attribute == NULL_ATTRIBUTE_VALUE else max(attribute, info.start_offset)
        at, data, last = begin, b"", None
        while at < info.length:
            try:
                more = await self._segments.read(segment, at, min(WATERMARK_READ_BYTES, info.length - at))
            except Truncated:
                raise Unavailable(f"{segment} is being truncated") from None
            if not more:
                raise Unavailable(f"{segment} cannot be read up to its end just now")
            at += len(more)
            data += more
            entry = watermarks.last_entry(data)
            if entry is not None:
                # Keep only the last whole entry and the bytes after it.
                data, last = data[entry[0] :], entry[1]
        begin = info.length - len(data)
        if last is not None and attribute != begin:
            await self._segments.update_attribute(segment, MARK_ATTRIBUTE, begin, attribute)
        return info.length, last
