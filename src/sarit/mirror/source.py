"""The source side of a link, in its own installation."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sarit.controller import keys
from sarit.controller.assignment import Assignment
from sarit.controller.background.timeline import Timeline
from sarit.controller.growth import Growth
from sarit.controller.holds import Holds
from sarit.controller.limits import TIMELINE_INTERVAL_SECONDS
from sarit.controller.model import codec, streams
from sarit.controller.model.epochs import creation_epoch
from sarit.controller.runner import for_each_bounded, gather_all
from sarit.core.errors import Invalid, NotFound, SaritError
from sarit.core.names import MARK_PREFIX, SegmentId, StreamName, is_user_name
from sarit.mirror import offers
from sarit.mirror.compression import compresses
from sarit.mirror.fences import fence_stream
from sarit.mirror.growth import LinkGrowth
from sarit.mirror.lags import Lags
from sarit.mirror.limits import (
    MAX_GROWN_SEGMENTS,
    MAX_LINK_NAME_CHARACTERS,
    MAX_MIRROR_STREAMS_PER_CALL,
    MAX_OFFERED_SEGMENTS_PER_REPLY,
    MIRROR_BATCH_BYTES,
    MIRROR_ID_BYTES,
    MIRROR_PROTOCOL,
)
from sarit.mirror.mirror_records import MirrorRecord
from sarit.mirror.moments import Moments
from sarit.mirror.values import FROM_HEAD, FROM_TAIL, Offer, Site, StreamFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.env.ports import Env
    from sarit.mirror.moments import SourceStream
    from sarit.mirror.offers import Moment
    from sarit.mirror.ports import AttachedSource
    from sarit.mirror.values import LinkIdentity, Position, Range

_NO_MIRROR: Final = MirrorRecord()


class LocalSource:
    """The streams of this installation, as `ports.MirrorSource`."""

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
        self._holds = Holds(catalog, segments, env.clock)
        listener = (growth or Growth(segments)).listen(MAX_GROWN_SEGMENTS)
        self._growth = LinkGrowth(catalog, listener, env.clock, _is_mirrored)
        self._moments = Moments(catalog, streams, segments, env)
        self._lags = Lags(catalog, env.clock)

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
        return Site(self._installation, MIRROR_PROTOCOL, self._env.clock.wall_ms(), compresses())

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
        rows = await self._moments.settled(scope, names)
        if start_ms == FROM_TAIL:
            tails = await self._tails(scope, names)
            heads = [tails.get(name) for name in names]
        elif start_ms == FROM_HEAD:
            heads = [None if row is None else streams.head(row.record) for row in rows]
        else:
            heads = [None if row is None else await self._head_at(row.name, start_ms) for row in rows]
        return await gather_all([self._facts_of(row, head) for row, head in zip(rows, heads, strict=True)])

    async def _facts_of(self, row: SourceStream | None, head: Cut | None) -> StreamFacts | None:
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
        moments = await self._moments.at(scope, dict.fromkeys(names))
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
        moments = await self._moments.at(scope, {position.name: position.epoch for position in positions})
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
        if len(position.lengths) < len(moment.epochs[0].segments):
            # What the mirror does not have of its own epoch lies before the head at which it began.
            moment = replace(moment, alive=moment.alive - (moment.epochs[0].ids - position.lengths.keys()))
        behind = offers.missing(position, moment)
        oldest_ms = await self._lags.oldest_ms(position, moment, behind.keys())
        if not moment.is_single:
            cut = None
            if sum(end - begin for begin, end in behind.values()) > limit:
                cuts = await self._timeline.clean_cuts(position.name)
                cut = offers.clean_cut(position, moment, limit, cuts)
            if cut is None:
                return offers.whole(position, moment, oldest_ms)
            return offers.piece(position, moment, cut, oldest_ms)
        end = offers.bound(position, moment, limit)
        if end is None:
            return offers.whole(position, moment, oldest_ms)
        segment, offset = end
        if offset < moment.infos[segment].length:
            offset = await self._segments.locate(position.name.segment(SegmentId.unpack(segment)), offset)
        return offers.piece(position, moment, {segment: offset}, oldest_ms)

    async def grown(self, link: LinkIdentity, scope: str, wait_seconds: float) -> list[StreamName] | None:
        """Wait until streams of the scope may have grown or changed since this link asked last, and return their
        names; None: any may have.  Empty after `wait_seconds`."""
        _check(scope, [])
        _check_link(link)
        return await self._growth.wait(link.link_id, scope, wait_seconds)

    # -- what links ask for -----------------------------------------------------------------------

    async def hold(self, link: LinkIdentity, scope: str, cuts: Sequence[tuple[StreamName, Cut]]) -> None:
        """Keep what is behind these cuts: truncation waits for this link from now on.  An empty cut: not any more.

        No cuts: keep nothing in this scope for the link any more."""
        _check(scope, [name for name, _ in cuts])
        _check_link(link)
        if not cuts:
            await self._holds.drop(link.link_id, scope)
            return
        await self._holds.hold(link.link_id, link.name, scope, dict(cuts))

    async def drop_holds(self, link_id: bytes) -> None:
        """Keep nothing for a link any more, because it was deleted."""
        await self._holds.drop(link_id)

    async def held_bytes(self, link_id: bytes) -> int:
        """Return how many bytes are kept for a link, and not copied yet.  Reads all streams: ask seldom."""
        return await self._holds.bytes_of(link_id)

    async def fence(self, link: LinkIdentity, scope: str, names: Sequence[StreamName], lineage: bytes) -> None:
        """Make streams read-only, since their mirrors are promoted as `lineage`.  Repeated: nothing changes."""
        _check(scope, names)
        if len(lineage) != MIRROR_ID_BYTES:
            raise Invalid(f"the id of a promotion has {len(lineage)} bytes, not {MIRROR_ID_BYTES}")
        await for_each_bounded(names, partial(self._fence, lineage))

    async def _fence(self, lineage: bytes, name: StreamName) -> None:
        await fence_stream(self._streams, name, lineage)

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


def _later(position: Position, moment: Moment | None) -> Offer:
    """Return an offer of nothing yet, with more behind it."""
    version = 0 if moment is None else moment.version
    return Offer(position.name, dict(position.lengths), frozenset(), {}, (), True, version, 0, 0)


def _is_mirrored(name: StreamName) -> bool:
    """Return whether a stream is copied by links: those of users, and their watermarks."""
    return is_user_name(name.stream.removeprefix(MARK_PREFIX))


def _check_link(link: LinkIdentity) -> None:
    """Check the identity that a call gives.  Raises Invalid."""
    if len(link.link_id) != MIRROR_ID_BYTES or len(link.name) > MAX_LINK_NAME_CHARACTERS or not link.name.isprintable():
        raise Invalid("the identity of the link is not well formed")


def _check(scope: str, names: Sequence[StreamName]) -> None:
    """Check the names that a call gives.  Raises Invalid."""
    if not is_user_name(scope):
        raise Invalid("only streams in scopes of users can be copied")
    if len(names) > MAX_MIRROR_STREAMS_PER_CALL:
        raise Invalid(f"a call names {len(names)} streams; the most is {MAX_MIRROR_STREAMS_PER_CALL}")
    if any(name.scope != scope or not _is_mirrored(name) for name in names):
        raise Invalid(f"a call on scope {scope} names a stream that is not in it, or an internal one")
