"""The source side of a link, in its own installation.

A *clean moment* of a stream is one at which no transaction is merged into some of its segments and not into others.
The commit worker (`controller/transactions/commit_worker.py`) merges segment by segment, and every batch that it
completes gives the stream's record a new version.  So lengths belong to a clean moment if, after they were read, no
transaction is being committed, and then the record still has the version that it had before: a batch that had begun
would be one or the other.  A stream of one segment needs no check, because each merge is one operation.

Work that a record states (a scale, a seal) is completed first, so that replaced segments are sealed when their
successors are offered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sarit.controller import keys
from sarit.controller.assignment import Assignment
from sarit.controller.background.timeline import Timeline
from sarit.controller.growth import Growth
from sarit.controller.limits import TIMELINE_INTERVAL_SECONDS
from sarit.controller.model import codec, streams
from sarit.controller.model.creation import creation_id
from sarit.controller.model.cuts import follows
from sarit.controller.model.epochs import creation_epoch, known_segments
from sarit.controller.model.records import State, TxnState
from sarit.controller.runner import for_each_bounded, gather_all
from sarit.core.errors import Corrupt, Invalid, NotFound, SaritError
from sarit.core.names import MARK_PREFIX, SegmentId, StreamName, is_user_name
from sarit.core.repeated_log import RepeatedLog
from sarit.mirror import offers
from sarit.mirror.fences import fence_stream
from sarit.mirror.growth import LinkGrowth
from sarit.mirror.limits import (
    BEHIND_INTERVAL_MS,
    CLEAN_MOMENT_PAUSES_SECONDS,
    MAX_GROWN_SEGMENTS,
    MAX_MIRROR_STREAMS_PER_CALL,
    MAX_OFFERED_SEGMENTS_PER_REPLY,
    MAX_STREAMS_BEHIND,
    MIRROR_BATCH_BYTES,
    MIRROR_ID_BYTES,
    MIRROR_PROTOCOL,
)
from sarit.mirror.mirror_records import MirrorRecord, read_mirror
from sarit.mirror.values import FROM_HEAD, FROM_TAIL, Offer, Site, StreamFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import SegmentInfo, Segments, TableValue
    from sarit.controller.streams import Streams
    from sarit.env.ports import Env
    from sarit.mirror.offers import Moment
    from sarit.mirror.sides import AttachedSource
    from sarit.mirror.values import LinkIdentity, Position, Range

_log = logging.getLogger("sarit.mirror")

_NO_MIRROR: Final = MirrorRecord()


@dataclass(frozen=True, slots=True)
class _Row:
    """A stream as it is stored.  `version`: of its record.  `facts_version`: as in `StreamFacts`."""

    name: StreamName
    record: StreamRecord
    version: int
    facts_version: int
    creation_id: bytes
    properties: bytes | None
    mirror: MirrorRecord | None

    @property
    def is_sealed(self) -> bool:
        """Whether a user has sealed the stream: one that is sealed because its mirror was promoted is only fenced."""
        return self.record.state is State.SEALED and not (self.mirror and self.mirror.fenced)

    @property
    def is_half_merged(self) -> bool:
        """Whether this is a mirror into which another link is merging a round."""
        return self.mirror is not None and self.mirror.decided is not None


@dataclass(slots=True)
class _Behind:
    """Since when a mirror is behind: the position of which this was found, the time, and when the timeline was read."""

    position: tuple[int, Cut]
    since_ms: int
    read_ms: int


class LocalSource:
    """The streams of this installation, as `sides.MirrorSource`."""

    def __init__(
        self, catalog: Catalog, streams: Streams, segments: Segments, env: Env, installation: str,
        growth: Growth | None = None, attached: AttachedSource | None = None,
    ) -> None:  # fmt: skip
        """`growth`: which segments have grown, as the controller knows it that uses the same `segments`; None: there
        is no such controller."""
        self._catalog = catalog
        self._streams = streams
        self._segments = segments
        self._env = env
        self._installation = installation
        self._attached = attached
        # This one only answers for times: the controller's records the cuts.
        alone = Assignment(lambda: ("", 0), None)
        self._timeline = Timeline(catalog, segments, TIMELINE_INTERVAL_SECONDS, env, alone)
        listener = (growth or Growth(segments)).listen(MAX_GROWN_SEGMENTS)
        self._growth = LinkGrowth(catalog, listener, env.clock, _is_mirrored)
        self._repeated = RepeatedLog(_log, env.clock.monotonic)
        # For each stream what its facts were read from, and the version of its record then.
        self._facts: OrderedDict[StreamName, tuple[tuple[bytes | None, ...], int]] = OrderedDict()
        self._behind: OrderedDict[StreamName, _Behind] = OrderedDict()

    def __repr__(self) -> str:
        return f"<LocalSource of installation {self._installation}>"

    @property
    def attached(self) -> AttachedSource:
        """The tables, cuts and groups of the source."""
        assert self._attached is not None, "this source was made without tables"
        return self._attached

    # -- what there is ----------------------------------------------------------------------------

    async def site(self) -> Site:
        """Return which installation this is."""
        return Site(self._installation, MIRROR_PROTOCOL, self._env.clock.wall_ms())

    async def scopes(self, after: str) -> list[str]:
        """Return a page of the names of users' scopes behind `after`; none only at the end."""
        return [scope for scope in await self._catalog.list_scopes(after) if is_user_name(scope)]

    async def streams(self, scope: str, after: str) -> list[StreamFacts]:
        """Return a page of the scope's streams behind the name `after`; none only at the end."""
        last = keys.stream_key(after) if after else b""
        with suppress(NotFound):  # the scope
            while rows := await self._catalog.scan_once(scope, keys.STREAMS, last, MAX_MIRROR_STREAMS_PER_CALL):
                last = rows[-1][0]
                names = [StreamName(scope, key[len(keys.STREAMS) :].decode()) for key, _ in rows]
                mirrored = [name for name in names if _is_mirrored(name)]
                if found := [one for one in await self.facts(scope, mirrored, FROM_HEAD) if one is not None]:
                    return found
        return []

    async def facts(self, scope: str, names: Sequence[StreamName], start_ms: int) -> list[StreamFacts | None]:
        """Return streams by name, in order; None: there is no such stream."""
        _check(scope, names)
        rows = await self._settled(scope, names)
        if start_ms == FROM_TAIL:
            tails = await self._tails(scope, names)
            heads = [tails.get(name) for name in names]
        elif start_ms == FROM_HEAD:
            heads = [None if row is None else streams.head(row.record) for row in rows]
        else:
            heads = [None if row is None else await self._head_at(row.name, start_ms) for row in rows]
        return await gather_all([self._facts_of(row, head) for row, head in zip(rows, heads, strict=True)])

    async def _facts_of(self, row: _Row | None, head: Cut | None) -> StreamFacts | None:
        if row is None or head is None:
            return None
        record = row.record
        first = (await self._catalog.epochs(row.name, record, min(map(creation_epoch, head))))[0]
        properties = {} if row.properties is None else codec.decode_properties(row.properties)
        mirror = row.mirror or _NO_MIRROR
        return StreamFacts(
            row.name, row.creation_id, record.first_number, record.created_ms, row.facts_version, record.config,
            properties, row.is_sealed, bool(mirror.fenced), dict(head), first,
            (*mirror.path, self._installation), mirror.lineages,
        )  # fmt: skip

    async def _head_at(self, name: StreamName, start_ms: int) -> Cut | None:
        with suppress(NotFound):
            return (await self._timeline.at(name, start_ms))[0]
        return None

    async def _tails(self, scope: str, names: Sequence[StreamName]) -> dict[StreamName, Cut]:
        moments = await self._moments(scope, dict.fromkeys(names))
        return {
            name: {s.segment: moment.infos[s.segment].length for s in moment.epochs[-1].segments}
            for name, moment in moments.items()
            if moment is not None
        }

    # -- offers -----------------------------------------------------------------------------------

    async def offers(self, scope: str, positions: Sequence[Position], limit: int) -> list[Offer | None]:
        """Return what is behind positions, in order; None: there is no such stream.

        An offer without lengths: the position is no position of the stream."""
        _check(scope, [position.name for position in positions])
        moments = await self._moments(scope, {position.name: position.epoch for position in positions})
        left = MAX_OFFERED_SEGMENTS_PER_REPLY
        out: list[Offer | None] = []
        for position in positions:
            moment = moments.get(position.name)
            if position.name not in moments:
                self._growth.again(position.name)
            if position.name not in moments or (moment is not None and left <= 0 and len(moment.epochs) > 1):
                # No moment was clean, or the reply is full: there is something, which is offered to the next call.
                out.append(_later(position, moment))
            elif moment is None:
                out.append(None)
            else:
                left -= sum(len(epoch.segments) for epoch in moment.epochs[1:])
                out.append(await self._offer(position, moment, limit))
        return out

    async def _offer(self, position: Position, moment: Moment, limit: int) -> Offer:
        if moment.epochs[0].number != position.epoch or not offers.is_position(moment, position):
            return offers.nothing(position, moment)
        behind = offers.missing(position, moment)
        oldest_ms = await self._oldest_ms(position, moment, behind.keys())
        end = offers.bound(position, moment, limit)
        if end is None:
            return offers.whole(position, moment, oldest_ms)
        segment, offset = end
        if offset < moment.infos[segment].length:
            offset = await self._segments.locate(position.name.segment(SegmentId.unpack(segment)), offset)
        return offers.piece(position, moment, segment, offset, oldest_ms)

    async def _oldest_ms(self, position: Position, moment: Moment, behind: Iterable[int]) -> int:
        """Return a time at or before which the first byte behind a position was appended; 0: nothing is behind."""
        name, key = position.name, (position.epoch, position.lengths)
        known = self._behind.pop(name, None)
        times = [moment.infos[segment].modified_ms for segment in behind]
        if not times:
            return 0
        now, since = self._env.clock.wall_ms(), min(times)
        if known is None or now - known.read_ms > BEHIND_INTERVAL_MS < now - known.since_ms:
            since = min(since, await self._recorded_behind(position, moment) or since)
            known = _Behind(key, since, now)
        elif known.position == key:
            known.since_ms = min(known.since_ms, since)
        else:
            # The mirror has come closer: how old the rest is was last read when it was further away.
            lagging = now - known.since_ms > BEHIND_INTERVAL_MS
            known = _Behind(key, known.since_ms if lagging else since, known.read_ms)
        self._behind[name] = known
        if len(self._behind) > MAX_STREAMS_BEHIND:
            self._behind.popitem(last=False)
        return known.since_ms

    async def _recorded_behind(self, position: Position, moment: Moment) -> int | None:
        """Return the time of the first recorded cut that is behind a position; None: there is none."""
        rows = await self._catalog.stream_records(position.name, keys.TIMELINE)
        known = known_segments(moment.epochs)
        low, high = 0, len(rows)  # the cuts of a stream follow each other, so that they can be searched
        while low < high:
            middle = (low + high) // 2
            cut = codec.decode_cut(rows[middle][1].value).cut
            if any(segment not in known for segment in cut) or follows(known, cut, position.lengths):
                low = middle + 1
            else:
                high = middle
        return codec.decode_cut(rows[low][1].value).time_ms if low < len(rows) else None

    async def grown(self, link: LinkIdentity, scope: str, wait_seconds: float) -> list[StreamName] | None:
        """Wait until streams of the scope may have grown or changed since this link asked last, and return their
        names; None: any may have.  Empty after `wait_seconds`."""
        _check(scope, [])
        return await self._growth.wait(link.link_id, scope, wait_seconds)

    # -- what links ask for -----------------------------------------------------------------------

    async def fence(self, link: LinkIdentity, scope: str, names: Sequence[StreamName], lineage: bytes) -> None:
        """Make streams read-only, since their mirrors are promoted as `lineage`.  Repeated: nothing changes."""
        _check(scope, names)
        if len(lineage) != MIRROR_ID_BYTES:
            raise Invalid(f"the id of a promotion has {len(lineage)} bytes, not {MIRROR_ID_BYTES}")
        await for_each_bounded(names, partial(self._fence, lineage))

    async def _fence(self, lineage: bytes, name: StreamName) -> None:
        await fence_stream(self._streams, name, lineage)

    # -- clean moments ----------------------------------------------------------------------------

    async def _moments(self, scope: str, wanted: Mapping[StreamName, int | None]) -> dict[StreamName, Moment | None]:
        """Return a clean moment of each stream, with its epochs from a number on (None: from the last on).

        None: there is no such stream.  A stream that had no clean moment in time is missing."""
        out: dict[StreamName, Moment | None] = {}
        left = list(wanted)
        for pause in (*CLEAN_MOMENT_PAUSES_SECONDS, None):
            rows = await self._settled(scope, left)
            found = [
                await self._moment(row, row.record.current.number if (first := wanted[row.name]) is None else first)
                for row in rows
                if row is not None
            ]
            await self._measure(found)
            unclean = await self._unclean(scope, found, {row.name: row for row in rows if row is not None})
            out |= dict.fromkeys(name for name, row in zip(left, rows, strict=True) if row is None)
            out |= {moment.name: moment for moment in found if moment.name not in unclean}
            left = list(unclean)
            if not left:
                return out
            if pause is not None:
                await asyncio.sleep(pause)
        for name in left:
            self._repeated.info(str(name), f"{name} cannot be copied yet: its transactions are being committed")
        return out

    async def _moment(self, row: _Row, first: int) -> Moment:
        name, record, head = row.name, row.record, streams.head(row.record)
        epochs = await self._catalog.epochs(name, record, max(first, 0)) or (record.current,)
        page = offers.page_of(epochs)
        more, alive = len(page) < len(epochs), offers.alive(page, head)
        return offers.Moment(name, row.facts_version, row.is_sealed and not more, head, page, more, alive, {})

    async def _measure(self, moments: Sequence[Moment]) -> None:
        """Fill in the states of all segments; those of a missing segment are missing."""
        asked = [(moment, segment) for moment in moments for segment in moment.alive]
        found = await self._infos([moment.name.segment(SegmentId.unpack(segment)) for moment, segment in asked])
        for (moment, segment), info in zip(asked, found, strict=True):
            if info is not None:
                moment.infos[segment] = info

    async def _infos(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        with suppress(Corrupt):
            return await self._segments.infos(segments)
        out: dict[str, SegmentInfo] = {}  # a damaged segment must not keep the others from being copied

        async def one(segment: str) -> None:
            with suppress(NotFound, Corrupt):
                out[segment] = await self._segments.info(segment)

        await for_each_bounded(segments, one)
        return [out.get(segment) for segment in segments]

    async def _unclean(
        self, scope: str, moments: Sequence[Moment], rows: Mapping[StreamName, _Row]
    ) -> list[StreamName]:
        """Return the streams whose lengths may belong to different moments."""
        out = [moment.name for moment in moments if len(moment.infos) < len(moment.alive)]
        checked = [moment.name for moment in moments if len(moment.infos) == len(moment.alive) and not moment.is_single]
        committing = set[StreamName]()

        async def collect(name: StreamName) -> None:
            if await self._is_committing(name):
                committing.add(name)

        await for_each_bounded(checked, collect)
        if checked:
            # Read the versions last: a transaction that ended meanwhile has changed its stream's.
            values = await self._catalog.get(scope, [keys.stream_key(name.stream) for name in checked])
            for name, value in zip(checked, values, strict=True):
                changed = value is None or value.version != rows[name].version
                if changed or name in committing or rows[name].is_half_merged:
                    out.append(name)
        return out

    async def _is_committing(self, name: StreamName) -> bool:
        prefix, after = keys.of_stream(name.stream, keys.LIVE), b""
        while rows := await self._catalog.scan_once(name.scope, prefix, after):
            if any(codec.decode_transaction(value.value).state is TxnState.COMMITTING for _, value in rows):
                return True
            after = rows[-1][0]
        return False

    # -- records ----------------------------------------------------------------------------------

    async def _settled(self, scope: str, names: Sequence[StreamName]) -> list[_Row | None]:
        """Return streams whose work is complete, in order; None: there is no such stream."""
        rows = await self._rows(scope, names)
        pending = [row.name for row in rows if row is not None and row.record.pending]
        if not pending:
            return rows

        async def complete(name: StreamName) -> None:
            await self._streams.complete_pending(name)

        await for_each_bounded(pending, complete)
        return await self._rows(scope, names)

    async def _rows(self, scope: str, names: Sequence[StreamName]) -> list[_Row | None]:
        wanted = [key for name in names for key in _keys_of(name.stream)]

        async def read(table: str) -> tuple[str, list[TableValue | None]]:
            return table, await self._catalog.tables.get(table, wanted) if wanted else []

        try:
            table, values = await self._catalog.in_scope(scope, read)
        except NotFound:
            return [None] * len(names)
        incarnation, step = keys.incarnation_of(table), len(_keys_of(""))
        return [self._row(name, incarnation, values[n * step : (n + 1) * step]) for n, name in enumerate(names)]

    def _row(self, name: StreamName, incarnation: bytes, values: Sequence[TableValue | None]) -> _Row | None:
        stream, created, *_ = values
        if stream is None or codec.is_deleting(stream.value):
            self._facts.pop(name, None)
            return None
        record, version = self._catalog.seen.decode(name, stream)
        stored = None if created is None else codec.decode_creation(created.value)
        # Commits write a record again unchanged: the facts keep the version that they had then.
        content = tuple(None if value is None else value.value for value in values)
        known, facts_version = self._facts.pop(name, (None, version))
        self._facts[name] = content, facts_version if known == content else version
        if len(self._facts) > MAX_STREAMS_BEHIND:
            self._facts.popitem(last=False)
        created_as = creation_id(incarnation, name.stream, record.first_number, stored)
        mirror = read_mirror(name, values[3])
        return _Row(name, record, version, self._facts[name][1], created_as, content[2], mirror)

    # -- bytes ------------------------------------------------------------------------------------

    async def read(self, scope: str, ranges: Sequence[Range]) -> list[bytes]:
        """Return bytes, in order; the last ones may be cut short, or missing, if a reply would be too long.

        Raises Truncated, NotFound: the first range cannot be read."""
        _check(scope, [one.name for one in ranges])
        wanted, left = list[tuple[str, int, int]](), MIRROR_BATCH_BYTES
        for one in ranges:
            if min(one.segment, one.offset, one.length) < 0:
                raise Invalid(f"a range of {one.name} is negative")
            if left <= 0:
                break
            wanted.append((one.name.segment(SegmentId.unpack(one.segment)), one.offset, min(one.length, left)))
            left -= one.length
        out: list[bytes] = []
        for one, data in zip(ranges, await self._segments.read_many(wanted), strict=False):
            if isinstance(data, SaritError):
                if not out:
                    raise data
                break
            out.append(data)
            if len(data) < one.length:  # what follows would leave a hole in the answer
                break
        return out


def _keys_of(stream: str) -> list[bytes]:
    """Return the keys of what is known of a stream."""
    return [
        keys.stream_key(stream), keys.creation_key(stream), keys.properties_key(stream), keys.mirror_key(stream),
    ]  # fmt: skip


def _later(position: Position, moment: Moment | None) -> Offer:
    """Return an offer of nothing yet, with more behind it."""
    version = 0 if moment is None else moment.version
    return Offer(position.name, dict(position.lengths), frozenset(), {}, (), True, version, 0, 0)


def _is_mirrored(name: StreamName) -> bool:
    """Return whether a stream is copied by links: those of users, and their watermarks."""
    return is_user_name(name.stream.removeprefix(MARK_PREFIX))


def _check(scope: str, names: Sequence[StreamName]) -> None:
    """Check the names that a call gives.  Raises Invalid."""
    if not is_user_name(scope):
        raise Invalid("only streams in scopes of users can be copied")
    if len(names) > MAX_MIRROR_STREAMS_PER_CALL:
        raise Invalid(f"a call names {len(names)} streams; the most is {MAX_MIRROR_STREAMS_PER_CALL}")
    if any(name.scope != scope or not _is_mirrored(name) for name in names):
        raise Invalid(f"a call on scope {scope} names a stream that is not in it, or an internal one")
