"""Parses the options `start` and `end`, and finds the cut of a stream that they mean.

| form | the cut |
|---|---|
| `head`, `earliest` | before the oldest event |
| `tail`, `latest`, `now` | after the newest event, as of now |
| the text of a stream cut | that cut |
| `-100` | before the last 100 events (`_before_last`) |
| a time: `-10 minutes`, ISO 8601 with a zone, milliseconds since 1970 | `_at_time` |
| `{"a/x": FORM, "a/y": FORM}` | one of these for each stream |

A time means the same cut as a start and as an end: two reads that meet at a time neither repeat nor miss an event.  In
a stream whose writers note times (`writer.note_time`), it means the last watermark whose times are all before it: every
event with that time or a later one is behind the cut.  In any other stream it means the newest cut that the node
recorded at or before the time: every event appended at or after the time is behind the cut.  Both are rounded down, to
a watermark or a recorded cut.  A time before all that retention has left means the head.  Noted times in another unit
than ms are refused (`core/properties.py`): compared with times of the clock, they would skip new events.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.bounded_json import parse_json
from sarit.core.cuts import UNBOUNDED_TEXT, StreamCut, from_text
from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.core.properties import require_milliseconds
from sarit.core.times import parse_time
from sarit.spark.limits import SPARK_LAST_EVENTS_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from sarit.core.names import SegmentId
    from sarit.spark.source.access import StreamAccess
    from sarit.spark.source.position import Position, SegmentState

HEAD: Final = "head"
TAIL: Final = "tail"
_NAMES: Final = {"head": HEAD, "earliest": HEAD, "tail": TAIL, "latest": TAIL, "now": TAIL}
_LAST: Final = re.compile(r"-\d{1,12}", re.ASCII)
_FORMS: Final = (
    "give head (earliest), tail (latest), the text of a stream cut, a time (-10 minutes, 2026-01-31T12:00:00Z, or "
    'milliseconds since 1970), -N for the last N events, or one of these for each stream, as {"SCOPE/STREAM": "head"}'
)


@dataclass(frozen=True, slots=True)
class Place:
    """A start or end of a read: `which` (HEAD or TAIL), or else the one field that is not None."""

    which: str = ""
    cut: StreamCut | None = None
    time_ms: int | None = None
    last_events: int | None = None


class Places:
    """The value of option `start` or `end`: one place, or one for each stream."""

    def __init__(self, option: str, text: str, now_ms: int) -> None:
        """`now_ms`: the present time in ms since 1970.  Raises Invalid for a value that cannot be parsed."""
        self._option = option
        self._by_stream: dict[StreamName, Place] = {}
        self._place: Place | None = None
        if not text.lstrip().startswith("{"):
            self._place = _place(option, text.strip(), now_ms)
            return
        for name, value in _json_map(option, text).items():
            self._by_stream[StreamName.parse(name)] = _place(f"{option} for {name}", value.strip(), now_ms)

    def of(self, stream: StreamName) -> Place:
        """Return the place in a stream.  Raises Invalid: the option has none for it, or a cut of another stream."""
        place = self._place or self._by_stream.get(stream)
        if place is None:
            named = ", ".join(map(str, sorted(self._by_stream)))
            raise Invalid(f"option {self._option} names {named}, but not {stream}, which the read selects")
        if place.cut is not None and place.cut.stream != stream:
            raise Invalid(f"option {self._option} is a cut of {place.cut.stream}, not of {stream}")
        return place

    def check(self, streams: Iterable[StreamName]) -> None:
        """Check that each of `streams` has a place, and no other stream.  Raises Invalid."""
        selected = list(streams)
        for stream in selected:
            self.of(stream)
        extra = sorted(self._by_stream.keys() - selected)
        if extra:
            names = ", ".join(map(str, extra))
            raise Invalid(f"option {self._option} names {names}, which the read does not select")


def _json_map(option: str, text: str) -> dict[str, str]:
    try:
        found = parse_json(text)
    except ValueError as error:
        raise Invalid(f"option {option} is no JSON: {error}") from None
    # A JSON number means ms since 1970, or if it is negative the last N events.
    found = {name: str(value) if type(value) is int else value for name, value in found.items()}
    if not found or not all(isinstance(value, str) for value in found.values()):
        raise Invalid(f'option {option} is {text[:80]!r}: give text for each stream, as {{"SCOPE/STREAM": "head"}}')
    return found


def _place(option: str, text: str, now_ms: int) -> Place:
    if text.lower() in _NAMES:
        return Place(which=_NAMES[text.lower()])
    if text == UNBOUNDED_TEXT:
        return Place(which=TAIL if option.startswith("end") else HEAD)
    if _LAST.fullmatch(text):
        return Place(last_events=int(text[1:]))
    if text[:1].isdigit() or text.startswith("-"):
        try:
            return Place(time_ms=parse_time(text, now_ms))
        except Invalid as error:
            raise Invalid(f"option {option}: {error}") from None
    try:
        return Place(cut=from_text(text))
    except Invalid:
        raise Invalid(f"option {option} is {text[:60]!r}: {_FORMS}") from None


def resolve(place: Place, access: StreamAccess) -> Position:
    """Return the cut that a place means now.  Raises NotFound, Truncated, Invalid."""
    if place.cut is not None:
        return dict(place.cut.positions)
    if place.time_ms is not None:
        return _at_time(place.time_ms, access)
    if place.last_events is not None:
        return _before_last(place.last_events, access)
    return access.cut(place.which)


def _at_time(time_ms: int, access: StreamAccess) -> Position:
    marks = access.marks()
    if not marks:
        found = access.cut_at(time_ms)
    else:
        require_milliseconds(access.properties(), marks[-1][0], access.stream)
        earlier = [position for upper, position in marks if upper < time_ms]
        if not earlier:
            return access.cut(HEAD)
        found = earlier[-1]
    return found if is_present(found, access.states(found)) else access.cut(HEAD)


def is_present(position: Position, states: Mapping[SegmentId, SegmentState]) -> bool:
    """Return whether no event after a cut was truncated."""
    return all(segment in states and at >= states[segment].start for segment, at in position.items())


def _before_last(count: int, access: StreamAccess) -> Position:
    """Return the cut before exactly the last `count` events of the stream, or before all of them if there are fewer.

    Segments have no order among each other: each contributes the same number, or if it has fewer, the others more.  If
    all segments of the tail together have fewer, the segments before the last scale contribute, too, and so on.  The
    driver reads these last events."""
    position = access.cut(TAIL)
    left = count
    epochs: Sequence[Collection[SegmentId]] | None = None
    while True:
        states = access.states(position)
        starts = {segment: states[segment].start if segment in states else at for segment, at in position.items()}
        last = {segment: _last_offsets(access, segment, starts[segment], at, left) for segment, at in position.items()}
        if sum(map(len, last.values())) >= left:
            quotas = equal_quotas({segment: len(offsets) for segment, offsets in last.items()}, left)
            return {s: last[s][-quotas[s]] if quotas[s] else at for s, at in position.items()}
        epochs = access.epochs() if epochs is None else epochs
        newest = max(segment.epoch for segment in position)
        entered = {segment for segment in position if segment.epoch == newest}
        replaced = {s for epoch in epochs for s in epoch if s.epoch < newest and _succeeded(s, newest, epochs)}
        present = access.states(replaced) if replaced else {}
        # This is the head, or the earlier segments were truncated.
        if not replaced or replaced - present.keys():
            return starts
        left -= sum(len(last[segment]) for segment in entered)
        position = {segment: at for segment, at in position.items() if segment not in entered}
        position |= {segment: state.end for segment, state in present.items()}


def _succeeded(segment: SegmentId, epoch: int, epochs: Sequence[Collection[SegmentId]]) -> bool:
    """Return whether `segment` was active just before `epoch`, and was replaced by it."""
    numbers = {max(found.epoch for found in segments): segments for segments in epochs}
    before = [number for number in numbers if number < epoch]
    return bool(before) and segment in numbers[max(before)] and segment not in numbers.get(epoch, ())


def equal_quotas(available: Mapping[SegmentId, int], count: int) -> dict[SegmentId, int]:
    """Divide `count` equally among segments; if one has too few events, the others get more.  The quotas add up to
    `count`, or to all events if there are fewer."""
    quotas: dict[SegmentId, int] = {}
    left = count
    # Begin with the smallest segment: what it lacks is divided among the larger ones.
    ordered = sorted(available.items(), key=lambda found: (found[1], found[0]))
    for index, (segment, has) in enumerate(ordered):
        quotas[segment] = min(has, left // (len(ordered) - index))
        left -= quotas[segment]
    # Add the remainder of the division to segments that have more events.
    for segment, has in reversed(ordered):
        more = min(left, has - quotas[segment])
        quotas[segment] += more
        left -= more
    return quotas


def _last_offsets(access: StreamAccess, segment: SegmentId, start: int, end: int, count: int) -> list[int]:
    """Return the offsets of the last `count` events between two boundaries, ascending; fewer when there are fewer."""
    reach = SPARK_LAST_EVENTS_BYTES
    while count and start < end:
        low = max(start, end - reach)
        # Begin at the first boundary that the store knows from `low` on.  Without any, the last append is longer.
        known = access.boundaries(segment, low, end, max(1, (end - low) // 8)) if low > start else [start]
        pieces: deque[pa.Array] = deque()
        have = 0
        for _, offsets in access.batches(segment, known[0], end) if known else ():
            pieces.append(offsets)
            have += len(offsets)
            while have - len(pieces[0]) >= count:
                have -= len(pieces.popleft())
        if have >= count or low == start:
            return [offset for piece in pieces for offset in piece.to_pylist()][-count:]
        # Go further back, by the mean size of the events read, and half as much again.
        reach = max(2 * reach, (end - known[0]) // have * count * 3 // 2 if have else 0)
    return []
