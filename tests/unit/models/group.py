"""Scaling under a reader group: segments split and merge while a writer writes and readers share them.

The controller scales in stages: create, publish, seal (each segment by itself).  The writer writes to the segments it
knows, and asks for successors when a write is refused as sealed.  The group's state says which segments are unassigned,
who owns which, and which wait for predecessors; readers change it one at a time.  A reader reads an event and records
its position with it, releases segments, or dies; what it owned becomes unassigned.

Invariants: each event is delivered once, those of a key in order; a segment has one owner; owned, unassigned and
waiting segments are exactly those not read yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of two keys, the lower one and the upper one.  0 splits into 1 and 2, these merge into 3.
KEYS: Final = ("low", "high")
RANGES: Final = {0: KEYS, 1: KEYS[:1], 2: KEYS[1:], 3: KEYS}
SCALES: Final = (((0,), (1, 2)), ((1, 2), (3,)))
PREDECESSORS: Final = {1: {0}, 2: {0}, 3: {1, 2}}

Event = tuple[str, int]


class Segment(NamedTuple):
    """`events`: in order."""

    events: tuple[Event, ...] = ()
    sealed: bool = False


class Group(NamedTuple):
    """The shared state.  `owned`: per reader, (segment, place); `waiting`: (segment, unread predecessors)."""

    unassigned: tuple[tuple[int, int], ...] = ((0, 0),)
    owned: tuple[tuple[tuple[int, int], ...], ...] = ((), ())
    waiting: tuple[tuple[int, frozenset[int]], ...] = ()


class State(NamedTuple):
    """`stage`: of the scale under way, 0 for none; `published`: how many scales; `belief`: the writer's segments."""

    segments: tuple[tuple[int, Segment], ...] = ((0, Segment()),)
    published: int = 0
    stage: int = 0
    belief: tuple[int, ...] = (0,)
    written: tuple[int, ...] = (0, 0)
    group: Group = Group()
    delivered: tuple[int, ...] = (0, 0)
    deaths: int = 0
    bug: str = ""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Bounds, and the mutants to apply."""

    events: int = 2
    deaths: int = 1
    seals_before_publishing: bool = False
    successor_after_one_predecessor: bool = False
    place_lost_in_death: bool = False
    taken_twice: bool = False

    def first(self) -> State:
        """One segment, two idle readers."""
        return State()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """See the head of the module."""
        yield from self._controller(state)
        for at, key in enumerate(KEYS):
            if state.written[at] < self.events:
                yield f"writes {key}", self._write(state, at, key)
        for reader in range(len(state.group.owned)):
            for name, after in self._reader(state, reader):
                yield f"reader {reader} {name}", after

    def _controller(self, state: State) -> Iterator[tuple[str, State]]:
        if state.published == len(SCALES) and not state.stage:
            return
        old, new = SCALES[state.published - 1 if state.stage == 2 else state.published]
        segments = dict(state.segments)
        if state.stage == 0:
            created = {**segments, **{s: Segment() for s in new}}
            yield "creates", state._replace(segments=tuple(sorted(created.items())), stage=1)
        elif state.stage == 1:
            yield "publishes", state._replace(published=state.published + 1, stage=2)
            if self.seals_before_publishing:
                yield from self._seals(state, old)
        else:
            yield from self._seals(state, old)
            if all(segments[s].sealed for s in old):
                yield "is done", state._replace(stage=0)

    def _seals(self, state: State, old: tuple[int, ...]) -> Iterator[tuple[str, State]]:
        for segment in old:
            found = dict(state.segments)[segment]
            if not found.sealed:
                yield f"seals {segment}", _with(state, segment, found._replace(sealed=True))

    def _write(self, state: State, at: int, key: str) -> State:
        segment = next(s for s in state.belief if key in RANGES[s])
        found = dict(state.segments)[segment]
        if not found.sealed:
            number = state.written[at] + 1
            written = tuple(number if one == at else count for one, count in enumerate(state.written))
            return _with(state, segment, found._replace(events=(*found.events, (key, number))))._replace(
                written=written
            )
        after = _successors(state, segment)
        if not after:
            return state._replace(bug="the writer takes the stream for sealed")
        # As the client does: only the keys of the sealed segment move to successors.
        remaining = {s for s in state.belief if s != segment and not set(RANGES[s]) <= set(RANGES[after[0]])}
        return state._replace(belief=tuple(sorted(remaining | set(after))))

    def _reader(self, state: State, reader: int) -> Iterator[tuple[str, State]]:
        group = state.group
        mine = group.owned[reader]
        for place in group.unassigned:
            left = group.unassigned if self.taken_twice else tuple(p for p in group.unassigned if p != place)
            taken = group._replace(unassigned=left, owned=_owned(group, reader, (*mine, place)))
            if place not in mine:
                yield f"takes {place[0]}", state._replace(group=taken)
        for segment, offset in mine:
            found = dict(state.segments)[segment]
            others = tuple(p for p in mine if p[0] != segment)
            if offset < len(found.events):
                moved = group._replace(owned=_owned(group, reader, (*others, (segment, offset + 1))))
                yield f"reads {segment}", _hand(state._replace(group=moved), found.events[offset])
            elif found.sealed and (after := _successors(state, segment)):
                yield f"finishes {segment}", self._finish(state, reader, segment, after)
        if mine and state.deaths < self.deaths:
            back = tuple((s, 0 if self.place_lost_in_death else offset) for s, offset in mine)
            freed = group._replace(
                unassigned=tuple(sorted({*group.unassigned, *back})), owned=_owned(group, reader, ())
            )
            yield "dies", state._replace(group=freed, deaths=state.deaths + 1)

    def _finish(self, state: State, reader: int, segment: int, after: tuple[int, ...]) -> State:
        group = state.group
        waiting = dict(group.waiting)
        for successor in after:
            waiting.setdefault(successor, frozenset(PREDECESSORS[successor]))
        unassigned = list(group.unassigned)
        for successor, left in sorted(waiting.items()):
            waiting[successor] = left - {segment}
            if not waiting[successor] or (self.successor_after_one_predecessor and segment in left):
                del waiting[successor]
                unassigned.append((successor, 0))
        mine = tuple(p for p in group.owned[reader] if p[0] != segment)
        changed = Group(tuple(sorted(unassigned)), _owned(group, reader, mine), tuple(sorted(waiting.items())))
        return state._replace(group=changed)

    def wrong(self, state: State) -> str:
        """See the head of the module."""
        if state.bug:
            return state.bug
        group = state.group
        known = [s for s, _ in group.unassigned] + [s for owned in group.owned for s, _ in owned]
        known += [s for s, _ in group.waiting]
        if len(known) != len(set(known)):
            return f"segments {sorted(known)} are known twice to the group"
        reach = [key for segment in known for key in RANGES[segment]]
        if len(group.waiting) == 0 and sorted(reach) != sorted(KEYS):
            return f"the group's segments {sorted(known)} do not cover the keys once"
        return ""

    def unfinished(self, state: State) -> str:
        """At the end everything was delivered."""
        return "" if state.delivered == (self.events, self.events) else f"only {state.delivered} events were delivered"


def _successors(state: State, segment: int) -> tuple[int, ...]:
    for old, new in SCALES[: state.published]:
        if segment in old:
            return tuple(s for s in new if segment in PREDECESSORS[s])
    return ()


def _with(state: State, segment: int, changed: Segment) -> State:
    return state._replace(segments=tuple(sorted({**dict(state.segments), segment: changed}.items())))


def _owned(group: Group, reader: int, places: tuple[tuple[int, int], ...]) -> tuple[tuple[tuple[int, int], ...], ...]:
    return tuple(tuple(sorted(places)) if one == reader else owned for one, owned in enumerate(group.owned))


def _hand(state: State, event: Event) -> State:
    key, number = event
    at = KEYS.index(key)
    if number != state.delivered[at] + 1:
        return state._replace(bug=f"event {number} of {key} was delivered after {state.delivered[at]}")
    return state._replace(delivered=tuple(number if one == at else count for one, count in enumerate(state.delivered)))


__all__ = ["Scaling", "State"]
