"""Cuts in messages of searches, there and back."""

from __future__ import annotations

import pytest

from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.rpc.generated import search_pb2 as pb
from sarit.rpc.search_cuts import cut_message, cut_of

STREAM = StreamName("app", "s")


@pytest.mark.parametrize("positions", [{SegmentId(0, 0): 0}, {SegmentId(3, 7): 1 << 40, SegmentId(0, 1): 5}])
def test_cut_comes_back_as_it_was(positions) -> None:
    cut = StreamCut(STREAM, positions)
    message = cut_message(cut)
    assert cut_of(pb.SearchCut.FromString(message.SerializeToString()), STREAM) == cut


@pytest.mark.parametrize(("segments", "offsets"), [([1, 2], [1]), ([1], [1, 2]), ([-1], [1])])
def test_cut_that_nobody_makes_is_refused(segments, offsets) -> None:
    with pytest.raises(Invalid, match="an offset for each segment"):
        cut_of(pb.SearchCut(segments=segments, offsets=offsets), STREAM)
