"""The Iceberg table of a stream, by the background job that commits to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.lake.description import TableProgress
from sarit.lake.settings import decode_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.client.streams.jobs import JobInfo
    from sarit.lake.settings import IcebergSettings

ICEBERG_JOB: Final = "iceberg"


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A stream's table, as the job that commits to it says.

    `holder`: the worker that runs the job; empty: none.  `done`: the stream is sealed, and all of it is in the table.
    `problem`: the error with which the job's last run ended; empty: something was committed since."""

    settings: IcebergSettings
    progress: TableProgress
    holder: str
    done: bool
    problem: str


def table_of(jobs: Iterable[JobInfo]) -> IcebergTable | None:
    """Return the table among the jobs of a stream; None: it has none.  Raises Invalid: a newer version made it."""
    for job in jobs:
        if job.kind == ICEBERG_JOB:
            settings, progress = decode_settings(job.settings), TableProgress.of(job.state)
            return IcebergTable(settings, progress, job.holder, job.done, job.problem)
    return None
