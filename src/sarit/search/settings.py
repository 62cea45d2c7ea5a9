"""The settings of a stream's index: what its user chose, as the job of the indexer keeps it.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.search.limits import DEFAULT_INDEX_INTERVAL_SECONDS

if TYPE_CHECKING:
    from sarit.search.mapping import Mapping


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The choices of a user for the index of a stream.

    `mapping`: the fields; None: they are inferred from the first events.  `start`: "head" or "tail" of the stream.
    `interval_seconds`: events can be found so long after they were written, about."""

    mapping: Mapping | None = None
    start: str = "head"
    interval_seconds: int = DEFAULT_INDEX_INTERVAL_SECONDS
