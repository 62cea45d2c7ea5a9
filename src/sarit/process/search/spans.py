"""Which events of a shard are answered: none that were truncated, and none that came after a cut.  Pure.

The events of a shard lie between two cuts, its own end and that of the shard before it.  A shard that lies between the
stream's head and the end of what is asked for is answered whole; of one that straddles either, the segments are named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.controller.model.cuts import follows, segments_between

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import SegmentRange
    from sarit.search.state import Shard

END: Final = (1 << 63) - 1  # an offset beyond those of all events
Spans = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The cuts between which events are answered.

    `known`: the segments from the head on.  `head`: the cut at which the stream begins; `truncated`: whether anything
    was before it.  `until`: None: up to all ends."""

    known: Mapping[int, SegmentRange]
    head: Cut
    truncated: bool = False
    until: Cut | None = None

    def spans(self, before: Shard | None, shard: Shard) -> Spans | None:
        """Return the spans of a shard that are answered; None: it is answered whole; empty: not at all.

        `before`: the shard before it; None: it is the first one."""
        begins_late = not self.truncated or (before is not None and self._is_behind_head(before))
        end = self._positions(shard)
        ends_early = self.until is None or (bool(end) and follows(self.known, end, self.until))
        if begins_late and ends_early:
            return None
        last, highest = (end, {}) if ends_early or self.until is None else (self.until, self.until)
        # Segments that are not known any more were truncated.
        if not last or (self.truncated and follows(self.known, last, self.head)):
            return {}
        return {
            segment: (self.head.get(segment, 0), highest.get(segment, END))
            for segment in segments_between(self.known, self.head, last)
        }

    def _positions(self, shard: Shard) -> Cut:
        positions = {segment.packed: offset for segment, offset in shard.end.positions.items()}
        return {segment: offset for segment, offset in positions.items() if segment in self.known}

    def _is_behind_head(self, shard: Shard) -> bool:
        # A segment that is forgotten was truncated, so the shard ends before the head there.
        cut = self._positions(shard)
        return len(cut) == len(shard.end.positions) and follows(self.known, self.head, cut)
