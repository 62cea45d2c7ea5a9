"""Which lane takes which part of the key space (pure).

A *slot* is a part of [0, 1) and the lane that takes its events.  When a lane's segment turns out to be sealed, its
slots alone are handed to its successors, cut to their ranges; slots of lanes not known to be sealed stay, even where
a successor covers them too.  Thus an event can only follow its predecessors of the same key: whatever the old lane
still holds goes to the successor before anything new does.

A key hash equal to a segment's upper bound belongs to that segment (naming.md 3).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sarit.core.errors import Corrupt
from sarit.core.keyspace import hash_key

if TYPE_CHECKING:
    from collections.abc import Sequence

CACHED_KEYS: Final = 100_000

L = TypeVar("L")


class _LaneOfKey(dict[str, L]):
    """Key -> lane; a key it has not seen is hashed.  Indexing it is the cheapest way from a key to its lane."""

    __slots__ = ("_slots",)

    def __init__(self, slots: Slots[L]) -> None:
        super().__init__()
        self._slots = slots

    def __missing__(self, key: str) -> L:
        if len(self) >= CACHED_KEYS:
            self.clear()
        lane = self[key] = self._slots.at(hash_key(key))
        return lane


class Slots(Generic[L]):
    """The slots in ascending order.  `of_key[key]` is the lane of a key."""

    __slots__ = ("_highs", "_slots", "of_key")

    def __init__(self, lanes: Sequence[tuple[float, float, L]]) -> None:
        self._set(sorted(lanes, key=lambda slot: slot[0]))

    def _set(self, slots: list[tuple[float, float, L]]) -> None:
        low = 0.0
        for slot in slots:
            if slot[0] != low:
                raise Corrupt(f"the stream's segments leave a hole in the key space at {low}")
            low = slot[1]
        if low != 1.0:
            raise Corrupt(f"the stream's segments end at {low}, not at 1.0")
        # Neighbours of one lane, which a merge leaves, are one slot: whoever has everything is `only` then.
        joined: list[tuple[float, float, L]] = []
        for low, high, lane in slots:
            if joined and joined[-1][2] is lane:
                joined[-1] = (joined[-1][0], high, lane)
            else:
                joined.append((low, high, lane))
        self._slots = joined
        self._highs = [high for _, high, _ in joined]
        self.of_key: dict[str, L] = _LaneOfKey(self)

    @property
    def only(self) -> L | None:
        """The one lane, when one takes everything."""
        first = self._slots[0][2]
        return first if len(self._slots) == 1 else None

    def lanes(self) -> list[L]:
        """Every lane once, in order of its first slot."""
        return list(dict.fromkeys(lane for _, _, lane in self._slots))

    def at(self, position: float) -> L:
        """The lane that takes `position` of the key space."""
        return self._slots[bisect_left(self._highs, position)][2]

    def replace(self, old: L, successors: Sequence[tuple[float, float, L]]) -> None:
        """Hand the slots of `old` to `successors` (their ranges and lanes)."""
        slots = []
        for low, high, lane in self._slots:
            if lane is not old:
                slots.append((low, high, lane))
                continue
            for start, end, successor in successors:
                if max(low, start) < min(high, end):
                    slots.append((max(low, start), min(high, end), successor))
        self._set(sorted(slots, key=lambda slot: slot[0]))
