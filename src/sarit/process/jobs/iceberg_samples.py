"""Metrics of the Iceberg tables that this process commits to, one series a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.lake.problems import name_in
from sarit.process.jobs.measured_jobs import lag_seconds
from sarit.process.limits import MAX_MEASURED_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sarit.admin.exposition import Sample
    from sarit.core.names import StreamName
    from sarit.lake.statistics import LakeStatistics

_MS_PER_SECOND: Final = 1000
OTHER_PROBLEM: Final = "other"


def samples(running: Mapping[StreamName, LakeStatistics], now_ms: int) -> Iterator[Sample]:
    """Yield the samples of the tables by their streams: of the first MAX_MEASURED_TABLES by name."""
    names = sorted(running)
    for stream in names[:MAX_MEASURED_TABLES]:
        found, label = running[stream], (str(stream),)
        yield "sarit_iceberg_lag_bytes", label, found.lag_bytes
        yield "sarit_iceberg_lag_seconds", label, lag_seconds(found, now_ms)
        if found.committed_ms:
            yield "sarit_iceberg_last_commit_timestamp_seconds", label, found.committed_ms / _MS_PER_SECOND
        if found.problem:
            yield "sarit_iceberg_stopped", (*label, name_in(found.problem) or OTHER_PROBLEM), 1
        yield "sarit_iceberg_commits_total", label, found.commits
        yield "sarit_iceberg_conflicts_total", label, found.conflicts
        yield "sarit_iceberg_rows_total", label, found.rows
        yield "sarit_iceberg_files_total", label, found.files
        yield "sarit_iceberg_dead_letters_total", label, found.dead_letters
        yield "sarit_iceberg_gap_bytes_total", label, found.lost_bytes
    if running:
        yield "sarit_iceberg_tables_not_measured", (), max(0, len(names) - MAX_MEASURED_TABLES)
