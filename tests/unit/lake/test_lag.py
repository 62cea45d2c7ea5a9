"""How far behind its stream a table is, in time: also while it catches up with a long history."""

import asyncio
from types import SimpleNamespace

from sarit.core.cuts import StreamCut
from sarit.core.names import SegmentId, StreamName
from sarit.lake.commits import Complete
from sarit.lake.committer import Committer
from sarit.lake.job_state import JobState
from sarit.lake.settings import IcebergSettings
from sarit.process.jobs.measured_jobs import lag_seconds

NOW_MS = 1_000_000_000
CUT = StreamCut(StreamName("shop", "orders"), {SegmentId(0, 0): 0})


def test_lag_is_the_age_of_what_is_not_committed():
    async def save(state, held):
        pass

    env = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: NOW_MS))
    committer = Committer(IcebergSettings("lake.shop.orders"), None, None, None, save, env, None)
    statistics = committer.statistics

    # Commits of a backfill follow each other at once, and their rows are a day old.
    statistics.ingested_ms = NOW_MS - 86_400_000
    asyncio.run(committer._complete(Complete(JobState(cut=CUT), None)))
    committer._note_lag(CUT, 1000, NOW_MS)
    assert lag_seconds(statistics, NOW_MS) == 86_400
    committer._note_lag(CUT, 0, NOW_MS)
    assert lag_seconds(statistics, NOW_MS) == 0

    # The first event after a quiet time is as old as its discovery.
    committer._note_lag(CUT, 5, NOW_MS)
    assert lag_seconds(statistics, NOW_MS + 3000) == 3
