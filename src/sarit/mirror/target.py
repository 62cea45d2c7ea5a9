"""The installation that has the mirrors, as the other side of a link sees it.

A mirror is a stream with the creation id, the epochs and the segments of its source.  Its record names the link that
writes it, so the controller refuses to change it; its segments are flagged in the store, so no client writes them.
The row beside the record (`mirror_records.py`) says what the link may do: only the link that made a mirror writes it,
and only until it is promoted.

Calls of a link change a mirror under the stream's lock, and by compare-and-set.  Only bytes are written without it: an
append names the offset at which the segment has to end, and the segments of a promoted mirror are sealed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sarit.controller import keys
from sarit.controller.model.epochs import creation_epoch
from sarit.controller.model.records import State
from sarit.controller.runner import gather_all
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError, Sealed, Unavailable
from sarit.core.names import SegmentId
from sarit.mirror.beginnings import Beginnings, refusal, refused
from sarit.mirror.compression import compresses
from sarit.mirror.divergence import Divergence
from sarit.mirror.kept_copies import KeptCopies
from sarit.mirror.limits import (
    MAX_LINK_SCOPES_SEEN,
    MAX_MIRROR_STREAMS_PER_CALL,
    MIRROR_PROTOCOL,
    MIRROR_TRIES,
    MIRRORS_AT_ONCE,
)
from sarit.mirror.mirror_checks import check_link, check_round, check_scope, order_of
from sarit.mirror.open_mirrors import Mirror, OpenMirrors
from sarit.mirror.promotion import Promotion
from sarit.mirror.restarts import Restarts
from sarit.mirror.round_steps import RoundSteps
from sarit.mirror.staging import Staging, StagingMissing
from sarit.mirror.values import MirrorState, MirrorStatus, Position, Site, Written
from sarit.security.quotas import QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.controller.ports import Segments
    from sarit.controller.scopes import Scopes
    from sarit.controller.streams import Streams
    from sarit.core.names import StreamName
    from sarit.env.ports import Env
    from sarit.mirror.link_table import LinkTable
    from sarit.mirror.ports import AttachedTarget
    from sarit.mirror.values import LinkIdentity, Round, StreamFacts, Write

S = TypeVar("S")
T = TypeVar("T")
_log = logging.getLogger("sarit.mirror")
Outcome: TypeAlias = Mirror | MirrorState


class LocalTarget:
    """The mirrors of this installation, as `ports.MirrorTarget`."""

    def __init__(
        self, catalog: Catalog, streams: Streams, scopes: Scopes, segments: Segments, env: Env, installation: str,
        attached: AttachedTarget | None = None, links: LinkTable | None = None,
    ) -> None:  # fmt: skip
        """`links`: where it is recorded which links write here; None: nowhere."""
        self._streams = streams
        self._segments = segments
        self._env = env
        self._installation = installation
        self._attached = attached
        self._links = links
        self._recorded: set[tuple[bytes, str]] = set()  # links and scopes in the table of links
        self._mirrors = OpenMirrors(catalog)
        self._staging = Staging(segments)
        self._steps = RoundSteps(self._mirrors, streams.runner, self._staging)
        self._beginnings = Beginnings(self._mirrors, streams, scopes, installation, links)
        copies = KeptCopies(catalog, segments, env)
        self._promotion = Promotion(streams, segments, env, installation, self.resolve)
        self._divergence = Divergence(streams, segments, copies)
        self._restarts = Restarts(streams, segments, copies)

    def __repr__(self) -> str:
        return f"<LocalTarget of installation {self._installation}>"

    @property
    def attached(self) -> AttachedTarget:
        """The tables, cuts and groups of the mirrors."""
        assert self._attached is not None, "this target was made without tables"
        return self._attached

    async def site(self) -> Site:
        """Return which installation this is."""
        return Site(self._installation, MIRROR_PROTOCOL, self._env.clock.wall_ms(), compresses())

    # -- begin ------------------------------------------------------------------------------------

    async def begin(
        self, link: LinkIdentity, scope: str, streams: Sequence[StreamFacts], *, discard_divergent: bool = False
    ) -> list[MirrorState]:
        """Make mirrors of streams, if there are none, and return their states, in order."""
        _check(link, scope, [facts.name for facts in streams])
        known = await self._mirrors.identified(scope, [facts.name for facts in streams])
        promoted = None in known and self._links is not None and await self._links.is_promoted(link.link_id)
        if not promoted:
            await self._beginnings.ensure_scope(scope)
            await self._record(link, scope)
        outcomes: dict[int, Outcome] = {}

        async def one(at: int) -> None:
            if promoted and known[at] is None:
                reason = f"the mirrors of link {link.name} are promoted here, and it makes no more: delete the link"
                outcomes[at] = refused(streams[at].name, reason)
            else:
                outcomes[at] = await self._begin(link, scope, streams[at], known[at], discard=discard_divergent)

        order = order_of(streams)
        marks = [at for at in order if streams[at].name.stream.startswith("_")]
        for group in (marks, [at for at in order if at not in set(marks)]):
            await _in_parts(group, one)
        return await self._described(scope, [outcomes[at] for at in range(len(streams))])

    async def _record(self, link: LinkIdentity, scope: str) -> None:
        """Record once that a link writes into a scope, so that it is listed here, and can be promoted."""
        if self._links is not None and (link.link_id, scope) not in self._recorded:
            await self._links.passive(link, scope)
            if len(self._recorded) >= MAX_LINK_SCOPES_SEEN:
                self._recorded.clear()
            self._recorded.add((link.link_id, scope))

    async def _begin(
        self, link: LinkIdentity, scope: str, facts: StreamFacts, known: Mirror | None, *, discard: bool
    ) -> Outcome:
        if (no := self._beginnings.impossible(scope, facts)) is not None:
            return no
        if known is not None and self._beginnings.is_current(link, facts, known):
            return known
        if known is not None and self._beginnings.is_former_source(link, facts, known):
            # The facts could be forged to make a stream read-only, or to give it up: only an administrator here
            # decides that.
            if link.installation != self._installation:
                return refused(facts.name, "it is a stream that others copied: let a link of this side pull it back")
            no = await self._rejoin(link, facts, discard=discard)
            if no is not None:
                return no

        async def work(mirror: Mirror | None) -> Outcome | None:
            if mirror is None:
                if not await self._beginnings.mark_fits(link, facts.name):
                    return refused(facts.name, "it is of a stream that is no mirror of this link")
                await self._beginnings.create(link, facts)
                return None  # the caller completes the creation, and asks again
            if (no := await self._beginnings.refusal(link, facts, mirror)) is not None:
                return no
            return await self._steps.carry_out(await self._beginnings.take_over(link, facts, mirror))

        try:
            return await self._locked(facts.name, work)
        except QuotaExceeded as error:
            return refused(facts.name, str(error))

    # -- states -----------------------------------------------------------------------------------

    async def states(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[MirrorState]:
        """Return the states of mirrors, in order, without changing anything."""
        _check(link, scope, names)
        mirrors = await self._mirrors.read(scope, names)
        outcomes = [
            MirrorState(name, MirrorStatus.READY) if mirror is None else refusal(link, mirror) or mirror
            for name, mirror in zip(names, mirrors, strict=True)
        ]
        return await self._described(scope, outcomes)

    async def _described(self, scope: str, outcomes: Sequence[Outcome]) -> list[MirrorState]:
        """Return the states of mirrors, those that are known already as they are."""
        mirrors = [one for one in outcomes if isinstance(one, Mirror)]
        lengths = await self._lengths_of(mirrors)
        pairs = zip(mirrors, lengths, strict=True)
        places = [mirror.place(s, at) for mirror, found in pairs for s, at in (found or {}).items()]
        staged = await self._staging.lengths(places)
        found = iter(lengths)
        return [one if isinstance(one, MirrorState) else _state(one, next(found), staged) for one in outcomes]

    async def _lengths_of(self, mirrors: Sequence[Mirror]) -> list[Cut | None]:
        """Return the lengths of the segments of the positions of mirrors, in order; None: some are missing."""
        wanted: list[list[int]] = []
        for mirror in mirrors:
            known = await self._mirrors.known(mirror) if mirror.row.head else {}
            wanted.append(mirror.copied(mirror.record.current.segments, known))
        names = [m.name.segment(SegmentId.unpack(s)) for m, ids in zip(mirrors, wanted, strict=True) for s in ids]
        infos = iter(await self._segments.infos(names) if names else [])
        out: list[Cut | None] = []
        for ids in wanted:
            found = {s: next(infos) for s in ids}
            lengths = {s: info.length for s, info in found.items() if info is not None}
            out.append(lengths if len(lengths) == len(ids) else None)
        return out

    # -- bytes ------------------------------------------------------------------------------------

    async def write(self, link: LinkIdentity, scope: str, writes: Sequence[Write]) -> list[Written]:
        """Append or stage bytes, durably."""
        names = list(dict.fromkeys(one.name for one in writes))
        _check(link, scope, names)
        mirrors = dict(zip(names, await self._mirrors.read(scope, names), strict=True))
        outcomes: list[Written | None] = [_unwritable(link, mirrors[one.name], one) for one in writes]
        left = [at for at, outcome in enumerate(outcomes) if outcome is None]
        open_mirrors = {name: mirror for name, mirror in mirrors.items() if mirror is not None}
        ends = await self._ends(open_mirrors, [writes[at] for at in left if writes[at].staged])
        direct = [at for at in left if not writes[at].staged]
        staged = [at for at in left if writes[at].staged]
        if direct:
            appends = [(_name(writes[at]), writes[at].offset, writes[at].data) for at in direct]
            for at, found in zip(direct, await self._segments.append_at_many(appends), strict=True):
                outcomes[at] = _written(found)
        if staged:
            stagings = [
                (open_mirrors[one.name].place(one.segment, ends[_name(one)]), one.offset, one.data)
                for one in map(writes.__getitem__, staged)
            ]
            for at, (place, _, _), found in zip(staged, stagings, await self._staging.append(stagings), strict=True):
                outcomes[at] = _written(found)
                if isinstance(found, Sealed):
                    # A round with it was to be decided: begin again.  Only if it was not, the bytes are of no use.
                    await self._drop_undecided(link, writes[at].name, [writes[at].segment])
                    outcomes[at] = Written(place.base, refused=True)
        return [outcome or Written(-1, refused=True) for outcome in outcomes]

    async def _ends(self, mirrors: Mapping[StreamName, Mirror], writes: Iterable[Write]) -> dict[str, int]:
        """Return where the mirror's segments end that bytes are staged for."""
        out: dict[str, int] = {}
        present: dict[str, int] = {}
        for one in writes:
            mirror = mirrors[one.name]
            begins = mirror.starts.get(one.segment, 0)
            if creation_epoch(one.segment) > mirror.record.current.number:
                out[_name(one)] = begins
            else:
                present[_name(one)] = begins
        infos = await self._segments.infos(list(present)) if present else []
        for (name, begins), info in zip(present.items(), infos, strict=True):
            out[name] = begins if info is None else info.length
        return out

    # -- rounds -----------------------------------------------------------------------------------

    async def finish(self, link: LinkIdentity, scope: str, rounds: Sequence[Round]) -> list[MirrorState]:
        """Decide rounds whose bytes are all staged, durably, and carry them out."""
        _check(link, scope, [one.name for one in rounds])
        outcomes = await _in_parts(rounds, lambda one: self._finish(link, one))
        return await self._described(scope, outcomes)

    async def _finish(self, link: LinkIdentity, one: Round) -> Outcome:
        async def work(mirror: Mirror | None) -> Outcome | None:
            if mirror is None:
                return MirrorState(one.name, MirrorStatus.READY)
            if (no := refusal(link, mirror)) is not None:
                return no
            mirror = await self._steps.carry_out(mirror)
            (lengths,) = await self._lengths_of([mirror])
            if mirror.record.pending or lengths != one.before or mirror.record.state is not State.ACTIVE:
                return mirror if not mirror.record.pending else None
            try:
                known = await self._mirrors.known(mirror)
                check_round(one, mirror.record.current, lengths, mirror.starts, mirror.row.head, known)
            except Invalid as error:
                return refused(one.name, f"the link asks for what cannot be: {error}")
            return await self._decide(mirror, one)

        outcome = await self._locked(one.name, work)
        if one.head and isinstance(outcome, Mirror):
            with suppress(Invalid, Sealed, NotFound):  # the mirror begins there, or behind it, or is sealed
                await self._streams.truncate(one.name, one.head)
                (found,) = await self._mirrors.read(one.name.scope, [one.name])
                outcome = found or outcome
        return outcome

    async def _decide(self, mirror: Mirror, one: Round) -> Mirror:
        """Decide a round, if its bytes are all staged, and carry it out."""
        bases = {s: one.before.get(s, mirror.starts.get(s, 0)) for s in one.after}
        grown = {s: mirror.place(s, base) for s, base in bases.items() if one.after[s] > base}
        needed = {place: one.after[s] - place.base for s, place in grown.items()}
        if needed and not await self._staging.seal(needed):
            useless = set(await self._staging.useless(needed))
            return await self._steps.drop(mirror, [s for s, place in grown.items() if place in useless])
        if not (needed or one.epochs or one.ends):
            return mirror
        if len(needed) == 1 and not one.epochs and not one.ends:
            # One merge is all or nothing by itself.
            await self._steps.merge_one(*needed)
            return mirror
        row = replace(mirror.row, decided=replace(one, head={}))
        # Enter the round before it is decided: after a crash, the sweeper finds it by this entry, and carries it out.
        catalog, entry = self._streams.catalog, keys.pending_stream_key(one.name)
        entered = await catalog.index_pending(entry)
        done = await self._steps.carry_out(await self._mirrors.store(mirror, row=row))
        await catalog.remove_pending_if_unchanged(entry, entered)
        return done

    async def drop(self, link: LinkIdentity, scope: str, segments: Sequence[tuple[StreamName, int]]) -> None:
        """Delete what is staged for segments, unless a round with it is decided."""
        _check(link, scope, list(dict.fromkeys(name for name, _ in segments)))
        wanted: dict[StreamName, list[int]] = {}
        for name, segment in segments:
            wanted.setdefault(name, []).append(segment)

        await _in_parts(list(wanted), lambda name: self._drop_undecided(link, name, wanted[name]))

    async def _drop_undecided(self, link: LinkIdentity, name: StreamName, segments: Iterable[int]) -> None:
        for _ in range(MIRROR_TRIES):
            # Under the lock: a call of a connection that was cut may be about to decide a round with it.
            async with self._streams.locks.hold(name):
                (mirror,) = await self._mirrors.read(name.scope, [name])
                with suppress(Conflict):  # another controller changed the stream
                    if mirror is not None and refusal(link, mirror) is None and mirror.row.decided is None:
                        await self._steps.drop(mirror, segments)
                    return

    async def finish_round(self, name: StreamName) -> None:
        """Carry out the round that is decided for a mirror.  Raises Unavailable."""

        async def work(mirror: Mirror | None) -> Outcome | None:
            ready = MirrorState(name, MirrorStatus.READY)
            return ready if mirror is None else await self._steps.carry_out(mirror)

        if isinstance(found := await self._locked(name, work), MirrorState) and found.status is MirrorStatus.BUSY:
            raise Unavailable(found.reason)

    async def resolve(self, name: StreamName) -> None:
        """Finish the round that is decided for a mirror, and delete what is staged of one that is not.

        Raises Conflict (with the reason, if the mirror stays as it is), Unavailable."""

        async def work(mirror: Mirror | None) -> Outcome | None:
            if mirror is None:
                return MirrorState(name, MirrorStatus.READY)
            mirror = await self._steps.carry_out(mirror)
            segments = {s.segment for epoch in mirror.record.epochs[-2:] for s in epoch.segments}
            return await self._steps.drop(mirror, sorted(segments))

        if isinstance(found := await self._locked(name, work), MirrorState) and found.status is MirrorStatus.BUSY:
            raise Conflict(found.reason)

    # -- promotion --------------------------------------------------------------------------------

    async def restart(self, link: LinkIdentity, scope: str, facts: StreamFacts) -> MirrorState:
        """Begin a mirror again at the head in `facts`."""
        _check(link, scope, [facts.name])
        if (no := self._beginnings.impossible(scope, facts)) is not None:
            return no
        (known,) = await self._mirrors.read(scope, [facts.name])
        if known is not None and (no := refusal(link, known)) is not None:
            return no
        try:
            await self.resolve(facts.name)
        except Conflict as error:
            return MirrorState(facts.name, MirrorStatus.BUSY, reason=str(error))
        lost = await self._restarts.clear(link, facts)
        if isinstance(lost, MirrorState):
            return lost
        outcome = await self._begin(link, scope, facts, None, discard=False)
        if lost and isinstance(outcome, Mirror):
            outcome = await self._locked(facts.name, lambda mirror: self._count_lost(link, mirror, lost))
        return (await self._described(scope, [outcome]))[0]

    async def _count_lost(self, link: LinkIdentity, mirror: Mirror | None, lost: int) -> Outcome | None:
        if mirror is None or refusal(link, mirror) is not None or mirror.row.lost >= lost:
            return mirror
        return await self._mirrors.store(mirror, row=replace(mirror.row, lost=lost))

    async def promote(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[MirrorState]:
        """Make streams of mirrors, for writers; a stream's watermarks with it."""
        _check(link, scope, names)
        return await _in_parts(names, lambda name: self._promotion.promote(link, name))

    async def _rejoin(self, link: LinkIdentity, facts: StreamFacts, *, discard: bool) -> MirrorState | None:
        """Make a former source the mirror of the promoted stream in `facts`, or delete it, or return why not."""
        for _ in range(MIRROR_TRIES):
            with suppress(Conflict):
                return await self._divergence.rejoin(link, facts, discard=discard)
        return MirrorState(facts.name, MirrorStatus.BUSY, reason=f"stream {facts.name} is changed by others")

    async def _locked(self, name: StreamName, work: Callable[[Mirror | None], Awaitable[Outcome | None]]) -> Outcome:
        """Do `work` on a mirror without pending work, under the stream's lock, until it returns something.

        It is done again after a Conflict: another controller changed the stream."""
        for _ in range(MIRROR_TRIES):
            await self._streams.complete_pending(name)
            async with self._streams.locks.hold(name):
                (mirror,) = await self._mirrors.identified(name.scope, [name])
                if mirror is not None and mirror.record.pending and mirror.record.state is not State.DELETING:
                    continue
                with suppress(Conflict):
                    try:
                        outcome = await work(mirror)
                    except StagingMissing as error:
                        return _incomplete(name, error)
                    if outcome is not None and not (isinstance(outcome, Mirror) and outcome.record.pending):
                        return outcome
        return MirrorState(name, MirrorStatus.BUSY, reason=f"stream {name} is changed by too many others at once")


def _check(link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> None:
    """Check a call of a link.  Raises Invalid."""
    check_link(link)
    check_scope(scope)
    if len(names) > MAX_MIRROR_STREAMS_PER_CALL:
        raise Invalid(f"a call of a link names {len(names)} streams; the most is {MAX_MIRROR_STREAMS_PER_CALL}")
    # Access is decided by the scope of the call.
    if any(name.scope != scope for name in names):
        raise Invalid(f"a call of a link for scope {scope} names a stream of another one")


def _name(one: Write) -> str:
    return one.name.segment(SegmentId.unpack(one.segment))


def _unwritable(link: LinkIdentity, mirror: Mirror | None, one: Write) -> Written | None:
    """Return why bytes cannot be written; None: the store decides."""
    if mirror is None:
        return Written(-1, refused=True, reason=f"stream {one.name} does not exist")
    if (no := refusal(link, mirror)) is not None:
        return Written(-1, refused=True, reason=no.reason or f"stream {one.name} is promoted")
    if mirror.row.decided is not None or mirror.record.pending:
        return Written(-1, refused=True)
    current = mirror.record.current
    present = one.segment in current.ids and (not mirror.row.head or one.segment in mirror.starts)
    coming = one.staged and one.segment >= 0 and creation_epoch(one.segment) > current.number
    if not (present or coming) or one.offset < 0:
        return Written(-1, refused=True, reason=f"stream {one.name} has no segment {one.segment} to write to")
    return None


def _written(found: int | SaritError) -> Written:
    if isinstance(found, int):
        return Written(found)
    if isinstance(found, Conflict) and isinstance(found.actual, int):
        return Written(found.actual, refused=True)
    return Written(-1, reason=str(found))


def _state(mirror: Mirror, lengths: Cut | None, staged: Mapping[str, int]) -> MirrorState:
    name, row = mirror.name, mirror.row
    if lengths is None:
        return MirrorState(name, MirrorStatus.BUSY, reason=f"a segment of {name} is not there")
    waiting = {s: staged.get(name.segment(SegmentId.unpack(s)), 0) for s in lengths}
    return MirrorState(
        name,
        MirrorStatus.READY,
        Position(name, mirror.record.current.number, lengths),
        {s: length for s, length in waiting.items() if length},
        version=row.version,
        head=mirror.starts,
    )


def _incomplete(name: StreamName, error: StagingMissing) -> MirrorState:
    """Return that the store lost a part of a decided round, so that the mirror is between two moments of its source."""
    reason = (
        f"the store has lost bytes of {error} that were to be merged into the mirror {name}: delete the link here and "
        f"the mirror, and create the link again, which makes it again"
    )
    _log.error("%s", reason)
    return MirrorState(name, MirrorStatus.BUSY, reason=reason)


async def _in_parts(items: Sequence[S], work: Callable[[S], Awaitable[T]]) -> list[T]:
    """Return the results of `work` on all items, in order; a bounded number of them is worked on at once."""
    found: list[T] = []
    for at in range(0, len(items), MIRRORS_AT_ONCE):
        found += await gather_all([work(item) for item in items[at : at + MIRRORS_AT_ONCE]])
    return found


__all__ = ["LocalTarget"]
