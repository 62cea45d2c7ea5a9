"""Retention, carried out: cuts are taken at the tails of streams with a policy, and streams truncated at them.

Taking a cut, truncating, forgetting cuts that lie before the head: each step stands for itself and may be the last a
controller does; the next look goes on from what is stored.  Times are the stream's own (`model/retention.py`): from
the first look on they go by the monotonic clock, so that no wall clock, when it jumps or is wrong from the start,
truncates anything by itself.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.controller import keys
from sarit.controller.model import codec, retention, streams
from sarit.controller.model.cuts import bytes_between, follows, is_cut, to_measure
from sarit.controller.model.epochs import known_segments
from sarit.controller.model.records import CutRecord, State
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import every
from sarit.core.errors import Conflict, Invalid, NotFound
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SegmentId
from sarit.core.policies import RetentionType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch, SegmentRange
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.core.names import StreamName
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")

# Of a pause: what does not count of it is told from here on.
_TOLD_PAUSE_MS: Final = 3_600_000


class Retention:
    """Truncates streams by their policies."""

    def __init__(self, catalog: Catalog, streams: Streams, segments: Segments, env: Env) -> None:
        self._catalog = catalog
        self._streams = streams
        self._segments = segments
        self._env = env
        self._wall_ahead_ms = env.clock.wall_ms() - self._monotonic_ms()
        self._ahead_ms: dict[StreamName, int] = {}  # of the monotonic clock, by stream
        self._told_of_a_pause = False

    def __repr__(self) -> str:
        return f"<Retention, has looked at {len(self._ahead_ms)} streams>"

    async def look(self, name: StreamName) -> bool:
        """Do what a stream's policy asks for now; False when it has none, or is no more.

        Raises Unavailable, and Conflict, NotFound, Sealed when the stream changes meanwhile: look again later."""
        found = await self._catalog.find(name)
        if found is None or found.record.config.retention.type is RetentionType.NONE:
            return False
        record = found.record
        if record.state is not State.ACTIVE:
            return record.state is not State.DELETING
        stored = await self._stored(name)
        released = await self._released(name)
        head = streams.head(record)
        epochs = await self._epochs(name, record, head, (*(cut.cut for cut, _ in stored), *released))
        known = known_segments(epochs)
        behind = [entry for entry in stored if not self._is_ahead(known, head, entry[0].cut)]
        kept = [entry for entry in stored if entry not in behind]
        cuts = [cut for cut, _ in kept]
        await self._forget(name, behind)
        last = cuts[-1] if cuts else None
        time_ms = self._time_ms(name, record, last if last is not None and last.cut != head else None)
        tail = await self._tail(name, record, known, last, time_ms)
        if retention.is_due(record.config.retention, last, tail, head):
            await self._store(name, tail)
        valid = [cut if is_cut(known, cut) else {} for cut in released]
        bound = retention.released_by_all(head, valid, epochs)

        async def still() -> bool:
            # Who subscribes later changes the stream's record, too.
            return await self._released(name) == released

        target = retention.truncation(record.config.retention, tail, cuts, bound, epochs)
        if target is not None and target != head and follows(known, head, target):
            with suppress(Invalid):  # somebody truncated it further
                await self._streams.truncate(name, target, still)
                _log.info("%s was truncated by its retention policy", name)
        doomed = {cut.time_ms for cut in retention.surplus(cuts)}
        await self._forget(name, [entry for entry in kept if entry[0].time_ms in doomed])
        return True

    def forget_all_but(self, names: Collection[StreamName]) -> None:
        """Only these streams have a policy still."""
        self._ahead_ms = {name: ahead for name, ahead in self._ahead_ms.items() if name in names}

    # -- the time of a stream ---------------------------------------------------------------------

    def _monotonic_ms(self) -> int:
        return int(self._env.clock.monotonic() * 1000)

    def _time_ms(self, name: StreamName, record: StreamRecord, last: CutRecord | None) -> int:
        """Now; `last`: the newest cut with anything before it."""
        now = self._monotonic_ms()
        if name not in self._ahead_ms:
            wall = self._wall_ahead_ms + now
            time = retention.first_time_ms(record.config.retention, last, wall)
            self._ahead_ms[name] = time - now
            if wall - time >= _TOLD_PAUSE_MS:
                self._tell_of_a_pause(name, record, wall - time)
        return self._ahead_ms[name] + now

    def _tell_of_a_pause(self, name: StreamName, record: StreamRecord, left_out_ms: int) -> None:
        """Once: it is the same for all streams."""
        if self._told_of_a_pause or record.config.retention.type is not RetentionType.TIME:
            return
        self._told_of_a_pause = True
        counted = retention.longest_pause_ms(record.config.retention)
        _log.warning(
            "by the wall clock, nobody looked at %s for %.1f hours: was the node off, or is its clock wrong? "
            "Retention by time counts %.1f hours of it, and other streams' pauses alike",
            name, (left_out_ms + counted) / 3_600_000, counted / 3_600_000,
        )  # fmt: skip

    # -- what is stored ---------------------------------------------------------------------------

    async def _stored(self, name: StreamName) -> list[tuple[CutRecord, int]]:
        """The cuts taken, each with its version, by time."""
        rows = await self._catalog.owned(name, keys.CUTS)
        return [(codec.decode_cut(value.value), value.version) for _, value in rows]

    async def _released(self, name: StreamName) -> list[Cut]:
        rows = await self._catalog.owned(name, keys.SUBSCRIBERS)
        return [codec.decode_subscriber(value.value).cut for _, value in rows]

    async def _epochs(
        self, name: StreamName, record: StreamRecord, head: Cut, others: Iterable[Mapping[int, int]]
    ) -> tuple[Epoch, ...]:
        """All from the first segment's of these on; negative ids, which no stream has, are let pass."""
        wanted = [*head, *(segment for cut in others for segment in cut if segment >= 0)]
        return await self._catalog.epochs_of(name, record, wanted)

    @staticmethod
    def _is_ahead(known: Mapping[int, SegmentRange], head: Cut, cut: Cut) -> bool:
        return is_cut(known, cut) and follows(known, head, cut)

    async def _store(self, name: StreamName, cut: CutRecord) -> None:
        updates = [
            # There is such a number only while there is no such stream: nothing is left behind of a deleted one.
            TableUpdate(keys.number_key(name.stream), None, NOT_EXISTS),
            TableUpdate(keys.cut_key(name.stream, cut.time_ms), codec.encode_cut(cut), NOT_EXISTS),
        ]
        with suppress(Conflict):  # another controller took one
            await self._catalog.update(name.scope, updates)

    async def _forget(self, name: StreamName, cuts: Sequence[tuple[CutRecord, int]]) -> None:
        updates = [TableUpdate(keys.cut_key(name.stream, cut.time_ms), None, version) for cut, version in cuts]
        if updates:
            with suppress(Conflict):
                await self._catalog.update(name.scope, updates)

    # -- the tail ---------------------------------------------------------------------------------

    async def _tail(
        self, name: StreamName, record: StreamRecord, known: Mapping[int, SegmentRange], last: CutRecord | None,
        time_ms: int,
    ) -> CutRecord:  # fmt: skip
        """The end of the stream now, and the bytes before it."""
        active = [s.segment for s in record.current.segments]
        end = dict(zip(active, await every([self._length(name, s) for s in active]), strict=True))
        start = streams.head(record) if last is None else last.cut
        ranges = known_segments(record.epochs) | dict(known)
        ended = to_measure(ranges, start, end)
        lengths = dict(zip(ended, await every([self._length(name, s) for s in ended]), strict=True))
        size = bytes_between(ranges, start, end, lengths)
        if last is None:
            return CutRecord(time_ms, size, end)
        return CutRecord(max(time_ms, last.time_ms + 1), last.size + size, end)

    async def _length(self, name: StreamName, segment: int) -> int:
        """In bytes; 0 when it was truncated away meanwhile."""
        try:
            return (await self._segments.info(name.segment(SegmentId.unpack(segment)))).length
        except NotFound:
            return 0
