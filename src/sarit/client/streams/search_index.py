"""The index of a stream for full-text search, by the background job that writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.client.streams.job_status import JobStatus
from sarit.search.mapping import to_document
from sarit.search.progress import IndexProgress
from sarit.search.settings import SEARCH_KIND, decode_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.streams.jobs import JobInfo
    from sarit.search.settings import SearchSettings


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """A stream's index, as the job that writes it says."""

    settings: SearchSettings
    progress: IndexProgress
    job: JobStatus

    def document(self, lag_bytes: int | None) -> dict[str, object]:
        """Return the index as JSON has it; `lag_bytes`: of the stream from `job.begin` on."""
        progress, settings = self.progress, self.settings
        return {
            "start": settings.start,
            "interval_seconds": settings.interval_seconds,
            "mapping": None if settings.mapping is None else to_document(settings.mapping),
            "events": progress.events,
            "shards": progress.shards,
            "bytes": progress.bytes,
            "partly": progress.partly,
            "lost_bytes": progress.lost_bytes,
            "last_commit_ms": progress.committed_ms or None,
            **self.job.document(lag_bytes),
        }


def index_of(jobs: Iterable[JobInfo]) -> SearchIndex | None:
    """Return the index among the jobs of a stream; None: it has none.  Raises Invalid: a newer version made it."""
    for job in jobs:
        if job.kind == SEARCH_KIND:
            settings, progress = decode_settings(job.settings), IndexProgress.of(job.state)
            return SearchIndex(settings, progress, JobStatus.of(job, progress.cut, settings.start))
    return None
