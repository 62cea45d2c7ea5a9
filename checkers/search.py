"""Guarantees of a stream's search index, and of the matches of its continuous queries.  Pure.

A view of an index is what its files have at one commit: a cut, and the places of the events.  A match is an event of an
output stream, which names a query and the place of the event that it matched.

| kind | meaning |
|---|---|
| `index-back` | a later commit has a cut behind that of an earlier one |
| `index-lost` | an event before the cut of a commit is not in the index |
| `index-double` | an event is in the index twice |
| `index-early` | an event behind the cut of a commit is in the index |
| `index-foreign` | the index has a place at which no event begins |
| `match-lost` | an event that a query matches, behind the cut from which it holds, is not in the output |
| `match-double` | an event is in the output twice for one query |
| `match-foreign` | the output has a match of an event that the query does not match, or that it does not hold for |
| `match-order` | the output has a match before that of an earlier event of the same segment |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Position = tuple[int, int]
Cut = dict[int, int]
Ranges = Mapping[int, tuple[float, float]]

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class IndexView:
    """An index at one commit.  `places`: of all its events, as its shards have them."""

    cut: Cut
    places: Sequence[Position]


@dataclass(slots=True)
class IndexHistory:
    """Everything that was seen.

    `events`: where the events of the stream begin.  `ranges`: of the key space, by segment.  `views`: in the order of
    time."""

    events: frozenset[Position] = frozenset()
    ranges: Ranges = field(default_factory=dict)
    views: list[IndexView] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Held:
    """A time in which a query held in one form.

    `wanted`: the events of the stream that it matches in this form.  `begin`, `end`: it holds for the events between
    these cuts.  `loose`: it need not: its row said so for a moment, and whoever had the job then knew nothing of it.
    `latest`: it may hold up to this cut; None: not behind `end`.  `gap`: matches of events between these cuts may be
    lost with their output."""

    wanted: frozenset[Position]
    begin: Cut
    end: Cut
    loose: bool = False
    latest: Cut | None = None
    gap: tuple[Cut, Cut] | None = None


@dataclass(slots=True)
class MatchHistory:
    """Everything that one continuous query has done.

    `held`: the times in which it held, which do not overlap.  `found`: the places that its output names, in order.
    `ranges`: of the key space, by segment."""

    query: str
    held: Sequence[Held]
    found: Sequence[Position]
    ranges: Ranges


def check_index(history: IndexHistory) -> list[Violation]:
    """Everything that is wrong; empty when nothing is."""
    return [*_order(history), *(found for view in history.views for found in _view(history, view))]


def check_matches(history: MatchHistory) -> list[Violation]:
    """Everything that is wrong with the matches of one query; empty when nothing is."""
    found = Counter(history.found)
    due = {place for held in history.held if not held.loose for place in _due(held, history.ranges)}
    allowed = due.union(*(_held_for(held, held.latest or held.end, history.ranges) for held in history.held))
    return [
        Violation(kind, f"query {history.query}: {len(places)} events, as {sorted(places)[:_SHOWN]}")
        for kind, places in (
            ("match-double", [place for place, times in found.items() if times > 1]),
            ("match-lost", due - found.keys()),
            ("match-foreign", found.keys() - allowed),
            ("match-order", list(_too_late(history.found))),
        )
        if places
    ]


def _due(held: Held, ranges: Ranges) -> set[Position]:
    """Return the events whose matches must be there."""
    places = _held_for(held, held.end, ranges)
    if held.gap is None:
        return places
    begin, end = held.gap
    return {place for place in places if _is_before(place, begin, ranges) or not _is_before(place, end, ranges)}


def _held_for(held: Held, end: Cut, ranges: Ranges) -> set[Position]:
    """Return the events that a query matches from its begin to a cut."""
    return {
        place for place in held.wanted if not _is_before(place, held.begin, ranges) and _is_before(place, end, ranges)
    }


def _too_late(found: Sequence[Position]) -> Iterator[Position]:
    """Yield the places that come after a later one of their segments."""
    last: dict[int, int] = {}
    for segment, offset in found:
        if offset < last.get(segment, 0):
            yield segment, offset
        last[segment] = max(offset, last.get(segment, 0))


def _order(history: IndexHistory) -> Iterator[Violation]:
    for earlier, later in pairwise(history.views):
        back = [
            segment
            for segment, offset in earlier.cut.items()
            if offset and not _is_before((segment, offset - 1), later.cut, history.ranges)
        ]
        if back:
            yield Violation("index-back", f"{later.cut} comes after {earlier.cut}: segments {back[:_SHOWN]}")


def _view(history: IndexHistory, view: IndexView) -> Iterator[Violation]:
    events, found = history.events, Counter(view.places)
    before = {place for place in events if _is_before(place, view.cut, history.ranges)}
    for kind, places in (
        ("index-double", [place for place, times in found.items() if times > 1]),
        ("index-foreign", found.keys() - events),
        ("index-lost", before - found.keys()),
        ("index-early", (found.keys() & events) - before),
    ):
        if places:
            yield Violation(kind, f"at cut {view.cut}: {len(places)} events, as {sorted(places)[:_SHOWN]}")


def _is_before(place: Position, cut: Mapping[int, int], ranges: Ranges) -> bool:
    """Return whether an event is before a cut.

    A segment that a cut does not name was read to its end if the segments of the cut that own a part of its range are
    of later epochs; else it comes after them.  A packed segment id has the epoch in its high half."""
    segment, offset = place
    if segment in cut:
        return offset < cut[segment]
    low, high = ranges[segment]
    sharing = [named for named in cut if ranges[named][0] < high and low < ranges[named][1]]
    return bool(sharing) and all(named >> 32 > segment >> 32 for named in sharing)


__all__ = ["Held", "IndexHistory", "IndexView", "MatchHistory", "check_index", "check_matches"]
