"""The position of a reader group in one stream as a cut, from the offsets that the group's state has (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.model.cuts import follows, is_cut
from sarit.controller.model.epochs import known_segments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch


def segments_read(epochs: Sequence[Epoch], offsets: Mapping[int, int]) -> list[int]:
    """Return the segments beside those of a position that the group has read to their ends, as far as a cut may have
    them."""
    epoch = _newest_common(epochs, offsets)
    return [] if epoch is None else sorted(epoch.ids - offsets.keys())


def cut_at(
    epochs: Sequence[Epoch], head: Mapping[int, int], offsets: Mapping[int, int], ends: Mapping[int, int]
) -> Cut | None:
    """Return the cut at a position, or one before it where there is none (readers are between two scales).

    `offsets`: of the segments that the group reads now.  `ends`: the lengths of `segments_read`.  `epochs`: from those
    that created these segments and the head on.  None: it is no position of the stream."""
    known = known_segments(epochs)
    epoch = _newest_common(epochs, offsets)
    if epoch is None or not offsets.keys() <= known.keys():
        return None
    beside = {
        segment: at
        for segment, at in ends.items()
        if segment in epoch.ids and not any(known[segment].overlaps(known[other]) for other in offsets)
    }
    cut = {**offsets, **beside}
    if not is_cut(known, cut):
        # In the newest epoch in which the group has gone beyond no segment, each segment is read now, or was read.
        cut = {segment: offsets.get(segment, ends.get(segment, 0)) for segment in epoch.ids}
    # What was truncated cannot be read any more.
    cut = {segment: max(at, head.get(segment, 0)) for segment, at in cut.items()}
    if not is_cut(known, cut):
        return None
    return cut if follows(known, head, cut) else dict(head)


def _newest_common(epochs: Sequence[Epoch], offsets: Mapping[int, int]) -> Epoch | None:
    last = {segment: epoch for epoch in epochs for segment in epoch.ids}
    found = [last[segment] for segment in offsets if segment in last]
    return min(found, key=lambda epoch: epoch.number, default=None)
