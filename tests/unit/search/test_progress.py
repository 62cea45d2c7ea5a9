"""Texts about the state of an index, and what a client reads of them."""

from __future__ import annotations

from sarit.core.cuts import StreamCut
from sarit.core.names import SegmentId, StreamName
from sarit.search.progress import IndexProgress, texts_of
from sarit.search.state import IndexState

CUT = StreamCut(StreamName("shop", "orders"), {SegmentId(0, 0): 700})


def test_progress_is_what_the_state_says():
    state = IndexState("ab", CUT, events=10, partly=2, lost_bytes=3, stored_bytes=400, commits=5, committed_ms=6)
    assert IndexProgress.of(texts_of(state, 7)) == IndexProgress(10, 7, 400, 6, 3, 2, CUT)
    assert IndexProgress.of(texts_of(IndexState(), 0)) == IndexProgress()


def test_what_is_missing_or_damaged_is_not_known():
    assert IndexProgress.of({}) == IndexProgress()
    damaged = {"events": "9" * 30, "shards": "-1", "bytes": "x", "partly": "٣", "cut": "no cut", "new": "1"}
    assert IndexProgress.of(damaged) == IndexProgress()
