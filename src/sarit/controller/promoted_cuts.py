"""Refuses cuts that lie beyond the end of a promoted mirror.

A client may have its cut from the source, whose last bytes were not copied when the mirror was promoted.  To go on with
the successors of the sealed segments would hide that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.limits import PROMOTED_EPOCHS
from sarit.controller.model.epochs import creation_epoch
from sarit.core.names import SegmentId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.model.records import StreamRecord
    from sarit.controller.ports import Segments
    from sarit.core.names import StreamName


async def beyond_promotion(
    segments: Segments, name: StreamName, record: StreamRecord, cut: Mapping[int, int]
) -> str | None:
    """Return what is wrong with a cut beyond the end of a segment that a promotion of its stream sealed; None: nothing.

    The lengths of the cut's segments are read only if the stream was promoted since they were created."""
    old = [s for s, at in cut.items() if at and record.current.number - creation_epoch(s) >= PROMOTED_EPOCHS]
    if not old:
        return None
    infos = await segments.infos([name.segment(SegmentId.unpack(s)) for s in old])
    for segment, info in zip(old, infos, strict=True):
        if info is not None and cut[segment] > info.length:
            return (
                f"the cut is at {cut[segment]} in segment {SegmentId.unpack(segment)} of stream {name}, which ended at "
                f"{info.length} when the stream was promoted: what lies between was not copied from its source"
            )
    return None
