"""Carries out rounds that are decided, in the order of the stream's epochs.

    for each epoch, from the mirror's last one on:
      merge what is staged for its segments, each at the offset where it was staged
      create the segments of the next epoch, publish it, seal what it replaces
    at the end, in one batch: the round is not decided any more, the stream is sealed (if the source was)

So bytes of a successor are never there before all its predecessors are complete and sealed.  All steps may be repeated,
by any controller.  The record of a published epoch states the seals as pending work, so they are repeated before
anything else is done with the stream.

A decided round stays decided until all of it is there, whatever happens: what is staged of it cannot be dropped
(`staging.py`).  If the store lost it all the same, the mirror stays as it is, and says so.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec, streams
from sarit.controller.model.cuts import segments_before
from sarit.controller.model.effects import SealSegment
from sarit.controller.model.epochs import created_in, creation_epoch
from sarit.controller.model.records import NO_WORK, State, Work, WorkKind
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import gather_all
from sarit.core.errors import Conflict, NotFound, Sealed
from sarit.core.names import SegmentId
from sarit.mirror.limits import MAX_ROUND_SEGMENTS, MIRRORS_AT_ONCE
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sarit.controller.model.epochs import Epoch
    from sarit.controller.runner import EffectRunner
    from sarit.mirror.open_mirrors import Mirror, OpenMirrors
    from sarit.mirror.staging import Place, Staging
    from sarit.mirror.values import Round


class RoundSteps:
    """Carries out decided rounds of the mirrors of one installation."""

    def __init__(self, mirrors: OpenMirrors, runner: EffectRunner, staging: Staging) -> None:
        self._mirrors = mirrors
        self._runner = runner
        self._staging = staging

    def __repr__(self) -> str:
        return "<RoundSteps>"

    async def carry_out(self, mirror: Mirror) -> Mirror:
        """Carry out the round that is decided for a mirror, if there is one.  Returns the mirror then.

        The caller holds the stream's lock.  Raises Conflict (another controller changed the stream), Unavailable,
        StagingMissing."""
        decided = mirror.row.decided
        if decided is None:
            return mirror
        starts = mirror.starts
        await self._finish_epoch(mirror, decided, starts)
        for epoch in decided.epochs:
            if epoch.number > mirror.record.current.number:
                mirror = await self._publish(mirror, decided, epoch)
                await self._finish_epoch(mirror, decided, starts)
        return await self._end(mirror, decided)

    async def drop(self, mirror: Mirror, segments: Iterable[int]) -> Mirror:
        """Delete what is staged for segments of a mirror without a decided round.  Returns the mirror then.

        The drop is stored first (`staging.py`).  Raises Conflict: perhaps a round with it is decided now."""
        assert mirror.row.decided is None, "what is staged of a decided round stays"
        names = {s: _segment(mirror, s) for s in segments if s >= 0}
        infos = await self._runner.segments.infos(list(names.values())) if names else []
        places = [
            mirror.place(s, mirror.starts.get(s, 0) if info is None else info.length)
            for s, info in zip(names, infos, strict=True)
        ]
        present = set(await self._staging.present(places))
        dropped = [s for s, place in zip(names, places, strict=True) if place in present]
        current, before = mirror.record.current, mirror.row.drops
        # Nothing is staged any more for segments that were replaced.
        still = {s: n for s, n in before.items() if s in current.ids or creation_epoch(s) > current.number}
        drops = still | {s: still.get(s, 0) + 1 for s in dropped}
        if dropped and len(drops) <= MAX_ROUND_SEGMENTS:  # only a link that makes segments up has more
            mirror = await self._mirrors.store(mirror, row=replace(mirror.row, drops=drops))
            await self._staging.delete(list(present))
        return mirror

    async def merge_one(self, place: Place) -> None:
        """Merge what is staged for one segment, if the segment still ends there."""
        with suppress(Conflict, NotFound, Sealed):
            await self._runner.segments.merge_at(place.segment, place.name, place.base)

    async def _finish_epoch(self, mirror: Mirror, decided: Round, starts: Mapping[int, int]) -> None:
        """Seal what the mirror's epoch replaced, and make its segments as long as the round says."""
        work = mirror.record.work
        if work.kind is WorkKind.SEAL:
            await self._runner.run([SealSegment(_segment(mirror, s)) for s in work.segments])
        merges = [
            (s.segment, decided.before.get(s.segment, starts.get(s.segment, 0)))
            for s in mirror.record.current.segments
            if s.segment in decided.after
        ]
        grows = [(s, base) for s, base in merges if decided.after[s] > base]
        for at in range(0, len(grows), MIRRORS_AT_ONCE):
            part = grows[at : at + MIRRORS_AT_ONCE]
            await gather_all([self._staging.merge(mirror.place(s, base), decided.after[s]) for s, base in part])

    async def _publish(self, mirror: Mirror, decided: Round, epoch: Epoch) -> Mirror:
        """Create the segments of an epoch, and make it the mirror's last one."""
        # Segments before the mirror's head have no bytes, and no offers: they begin at 0, and end there.
        starts = {s: at for s, at in mirror.starts.items() if s in decided.after}
        await self._runner.run(streams.mirror_creations(mirror.name, mirror.record, created_in(epoch), starts))
        step = streams.publish(mirror.record, (epoch,))
        assert step.then is not None
        more = []
        if step.spilled:
            chunk = keys.chunk_key(mirror.name.stream, step.spilled[0].number)
            more.append(TableUpdate(chunk, codec.encode_chunk(step.spilled), NO_VERSION))
        return await self._mirrors.store(mirror, record=step.then, more=more)

    async def _end(self, mirror: Mirror, decided: Round) -> Mirror:
        """Store that a round is carried out."""
        record = replace(mirror.record, work=NO_WORK)
        if decided.ends:
            current = mirror.record.current.segments
            await self._runner.run([SealSegment(_segment(mirror, s.segment)) for s in current])
            record = replace(record, state=State.SEALED)
        row = replace(mirror.row, decided=None)
        if row.head and row.head.keys() <= (known := await self._mirrors.known(mirror)).keys():
            # The mirror has all epochs of its head now: what stood in for its segments goes.
            gone = tuple(segments_before(known, row.head))
            record = replace(record, head=dict(row.head), work=Work(WorkKind.TRUNCATE, gone))
            row = replace(row, head={})
        return await self._mirrors.store(mirror, record=record, row=row)


def _segment(mirror: Mirror, segment: int) -> str:
    return mirror.name.segment(SegmentId.unpack(segment))


__all__ = ["RoundSteps"]
