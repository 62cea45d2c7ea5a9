"""Decides what a source offers behind a position of a mirror; pure.

A *moment* is a stream as it was measured while no commit was under way in it: its epochs from the position's on, its
head, and the states of the segments.  An offer leads from a position to a moment, or to an earlier point where that is
as good: while each epoch has one segment, any append boundary is, because an event and a transaction's part are each
one append.  With several segments a transaction is in all of them, so besides the moment only *clean cuts* are, at
which the timeline found no transaction half merged (`controller/background/timeline.py`).  So an offer of a stream of
several segments may be longer than `limit`: by what lies between two of them, or all of what was written before there
were any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.controller.model.epochs import creation_epoch, known_segments
from sarit.mirror.limits import MAX_OFFER_SEGMENTS
from sarit.mirror.values import Offer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch, SegmentRange
    from sarit.controller.ports import SegmentInfo
    from sarit.core.names import StreamName
    from sarit.mirror.values import Position


@dataclass(slots=True)
class Moment:
    """A stream as it was measured.

    `version`: of its facts.  `sealed`: the stream is.  `epochs`: those to offer, the position's first.  `more`: there
    are later ones.  `alive`: the segments of `epochs` that are not wholly before the head.  `infos`: their states."""

    name: StreamName
    version: int
    sealed: bool
    head: Cut
    epochs: tuple[Epoch, ...]
    more: bool
    alive: frozenset[int]
    infos: dict[int, SegmentInfo]

    @property
    def is_single(self) -> bool:
        """Whether each epoch has one segment."""
        return all(len(epoch.segments) == 1 for epoch in self.epochs)

    @property
    def final(self) -> frozenset[int]:
        """The segments that do not grow any more: all that later epochs replaced, or all."""
        active = frozenset() if self.sealed else self.epochs[-1].ids
        return self.alive - active


def page_of(epochs: Sequence[Epoch]) -> tuple[Epoch, ...]:
    """Return as many of a stream's epochs as one offer has, two at least."""
    brought = 0
    for count, epoch in enumerate(epochs):
        brought += len(epoch.segments)
        if brought > MAX_OFFER_SEGMENTS and count > 1:
            return tuple(epochs[:count])
    return tuple(epochs)


def alive(epochs: Sequence[Epoch], head: Mapping[int, int]) -> frozenset[int]:
    """Return the segments of these epochs that are not wholly before the head."""
    known = known_segments(epochs)
    newer = [known[s] for s in head if s in known and creation_epoch(s) > epochs[0].number]
    if not newer:  # the head is nowhere behind the first of these epochs
        return frozenset(known)
    return frozenset(s for s, part in known.items() if s in head or not _is_covered(part, newer))


def _is_covered(part: SegmentRange, newer: Sequence[SegmentRange]) -> bool:
    """Return whether segments of the head that are later than a segment cover all of its range."""
    born = creation_epoch(part.segment)
    at = part.low
    for other in sorted(newer):
        if creation_epoch(other.segment) > born and other.low <= at < other.high:
            at = other.high
    return at >= part.high


def is_position(moment: Moment, position: Position) -> bool:
    """Return whether a mirror can be there: its segments are of that epoch, and none is longer than the stream's."""
    ids = moment.epochs[0].ids
    return bool(position.lengths) and all(
        s in ids and offset >= 0 and (s not in moment.infos or offset <= moment.infos[s].length)
        for s, offset in position.lengths.items()
    )


def missing(position: Position, moment: Moment) -> dict[int, tuple[int, int]]:
    """Return what is behind a position: for each segment from where and to where, if there is anything."""
    out: dict[int, tuple[int, int]] = {}
    for segment in moment.alive:
        info = moment.infos[segment]
        begin = max(position.lengths.get(segment, 0), info.start_offset)
        if info.length > begin:
            out[segment] = begin, info.length
    return out


