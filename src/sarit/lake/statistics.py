"""What a committer has done, and how far it is behind, for metrics and `stream info`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LakeStatistics:
    """Counts of one committer since it started, and its last readings.

    `lag_bytes`: of the stream behind the table's cut, when it was polled last.  `behind_since_ms`: since when there is
    something behind, or how old it may be while a table catches up; None: nothing is.  `ingested_ms`: the time of the
    rows that are written now.  `problem`: why nothing is committed; empty: it is."""

    commits: int = 0
    rows: int = 0
    files: int = 0
    file_bytes: int = 0
    dead_letters: int = 0
    lost_bytes: int = 0
    conflicts: int = 0
    unknown_outcomes: int = 0
    lag_bytes: int = 0
    behind_since_ms: int | None = None
    committed_ms: int = 0
    ingested_ms: int = 0
    problem: str = ""
