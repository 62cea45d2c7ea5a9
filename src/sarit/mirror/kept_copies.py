"""Copies what a mirror, or a stream that becomes one, is about to give up, into a sealed stream of another name.

The copy has the segments of the original, by id, with the same bytes at the same offsets, from a cut on: positions in
the original are positions in the copy.  The stream is recorded when all its bytes are there.  Until then its segments
tell how far the copying is, so any controller continues it.  The original must not grow any more.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.limits import CREATION_ID_BYTES
from sarit.controller.model import codec
from sarit.controller.model.cuts import segments_between
from sarit.controller.model.epochs import known_segments
from sarit.controller.model.records import CreationRecord, State, StreamRecord
from sarit.controller.model.streams import EPOCHS_PER_CHUNK
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import gather_all
from sarit.core.errors import Exists, SaritError
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SegmentId
from sarit.core.policies import RetentionPolicy
from sarit.mirror.limits import KEPT_COPY_BYTES, MIRROR_BATCH_BYTES
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch
    from sarit.controller.ports import SegmentInfo, Segments
    from sarit.core.names import StreamName
    from sarit.env.ports import Env


class KeptCopies:
    """Makes such copies in this installation."""

    def __init__(self, catalog: Catalog, segments: Segments, env: Env) -> None:
        self._catalog = catalog
        self._segments = segments
        self._env = env

    def __repr__(self) -> str:
        return "<KeptCopies>"

    async def copy(self, name: StreamName, record: StreamRecord, start: Cut, into: StreamName) -> bool:
        """Copy what is behind the cut `start` of a stream into the stream `into`, or the next part of it.

        Returns whether all is copied: else call again.  Raises Unavailable, and what else the stores raise."""
        if await self._catalog.find(into) is not None:
            return True
        epochs = await self._catalog.epochs_of(name, record, list(start))
        known = known_segments(epochs)
        tail = {s.segment: 0 for s in record.current.segments}
        wanted = segments_between(known, start, tail)
        infos = await self._segments.infos([_segment(name, s) for s in wanted])
        present = {s: info for s, info in zip(wanted, infos, strict=True) if info is not None}
        begins = {s: max(info.start_offset, start.get(s, 0)) for s, info in present.items()}
        if not await self._copy_bytes(name, into, present, begins):
            return False
        await gather_all([self._segments.seal(_segment(into, s)) for s in present])
        # The record's head must not be before the bytes that are there.
        await self._record(record, epochs, {s: begins.get(s, at) for s, at in start.items()}, into)
        return True

    async def _copy_bytes(
        self, name: StreamName, into: StreamName, present: Mapping[int, SegmentInfo], begins: Cut
    ) -> bool:
        """Copy bytes of segments up to a bound.  Returns whether all are copied."""
        left = KEPT_COPY_BYTES
        copied = await self._segments.infos([_segment(into, s) for s in present])
        for (segment, info), done in zip(present.items(), copied, strict=True):
            at = begins[segment]
            if done is None:
                with suppress(Exists):
                    await self._segments.create_at(_segment(into, segment), at, mirror=False)
            else:
                at = done.length
            while at < info.length:
                if left <= 0:
                    return False
                length = min(MIRROR_BATCH_BYTES, info.length - at)
                (data,) = await self._segments.read_many([(_segment(name, segment), at, length)])
                if isinstance(data, SaritError):
                    raise data
                writes = [(_segment(into, segment), at, data)]
                # A piece may begin within an event.
                (end,) = await self._segments.append_at_many(writes, begin_events=False)
                if isinstance(end, SaritError):
                    raise end
                left -= len(data)
                at = end
        return True

    async def _record(self, record: StreamRecord, epochs: tuple[Epoch, ...], head: Cut, into: StreamName) -> None:
        """Record a copy as a sealed stream.  Raises Conflict (there is a stream of this name now)."""
        (number,) = await self._catalog.get(into.scope, [keys.number_key(into.stream)])
        now_ms = self._env.clock.wall_ms()
        spilled = epochs[:-1] if len(epochs) > EPOCHS_PER_CHUNK else ()
        copy = StreamRecord(
            State.SEALED,
            replace(record.config, retention=RetentionPolicy(), tags=()),
            now_ms,
            record.first_number,
            epochs[len(spilled) :],
            head,
        )
        created = CreationRecord(record.first_number, self._env.random.bytes(CREATION_ID_BYTES))
        updates = [
            TableUpdate(keys.stream_key(into.stream), codec.encode_stream(copy), NOT_EXISTS),
            TableUpdate(keys.number_key(into.stream), None, NOT_EXISTS if number is None else number.version),
            TableUpdate(keys.creation_key(into.stream), codec.encode_creation(created), NO_VERSION),
        ]
        if spilled:
            chunk = keys.chunk_key(into.stream, spilled[0].number)
            updates.append(TableUpdate(chunk, codec.encode_chunk(spilled), NO_VERSION))
        await self._catalog.update(into.scope, updates)


def _segment(name: StreamName, segment: int) -> str:
    return name.segment(SegmentId.unpack(segment))
