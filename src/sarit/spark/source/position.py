"""The position of a query in a stream, and the end of the next micro-batch.

A position is a stream cut: {segment id: byte offset}, stored in Spark's checkpoint as JSON.  The rules:

1. A segment that is sealed and read to its end stays in the position, at its end, until its whole group has been read:
   its successors' other predecessors, the predecessors of their successors, and so on.  Then the group is replaced by
   its successors at offset 0 (`advance`).  So no event of a successor is in an earlier or the same micro-batch as an
   event of its predecessor, which keeps the order of each routing key although the tasks of a micro-batch run
   concurrently; and the position always tiles the key space, so no segment is entered twice.
2. Offsets are always event boundaries: a micro-batch ends at a tail reported by a store (writes are whole events), or
   at a boundary found by reading (`split_budget` divides the limit among segments).
3. A position depends only on the replies of stores and controller.  Once Spark has stored it, a repeated micro-batch
   reads exactly the same bytes, because appended bytes never change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable

Position = dict[SegmentId, int]

_VERSION = 2


@dataclass(frozen=True, slots=True)
class SegmentState:
    """The state of a segment as reported by a store; offsets in bytes."""

    start: int
    end: int
    sealed: bool


def to_name(segment: SegmentId) -> str:
    """Return the part of a segment's full name after the stream's name."""
    return str(segment)


def from_name(name: str) -> SegmentId:
    """Parse a segment's name as returned by `to_name`."""
    number, _, epoch = name.partition(".#epoch.")
    return SegmentId(int(epoch), int(number))


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position in one stream.  `ended`: those of its segments that are sealed and read to their ends."""

    segments: Position
    ended: frozenset[SegmentId] = frozenset()


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in every stream of a query.

    `entered`: where streams begin that have their first events in the micro-batch that ends at this offset.  `initial`:
    nothing was read yet.  `times`: the watermarks of streams at this offset, in ms (`noted_times.py`).

    `created`: the creation ids of the streams, if the server has ids; offsets of earlier releases have none."""

    streams: dict[StreamName, StreamPosition]
    entered: dict[StreamName, Position] = field(default_factory=dict)
    initial: bool = False
    times: dict[StreamName, int] = field(default_factory=dict)
    created: dict[StreamName, bytes] = field(default_factory=dict)


def to_json(offset: Offset) -> dict[str, object]:
    """Encode an offset for Spark's checkpoint: a cut for each stream, with segments named by `to_name`."""
    streams = sorted(offset.streams.items())
    written: dict[str, object] = {
        "version": _VERSION,
        "streams": {str(stream): _cut(at.segments) for stream, at in streams},
    }
    ended = {str(stream): [to_name(segment) for segment in sorted(at.ended)] for stream, at in streams if at.ended}
    if ended:
        written["ended"] = ended
    if offset.entered:
        written["entered"] = {str(stream): _cut(at) for stream, at in sorted(offset.entered.items())}
    if offset.times:
        written["times"] = {str(stream): offset.times[stream] for stream in sorted(offset.times)}
    if offset.created:
        written["created"] = {str(stream): offset.created[stream].hex() for stream in sorted(offset.created)}
    if offset.initial:
        written["initial"] = True
    return written


def from_json(offset: Mapping[str, object]) -> Offset:
    """Decode an offset from Spark's checkpoint.  Raises Invalid: it has another version, or is no offset of Sarit."""
    if offset.get("version") != _VERSION:
        raise Invalid(
            f"the checkpoint's offset has version {offset.get('version')}; this Sarit knows {_VERSION}: "
            "use another checkpointLocation, or the Sarit that wrote it"
        )
    parts = [offset.get(name, {}) for name in ("streams", "ended", "entered", "times", "created")]
    streams, ended, entered, times, created = (part if isinstance(part, Mapping) else None for part in parts)
    if streams is None or ended is None or entered is None or times is None or created is None:
        raise Invalid(f"not an offset of Sarit: {json.dumps(dict(offset))}")
    return Offset(
        {
            StreamName.parse(name): StreamPosition(_from_cut(cut), frozenset(map(from_name, ended.get(name, ()))))
            for name, cut in streams.items()
        },
        {StreamName.parse(name): _from_cut(cut) for name, cut in entered.items()},
        offset.get("initial") is True,
        {StreamName.parse(name): int(time) for name, time in times.items()},
        {StreamName.parse(name): bytes.fromhex(one) for name, one in created.items()},
    )


def _cut(position: Mapping[SegmentId, int]) -> dict[str, int]:
    return {to_name(segment): position[segment] for segment in sorted(position)}


def _from_cut(cut: Mapping[str, int]) -> Position:
    return {from_name(name): int(at) for name, at in cut.items()}


def finished(position: Mapping[SegmentId, int], states: Mapping[SegmentId, SegmentState]) -> set[SegmentId]:
    """Return the segments of a position that are sealed and read to their ends."""
    return {
        segment
        for segment, at in position.items()
        if segment in states and states[segment].sealed and at >= states[segment].end
    }


def after(position: Iterable[SegmentId], target: Mapping[SegmentId, int]) -> set[SegmentId]:
    """Return the segments of a position that were created after `target`, a cut that was the tail of the stream.

    A tail has segments of the newest epoch then, and later segments have higher epochs."""
    newest = max(segment.epoch for segment in target)
    return {segment for segment in position if segment.epoch > newest}


def advance(
    position: Mapping[SegmentId, int],
    done: set[SegmentId],
    successors: Mapping[SegmentId, Mapping[SegmentId, frozenset[SegmentId]]],
) -> Position:
    """Replace groups of finished segments by their successors, at offset 0.

    `successors`: for each segment its successors, each with all of its predecessors.  A segment without successors (the
    stream is sealed) stays at its end.
    """
    advanced = dict(position)
    seen: set[SegmentId] = set()
    for segment in sorted(done):
        if segment in seen:
            continue
        leaving, entering = _replacement_group(segment, successors)
        seen |= leaving
        # A segment that is not finished keeps its whole group in the position.
        if entering and leaving <= done:
            for old in leaving:
                del advanced[old]
            advanced.update(dict.fromkeys(entering, 0))
    return advanced


def _replacement_group(
    segment: SegmentId, successors: Mapping[SegmentId, Mapping[SegmentId, frozenset[SegmentId]]]
) -> tuple[set[SegmentId], set[SegmentId]]:
    """Return all segments that must be replaced together with `segment`, and the segments that replace them."""
    leaving, entering = {segment}, set[SegmentId]()
    open_ends = [segment]
    while open_ends:
        for successor, predecessors in successors.get(open_ends.pop(), {}).items():
            entering.add(successor)
            open_ends += sorted(predecessors - leaving)
            leaving |= predecessors
    return leaving, entering


Key = TypeVar("Key")


def split_budget(backlog: Mapping[Key, int], budget: int) -> dict[Key, int]:
    """Divide `budget` (events, bytes, parts) in proportion to each segment's backlog; the allowances add up to it.

    With proportional allowances all segments reach their ends at about the same time.  Every segment with a backlog
    gets at least one unit if the budget allows, so that none starves.
    """
    waiting = {key: size for key, size in backlog.items() if size > 0}
    total = sum(waiting.values())
    allowances: dict[Key, int] = {}
    left_budget, left_total = budget, total
    for index, (key, size) in enumerate(waiting.items()):
        others = len(waiting) - index - 1
        # Round up, but leave at least one unit for each of the others if the budget allows.
        fair = -(-left_budget * size // left_total)
        allowances[key] = max(min(fair, left_budget - others), min(1, left_budget))
        left_budget -= allowances[key]
        left_total -= size
    return allowances
