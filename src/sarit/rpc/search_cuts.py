"""Cuts of streams in the messages of search.proto."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId
from sarit.rpc.generated import search_pb2 as pb

if TYPE_CHECKING:
    from sarit.core.names import StreamName


def cut_message(cut: StreamCut) -> pb.SearchCut:
    """Return a cut as a message."""
    return pb.SearchCut(segments=[one.packed for one in cut.positions], offsets=cut.positions.values())


def cut_of(message: pb.SearchCut, stream: StreamName) -> StreamCut:
    """Return the cut of a message.  Raises Invalid."""
    if len(message.segments) != len(message.offsets) or min(message.segments, default=0) < 0:
        raise Invalid("a cut has an offset for each segment")
    pairs = zip(message.segments, message.offsets, strict=True)
    return StreamCut(stream, {SegmentId.unpack(segment): offset for segment, offset in pairs})