def nothing(position: Position, moment: Moment) -> Offer:
    """Return an offer that ends where it begins, because the mirror is no earlier moment of the stream: its segments
    are not in it."""
    return Offer(position.name, {}, frozenset(), dict(moment.head), (), False, moment.version, 0, 0)


def whole(position: Position, moment: Moment, oldest_ms: int) -> Offer:
    """Return the offer that leads to the moment."""
    behind = missing(position, moment)
    lengths = {segment: moment.infos[segment].length for segment in moment.alive}
    return Offer(
        position.name, lengths, moment.final, _starts(moment, lengths), moment.epochs[1:], moment.more, moment.version,
        sum(end - begin for begin, end in behind.values()), oldest_ms,
    )  # fmt: skip


def bound(position: Position, moment: Moment, limit: int) -> tuple[int, int] | None:
    """Return near which offset of which segment an offer of about `limit` bytes ends; None: it is whole."""
    if not moment.is_single:
        return None
    behind, left = missing(position, moment), max(limit, 1)
    for epoch in moment.epochs:
        for segment in epoch.ids & behind.keys():
            begin, end = behind[segment]
            if end - begin > left:
                return segment, begin + left
            left -= end - begin
            if left <= 0 and epoch is not moment.epochs[-1]:
                return segment, end
    return None


def clean_cut(position: Position, moment: Moment, limit: int, cuts: Iterable[Cut]) -> Cut | None:
    """Return the clean cut where an offer of about `limit` bytes ends: the last one within the limit, else the first
    one behind it; None: the moment is within it, or there is none."""
    if sum(end - begin for begin, end in missing(position, moment).values()) <= limit:
        return None
    found = [(size, cut) for cut in cuts if (size := _size_to(position, moment, cut))]
    within = [one for one in found if one[0] <= limit]
    if within:
        return max(within, key=lambda one: one[0])[1]
    return min(found, key=lambda one: one[0])[1] if found else None


def _size_to(position: Position, moment: Moment, cut: Cut) -> int:
    """Return how many bytes lie between a position and a cut; 0: none, or the cut is nowhere between it and the
    moment."""
    reached = _reached(moment, cut)
    if not reached or not cut.keys() <= moment.alive:
        return 0
    lengths = {s: moment.infos[s].length for epoch in reached for s in epoch.ids & moment.alive}
    begins = {s: max(position.lengths.get(s, 0), moment.infos[s].start_offset) for s in lengths}
    if any(not begins[s] <= offset <= lengths[s] for s, offset in cut.items()):
        return 0
    return sum(end - begins[s] for s, end in (lengths | dict(cut)).items() if end > begins[s])


def _reached(moment: Moment, cut: Cut) -> tuple[Epoch, ...]:
    """Return the epochs up to the one that a cut is of; none: it is of no epoch of the moment."""
    return next((moment.epochs[:n] for n, epoch in enumerate(moment.epochs, 1) if epoch.ids == cut.keys()), ())


def piece(position: Position, moment: Moment, cut: Cut, oldest_ms: int) -> Offer:
    """Return the offer that ends at a cut: a clean one, or any append boundary of a stream of one segment."""
    reached = _reached(moment, cut)
    lengths = {s: moment.infos[s].length for epoch in reached for s in epoch.ids & moment.alive}
    lengths |= {s: min(offset, lengths[s]) for s, offset in cut.items()}
    ended = frozenset(
        s for s in lengths.keys() & moment.final if lengths[s] == moment.infos[s].length and s not in reached[-1].ids
    )
    return Offer(
        position.name, lengths, ended, _starts(moment, lengths), reached[1:], True, moment.version,
        sum(end - begin for begin, end in missing(position, moment).values()), oldest_ms,
    )  # fmt: skip


def _starts(moment: Moment, lengths: Mapping[int, int]) -> Cut:
    # A segment may begin behind the stream's head: its bytes are gone, whoever truncated it.
    starts = {s: max(moment.head.get(s, 0), moment.infos[s].start_offset) for s in lengths}
    return {segment: start for segment, start in starts.items() if start}
