"""The Iceberg table of a stream, by the background job that commits to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from sarit.core import cuts
from sarit.lake.description import TableProgress
from sarit.lake.settings import decode_settings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from sarit.client.streams.jobs import JobInfo
    from sarit.core.cuts import StreamCut
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

    @property
    def state(self) -> str:
        """The state of the job, in a word."""
        if self.done:
            return "complete"
        if self.problem:
            return "failing"
        return "running" if self.holder else "waiting"

    @property
    def begin(self) -> StreamCut | Literal["head"] | None:
        """The beginning of that part of the stream which is not in the table yet; None: it is not known."""
        if self.progress.cut is not None:
            return self.progress.cut
        return "head" if (self.settings.resume_from or self.settings.start) == "head" else None

    def document(self, lag_bytes: int | None) -> dict[str, object]:
        """Return the table as JSON has it; `lag_bytes`: of the stream from `begin` on."""
        progress = self.progress
        return {
            **asdict(self.settings),
            "dead_letter_table": ".".join((self.settings.catalog, *self.settings.dead_letters)),
            "rows": progress.rows,
            "files": progress.files,
            "dead_letters": progress.dead_letters,
            "gap_bytes": progress.gap_bytes,
            "last_commit_ms": progress.committed_ms or None,
            "cut": None if progress.cut is None else cuts.to_text(progress.cut),
            "lag_bytes": lag_bytes,
            "state": self.state,
            "worker": self.holder or None,
            "problem": self.problem or None,
        }


def table_of(jobs: Iterable[JobInfo]) -> IcebergTable | None:
    """Return the table among the jobs of a stream; None: it has none.  Raises Invalid: a newer version made it."""
    for job in jobs:
        if job.kind == ICEBERG_JOB:
            settings, progress = decode_settings(job.settings), TableProgress.of(job.state)
            return IcebergTable(settings, progress, job.holder, job.done, job.problem)
    return None
