"""The way back: a stream that was the source of a promoted mirror becomes the mirror of that one.

The promoted stream's facts name its promotions.  The first one that this stream has not had tells where the two
parted: the lengths at which the mirror's segments were sealed then (`Lineage.ends`).  What this stream has beyond them
was never copied, and the promoted stream went on without it.

Before anything is compared, the stream is made read-only (`fences.py`): what the facts prove is that it is not the
stream any more that writers should write.  Then one of these holds:

* It ends exactly there.  It becomes the mirror as it is; its segments are sealed, and the next round brings the epoch
  in which the promoted stream goes on.
* It has more, or was scaled since.  It is refused with the number of bytes.  If the link says so, these bytes are
  exported to the stream `NAME.divergent-LINEAGE` (`kept_copies.py`), and the stream is deleted, to be copied again.
* It has less, as after a restore.  Its sealed segments cannot grow, so this is the same without an export.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sarit.controller.model.cuts import bytes_between, is_cut, to_measure
from sarit.controller.model.epochs import known_segments
from sarit.controller.model.records import State
from sarit.controller.model.streams import has_mark
from sarit.core.errors import Conflict
from sarit.core.names import SegmentId, StreamName, is_user_name
from sarit.mirror.fences import fence_stream
from sarit.mirror.mirror_records import MirrorRecord
from sarit.mirror.mirror_rows import find_known, put_known
from sarit.mirror.values import MirrorState, MirrorStatus

if TYPE_CHECKING:
    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import Segments
    from sarit.controller.streams import Streams
    from sarit.mirror.kept_copies import KeptCopies
    from sarit.mirror.mirror_rows import Known
    from sarit.mirror.values import Lineage, LinkIdentity, StreamFacts


@dataclass(frozen=True, slots=True)
class Parting:
    """How a stream compares with the promotion that it has not had.

    `known`: it has all the segments that were sealed then.  `beyond`: how many bytes it has behind them.  `equal`: it
    ends exactly there."""

    known: bool
    beyond: int
    equal: bool


class Divergence:
    """Lets former sources of this installation become mirrors."""

    def __init__(self, streams: Streams, segments: Segments, copies: KeptCopies) -> None:
        self._streams = streams
        self._catalog = streams.catalog
        self._segments = segments
        self._copies = copies

    def __repr__(self) -> str:
        return "<Divergence>"

    async def rejoin(self, link: LinkIdentity, facts: StreamFacts, *, discard: bool) -> MirrorState | None:
        """Make a stream of this installation the mirror of the promoted stream in `facts`.

        The caller has compared the creation ids.  Returns why it is not (REFUSED, BUSY), or None: it is the mirror now,
        or is deleted, so read it again.  Raises Conflict: it changed in between."""
        name = facts.name
        await self._streams.complete_pending(name)
        known = await find_known(self._catalog, name)
        if known is None or known.record.mirrored:
            return None
        ours = () if known.row is None else known.row.lineages
        if known.row is not None and known.row.promoting is not None:
            return MirrorState(name, MirrorStatus.BUSY, reason=f"stream {name} is being promoted")
        lineage = next_lineage(ours, facts.lineages)
        if lineage is None:
            return _refused(name, not_descended(name, ours, facts.lineages))
        if not has_mark(name.stream):  # watermarks are copied again, and nobody misses them
            await self._streams.remove(name, known.record.first_number)
            return None
        await fence_stream(self._streams, name, lineage.lineage_id)
        known = await find_known(self._catalog, name)
        if known is None or known.record.state is not State.SEALED or (known.row or MirrorRecord()).lineages != ours:
            raise Conflict(f"stream {name} changed in between")
        parting = await self._compare(name, known.record, lineage)
        if parting.equal:
            await self._adopt(link, facts, known)
            return None
        if not discard:
            return _refused(name, divergent(name, parting, lineage))
        if parting.beyond and not await self._export(name, known.record, lineage):
            return MirrorState(name, MirrorStatus.BUSY, reason=f"what {name} has beyond its mirror is being copied")
        await self._streams.remove(name, known.record.first_number)
        return None

    async def _adopt(self, link: LinkIdentity, facts: StreamFacts, known: Known) -> None:
        """Make a sealed stream a mirror.  Raises Conflict."""
        before = known.row or MirrorRecord()
        row = replace(before, link=link, path=facts.path, lineages=facts.lineages, version=0, fenced=b"")
        await put_known(
            self._catalog, facts.name, known, row, replace(known.record, state=State.ACTIVE, link=link.name)
        )

    async def _compare(self, name: StreamName, record: StreamRecord, lineage: Lineage) -> Parting:
        epochs = await self._catalog.epochs(name, record, 0)
        known, ends = known_segments(epochs), lineage.ends
        current = [s.segment for s in record.current.segments]
        if not is_cut(known, ends):
            return Parting(known=False, beyond=0, equal=False)
        measured = dict.fromkeys([*current, *ends, *to_measure(known, ends, dict.fromkeys(current, 0))])
        infos = await self._segments.infos([name.segment(SegmentId.unpack(s)) for s in measured])
        lengths = {s: 0 if info is None else info.length for s, info in zip(measured, infos, strict=True)}
        if set(current) == set(ends):
            over = {s: lengths[s] - end for s, end in ends.items()}
            return Parting(True, sum(max(0, more) for more in over.values()), not any(over.values()))
        tail = {s: lengths[s] for s in current}
        return Parting(True, bytes_between(known, ends, tail, lengths), equal=False)

    async def _export(self, name: StreamName, record: StreamRecord, lineage: Lineage) -> bool:
        into = StreamName(name.scope, f"{name.stream}.divergent-{lineage.lineage_id.hex()[:8]}")
        if not is_user_name(into.stream):
            into = StreamName(name.scope, f"divergent-{lineage.lineage_id.hex()}")
        return await self._copies.copy(name, record, lineage.ends, into)


def next_lineage(ours: tuple[Lineage, ...], theirs: tuple[Lineage, ...]) -> Lineage | None:
    """Return the first promotion that a stream has not had; None: the other one does not descend from it, or is not
    promoted any further."""
    if [one.lineage_id for one in theirs[: len(ours)]] != [one.lineage_id for one in ours]:
        return None
    return theirs[len(ours)] if len(theirs) > len(ours) else None


def not_descended(name: StreamName, ours: tuple[Lineage, ...], theirs: tuple[Lineage, ...]) -> str:
    """Return why a stream cannot become the mirror of another one of the same origin."""
    if [one.lineage_id for one in ours[: len(theirs)]] == [one.lineage_id for one in theirs]:
        return f"stream {name} is written here: the link's source has an earlier copy of it, and promotes nothing new"
    return f"stream {name} was promoted here and there: two histories, neither of which has all of the other"


def divergent(name: StreamName, parting: Parting, lineage: Lineage) -> str:
    """Return why a stream that does not end where its mirror was promoted is refused."""
    remedy = "give up what it has with discard_divergent, or exclude it from the link"
    if not parting.known:
        return f"stream {name} ends before its mirror was promoted, and cannot grow: {remedy}"
    return (
        f"stream {name} has {parting.beyond} bytes that were not copied when its mirror was promoted in the "
        f"installation {lineage.installation}: {remedy}; they are exported to {name}.divergent-"
        f"{lineage.lineage_id.hex()[:8]} then"
    )


def _refused(name: StreamName, reason: str) -> MirrorState:
    return MirrorState(name, MirrorStatus.REFUSED, reason=reason)
