"""Makes streams of mirrors: writers may write them, and their link may not any more.

The order, for each stream; each step is stored before the next one, and all of them may be repeated, by any controller:

1. A round that was decided is finished; what is staged of an undecided one is deleted.
2. The promotion is decided, in one batch: the row says which lineage begins at which epoch, and the stream's record
   that this epoch is to be published.  It has the same key ranges, and is far behind all that the source may have had
   meanwhile (`PROMOTED_EPOCHS`).  The record has another version then, so no round can be decided any more.
3. The work that the record states is carried out: the segments of the new epoch are created, the epoch is published,
   whereupon the stream is no mirror any more, and the segments before it are sealed.  Readers that meet the seals find
   the successors.
4. The lineage joins the stream's history, with the lengths at which the segments were sealed.  By these the old source
   finds out what it has that the promoted stream has not (`divergence.py`).

A late copier that appends between the publication and the seal does no harm: what it appends is the source's, at the
source's offsets, and the lengths are read after the seal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.limits import PROMOTED_EPOCHS
from sarit.controller.model import streams
from sarit.controller.runner import gather_all
from sarit.core.errors import Conflict, NotFound
from sarit.core.names import SegmentId
from sarit.mirror.limits import MIRROR_ID_BYTES, PROMOTION_ATTEMPTS
from sarit.mirror.mirror_rows import find_known, put_known
from sarit.mirror.values import Lineage, MirrorState, MirrorStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.core.names import StreamName
    from sarit.env.ports import Env
    from sarit.mirror.mirror_records import MirrorRecord
    from sarit.mirror.values import LinkIdentity


class Promotion:
    """Promotes the mirrors of this installation.

    `finish_round`: finishes a mirror's decided round, and deletes what is staged of an undecided one."""

    def __init__(
        self, streams: Streams, segments: Segments, env: Env, installation: str,
        finish_round: Callable[[StreamName], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._streams = streams
        self._catalog = streams.catalog
        self._segments = segments
        self._env = env
        self._installation = installation
        self._finish_round = finish_round

    def __repr__(self) -> str:
        return f"<Promotion in installation {self._installation}>"

    async def promote(self, link: LinkIdentity, name: StreamName) -> MirrorState:
        """Promote one mirror.  Returns PROMOTED, also if it was promoted before; or REFUSED, or BUSY.

        The mirror of its watermarks is promoted before it: a stream that writers write needs one for new watermarks."""
        if streams.has_mark(name.stream):
            mark = await self.promote(link, streams.mark_of(name))
            if mark.status is MirrorStatus.BUSY:
                return replace(mark, name=name)
        reason = ""
        for _ in range(PROMOTION_ATTEMPTS):
            try:
                return await self._promote(link, name)
            except Conflict as error:  # another controller changed the stream: read again
                reason = str(error)
        return MirrorState(name, MirrorStatus.BUSY, reason=f"stream {name} is not promoted yet: {reason}")

    async def _promote(self, link: LinkIdentity, name: StreamName) -> MirrorState:
        await self._streams.complete_pending(name)
        known = await find_known(self._catalog, name)
        if known is None or known.row is None:
            return _refused(name, f"stream {name} is no mirror")
        if known.row.link.link_id != link.link_id:
            return _refused(name, f"stream {name} is a mirror of the link {known.row.link.name}, not of {link.name}")
        if known.row.promoting is None:
            if not known.record.mirrored:
                return promoted_state(name, known.row)
            await self._decide(name)
        return promoted_state(name, await self.carry_out(name))

    async def _decide(self, name: StreamName) -> None:
        """Decide the promotion of a mirror, durably.  Raises Conflict, NotFound."""
        await self._finish_round(name)
        known = await find_known(self._catalog, name)
        if known is None or known.row is None or known.row.decided or known.row.promoting or known.record.pending:
            raise Conflict(f"stream {name} changed in between")
        epoch = known.record.current.number + PROMOTED_EPOCHS
        lineage = Lineage(self._env.random.bytes(MIRROR_ID_BYTES), epoch, self._installation)
        planned = streams.promote(known.record, epoch, self._env.clock.wall_ms())
        # Enter the work before the record states it, so that the sweeper finds it after a crash.
        entry = keys.pending_stream_key(name)
        entered = await self._catalog.index_pending(entry)
        await put_known(self._catalog, name, known, replace(known.row, promoting=lineage), planned)
        await self._streams.complete_pending(name)
        await self._catalog.remove_pending_if_unchanged(entry, entered)

    async def carry_out(self, name: StreamName) -> MirrorRecord:
        """Carry out the promotion that a stream's row states, and return the row then.  Raises Conflict, NotFound."""
        await self._streams.complete_pending(name)
        known = await find_known(self._catalog, name)
        if known is None or known.row is None or known.row.promoting is None or known.record.pending:
            raise Conflict(f"stream {name} changed in between")
        lineage = known.row.promoting
        lineage = replace(lineage, ends=await self._ends(name, known.record, lineage.epoch))
        # From now on the stream came here by no other installation.
        row = replace(known.row, path=(), lineages=(*known.row.lineages, lineage), promoting=None, head={})
        await put_known(self._catalog, name, known, row)
        await self._finish_round(name)  # a late copier may have staged something meanwhile
        return row

    async def _ends(self, name: StreamName, record: StreamRecord, epoch: int) -> Cut:
        """Return the lengths of the segments that were active before an epoch, which are sealed now."""
        before = [found for found in await self._catalog.epochs(name, record, 0) if found.number < epoch]
        active = [s.segment for s in before[-1].segments]
        lengths = await gather_all([self._length(name, segment) for segment in active])
        return {segment: length for segment, length in zip(active, lengths, strict=True) if length is not None}

    async def _length(self, name: StreamName, segment: int) -> int | None:
        try:
            return (await self._segments.info(name.segment(SegmentId.unpack(segment)))).length
        except NotFound:  # truncated away since its promotion
            return None


def promoted_state(name: StreamName, row: MirrorRecord) -> MirrorState:
    """Return the state of a promoted mirror, as its old link gets it."""
    lineages = row.lineages if row.promoting is None else (row.promoting,)
    if not lineages:
        return _refused(name, f"stream {name} is no mirror")
    return MirrorState(name, MirrorStatus.PROMOTED, lineage=lineages[-1], version=row.version)


def _refused(name: StreamName, reason: str) -> MirrorState:
    return MirrorState(name, MirrorStatus.REFUSED, reason=reason)
