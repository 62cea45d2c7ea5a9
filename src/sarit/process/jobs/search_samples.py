"""Metrics of the indexes that this process writes, one series a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.process.jobs.measured_jobs import lag_seconds
from sarit.process.limits import MAX_MEASURED_INDEXES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sarit.admin.exposition import Sample
    from sarit.core.names import StreamName
    from sarit.search.statistics import IndexStatistics

_MS_PER_SECOND: Final = 1000


def samples(running: Mapping[StreamName, IndexStatistics], now_ms: int) -> Iterator[Sample]:
    """Yield the samples of the indexes by their streams: of the first MAX_MEASURED_INDEXES by name."""
    names = sorted(running)
    for stream in names[:MAX_MEASURED_INDEXES]:
        found, label = running[stream], (str(stream),)
        yield "sarit_search_lag_bytes", label, found.lag_bytes
        yield "sarit_search_lag_seconds", label, lag_seconds(found, now_ms)
        if found.committed_ms:
            yield "sarit_search_last_commit_timestamp_seconds", label, found.committed_ms / _MS_PER_SECOND
        yield "sarit_search_stopped", label, int(bool(found.problem))
        yield "sarit_search_commits_total", label, found.commits
        yield "sarit_search_events_total", label, found.events
        yield "sarit_search_partly_total", label, found.partly
        yield "sarit_search_gap_bytes_total", label, found.lost_bytes
        yield "sarit_search_shards", label, found.shards
        yield "sarit_search_index_bytes", label, found.index_bytes
    if running:
        yield "sarit_search_indexes_not_measured", (), max(0, len(names) - MAX_MEASURED_INDEXES)
