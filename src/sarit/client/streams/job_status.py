"""How a background job of a stream is that makes an index or a table of it: its state in a word, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core import cuts

if TYPE_CHECKING:
    from typing import Literal

    from sarit.client.streams.jobs import JobInfo
    from sarit.core.cuts import StreamCut


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job.

    `cut`: everything before it is done; None: nothing is, or it is not known here.  `start`: the edge of the stream, or
    the cut, at which the job begins.  `holder`: the worker that runs it; empty: none.  `done`: the stream is sealed,
    and the job has done all of it.  `problem`: the error with which its last run ended; empty: there was progress
    since."""

    cut: StreamCut | None
    start: str
    holder: str
    done: bool
    problem: str

    @classmethod
    def of(cls, job: JobInfo, cut: StreamCut | None, start: str) -> JobStatus:
        """Return the status of a job that is at a cut, and began at `start`."""
        return cls(cut, start, job.holder, job.done, job.problem)

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
        """The beginning of that part of the stream which is not done yet; None: it is not known."""
        if self.cut is not None:
            return self.cut
        return "head" if self.start == "head" else None

    def document(self, lag_bytes: int | None) -> dict[str, object]:
        """Return the status as JSON has it; `lag_bytes`: of the stream from `begin` on."""
        return {
            "cut": None if self.cut is None else cuts.to_text(self.cut),
            "lag_bytes": lag_bytes,
            "state": self.state,
            "worker": self.holder or None,
            "problem": self.problem or None,
        }
