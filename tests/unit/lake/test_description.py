"""The progress of a table as texts, on their way from a job to whoever lists it."""

from sarit.core.cuts import StreamCut
from sarit.core.names import SegmentId, StreamName
from sarit.lake.description import TableProgress, describe
from sarit.lake.job_state import Intent, JobState

CUT = StreamCut(StreamName("shop", "orders"), {SegmentId(0, 0): 100, SegmentId(2, 3): 7})


def test_progress_is_read_as_it_was_described():
    state = JobState(
        "u", "s", rows=5, files=4, dead_letters=3, lost_bytes=2, committed_ms=1, cut=CUT,
        intent=Intent("c", CUT, CUT, 1, "columns"),
    )  # fmt: skip
    assert TableProgress.of(describe(state.encode())) == TableProgress(5, 4, 3, 2, 1, CUT)


def test_new_job_has_no_progress():
    assert TableProgress.of(describe(b"")) == TableProgress()


def test_damaged_texts_are_not_known():
    assert TableProgress.of({"rows": "-1", "files": "x" * 100, "gap-bytes": "9" * 40, "cut": "??"}) == TableProgress()
