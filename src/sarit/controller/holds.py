"""Writes and removes the holds of links (`controller/hold_records.py`), and measures them.

The first hold of a link on a stream is written in one batch with the stream's record, unchanged, as a new subscription
is: a truncation that was decided before conflicts then, and asks again what is held.  Later ones only let more go.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.hold_records import Hold, decode_hold, encode_hold
from sarit.controller.limits import HOLDS_AT_ONCE, MAX_HOLDS_OF_STREAM
from sarit.controller.model import codec, streams
from sarit.controller.model.cuts import bytes_between, is_cut, to_measure
from sarit.controller.model.epochs import known_segments
from sarit.controller.ports import TableUpdate
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.core.errors import Conflict, Invalid, NotFound, Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SegmentId, StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import Segments, TableValue
    from sarit.env.ports import Clock


class Holds:
    """The holds of all links."""

    def __init__(self, catalog: Catalog, segments: Segments, clock: Clock) -> None:
        self._catalog = catalog
        self._segments = segments
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Holds in {self._catalog!r}>"

    async def hold(self, link_id: bytes, link: str, scope: str, cuts: Mapping[StreamName, Cut]) -> None:
        """Make streams of a scope keep what is behind cuts; an empty cut: the link does not hold the stream any more.

        A cut that is none of the stream's holds all of it.  Raises Unavailable, Invalid (too many links)."""
        names = list(cuts)
        for at in range(0, len(names), HOLDS_AT_ONCE):
            batch = {name: cuts[name] for name in names[at : at + HOLDS_AT_ONCE]}
            if not await self._put(link_id, link, scope, batch):
                for name, cut in batch.items():  # one of them was changed meanwhile
                    await self._hold(link_id, link, name, cut)

    async def _hold(self, link_id: bytes, link: str, name: StreamName, cut: Cut) -> None:
        for _ in range(MAX_ATTEMPTS):
            if await self._put(link_id, link, name.scope, {name: cut}):
                return
        raise Unavailable(f"stream {name} is changed by too many others at once; try again")

    async def _put(self, link_id: bytes, link: str, scope: str, cuts: Mapping[StreamName, Cut]) -> bool:
        """Write holds in one batch.  Returns False, and changes nothing, if a stream was changed meanwhile."""
        wanted = [
            key for name in cuts for key in (keys.stream_key(name.stream), keys.hold_key(name.stream, link_id))
        ]  # fmt: skip
        try:
            found = await self._catalog.get(scope, wanted)
            updates: list[TableUpdate] = []
            for (name, cut), stream, row in zip(cuts.items(), found[::2], found[1::2], strict=True):
                if stream is not None and not codec.is_deleting(stream.value):
                    updates += await self._updates(name, keys.hold_key(name.stream, link_id), link, cut, stream, row)
            if updates:
                await self._catalog.update(scope, updates)
        except Conflict:
            return False
        except NotFound:  # the scope was deleted, with all that it had
            return True
        return True

    async def _updates(
        self, name: StreamName, key: bytes, link: str, cut: Cut, stream: TableValue, row: TableValue | None
    ) -> list[TableUpdate]:
        if not cut:
            return [] if row is None else [TableUpdate(key, None, row.version)]
        whole = await self._whole(name, self._catalog.seen.decode(name, stream).record, cut)
        value = encode_hold(Hold(link, whole, self._clock.wall_ms()))
        if row is not None:
            unchanged = decode_hold(row.value).cut == whole
            return [] if unchanged else [TableUpdate(key, value, row.version)]
        if len(await self._catalog.stream_records(name, keys.HOLDS)) >= MAX_HOLDS_OF_STREAM:
            raise Invalid(f"stream {name} is held for {MAX_HOLDS_OF_STREAM} links, which is the limit: delete some")
        renewed = TableUpdate(keys.stream_key(name.stream), stream.value, stream.version)
        return [renewed, TableUpdate(key, value, NOT_EXISTS)]

    async def _whole(self, name: StreamName, record: StreamRecord, cut: Cut) -> Cut:
        """Return a cut of the stream that is nowhere behind `cut`."""
        head = streams.head(record)
        if min(cut) < 0:
            return head
        known = known_segments(await self._catalog.epochs_of(name, record, [*head, *cut]))
        if is_cut(known, cut):
            return dict(cut)
        if not cut.keys() <= known.keys():
            return head
        # A mirror that began behind some segments of its first epoch is nowhere there: the head stands in.
        rest = {s: offset for s, offset in head.items() if not any(known[s].overlaps(known[other]) for other in cut)}
        filled = {**rest, **cut}
        return filled if is_cut(known, filled) else head

    async def drop(self, link_id: bytes, of: str | None = None) -> None:
        """Remove all holds of a link, or those of the scope `of`.  Raises Unavailable."""
        async for scope, found in self._pages(link_id, of):
            await self.hold(link_id, "", scope, {name: {} for name in found})

    async def bytes_of(self, link_id: bytes) -> int:
        """Return how many bytes are behind the cuts that a link holds.  Reads all streams: ask seldom."""
        return sum((await self.sizes(link_id)).values())

    async def sizes(self, link_id: bytes) -> dict[StreamName, int]:
        """Return how many bytes are behind the cuts that a link holds, by stream.  Reads all streams: ask seldom."""
        sizes: dict[StreamName, int] = {}
        async for _, found in self._pages(link_id):
            for name, cut in found.items():
                if size := await self._behind(name, cut):
                    sizes[name] = size
        return sizes

    async def give_up(self, link_id: bytes, link: str, name: StreamName, part: float) -> Cut | None:
        """Hold a part (0 to 1) of a stream less, of each of its segments the oldest bytes.  Returns the new cut.

        None: it is not held any more.  What was held of earlier epochs goes first, and all of it."""
        row = (await self._catalog.get(name.scope, [keys.hold_key(name.stream, link_id)]))[0]
        found = await self._catalog.find(name)
        if row is None or found is None:
            return None
        held = decode_hold(row.value).cut
        active = {s.segment: name.segment(SegmentId.unpack(s.segment)) for s in found.record.current.segments}
        infos = await self._segments.infos(list(active.values()))
        cut: dict[int, int] = {}
        for (segment, path), info in zip(active.items(), infos, strict=True):
            if info is None:
                return None
            if held.keys() != active.keys():
                cut[segment] = info.start_offset
            else:
                offset = held[segment] + math.ceil((info.length - held[segment]) * part)
                whole = offset >= info.length or offset <= held[segment]
                cut[segment] = min(offset, info.length) if whole else await self._segments.locate(path, offset)
        await self.hold(link_id, link, name.scope, {name: cut})
        return cut

    async def _behind(self, name: StreamName, cut: Cut) -> int:
        found = await self._catalog.find(name)
        if found is None:
            return 0
        active = [s.segment for s in found.record.current.segments]
        known = known_segments(await self._catalog.epochs_of(name, found.record, [*cut, *active]))
        if not is_cut(known, cut):
            return 0
        tail = dict.fromkeys(active, 0)
        asked = [*active, *to_measure(known, cut, tail)]
        infos = await self._segments.infos([name.segment(SegmentId.unpack(segment)) for segment in asked])
        lengths = {segment: info.length for segment, info in zip(asked, infos, strict=True) if info is not None}
        return bytes_between(known, cut, {segment: lengths.get(segment, 0) for segment in active}, lengths)

    async def _pages(self, link_id: bytes, of: str | None = None) -> AsyncIterator[tuple[str, dict[StreamName, Cut]]]:
        """Find the holds of a link, or those of the scope `of`: a scope, and cuts by stream."""
        scope = ""
        while scopes := await self._catalog.list_scopes(scope) if of is None else [of] * (scope != of):
            for scope in scopes:
                after = b""
                with suppress(NotFound):  # the scope was deleted meanwhile
                    while rows := await self._catalog.scan_once(scope, keys.STREAMS, after, HOLDS_AT_ONCE):
                        after = rows[-1][0]
                        names = [StreamName(scope, key[len(keys.STREAMS) :].decode()) for key, _ in rows]
                        yield scope, await self._found(link_id, scope, names)

    async def _found(self, link_id: bytes, scope: str, names: Sequence[StreamName]) -> dict[StreamName, Cut]:
        rows = await self._catalog.get(scope, [keys.hold_key(name.stream, link_id) for name in names])
        return {name: decode_hold(row.value).cut for name, row in zip(names, rows, strict=True) if row is not None}
