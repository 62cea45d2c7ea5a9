"""The index of a stream for full-text search, by the background job that writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core import cuts
from sarit.search.mapping import to_document
from sarit.search.progress import IndexProgress
from sarit.search.settings import SEARCH_KIND, decode_settings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from sarit.client.streams.jobs import JobInfo
    from sarit.core.cuts import StreamCut
    from sarit.search.settings import SearchSettings


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """A stream's index, as the job that writes it says.

    `holder`: the worker that runs the job; empty: none.  `done`: the stream is sealed, and all of it is in the index.
    `problem`: the error with which the job's last run ended; empty: something was added since."""

    settings: SearchSettings
    progress: IndexProgress
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
        """The beginning of that part of the stream which is not in the index yet; None: it is not known."""
        if self.progress.cut is not None:
            return self.progress.cut
        return "head" if self.settings.start == "head" else None

    def document(self, lag_bytes: int | None) -> dict[str, object]:
        """Return the index as JSON has it; `lag_bytes`: of the stream from `begin` on."""
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
            "cut": None if progress.cut is None else cuts.to_text(progress.cut),
            "lag_bytes": lag_bytes,
            "state": self.state,
            "worker": self.holder or None,
            "problem": self.problem or None,
        }


def index_of(jobs: Iterable[JobInfo]) -> SearchIndex | None:
    """Return the index among the jobs of a stream; None: it has none.  Raises Invalid: a newer version made it."""
    for job in jobs:
        if job.kind == SEARCH_KIND:
            return SearchIndex(
                decode_settings(job.settings), IndexProgress.of(job.state), job.holder, job.done, job.problem
            )
    return None
