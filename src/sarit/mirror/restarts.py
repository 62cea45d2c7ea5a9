"""Begins mirrors again behind bytes that their source dropped before they were copied.

A segment has no holes, so the mirror cannot go on in its segments.  What it had is kept as the stream
`NAME.before-EPOCH-BYTES` (`kept_copies.py`), named by where the mirror ended: that place is the same for each
repetition of the call, and later for each later gap.  Then the mirror is deleted, and made again at the source's head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.model.epochs import known_segments
from sarit.controller.model.streams import has_mark, head
from sarit.core.names import SegmentId, StreamName, is_user_name
from sarit.mirror.mirror_checks import before_head
from sarit.mirror.mirror_rows import find_known
from sarit.mirror.values import MirrorState, MirrorStatus

if TYPE_CHECKING:
    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.mirror.kept_copies import KeptCopies
    from sarit.mirror.values import LinkIdentity, StreamFacts


class Restarts:
    """Keeps and deletes mirrors of this installation, so that they can begin again."""

    def __init__(self, streams: Streams, segments: Segments, copies: KeptCopies) -> None:
        self._streams = streams
        self._segments = segments
        self._copies = copies

    def __repr__(self) -> str:
        return "<Restarts>"

    async def clear(self, link: LinkIdentity, facts: StreamFacts) -> MirrorState | int:
        """Keep a copy of a mirror, and delete it.  Returns how many bytes are lost so far, as far as it is known; or
        BUSY: there is more to copy.  The caller has finished a decided round.

        Nothing is done, and 0 returned, if the mirror does not exist, or lacks nothing before the head of the facts:
        then an earlier call has begun it again."""
        name = facts.name
        await self._streams.complete_pending(name)
        known = await find_known(self._streams.catalog, name)
        if known is None or known.row is None or known.row.link.link_id != link.link_id or not known.record.mirrored:
            return 0
        starts = head(known.record)
        lengths = await self._lengths(name, [s.segment for s in known.record.current.segments])
        if not has_gap(known.record, lengths, facts):
            return 0
        lost = known.row.lost + lost_bytes(lengths, facts.head)
        if has_mark(name.stream) and any(at > starts.get(s, 0) for s, at in lengths.items()):
            into = kept_name(name, known.record.current.number, lengths)
            if not await self._copies.copy(name, known.record, starts, into):
                return MirrorState(name, MirrorStatus.BUSY, reason=f"what {name} has is being copied to {into}")
        await self._streams.remove(name, known.record.first_number)
        return lost

    async def _lengths(self, name: StreamName, segments: list[int]) -> Cut:
        infos = await self._segments.infos([name.segment(SegmentId.unpack(s)) for s in segments])
        return {s: info.length for s, info in zip(segments, infos, strict=True) if info is not None}


def has_gap(record: StreamRecord, lengths: Cut, facts: StreamFacts) -> bool:
    """Return whether bytes, or segments, are missing between the end of a mirror and the head of its source."""
    known = known_segments([*record.epochs, facts.first])
    if any(at > lengths[s] for s, at in facts.head.items() if s in lengths):
        return True
    return any(before_head(s, facts.head, known) for s in record.current.segments)


def lost_bytes(lengths: Cut, begins: Cut) -> int:
    """Return how many bytes lie between the end of a mirror and a cut, in the segments that both have."""
    return sum(max(0, at - lengths[s]) for s, at in begins.items() if s in lengths)


def kept_name(name: StreamName, epoch: int, lengths: Cut) -> StreamName:
    """Return the name under which a mirror is kept that ended in this epoch, at these lengths."""
    place = f"before-{epoch}-{sum(lengths.values())}"
    kept = StreamName(name.scope, f"{name.stream}.{place}")
    return kept if is_user_name(kept.stream) else StreamName(name.scope, place)
