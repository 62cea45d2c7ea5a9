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


class _AppenderOfKey(dict[str, L]):
    """Key -> lane; a key it has not seen is hashed.  Indexing it is the cheapest way from a key to its lane."""

    __slots__ = ("_ranges",)

    def __init__(self, key_ranges: KeyRanges[L]) -> None:
        super().__init__()
        self._ranges = key_ranges

    def __missing__(self, key: str) -> L:
        if len(self) >= CACHED_KEYS:
            self.clear()
        appender = self[key] = self._ranges.at(hash_key(key))
        return appender


class KeyRanges(Generic[L]):
    """The slots in ascending order.  `of_key[key]` is the lane of a key."""

    __slots__ = ("_highs", "_ranges", "of_key")

    def __init__(self, appenders: Sequence[tuple[float, float, L]]) -> None:
        self._set(sorted(appenders, key=lambda slot: slot[0]))

    def _set(self, key_ranges: list[tuple[float, float, L]]) -> None:
        low = 0.0
        for slot in key_ranges:
            if slot[0] != low:
                raise Corrupt(f"the stream's segments leave a hole in the key space at {low}")
            low = slot[1]
        if low != 1.0:
            raise Corrupt(f"the stream's segments end at {low}, not at 1.0")
        # Neighbours of one lane, which a merge leaves, are one slot: whoever has everything is `only` then.
        joined: list[tuple[float, float, L]] = []
        for low, high, appender in key_ranges:
            if joined and joined[-1][2] is appender:
                joined[-1] = (joined[-1][0], high, appender)
            else:
                joined.append((low, high, appender))
        self._ranges = joined
        self._highs = [high for _, high, _ in joined]
        self.of_key: dict[str, L] = _AppenderOfKey(self)

    @property
    def only(self) -> L | None:
        """The one lane, when one takes everything."""
        first = self._ranges[0][2]
        return first if len(self._ranges) == 1 else None

    def appenders(self) -> list[L]:
        """Every lane once, in order of its first slot."""
        return list(dict.fromkeys(appender for _, _, appender in self._ranges))

    def at(self, position: float) -> L:
        """The lane that takes `position` of the key space."""
        return self._ranges[bisect_left(self._highs, position)][2]

    def replace(self, old: L, successors: Sequence[tuple[float, float, L]]) -> None:
        """Hand the slots of `old` to `successors` (their ranges and lanes)."""
        key_ranges = []
        for low, high, appender in self._ranges:
            if appender is not old:
                key_ranges.append((low, high, appender))
                continue
            for start, end, successor in successors:
                if max(low, start) < min(high, end):
                    key_ranges.append((max(low, start), min(high, end), successor))
        self._set(sorted(key_ranges, key=lambda slot: slot[0]))
