"""The results of searches: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.reader.pointers import EventPointer
    from sarit.core.cuts import StreamCut
    from sarit.core.names import SegmentId


@public
@dataclass(frozen=True, slots=True)
class SearchHit:
    """An event that a search found.

    `offset`: where its header begins in the segment.  `time_ms`: when it happened, or was appended, since 1970.
    `score`: how well it matches; 0.0 unless hits are sorted by it.  `event`, `pointer`: None if they were not asked
    for, if the event was truncated since, or if the events of other hits have SEARCH_HIT_BYTES already."""

    segment: SegmentId
    offset: int
    time_ms: int
    score: float = 0.0
    event: bytes | None = None
    pointer: EventPointer | None = None


@public
@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page of the hits of a search.

    `total`: matching events on all pages.  `histogram`: (begin in ms since 1970, events) of each interval that has
    events.  `facets`: of each field that was asked for the most frequent values, each with its events; about right
    where an index has several parts.  `cut`: everything before it was searched; None: nothing was indexed yet.
    `committed_ms`: when the index reached the cut.  `page`: for the search of the next page; empty: this is the last
    one."""

    hits: tuple[SearchHit, ...]
    total: int
    histogram: tuple[tuple[int, int], ...]
    facets: Mapping[str, tuple[tuple[str, int], ...]]
    cut: StreamCut | None
    committed_ms: int
    page: bytes


@public
@dataclass(frozen=True, slots=True)
class SearchInfo:
    """The index of a stream.

    `searchable`: whether it has one.  `events`, `shards`, `stored_bytes`: what is in it, in how many parts.
    `bytes_behind`: of the stream, not indexed yet.  `cut`: up to which it is; None: nothing was indexed yet.
    `committed_ms`: when it reached the cut.  `lost_bytes`: of events that were truncated before they were indexed.
    `partly`: events of which a part is not searched.  `problem`: why the indexer does not get on; empty: it does.
    `mapping`: the path and the kind of each field; `time_field`: the one that says when an event happened.
    `interval_seconds`: how long after it was written an event can be found.  `start`: "head" or "tail" of the stream,
    when the index was made."""

    searchable: bool
    events: int
    shards: int
    stored_bytes: int
    bytes_behind: int
    cut: StreamCut | None
    committed_ms: int
    lost_bytes: int
    partly: int
    problem: str
    mapping: tuple[tuple[str, str], ...]
    time_field: str
    interval_seconds: int
    start: str
