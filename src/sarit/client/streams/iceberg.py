"""The Iceberg table of a stream, by the background job that commits to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from sarit.client.streams.job_status import JobStatus
from sarit.lake.description import TableProgress
from sarit.lake.settings import decode_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.streams.jobs import JobInfo
    from sarit.lake.settings import IcebergSettings

ICEBERG_JOB: Final = "iceberg"


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A stream's table, as the job that commits to it says."""

    settings: IcebergSettings
    progress: TableProgress
    job: JobStatus

    def document(self, lag_bytes: int | None) -> dict[str, object]:
        """Return the table as JSON has it; `lag_bytes`: of the stream from `job.begin` on."""
        progress = self.progress
        return {
            **asdict(self.settings),
            "dead_letter_table": ".".join((self.settings.catalog, *self.settings.dead_letters)),
            "rows": progress.rows,
            "files": progress.files,
            "dead_letters": progress.dead_letters,
            "gap_bytes": progress.gap_bytes,
            "last_commit_ms": progress.committed_ms or None,
            **self.job.document(lag_bytes),
        }


def table_of(jobs: Iterable[JobInfo]) -> IcebergTable | None:
    """Return the table among the jobs of a stream; None: it has none.  Raises Invalid: a newer version made it."""
    for job in jobs:
        if job.kind == ICEBERG_JOB:
            settings, progress = decode_settings(job.settings), TableProgress.of(job.state)
            start = settings.resume_from or settings.start
            return IcebergTable(settings, progress, JobStatus.of(job, progress.cut, start))
    return None
