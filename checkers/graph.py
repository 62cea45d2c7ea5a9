"""The graph of segments and their successors, and positions in it.  Pure.

A *cut* is a position in a stream: {segment: offset}, with segments that cover the key space once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Cut = dict[int, int]


class Graph:
    """Which segments follow which."""

    def __init__(self) -> None:
        self.predecessors: dict[int, set[int]] = {}
        self._before: dict[int, frozenset[int]] = {}

    def follows(self, segment: int, predecessors: Iterable[int]) -> None:
        """Record predecessors of a segment; calls add up."""
        self.predecessors.setdefault(segment, set()).update(predecessors)
        self._before.clear()

    def before(self, segment: int) -> frozenset[int]:
        """All ancestors of a segment."""
        found = self._before.get(segment)
        if found is None:
            seen: set[int] = set()
            waiting = [segment]
            while waiting:
                for earlier in self.predecessors.get(waiting.pop(), ()):
                    if earlier not in seen:
                        seen.add(earlier)
                        waiting.append(earlier)
            found = self._before[segment] = frozenset(seen)
        return found

    def is_before(self, place: tuple[int, int], cut: Mapping[int, int]) -> bool:
        """Whether the byte at `place` (segment, offset) lies before a cut."""
        segment, offset = place
        if segment in cut:
            return offset < cut[segment]
        return any(segment in self.before(here) for here in cut)

    def goes_back(self, earlier: Mapping[int, int], later: Mapping[int, int]) -> bool:
        """Whether `later` lies before `earlier` in any segment."""
        return any(
            offset < earlier[segment] if segment in earlier else any(segment in self.before(one) for one in earlier)
            for segment, offset in later.items()
        )
