"""The position of a query in a stream, and the end of the next micro-batch.  Pure.

A position is a stream cut: {segment id: byte offset}, stored in Spark's checkpoint as JSON.  The rules:

1. A segment that is sealed and read to its end stays in the position, at its end, until all that one scale tied to
   it can move together: its successors, their other predecessors, the successors of those, and so on.  Then the whole
   group is replaced by its successors at offset 0 (`advance`).  So no event of a successor is ever in an earlier or the
   same micro-batch as an event of its predecessor, which keeps the order of every routing key although the tasks of
   one micro-batch run side by side; and the position always tiles the key space, so nothing enters twice.
2. Offsets lie between events, always: the end of a micro-batch is either a tail reported by a store (writes are whole
   events) or a boundary found by reading (`split_budget` says how much each segment may give).
3. A position is a pure function of what the stores and the controller answered, and once Spark has written it down, a
   repeated micro-batch reads exactly the same bytes: appended bytes never change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sarit.core.errors import Invalid
from sarit.core.names import SegmentId

Position = dict[SegmentId, int]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class SegmentState:
    """The state of a segment as reported by a store; offsets in bytes."""

    start: int
    end: int
    sealed: bool


def to_name(segment: SegmentId) -> str:
    """The part of the segment's full name after the stream."""
    return f"{segment.number}.#epoch.{segment.epoch}"


def from_name(name: str) -> SegmentId:
    """The inverse."""
    number, _, epoch = name.partition(".#epoch.")
    return SegmentId(int(epoch), int(number))


def to_offset(stream: str, position: Mapping[SegmentId, int]) -> dict[str, object]:
    """The form in Spark's checkpoint; segments are named as in `to_name`."""
    segments = {to_name(segment): position[segment] for segment in sorted(position)}
    return {"version": _VERSION, "stream": stream, "segments": segments}


def from_offset(stream: str, offset: Mapping[str, object]) -> Position:
    """The inverse.  Raises Invalid when the checkpoint is of another stream or a newer version."""
    if offset.get("version") != _VERSION:
        raise Invalid(f"the checkpoint's offset has version {offset.get('version')}; this Sarit knows {_VERSION}")
    if offset.get("stream") != stream:
        raise Invalid(
            f"the checkpoint belongs to stream {offset.get('stream')}, the query reads {stream}: "
            "use another checkpointLocation for another stream"
        )
    segments = offset.get("segments")
    if not isinstance(segments, Mapping):
        raise Invalid(f"not an offset of Sarit: {json.dumps(dict(offset))}")
    return {from_name(name): int(at) for name, at in segments.items()}


def finished(position: Mapping[SegmentId, int], states: Mapping[SegmentId, SegmentState]) -> set[SegmentId]:
    """Segments of the position that are sealed and read to the end."""
    return {
        segment
        for segment, at in position.items()
        if segment in states and states[segment].sealed and at >= states[segment].end
    }


def advance(
    position: Mapping[SegmentId, int],
    done: set[SegmentId],
    successors: Mapping[SegmentId, Mapping[SegmentId, frozenset[SegmentId]]],
) -> Position:
    """Replace groups of finished segments by their successors, at offset 0.

    `successors[s]` holds the successors of s with all predecessors of each.  A segment without successors (the
    stream is sealed) stays at its end.
    """
    advanced = dict(position)
    seen: set[SegmentId] = set()
    for segment in sorted(done):
        if segment in seen:
            continue
        leaving, entering = _replacement_group(segment, successors)
        seen |= leaving
        # One that is not done keeps the whole group where it is.
        if entering and leaving <= done:
            for old in leaving:
                del advanced[old]
            advanced.update(dict.fromkeys(entering, 0))
    return advanced


def _replacement_group(
    segment: SegmentId, successors: Mapping[SegmentId, Mapping[SegmentId, frozenset[SegmentId]]]
) -> tuple[set[SegmentId], set[SegmentId]]:
    """All that must be replaced together with `segment`: the old segments and the new ones."""
    leaving, entering = {segment}, set[SegmentId]()
    open_ends = [segment]
    while open_ends:
        for successor, predecessors in successors.get(open_ends.pop(), {}).items():
            entering.add(successor)
            open_ends += sorted(predecessors - leaving)
            leaving |= predecessors
    return leaving, entering


def split_budget(backlog: Mapping[SegmentId, int], budget: int) -> dict[SegmentId, int]:
    """Divide `budget` (events or bytes) in proportion to each segment's backlog (bytes); the allowances add up to it.

    With proportional allowances the segments advance at about the same age while a backlog is read.  Every segment with
    a backlog gets at least one unit when the budget allows, so none starves.
    """
    waiting = {segment: size for segment, size in sorted(backlog.items()) if size > 0}
    total = sum(waiting.values())
    allowances: dict[SegmentId, int] = {}
    left_budget, left_total = budget, total
    for index, (segment, size) in enumerate(waiting.items()):
        others = len(waiting) - index - 1
        # Rounded up; at least one unit stays for each of the others while the budget allows.
        fair = -(-left_budget * size // left_total)
        allowances[segment] = max(min(fair, left_budget - others), min(1, left_budget))
        left_budget -= allowances[segment]
        left_total -= size
    return allowances
