"""Carries out one round of each of the streams of a batch, all of one scope and one priority class.

    facts (if they are not known, or old) ─▶ begin (if the mirror's state is not known) ─▶ offers ─▶ plans
      ├─ short rounds ─▶ in groups: one read, one write, one finish for all of a group
      └─ long rounds  ─▶ a few at once: piece by piece, the next one is read while others are written; one finish each

Whatever fails leaves the state of its streams unknown, so the next batch with them asks the target for it first.  An
error about one stream is found by halving the group that it is in; an error of the link ends the batch.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sarit.controller.runner import gather_all
from sarit.core.errors import Conflict, Forbidden, Invalid, NotFound, Truncated, Unavailable
from sarit.core.links import HoldOverflow, LinkState
from sarit.mirror.copier_world import OF_A_STREAM, halved
from sarit.mirror.limits import (
    MAX_MIRROR_STREAMS_PER_CALL,
    MIRROR_BUSY_SECONDS,
    MIRROR_FACTS_SECONDS,
    MIRROR_LONG_ROUNDS_AT_ONCE,
    MIRROR_MOMENT_SECONDS,
)
from sarit.mirror.order import charge, grouped
from sarit.mirror.pieces import Pieces, read_whole
from sarit.mirror.rounds import Copy, Discard, Gap, Nothing, Wrong, plan
from sarit.mirror.values import FROM_HEAD, MirrorStatus, Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.core.names import StreamName
    from sarit.mirror.copier_world import CopierWorld
    from sarit.mirror.tracks import Track
    from sarit.mirror.values import MirrorState, Offer, StreamFacts


@dataclass(frozen=True, slots=True)
class _Item:
    """A stream with the round to copy, and what the source said of it."""

    track: Track
    copy: Copy
    offer: Offer


class Batch:
    """The streams of one batch: `scope`, and their tracks, which were taken."""

    def __init__(self, world: CopierWorld, tracks: Sequence[Track]) -> None:
        self._world = world
        self._tracks = tracks
        self._scope = tracks[0].name.scope
        self._mine = set(tracks)  # the tracks that are not put back yet
        self._long = asyncio.Semaphore(MIRROR_LONG_ROUNDS_AT_ONCE)

    def __repr__(self) -> str:
        return f"<Batch of {len(self._tracks)} streams of {self._scope}>"

    async def carry_out(self) -> None:
        """Do one round of each stream, and put all tracks back.  Raises Unavailable, Unauthenticated: of the link."""
        try:
            await self._ask_facts([one for one in self._tracks if one.facts is None or one.stale])
            await halved([one for one in self._left() if one.state is None], self._begin, self._wrong)
            items: list[_Item] = []
            ready = [one for one in self._left() if one.state is not None]
            await halved(ready, lambda tracks: self._plan(tracks, items), self._no_position)
            await self._copy(items)
        except Forbidden as error:
            for one in self._left():
                self._fail(one, str(error))
        finally:
            for one in self._left():
                one.state = None
                self._put_back(one, again=True)

    def _left(self) -> list[Track]:
        return [one for one in self._tracks if one in self._mine]

    # -- what becomes of a track --------------------------------------------------------------------

    def _put_back(self, track: Track, *, again: bool = False) -> None:
        if track in self._mine:
            self._mine.remove(track)
            self._world.tracks.put_back(track, self._world.source_ms, again=again)

    async def _wrong(self, track: Track, error: Exception) -> None:
        self._fail(track, str(error))

    def _fail(self, track: Track, problem: str) -> None:
        track.state = None
        self._world.tracks.retry(track, problem)
        self._put_back(track)

    def _end(self, track: Track, note: str) -> None:
        track.over, track.note = True, note
        track.behind = track.oldest_ms = 0
        track.problem, track.state = "", None
        self._put_back(track)

    def _done(self, item: _Item, state: MirrorState) -> None:
        """Record that a round is complete."""
        track, offer, copy = item.track, item.offer, item.copy
        track.state, track.position = state, state.position
        track.behind = max(0, offer.behind - copy.growth)
        track.oldest_ms = offer.oldest_ms if track.behind else 0
        track.fresh = True
        track.ended |= copy.round is not None and copy.round.ends
        self._world.tracks.forgive(track)
        # Where the link drains, the next offer has to say that nothing is behind.
        self._put_back(track, again=offer.more or self._world.link.state is LinkState.DRAINING)

    def _accept(self, track: Track, state: MirrorState) -> bool:
        """Take over the state of a mirror.  Returns whether the stream can be copied; otherwise it is put back."""
        track.refused = state.status is MirrorStatus.REFUSED
        if state.status is MirrorStatus.READY and state.position is not None:
            track.state, track.begun, track.position = state, True, state.position
            return True
        if state.status is MirrorStatus.BUSY:
            self._world.tracks.after(track, MIRROR_BUSY_SECONDS)
            self._put_back(track)
        elif state.status is MirrorStatus.READY:  # the mirror was deleted
            track.state = None
            self._put_back(track, again=True)
        elif state.status is MirrorStatus.REFUSED:
            self._fail(track, f"the target does not take it: {state.reason}")
        return False

    # -- facts, begin, offers -----------------------------------------------------------------------

    async def _ask_facts(self, tracks: Sequence[Track]) -> None:
        for track in tracks:
            track.stale = False
        for track, facts in zip(tracks, await self._facts_of(tracks, FROM_HEAD), strict=True):
            if facts is None:
                self._end(track, "it was deleted at the source: its mirror stays")
            else:
                track.facts, track.asked = facts, self._world.clock.monotonic()

    async def _facts_of(self, tracks: Sequence[Track], start_ms: int) -> list[StreamFacts | None]:
        names = [one.name for one in tracks]
        try:
            return await self._world.source.facts(self._scope, names, start_ms) if names else []
        except NotFound:  # the scope
            return [None] * len(names)

    async def _begin(self, tracks: Sequence[Track]) -> None:
        """Begin mirrors; those that cannot be copied are put back."""
        starts = {one.name: one.facts for one in tracks if one.facts is not None}
        start_ms = self._world.link.settings.start_ms
        # A stream that is younger than the link is copied whole, whatever was chosen for the others.
        late = [
            one for one in tracks
            if start_ms != FROM_HEAD and not one.begun and one.facts is not None
            and one.facts.created_ms < self._world.link.created_ms + self._world.skew_ms
        ]  # fmt: skip
        for one, found in zip(late, await self._facts_of(late, start_ms), strict=True):
            if found is not None:
                starts[one.name] = found
        states = await self._world.target.begin(
            self._world.identity, self._scope, [starts[one.name] for one in tracks],
            discard_divergent=self._world.link.settings.discard_divergent,
        )  # fmt: skip
        self._world.answers += 1
        pairs = list(zip(tracks, states, strict=True))
        for one, state in pairs:
            self._accept(one, state)
        await self._promoted([(one, state) for one, state in pairs if state.status is MirrorStatus.PROMOTED])

    async def _promoted(self, found: Sequence[tuple[Track, MirrorState]]) -> None:
        """Make the sources of promoted mirrors read-only."""
        by_lineage: dict[bytes, list[Track]] = {}
        for track, state in found:
            by_lineage.setdefault(state.lineage.lineage_id if state.lineage else b"", []).append(track)
        for lineage, tracks in by_lineage.items():
            names = [one.name for one in tracks]
            try:
                await self._world.source.fence(self._world.identity, self._scope, names, lineage)
                note = "its mirror was promoted: this link copies it no more, and the source is read-only"
            except (Forbidden, Invalid, NotFound) as error:
                note = f"its mirror was promoted, and the source could not be made read-only: {error}"
            for one in tracks:
                one.promoted = True
                self._world.tracks.promoted += 1
                self._end(one, note)

    async def _no_position(self, track: Track, error: Exception) -> None:
        """Ask again about a stream whose mirror's position the source does not know."""
        if isinstance(error, NotFound):
            self._end(track, "it was deleted at the source: its mirror stays")
        elif not isinstance(error, Conflict):
            self._fail(track, str(error))
        else:
            await self._gap(track, Gap(0))

    async def _plan(self, tracks: Sequence[Track], items: list[_Item]) -> None:
        """Ask for offers, and add the rounds to copy to `items`."""
        world = self._world
        positions = [one.state.position for one in tracks if one.state and one.state.position]
        offers = await world.source.offers(self._scope, positions, world.gate.rate.round_bytes)
        if len(offers) != len(tracks):
            raise Unavailable(f"the source sent {len(offers)} offers for {len(tracks)} streams")
        pairs = list(zip(tracks, offers, strict=True))
        for track, offer in pairs:
            if offer is None:
                self._end(track, "it was deleted at the source: its mirror stays")
        await self._refresh([(one, offer) for one, offer in pairs if offer is not None])
        for track, offer in pairs:
            if offer is not None and track in self._mine:
                await self._decide(track, offer, items)

    async def _refresh(self, pairs: Sequence[tuple[Track, Offer]]) -> None:
        """Bring facts up to date that are of another version than the offers, and the mirrors with them."""
        now, old = self._world.clock.monotonic(), []
        for track, offer in pairs:
            if track.facts is not None and offer.version not in (0, track.facts.version):
                if now - track.asked >= MIRROR_FACTS_SECONDS:
                    old.append(track)
                else:
                    self._world.tracks.after(track, MIRROR_FACTS_SECONDS)
        if old:
            before = {one.name: one.state for one in old}
            await self._ask_facts(old)
            await halved([one for one in old if one in self._mine], self._begin, self._wrong)
            for one in old:
                known = before[one.name]
                if (
                    one in self._mine
                    and one.state is not None
                    and known is not None
                    and one.state.position != known.position
                ):
                    self._put_back(one, again=True)  # the offer is for another position

    async def _decide(self, track: Track, offer: Offer, items: list[_Item]) -> None:
        assert track.state is not None
        assert track.facts is not None
        world, settings = self._world, self._world.link.settings
        made = plan(track.state, track.facts, offer, world.gate.rate.direct_bytes, follow=settings.follow_truncation)
        if isinstance(made, Discard):
            await world.target.drop(world.identity, self._scope, [(track.name, one) for one in made.segments])
            staged = {s: at for s, at in track.state.staged.items() if s not in made.segments}
            track.state = replace(track.state, staged=staged)
            made = plan(
                track.state, track.facts, offer, world.gate.rate.direct_bytes, follow=settings.follow_truncation
            )
        track.behind, track.oldest_ms = offer.behind, offer.oldest_ms
        match made:
            case Gap():
                await self._gap(track, made)
            case Wrong(reason):
                self._fail(track, f"the source contradicts itself: {reason}")
            case Copy() if not self._is_done(track, made):
                items.append(_Item(track, made, offer))
            case Nothing() | Copy():
                track.drained = not offer.more and not track.stale and track.facts.version == offer.version
                world.tracks.forgive(track)
                if offer.more:  # the source has had no moment without a commit
                    world.tracks.after(track, MIRROR_MOMENT_SECONDS)
                self._put_back(track)
            case _:
                self._fail(track, "what is staged for its mirror cannot be dropped")

    def _is_done(self, track: Track, copy: Copy) -> bool:
        """Return whether a round does nothing but end a stream that has ended."""
        round_ = copy.round
        return track.ended and round_ is not None and not copy.ranges and not round_.epochs and not round_.head

    async def _gap(self, track: Track, gap: Gap) -> None:
        """Begin a mirror again behind bytes that are gone, or say that they are."""
        world = self._world
        facts = (await self._facts_of([track], FROM_HEAD))[0]
        if facts is None:
            self._end(track, "it was deleted at the source: its mirror stays")
        elif track.facts is not None and facts.creation_id != track.facts.creation_id:
            track.facts, track.state = facts, None
            self._put_back(track, again=True)  # the target names it
        elif not (world.link.settings.restart or world.link.settings.overflow is HoldOverflow.DROP):
            self._fail(track, f"{_lost_text(gap)}: the mirror stays as it is; let the link restart such mirrors, which "
                       "keeps what they had under another name")  # fmt: skip
        else:
            before = None if track.state is None else track.state.position
            state = await world.target.restart(world.identity, self._scope, facts)
            track.facts, track.asked = facts, world.clock.monotonic()
            if state.status is MirrorStatus.PROMOTED:
                await self._promoted([(track, state)])
            elif self._accept(track, state) and state.position == before:
                self._fail(track, f"{_lost_text(gap)}, and the target does not begin the mirror again")
            elif state.status is MirrorStatus.READY:
                world.lost_bytes += gap.lost
                self._put_back(track, again=True)

    # -- copying ------------------------------------------------------------------------------------

    async def _copy(self, items: Sequence[_Item]) -> None:
        piece = self._world.gate.rate.piece_bytes
        short = sorted((one for one in items if one.copy.length <= piece), key=lambda one: one.track.turn)
        groups = grouped([one.copy.length for one in short], piece, MAX_MIRROR_STREAMS_PER_CALL)
        await gather_all(
            [
                *(halved(short[at.start : at.stop], self._short, self._lost) for at in groups),
                *(self._long_round(one) for one in items if one.copy.length > piece),
            ]
        )

    async def _lost(self, item: _Item, error: Exception) -> None:
        """Handle an error of one stream."""
        if isinstance(error, Truncated | NotFound):
            await self._gap(item.track, Gap(0))
        else:
            self._fail(item.track, str(error))

    async def _short(self, items: Sequence[_Item]) -> None:
        """Carry out rounds of one piece together."""
        world, items = self._world, [one for one in items if one.track in self._mine]
        ranges = [one for item in items for one in item.copy.ranges]
        length = sum(one.length for one in ranges)
        refused: set[StreamName] = set()
        if ranges:
            async with world.gate.passing(items[0].track.turn, length, charge(length, len(ranges))):
                data = await read_whole(world.source, self._scope, ranges)
                staged = {item.track.name: item.copy.round is not None for item in items}
                writes = [
                    Write(r.name, r.segment, r.offset, b, staged[r.name]) for r, b in zip(ranges, data, strict=True)
                ]
                written = await world.target.write(world.identity, self._scope, writes)
            world.answers += 1
            if len(written) != len(writes):
                raise Unavailable(f"the target answered {len(written)} of {len(writes)} writes")
            refused = {one.name for one, answer in zip(writes, written, strict=True) if answer.refused or answer.reason}
            world.copied_bytes += sum(len(one.data) for one in writes if one.name not in refused)
        for item in items:
            if item.track.name in refused:
                self._refused(item.track)
            elif item.copy.round is None:
                assert item.track.state is not None
                self._done(item, replace(item.track.state, position=item.copy.reached))
        await self._finish([one for one in items if one.copy.round is not None and one.track.name not in refused])

    def _refused(self, track: Track) -> None:
        """Have a mirror begun again that was not where it was thought to be; after a pause if that is so again."""
        track.state = None
        track.tries += 1
        if track.tries == 1:
            self._put_back(track, again=True)
        else:
            self._world.tracks.retry(track, "the mirror does not take its bytes; it is begun again")
            self._put_back(track)

    async def _finish(self, items: Sequence[_Item]) -> None:
        world = self._world
        rounds = [item.copy.round for item in items if item.copy.round is not None]
        if not rounds:
            return
        states = await world.target.finish(world.identity, self._scope, rounds)
        world.answers += 1
        promoted = []
        for item, state in zip(items, states, strict=True):
            if state.status is MirrorStatus.PROMOTED:
                promoted.append((item.track, state))
            elif self._accept(item.track, state):
                if state.position == item.copy.reached:
                    self._done(item, state)
                else:
                    self._refused(item.track)
        await self._promoted(promoted)

    async def _long_round(self, item: _Item) -> None:
        async with self._long:
            try:
                if await Pieces(self._world, item.copy, item.track.turn).copy():
                    await self._finish([item])
                else:
                    self._refused(item.track)
            except OF_A_STREAM as error:
                await self._lost(item, error)


def _lost_text(gap: Gap) -> str:
    if gap.lost:
        return f"{gap.lost} bytes were truncated at the source before they were copied"
    return "the source has not what follows its mirror: it was truncated, or the mirror is of another stream"
