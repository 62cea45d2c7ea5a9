"""The counters of indexes and of searches, for metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class SearchStatistics:
    """Counters of the searches that one controller has answered.

    `answers`: by how they ended: "found", "refused" (the question is wrong, or costs too much), "failed".  `seconds`:
    that all of them took."""

    answers: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


@dataclass(slots=True)
class IndexStatistics:
    """Counts of one indexer since it started, and its last readings.

    `events`, `partly`: indexed, and those of them of which a part is not searched.  `lost_bytes`: truncated before they
    were read.  `shards`, `index_bytes`: of the index as of its last commit.  `lag_bytes`: of the stream behind the
    index's cut, when it was polled last.  `behind_since_ms`: since when there is something behind, or how old it may be
    while an index catches up; None: nothing is.  `problem`: why nothing is indexed; empty: it is."""

    commits: int = 0
    events: int = 0
    partly: int = 0
    lost_bytes: int = 0
    shards: int = 0
    index_bytes: int = 0
    lag_bytes: int = 0
    behind_since_ms: int | None = None
    committed_ms: int = 0
    problem: str = ""
