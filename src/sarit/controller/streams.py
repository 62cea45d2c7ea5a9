"""The life of a stream: create, update, scale, truncate, seal, delete.

Every workflow writes its intention into the stream's record before it acts, acts
idempotently, and clears the intention: any controller can finish what another began.
Creating goes the other way round: segments first, then one insert that makes the stream
exist; segments of a creation that lost or died are empty and are taken over by the next.

A scale makes the successors, then publishes the new epoch, then seals the old segments:
a writer told "sealed" always finds successors.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sarit.controller import model
from sarit.controller.ports import Segments, TableUpdate
from sarit.controller.records import (
    EpochRecord,
    SegmentRange,
    StreamRecord,
    StreamState,
    epoch_key,
    scope_table,
    stream_key,
    tag_key,
)
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Sealed
from sarit.core.limits import NO_VERSION
from sarit.core.names import MARK_PREFIX, READER_GROUP_PREFIX, SegmentId, StreamName, is_internal_name
from sarit.core.policies import ScaleType, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.env.ports import Env

_SEGMENTS_AT_ONCE = 32


class Streams:
    """Workflows on streams."""

    def __init__(self, catalog: Catalog, segments: Segments, env: Env) -> None:
        self.catalog = catalog
        self.segments = segments
        self._env = env

    async def create(self, name: StreamName, config: StreamConfig) -> None:
        """Raises Invalid (name or policy), NotFound (scope), Exists."""
        if not is_internal_name(name.stream):
            raise Invalid(f"{name.stream!r} is not a stream name")
        config.scaling.check()
        if not await self.catalog.scope_exists(name.scope):
            raise NotFound(f"scope {name.scope} does not exist")
        if await self.catalog.find(name) is not None:
            raise Exists(f"stream {name} exists")
        now = self._env.clock.wall_ms()
        wanted = [(name, config)]
        if not name.stream.startswith((MARK_PREFIX, READER_GROUP_PREFIX)):
            wanted.append((StreamName(name.scope, MARK_PREFIX + name.stream), StreamConfig()))
        records: list[tuple[bytes, bytes]] = []
        for stream, stream_config in wanted:
            epoch = model.first_epoch(stream_config.scaling.min_segments, await self.catalog.first_number(stream), now)
            await self._create_segments(stream, epoch.segments, stream_config)
            record = StreamRecord(stream_config, StreamState.ACTIVE, epoch, now)
            records.append((stream_key(stream.stream), record.encode()))
            records.append((epoch_key(stream.stream, 0), epoch.encode()))
            records.extend((tag_key(tag, stream.stream), b"") for tag in stream_config.tags)
        try:
            await self.catalog.insert(name.scope, records)
        except Conflict:
            raise Exists(f"stream {name} exists") from None

    async def update(self, name: StreamName, config: StreamConfig) -> None:
        """Replace the configuration; a new epoch where the number of segments asks for one.

        Raises NotFound, Sealed, Invalid."""
        config.scaling.check()

        def decide(record: StreamRecord) -> tuple[StreamRecord, list[TableUpdate]]:
            _require_active(name, record)
            gone = set(record.config.tags) - set(config.tags)
            tags = [TableUpdate(tag_key(tag, name.stream), None, NO_VERSION) for tag in sorted(gone)]
            tags += [TableUpdate(tag_key(tag, name.stream), b"", NO_VERSION) for tag in config.tags]
            return replace(record, config=config), tags

        record = await self.catalog.change(name, decide)
        count, wanted = len(record.current.segments), config.scaling.min_segments
        if (config.scaling.type is ScaleType.FIXED and count != wanted) or count < wanted:
            await self.scale(name, [s.segment for s in record.current.segments], model.even_ranges(wanted))

    async def scale(
        self, name: StreamName, replaced: Sequence[int], ranges: Sequence[tuple[float, float]]
    ) -> tuple[int, EpochRecord]:
        """Put `ranges` in the place of segments; (epoch before, new epoch).

        Raises NotFound, Sealed, Invalid."""
        await self.finish(name)
        found = await self.catalog.require(name)
        _require_active(name, found.record)
        before = found.record.current
        epoch = model.next_epoch(before, replaced, ranges, self._env.clock.wall_ms())
        known = {s.segment for s in before.segments}
        await self._create_segments(name, [s for s in epoch.segments if s.segment not in known], found.record.config)
        stream = replace(found.record, current=epoch, sealing=tuple(replaced))
        updates = [
            TableUpdate(stream_key(name.stream), stream.encode(), found.version),
            TableUpdate(epoch_key(name.stream, epoch.epoch), epoch.encode(), NO_VERSION),
        ]
        try:
            await self.catalog.tables.update(scope_table(name.scope), updates)
        except Conflict:
            raise Invalid(f"stream {name} changed meanwhile: ask for its segments again") from None
        await self.finish(name)
        return before.epoch, epoch

    async def truncate(self, name: StreamName, cut: Mapping[int, int]) -> None:
        """Drop everything before a cut.  Raises NotFound, Sealed, Invalid."""
        history = await self.catalog.history(name)

        def decide(record: StreamRecord) -> tuple[StreamRecord, list[TableUpdate]]:
            _require_active(name, record)
            if not model.is_cut(history, cut):
                raise Invalid(f"the segments of the cut do not cover stream {name} exactly once")
            if record.head and not model.precedes(history, record.head, cut):
                raise Invalid(f"stream {name} is truncated behind this cut already")
            return replace(record, head=dict(cut)), []

        await self._check_offsets(name, cut)
        await self.catalog.change(name, decide)
        for segment, offset in sorted(cut.items()):
            with suppress(NotFound):
                await self.segments.truncate(_segment(name, segment), offset)
        await self._each(name, model.segments_before(history, cut), self.segments.delete)

    async def seal(self, name: StreamName) -> None:
        """Raises NotFound.  Sealing a sealed stream succeeds."""

        def begin(record: StreamRecord) -> tuple[StreamRecord, list[TableUpdate]]:
            return (record.with_state(StreamState.SEALING) if record.state is StreamState.ACTIVE else record), []

        record = await self.catalog.change(name, begin)
        if record.state is not StreamState.SEALING:
            return
        segments = {s.segment for s in record.current.segments} | set(record.sealing)
        await self._each(name, sorted(segments), self.segments.seal)

        def end(record: StreamRecord) -> tuple[StreamRecord, list[TableUpdate]]:
            if record.state is not StreamState.SEALING:
                return record, []
            return replace(record, state=StreamState.SEALED, sealing=()), []

        await self.catalog.change(name, end)

    async def delete(self, name: StreamName) -> None:
        """Raises NotFound, Conflict (not sealed)."""

        def begin(record: StreamRecord) -> tuple[StreamRecord, list[TableUpdate]]:
            if record.state not in (StreamState.SEALED, StreamState.DELETING):
                raise Conflict(f"stream {name} is not sealed: seal it before you delete it")
            return record.with_state(StreamState.DELETING), []

        await self.catalog.change(name, begin)
        await self._remove(name)
        mark = StreamName(name.scope, MARK_PREFIX + name.stream)
        if not name.stream.startswith((MARK_PREFIX, READER_GROUP_PREFIX)):
            with suppress(NotFound):
                await self._remove(mark)

    async def finish(self, name: StreamName) -> None:
        """Carry out what a scale left to do."""
        record = (await self.catalog.require(name)).record
        if not record.sealing:
            return
        await self._each(name, record.sealing, self.segments.seal)

        def done(now: StreamRecord) -> tuple[StreamRecord, list[TableUpdate]]:
            return (replace(now, sealing=()) if now.sealing == record.sealing else now), []

        await self.catalog.change(name, done)

    # -- questions --------------------------------------------------------------------------------

    async def head(self, name: StreamName) -> dict[int, int]:
        """The cut at which the stream begins.  Raises NotFound."""
        record = (await self.catalog.require(name)).record
        if record.head:
            return dict(record.head)
        first = record.current if record.current.epoch == 0 else (await self.catalog.history(name))[0]
        return {s.segment: 0 for s in first.segments}

    async def tail(self, name: StreamName) -> dict[int, int]:
        """The cut at which the stream ends now.  Raises NotFound."""
        record = (await self.catalog.require(name)).record
        infos = await asyncio.gather(*(self.segments.info(_segment(name, s.segment)) for s in record.current.segments))
        return {s.segment: info.length for s, info in zip(record.current.segments, infos, strict=True)}

    async def followers(self, name: StreamName, segment: int) -> list[tuple[SegmentRange, list[int]]]:
        """Successors of a segment with their predecessors; empty when it is active or its stream is sealed.

        Raises NotFound (stream), Invalid (negative id)."""
        await self.catalog.require(name)
        return model.successors(await self.catalog.history(name, SegmentId.unpack(segment).epoch), segment)

    async def between(self, name: StreamName, start: Mapping[int, int], end: Mapping[int, int]) -> list[int]:
        """Segments from one cut to another (empty: head, tail).  Raises NotFound, Invalid."""
        history = await self.catalog.history(name)
        await self.catalog.require(name)
        start = dict(start) or await self.head(name)
        end = dict(end) or {s.segment: 0 for s in history[-1].segments}
        for cut in (start, end):
            if not model.is_cut(history, cut):
                raise Invalid(f"the segments of a cut do not cover stream {name} exactly once")
        return model.segments_between(history, start, end)

    # -- pieces -----------------------------------------------------------------------------------

    async def _create_segments(self, name: StreamName, segments: Iterable[SegmentRange], config: StreamConfig) -> None:
        async def create(segment: str) -> None:
            with suppress(Exists):
                await self.segments.create(
                    segment, scale_type=int(config.scaling.type), target_rate=config.scaling.target_rate,
                    rollover_bytes=config.rollover_bytes,
                )  # fmt: skip

        await self._each(name, [s.segment for s in segments], create)

    async def _remove(self, name: StreamName) -> None:
        record = (await self.catalog.require(name)).record
        history = await self.catalog.history(name)
        known = sorted(model.ranges_of(history))
        await self.catalog.keep_number(name, max(SegmentId.unpack(segment).number for segment in known) + 1)
        await self._each(name, known, self.segments.delete)
        gone = [stream_key(name.stream), *(epoch_key(name.stream, epoch.epoch) for epoch in history)]
        gone += [tag_key(tag, name.stream) for tag in record.config.tags]
        await self.catalog.tables.update(scope_table(name.scope), [TableUpdate(key, None, NO_VERSION) for key in gone])

    async def _each(self, name: StreamName, segments: Sequence[int], act: Any) -> None:
        """Act on segments, some at once; a missing one was dealt with before."""

        async def one(segment: int) -> None:
            with suppress(NotFound):
                await act(_segment(name, segment))

        for at in range(0, len(segments), _SEGMENTS_AT_ONCE):
            await asyncio.gather(*(one(segment) for segment in segments[at : at + _SEGMENTS_AT_ONCE]))

    async def _check_offsets(self, name: StreamName, cut: Mapping[int, int]) -> None:
        for segment, offset in sorted(cut.items()):
            try:
                info = await self.segments.info(_segment(name, segment))
            except NotFound:
                raise Invalid(f"segment {segment} of stream {name} does not exist any more") from None
            if not 0 <= offset <= info.length:
                raise Invalid(f"segment {segment} of stream {name} has {info.length} bytes, the cut names {offset}")


def _segment(name: StreamName, segment: int) -> str:
    return name.segment(SegmentId.unpack(segment))


def _require_active(name: StreamName, record: StreamRecord) -> None:
    if record.state is not StreamState.ACTIVE:
        raise Sealed(f"stream {name} is {record.state.value}")
