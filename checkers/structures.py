"""Shared data structures as models for the search of `register.py`, and what must hold of a priority queue.  Pure.

A number, entries by key, and a list are linearizable: each is a model.  A queue promises less, so it has rules of its
own:

* an item is there once for each put, and handed out with its value and priority
* two takers do not have an item at once: a later one takes it after the lease of the one before, or was given it back
* an item that was done is not handed out again
* a take answers no item that lies behind one that was free as long as the take lasted
* what is left is what was put and not done
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Final

from checkers.log import Violation
from checkers.register import IMPOSSIBLE, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

REFUSED: Final = "refused"
DONE: Final = "done"


class SharedNumber:
    """A counter: ("add", amount) -> the value after it;  ("get",) -> the value."""

    first: Hashable = 0

    def step(self, state: Any, action: tuple[Any, ...], answer: Any) -> Any:
        """See `Model`."""
        after = state + action[1] if action[0] == "add" else state
        return after if answer in (UNKNOWN, after) else IMPOSSIBLE


class SharedEntries:
    """A map: ("put", key, value, expected version or None) -> version, or REFUSED;  ("remove", key) -> whether it was
    there;  ("get", key) -> (value, version) or None;  ("items",) -> all (key, value, version)."""

    first: Hashable = (0, ())

    def step(self, state: Any, action: tuple[Any, ...], answer: Any) -> Any:
        """See `Model`."""
        changes, entries = state[0], dict(state[1])
        if action[0] == "items":
            right: Any = tuple((key, *entry) for key, entry in sorted(entries.items()))
        elif action[0] == "get":
            right = entries.get(action[1])
        elif action[0] == "remove":
            right = entries.pop(action[1], None) is not None
            changes += right
        elif action[3] is not None and action[3] != entries.get(action[1], (None, 0))[1]:
            right = REFUSED
        else:
            changes += 1
            entries[action[1]] = (action[2], changes)
            right = changes
        return (changes, tuple(sorted(entries.items()))) if answer in (UNKNOWN, right) else IMPOSSIBLE


class SharedSequence:
    """A list: ("append", values) -> the index of the first one;  ("items",) -> all values."""

    first: Hashable = ()

    def step(self, state: Any, action: tuple[Any, ...], answer: Any) -> Any:
        """See `Model`."""
        if action[0] == "items":
            return state if answer in (UNKNOWN, state) else IMPOSSIBLE
        return (*state, *action[1]) if answer in (UNKNOWN, len(state)) else IMPOSSIBLE


@dataclass(slots=True)
class Put:
    """A put of one value; `ended` infinite: its outcome is unknown."""

    value: Any
    priority: int
    begun: float
    ended: float = inf


@dataclass(slots=True)
class Take:
    """A take, and what its taker did then.  `ended` infinite: its outcome is unknown.

    `value` None: there was nothing.  `renewed`: when each renewal that succeeded began.  `given_back`: when that began,
    whatever came of it.  `finished`: when `done` was answered."""

    begun: float
    ended: float = inf
    value: Any = None
    place: tuple[int, int] = (0, 0)  # priority, number
    takes: int = 0
    renewed: list[float] = field(default_factory=list)
    given_back: float = inf
    finish_begun: float = inf
    finished: float = inf


class QueueHistory:
    """What clients asked of one queue, and were answered."""

    def __init__(self, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self.puts: list[Put] = []
        self.takes: list[Take] = []

    def check(self, left: dict[tuple[int, int], Any] | None = None) -> list[Violation]:
        """What the rules do not allow; `left`: the values by place that are there once all is quiet."""
        found = [*self._wrong_values(left or {}), *self._held_at_once(), *self._after_done(), *self._out_of_order(left)]
        if left is not None:
            found += self._wrong_rest(left)
        return [Violation("queue", text) for text in found]

    def _wrong_values(self, left: dict[tuple[int, int], Any]) -> Iterator[str]:
        priorities = {put.value: put.priority for put in self.puts}
        places: dict[Any, tuple[int, int]] = {}
        shown = [(take.value, take.place) for take in self.takes if take.value is not None]
        for value, place in [*shown, *((value, place) for place, value in left.items())]:
            if priorities.get(value) != place[0]:
                yield f"{value} at {place} was put with priority {priorities.get(value)}"
            if places.setdefault(value, place) != place:
                yield f"{value} is there twice, at {places[value]} and {place}"

    def _held_at_once(self) -> Iterator[str]:
        by_place: dict[tuple[int, int], list[Take]] = {}
        for take in self.takes:
            if take.value is not None:
                by_place.setdefault(take.place, []).append(take)
        for place, takes in by_place.items():
            takes.sort(key=lambda take: take.takes)
            for one, other in pairwise(takes):
                if one.takes == other.takes:
                    yield f"{place} was taken twice as number {one.takes}"
                ends = max([one.begun, *one.renewed]) + self.lease_seconds
                if other.ended < min(ends, one.given_back):
                    yield f"{place} was taken at {other.ended} while another had it until {ends}"

    def _after_done(self) -> Iterator[str]:
        ends = {take.place: take.finished for take in self.takes if take.finished != inf}
        for take in self.takes:
            if take.value is not None and take.begun > ends.get(take.place, inf):
                yield f"{take.place} was taken at {take.begun} after it was done"

    def _out_of_order(self, left: dict[tuple[int, int], Any] | None) -> Iterator[str]:
        """Judge takes by items of which all is known: never taken before that take ended."""
        places = {take.value: take.place for take in self.takes if take.value is not None}
        places |= {value: place for place, value in (left or {}).items()}
        first_taken: dict[Any, float] = {}
        for take in self.takes:
            if take.value is not None:
                first_taken[take.value] = min(take.begun, first_taken.get(take.value, inf))
        uncertain = min((take.begun for take in self.takes if take.ended == inf), default=inf)
        for take in self.takes:
            if take.ended == inf or take.ended > uncertain:
                continue
            for put in self.puts:
                place = places.get(put.value)
                free = put.ended < take.begun and first_taken.get(put.value, inf) > take.ended
                if free and place is not None and (take.value is None or place < take.place):
                    yield f"a take from {take.begun} to {take.ended} answered {take.value}, and {put.value} was free"

    def _wrong_rest(self, left: dict[tuple[int, int], Any]) -> Iterator[str]:
        done = {take.value for take in self.takes if take.finished != inf}
        perhaps = {take.value for take in self.takes if take.finish_begun != inf}
        rest = Counter(left.values())
        for put in self.puts:
            count = rest.pop(put.value, 0)
            least = int(put.ended != inf and put.value not in perhaps)
            if not least <= count <= (0 if put.value in done else 1):
                yield f"{put.value} is left {count} times"
        yield from (f"{value} is left, and was never put" for value in rest)
