"""What the copier does next for one stream, as pure decisions.

    position of the mirror, offer of the source ─▶ plan:
      Nothing   the mirror has it all
      Discard   staged bytes are not a part of this round: drop them first
      Copy      read these ranges, write them, and then, if they were staged, finish the round
      Gap       bytes between the mirror and the source are gone
      Wrong     the source offers what cannot be

A round is appended *directly* if it is one piece of one segment, small, and nothing else changes with it: then the
append itself is all or nothing.  Everything else is staged first.  What an earlier copier has staged is taken over: a
segment's bytes at an offset are the same whenever they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sarit.controller.model.epochs import creation_epoch, known_segments
from sarit.mirror.offers import alive
from sarit.mirror.values import Position, Range, Round

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.model.cuts import Cut
    from sarit.mirror.values import MirrorState, Offer, StreamFacts


@dataclass(frozen=True, slots=True)
class Nothing:
    """The mirror is where the source is."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop what is staged for these segments, and plan again."""

    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy `ranges`; then finish `round`.  None: they are one range, to be appended directly.

    `reached`: the position of the mirror afterwards.  `growth`: the bytes that it then has more, also those that were
    staged before."""

    ranges: tuple[Range, ...]
    round: Round | None
    reached: Position
    growth: int

    @property
    def length(self) -> int:
        """The bytes to copy."""
        return sum(one.length for one in self.ranges)


@dataclass(frozen=True, slots=True)
class Gap:
    """At least `lost` bytes behind the mirror are gone at the source; 0: it is not known how many."""

    lost: int


@dataclass(frozen=True, slots=True)
class Wrong:
    """The offer contradicts itself or the mirror: why."""

    reason: str


Plan: TypeAlias = Nothing | Discard | Copy | Gap | Wrong


def plan(state: MirrorState, facts: StreamFacts, offer: Offer, direct_bytes: int, *, follow: bool = False) -> Plan:
    """Decide what to do with an offer for the position of `state`, which is READY.

    `direct_bytes`: the longest round that is appended directly.  `follow`: truncate the mirror as the source is."""
    assert state.position is not None
    offer = _behind_head(state, offer)
    bases = _bases(state, offer)
    if isinstance(bases, Gap | Wrong):
        return bases
    if stale := tuple(s for s, staged in sorted(state.staged.items()) if staged and not _fits(s, staged, bases, offer)):
        return Discard(stale)
    ends = facts.sealed and not facts.fenced and not offer.more and facts.version == offer.version
    reached = _reached(state.position, offer)
    sealed = _sealed(state.position, offer, reached, ends=ends)
    if isinstance(sealed, Wrong):
        return sealed
    head = _head_to_set(state, facts, offer, reached) if follow else {}
    ranges = _ranges(state, offer, bases)
    grown = [s for s, base in bases.items() if offer.lengths[s] > base]
    if not grown and not offer.epochs and not ends and not head:
        return Nothing()
    direct = len(grown) == 1 and not offer.epochs and not sealed and not ends and not head and not state.staged
    if direct and ranges[0].length <= direct_bytes:
        return Copy(ranges, None, reached, ranges[0].length)
    round_ = Round(state.name, state.position.lengths, offer.lengths, sealed, offer.epochs, ends, head)
    return Copy(ranges, round_, reached, sum(offer.lengths[s] - base for s, base in bases.items()))


def _behind_head(state: MirrorState, offer: Offer) -> Offer:
    """Leave out segments that lie before the head at which the mirror began: the source does not know that head."""
    assert state.position is not None
    if not any(creation_epoch(s) > state.position.epoch for s in state.head):
        return offer
    gone = known_segments(offer.epochs).keys() - alive(offer.epochs, state.head) - state.position.lengths.keys()
    lengths = {s: length for s, length in offer.lengths.items() if s not in gone}
    return replace(offer, lengths=lengths, sealed=offer.sealed - gone)


def _bases(state: MirrorState, offer: Offer) -> Cut | Gap | Wrong:
    """Return where the bytes to copy begin, by segment."""
    assert state.position is not None
    position = state.position
    if position.lengths.keys() - offer.lengths.keys():
        return Gap(0)
    bases = {s: position.lengths.get(s, state.head.get(s, 0)) for s in offer.lengths}
    if lost := sum(max(0, offer.starts.get(s, 0) - base) for s, base in bases.items()):
        return Gap(lost)
    last = position.epoch
    known = set(position.lengths)
    for epoch in offer.epochs:
        if epoch.number <= last:
            return Wrong(f"epoch {epoch.number} is offered behind epoch {last}")
        last = epoch.number
        known |= epoch.ids
    if stray := offer.lengths.keys() - known:
        return Wrong(f"segment {min(stray)} is offered, which no epoch has")
    if short := [s for s, base in bases.items() if offer.lengths[s] < base]:
        return Wrong(
            f"segment {short[0]} has {offer.lengths[short[0]]} bytes at the source, and {bases[short[0]]} at the mirror"
        )
    return bases


def _fits(segment: int, staged: int, bases: Mapping[int, int], offer: Offer) -> bool:
    return segment in bases and bases[segment] + staged <= offer.lengths[segment]


def _reached(position: Position, offer: Offer) -> Position:
    if not offer.epochs:
        return Position(position.name, position.epoch, dict(offer.lengths))
    last = offer.epochs[-1]
    return Position(position.name, last.number, {s: offer.lengths[s] for s in last.ids & offer.lengths.keys()})


def _sealed(position: Position, offer: Offer, reached: Position, *, ends: bool) -> frozenset[int] | Wrong:
    """Return the segments to seal: those that the offered epochs replace, and with the stream's end the last ones.

    A segment that is sealed, and that nothing replaces yet, is sealed with the epoch that does: a mirror whose source
    is fenced, or in the midst of a scale, stays as it was."""
    replaced = frozenset(offer.lengths.keys() - reached.lengths.keys())
    if ends:
        replaced |= reached.lengths.keys()
    if open_ones := replaced - offer.sealed:
        return Wrong(f"segment {min(open_ones)} is replaced at the source, and not sealed")
    return replaced


def _ranges(state: MirrorState, offer: Offer, bases: Mapping[int, int]) -> tuple[Range, ...]:
    """Return what is not staged yet, in order of the segments' creation."""
    starts = {s: base + state.staged.get(s, 0) for s, base in bases.items()}
    return tuple(
        Range(state.name, s, start, offer.lengths[s] - start)
        for s, start in sorted(starts.items())
        if offer.lengths[s] > start
    )


def _head_to_set(state: MirrorState, facts: StreamFacts, offer: Offer, reached: Position) -> Cut:
    """Return the source's head if the mirror begins elsewhere, and has reached it with this round; otherwise none."""
    head = facts.head
    if not _is_ahead(head, state.head):
        return {}
    for segment, offset in head.items():
        if segment in offer.lengths:
            if offset > offer.lengths[segment]:
                return {}
        elif creation_epoch(segment) > reached.epoch:
            return {}
    return dict(head)


def _is_ahead(head: Mapping[int, int], than: Mapping[int, int]) -> bool:
    """Return whether a head is somewhere behind another one, and nowhere before it."""
    if not head or not than:
        return False
    newest, newest_than = max(map(creation_epoch, head)), max(map(creation_epoch, than))
    if any(head.get(s, at) < at or (s not in head and creation_epoch(s) > newest) for s, at in than.items()):
        return False
    return any(at > than.get(s, at) or (s not in than and creation_epoch(s) > newest_than) for s, at in head.items())
