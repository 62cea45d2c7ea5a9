"""The lag of a query in its streams: unread bytes and events, in the progress that Spark reports.

From PySpark 4.2 on, Spark shows the newest offset of a source in the query's progress (`latestOffset`).  Sarit adds to
it what was unread after the end of the micro-batch (`behind`).  Events are estimated by their mean size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.spark.source.position import from_name, to_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.names import SegmentId
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.position import Position, SegmentState


@dataclass(frozen=True, slots=True)
class StreamLag:
    """The unread part of one stream.  `events`: an estimate.  `segments`: the unread bytes of each."""

    bytes: int
    events: int
    segments: Mapping[SegmentId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lag:
    """The unread part of all streams of a query.  `events`: an estimate."""

    bytes: int
    events: int
    streams: Mapping[StreamName, StreamLag] = field(default_factory=dict)


def unread(
    access: StreamAccess, position: Position, states: Mapping[SegmentId, SegmentState]
) -> tuple[Position, dict[SegmentId, tuple[int, int]]]:
    """Return the tail of a stream, and the unread bytes of each segment from `position` to there as (start, end).

    `states`: the states of the position's segments.  Those of the segments that replaced them are asked for."""
    known = dict(states)
    todo = [segment for segment in position if segment in states and states[segment].sealed]
    seen = set(position)
    tail = {segment: state.end for segment, state in states.items()}
    while todo:
        # Ask for one generation of successors at a time.
        entering: set[SegmentId] = set()
        for segment in todo:
            following = access.successors(segment).keys()
            if following:
                tail.pop(segment, None)
            entering |= following - seen
        seen |= entering
        new = access.states(entering) if entering else {}
        known |= new
        tail |= {segment: state.end for segment, state in new.items()}
        todo = [segment for segment, state in new.items() if state.sealed]
    spans = {segment: (max(position.get(segment, 0), state.start), state.end) for segment, state in known.items()}
    behind = {segment: (start, end) for segment, (start, end) in spans.items() if start < end}
    return tail, behind


def to_behind(lags: Mapping[StreamName, StreamLag]) -> dict[str, object]:
    """Return lags in the form that they have in a query's progress."""
    return {
        "bytes": sum(lag.bytes for lag in lags.values()),
        "events": sum(lag.events for lag in lags.values()),
        "streams": {
            str(stream): {
                "bytes": lag.bytes,
                "events": lag.events,
                "segments": {to_name(segment): lag.segments[segment] for segment in sorted(lag.segments)},
            }
            for stream, lag in sorted(lags.items())
        },
    }


def lag(progress: Mapping[str, object]) -> Lag:
    """Return the lag of a query from its progress (`query.lastProgress`).

    Lags of sources that read the same stream are added up.  Raises Invalid: no source of the progress has a lag
    (no Sarit source, PySpark 4.1, or no micro-batch yet)."""
    sources = progress.get("sources")
    parts = [part for source in sources or () if (part := _behind(source)) is not None]  # type: ignore[attr-defined]
    if not parts:
        raise Invalid(
            "this progress has no lag of a Sarit source: give query.lastProgress of a query that reads "
            'format("sarit") by PySpark 4.2 or newer, once it has had a micro-batch'
        )
    streams: dict[StreamName, StreamLag] = {}
    for stream, one in (item for part in parts for item in part.items()):
        other = streams.get(stream, StreamLag(0, 0))
        segments = {
            segment: one.segments.get(segment, 0) + other.segments.get(segment, 0)
            for segment in sorted(one.segments.keys() | other.segments.keys())
        }
        streams[stream] = StreamLag(one.bytes + other.bytes, one.events + other.events, segments)
    return Lag(sum(part.bytes for part in streams.values()), sum(part.events for part in streams.values()), streams)


def _behind(source: Mapping[str, object]) -> dict[StreamName, StreamLag] | None:
    """Return the lag in the progress of one source; None: it has no lag."""
    latest = source.get("latestOffset")
    try:
        latest = json.loads(latest) if isinstance(latest, str) else latest
    except ValueError:
        return None
    if not isinstance(latest, dict) or "behind" not in latest:
        return None
    return {
        StreamName.parse(name): StreamLag(
            behind["bytes"],
            behind["events"],
            {from_name(segment): unread for segment, unread in behind["segments"].items()},
        )
        for name, behind in latest["behind"]["streams"].items()
    }
