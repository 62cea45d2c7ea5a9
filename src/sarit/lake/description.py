"""The progress of a stream's table, for people and programs that list its job: the state of the job as texts by name.

The server that lists a job turns its state into texts (`describe`), which commands and the console read
(`TableProgress`).  So a client needs no knowledge of the format of states, and one of another version shows what it
knows.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core import cuts
from sarit.core.job_texts import cut_of, numbers_of
from sarit.lake.job_state import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.cuts import StreamCut


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far a stream's table is.

    `rows`, `files`, `dead_letters`: committed so far.  `gap_bytes`: truncated before they were committed.
    `committed_ms`: the time of the last commit, since 1970; 0: none was made.  `cut`: what is in the table ends
    there; None: nothing is, or it is not known here."""

    rows: int = 0
    files: int = 0
    dead_letters: int = 0
    gap_bytes: int = 0
    committed_ms: int = 0
    cut: StreamCut | None = None

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> TableProgress:
        """Return the progress that the texts of a job have; what is missing or damaged is not known."""
        return cls(**numbers_of(texts, _NUMBERS), cut=cut_of(texts))


_NUMBERS: Final = ("rows", "files", "dead_letters", "gap_bytes", "committed_ms")


def describe(state: bytes) -> dict[str, str]:
    """Return the state of a job as texts.  Raises Corrupt."""
    found = JobState.decode(state)
    texts = {
        "rows": str(found.rows),
        "files": str(found.files),
        "dead-letters": str(found.dead_letters),
        "gap-bytes": str(found.lost_bytes),
        "committed-ms": str(found.committed_ms),
    }
    if found.cut is not None:
        texts["cut"] = cuts.to_text(found.cut)
    return texts
