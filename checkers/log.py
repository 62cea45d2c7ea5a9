"""Guarantees of a log of events, checked over a history.  Pure.

A history records what was sent, acknowledged and read (by which reader, where), and the replies of segment info and
truncations.  It holds one or more *scans*: complete reads of every segment from its start to its length, after the
faults were over.  Events carry (writer, number), numbers from 1 without gaps per writer; a
writer's events of one segment are sent in order.  Times are any one clock's seconds; an answer's operation began at
`begun` and ended at `ended`.

Anomalies (`Violation.kind`), after Jepsen's analysis of Kafka:

| kind | meaning |
|---|---|
| `torn` | bytes that no writer sent as an event, or an event of another length |
| `phantom` | an event that nobody sent, that was read before it was sent, or that was refused |
| `misplaced` | an event in another segment than it was sent to |
| `inconsistent` | two events at one (segment, offset), or overlapping |
| `duplicate` | one event at two places |
| `order` | a writer's events out of order in a segment |
| `gap` | a writer's event is there, an earlier event of that writer is not |
| `lost` | an acknowledged event is not in a scan, and was not truncated |
| `vanished` | an event that was read, at or above the start, is not in a scan |
| `skip` | a reader skipped bytes, or went back, within one session |
| `length` | a segment is shorter than what was acknowledged or reported before |
| `start` | a segment's start fell, or rose without a truncation |
| `below-start` | bytes below a truncation that was acknowledged before the read began |
| `ack-offset` | an acknowledgement named an end offset where the event does not end |
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

Column = Any

_NUMBER_BITS: Final = 40
_OFFSET_BITS: Final = 44
_SHOWN: Final = 5
_TYPES: Final = {"q": np.int64, "d": np.float64}
TORN: Final = -1
ANY_SEGMENT: Final = -1


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken guarantee."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Table:
    """Columns of integers and of seconds that grow by rows."""

    def __init__(self, integers: int, seconds: int = 0) -> None:
        self._columns: list[array[Any]] = [array("q") for _ in range(integers)]
        self._columns += [array("d") for _ in range(seconds)]

    def add(self, *row: float) -> None:
        """Append a row."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def extend(self, *columns: Column) -> None:
        """Append many rows, given as arrays."""
        for column, values in zip(self._columns, columns, strict=True):
            column.frombytes(np.asarray(values, dtype=_TYPES[column.typecode]).tobytes())

    def columns(self) -> list[Column]:
        """The columns as arrays."""
        return [np.frombuffer(column, dtype=_TYPES[column.typecode]) for column in self._columns]


class LogHistory:
    """Filled by a workload."""

    def __init__(self) -> None:
        self.sends = Table(4, 1)
        self.acks = Table(4, 1)
        self.refusals = Table(2)
        self.reads = Table(7, 2)
        self.infos = Table(3, 2)
        self.truncations = Table(2, 2)
        self.scans: dict[int, dict[int, tuple[int, int]]] = {}

    def sent(self, writer: int, number: int, segment: int, length: int, at: float) -> None:
        """An event is sent for the first time.  Segment ANY_SEGMENT: by key, unknown here."""
        self.sends.add(writer, number, segment, length, at)

    def acked(self, writer: int, number: int, segment: int, end: int, at: float) -> None:
        """All events of the writer up to `number` are durable; `end`: where the last ends, or -1."""
        self.acks.add(writer, number, segment, end, at)

    def refused(self, writer: int, number: int) -> None:
        """The event was refused for good: it must never be seen."""
        self.refusals.add(writer, number)

    def read(
        self,
        reader: int,
        place: tuple[int, int],
        event: tuple[int, int, int],
        *,
        fresh: bool,
        begun: float,
        ended: float,
    ) -> None:
        """`reader` got at `place` (segment, offset) an `event` (writer or TORN, number, length).

        `fresh`: it had not just read what lies before.  `begun`: when it asked for the first byte of it."""
        self.reads.add(reader, *place, *event, fresh, begun, ended)

    def info(self, segment: int, start: int, length: int, begun: float, ended: float) -> None:
        """The store reported a segment's start and length."""
        self.infos.add(segment, start, length, begun, ended)

    def truncated(self, segment: int, offset: int, begun: float, ended: float) -> None:
        """A truncation was asked for; `ended` is infinite when no answer came."""
        self.truncations.add(segment, offset, begun, ended)

    def scanned(self, reader: int, segment: int, start: int, length: int) -> None:
        """Reader `reader` read all of a segment, from start to length; scans are judged in the order of first use."""
        self.scans.setdefault(reader, {})[segment] = (start, length)


def check(history: LogHistory) -> list[Violation]:
    """Everything that is wrong; empty when nothing is."""
    return list(_violations(history))


def _violations(history: LogHistory) -> Iterator[Violation]:
    reads = _Reads(history)
    yield from _torn(reads)
    yield from _skips(reads)
    yield from reads.places.inconsistent()
    yield from reads.places.duplicate()
    sends = _Sends(history)
    yield from _unsent(reads, sends, history)
    for scan, extents in history.scans.items():
        starts = {segment: start for segment, (start, _) in extents.items()}
        found = reads.places_of(scan)
        yield from _incomplete(scan, extents, found)
        yield from _vanished(scan, starts, reads.places, found)
        yield from _order(scan, starts, found, sends)
        yield from _lost(scan, starts, found, sends, history)
    yield from _ack_offsets(history, reads.places)
    yield from _bounds(history)
    yield from _below_start(history, reads)


def _key(writer: Column, number: Column) -> Column:
    return (writer << _NUMBER_BITS) | number


def _name(key: int) -> str:
    return f"writer {int(key) >> _NUMBER_BITS} event {int(key) & ((1 << _NUMBER_BITS) - 1)}"


class _Places:
    """Distinct (segment, offset, event, length), by place."""

    def __init__(self, segment: Column, offset: Column, key: Column, length: Column) -> None:
        rows = np.stack((segment, offset, key, length), axis=1) if len(segment) else np.empty((0, 4), dtype=np.int64)
        order = np.lexsort((rows[:, 3], rows[:, 2], rows[:, 1], rows[:, 0]))
        rows = rows[order]
        if len(rows):
            rows = rows[np.concatenate(([True], np.any(rows[1:] != rows[:-1], axis=1)))]
        self.segment, self.offset, self.key, self.length = rows.T
        self.rows = rows

    def inconsistent(self) -> Iterator[Violation]:
        same = self.segment[1:] == self.segment[:-1]
        wrong = np.flatnonzero(same & (self.offset[1:] < self.offset[:-1] + self.length[:-1]))
        for at in wrong[:_SHOWN]:
            yield Violation(
                "inconsistent",
                f"segment {self.segment[at]} held {_name(self.key[at])} at {self.offset[at]} ({self.length[at]} bytes) "
                f"and {_name(self.key[at + 1])} at {self.offset[at + 1]}",
            )

    def duplicate(self) -> Iterator[Violation]:
        order = np.argsort(self.key, kind="stable")
        key = self.key[order]
        wrong = np.flatnonzero((key[1:] == key[:-1]) & (key[1:] >= 0))
        for at in wrong[:_SHOWN]:
            first, second = order[at], order[at + 1]
            yield Violation(
                "duplicate",
                f"{_name(key[at])} at segment {self.segment[first]} offset {self.offset[first]} "
                f"and segment {self.segment[second]} offset {self.offset[second]}",
            )


class _Reads:
    def __init__(self, history: LogHistory) -> None:
        columns = history.reads.columns()
        self.reader, self.segment, self.offset, self.writer, number, self.length, self.fresh = columns[:7]
        self.begun, self.ended = columns[7:]
        self.key = np.where(self.writer == TORN, -1, _key(self.writer, number))
        self.places = self._places(self.key >= 0)

    def _places(self, wanted: Column) -> _Places:
        return _Places(self.segment[wanted], self.offset[wanted], self.key[wanted], self.length[wanted])

    def places_of(self, reader: int) -> _Places:
        return self._places((self.reader == reader) & (self.key >= 0))


class _Sends:
    """What was sent, sorted by event."""

    def __init__(self, history: LogHistory) -> None:
        writer, number, segment, length, at = history.sends.columns()
        key = _key(writer, number)
        order = np.argsort(key, kind="stable")
        self.key, self.segment, self.length, self.at = key[order], segment[order], length[order], at[order]

    def find(self, key: Column) -> tuple[Column, Column]:
        """Indices, and whether the event is there."""
        if not len(self.key):
            return np.zeros(len(key), dtype=np.int64), np.zeros(len(key), dtype=bool)
        index = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return index, self.key[index] == key


def _torn(reads: _Reads) -> Iterator[Violation]:
    for at in np.flatnonzero(reads.writer == TORN)[:_SHOWN]:
        yield Violation(
            "torn", f"reader {reads.reader[at]} got no event at segment {reads.segment[at]} offset {reads.offset[at]}"
        )


def _skips(reads: _Reads) -> Iterator[Violation]:
    order = np.lexsort((np.arange(len(reads.reader)), reads.segment, reads.reader))
    reader, segment, offset = reads.reader[order], reads.segment[order], reads.offset[order]
    end = offset + reads.length[order]
    same = (reader[1:] == reader[:-1]) & (segment[1:] == segment[:-1]) & (reads.fresh[order][1:] == 0)
    for at in np.flatnonzero(same & (offset[1:] != end[:-1]))[:_SHOWN]:
        yield Violation(
            "skip", f"reader {reader[at]} of segment {segment[at]} came to {end[at]} and went on at {offset[at + 1]}"
        )


def _unsent(reads: _Reads, sends: _Sends, history: LogHistory) -> Iterator[Violation]:
    wanted = np.flatnonzero(reads.key >= 0)
    key = reads.key[wanted]
    index, known = sends.find(key)
    for at in wanted[~known][:_SHOWN]:
        yield Violation("phantom", f"nobody sent {_name(reads.key[at])}, read at {reads.offset[at]}")
    wanted, index = wanted[known], index[known]
    if not len(wanted):
        return
    for at in wanted[reads.ended[wanted] < sends.at[index]][:_SHOWN]:
        yield Violation("phantom", f"{_name(reads.key[at])} was read before it was sent")
    placed = sends.segment[index]
    for at in wanted[(placed != ANY_SEGMENT) & (placed != reads.segment[wanted])][:_SHOWN]:
        yield Violation("misplaced", f"{_name(reads.key[at])} is in segment {reads.segment[at]}")
    for at in wanted[sends.length[index] != reads.length[wanted]][:_SHOWN]:
        yield Violation("torn", f"{_name(reads.key[at])} was read with {reads.length[at]} bytes")
    writer, number = history.refusals.columns()
    for key_refused in np.intersect1d(_key(writer, number), reads.key)[:_SHOWN]:
        yield Violation("phantom", f"{_name(key_refused)} was refused, and read")


def _incomplete(scan: int, extents: dict[int, tuple[int, int]], found: _Places) -> Iterator[Violation]:
    for segment, (start, length) in extents.items():
        mine = found.segment == segment
        total = int(found.length[mine].sum())
        if total != length - start:
            yield Violation(
                "vanished",
                f"scan {scan}: segment {segment} is said to hold {length - start} bytes from {start} on, "
                f"its events are {total}",
            )


def _starts_of(places: _Places, starts: dict[int, int]) -> Column:
    if not starts:
        return np.full(len(places.segment), np.iinfo(np.int64).max)
    table = np.full(max(max(starts), int(places.segment.max(initial=0))) + 1, np.iinfo(np.int64).max)
    for segment, start in starts.items():
        table[segment] = start
    return table[places.segment]


def _vanished(scan: int, starts: dict[int, int], seen: _Places, found: _Places) -> Iterator[Violation]:
    above = np.flatnonzero(seen.offset >= _starts_of(seen, starts))
    place, wanted = _place_key(found), _place_key(seen)[above]
    index = np.minimum(np.searchsorted(place, wanted), max(len(place) - 1, 0))
    there = np.zeros(len(above), dtype=bool)
    if len(place):
        there = (place[index] == wanted) & (found.key[index] == seen.key[above])
        there &= found.length[index] == seen.length[above]
    for at in above[~there][:_SHOWN]:
        yield Violation(
            "vanished",
            f"scan {scan}: {_name(seen.key[at])} was read at segment {seen.segment[at]} offset {seen.offset[at]} "
            "and is not there",
        )


def _place_key(places: _Places) -> Column:
    return (places.segment << _OFFSET_BITS) | places.offset


def _order(scan: int, starts: dict[int, int], found: _Places, sends: _Sends) -> Iterator[Violation]:
    writer = found.key >> _NUMBER_BITS
    order = np.lexsort((found.offset, writer, found.segment))
    key, segment = found.key[order], found.segment[order]
    if not len(key):
        return
    same = (key[1:] >> _NUMBER_BITS == key[:-1] >> _NUMBER_BITS) & (segment[1:] == segment[:-1])
    for at in np.flatnonzero(same & (key[1:] < key[:-1]))[:_SHOWN]:
        yield Violation("order", f"scan {scan}: {_name(key[at + 1])} comes after {_name(key[at])}")
    index, known = sends.find(key)
    bound = known.copy()
    bound[known] = sends.segment[index[known]] != ANY_SEGMENT
    for at in np.flatnonzero(same & bound[1:] & (key[1:] > key[:-1] + 1))[:_SHOWN]:
        yield Violation("gap", f"scan {scan}: {_name(key[at])} is followed by {_name(key[at + 1])}")
    first = np.flatnonzero(np.concatenate(([True], ~same)) & bound)
    for at in first:
        if key[at] & ((1 << _NUMBER_BITS) - 1) != 1 and starts.get(int(segment[at])) == 0:
            yield Violation("gap", f"scan {scan}: the first of its writer is {_name(key[at])}")


def _lost(scan: int, starts: dict[int, int], found: _Places, sends: _Sends, history: LogHistory) -> Iterator[Violation]:
    writer, number, segment, end, _ = history.acks.columns()
    present = np.sort(found.key)
    for one in np.unique(writer):
        mine = writer == one
        acked = int(number[mine].max())
        low = np.searchsorted(sends.key, one << _NUMBER_BITS)
        high = np.searchsorted(sends.key, (one << _NUMBER_BITS) | acked, side="right")
        wanted, placed = sends.key[low:high], sends.segment[low:high]
        wanted = wanted[np.isin(placed, list(starts)) | (placed == ANY_SEGMENT)]
        missing = wanted[~np.isin(wanted, present, assume_unique=True)]
        if not len(missing):
            continue
        start = starts.get(int(segment[mine][0]), 0)
        if start:
            # Truncated events are a prefix of the writer's: what is older than the oldest one there, or ended below.
            here = present[(present >> _NUMBER_BITS) == one]
            limit = here[0] if len(here) else np.iinfo(np.int64).max
            known_end = mine & (end > start)
            above = _key(writer[known_end], number[known_end])
            missing = missing[(missing > limit) | np.isin(missing, above)]
        for key in missing[:_SHOWN]:
            yield Violation("lost", f"scan {scan}: {_name(key)} was acknowledged and is not there")


def _ack_offsets(history: LogHistory, places: _Places) -> Iterator[Violation]:
    writer, number, _, end, _ = history.acks.columns()
    known = end >= 0
    key, end = _key(writer[known], number[known]), end[known]
    order = np.argsort(places.key, kind="stable")
    if not len(order) or not len(key):
        return
    index = order[np.minimum(np.searchsorted(places.key[order], key), len(order) - 1)]
    wrong = (places.key[index] == key) & (places.offset[index] + places.length[index] != end)
    for at in np.flatnonzero(wrong)[:_SHOWN]:
        yield Violation("ack-offset", f"{_name(key[at])} was acknowledged at {end[at]}, and is elsewhere")


def _bounds(history: LogHistory) -> Iterator[Violation]:
    segment, start, length, begun, ended = history.infos.columns()
    _, _, ack_segment, ack_end, ack_at = history.acks.columns()
    cut_segment, cut, cut_begun, cut_ended = history.truncations.columns()
    for one in np.unique(segment):
        mine = segment == one
        acks, cuts = ack_segment == one, cut_segment == one
        promised = _latest(
            np.concatenate((ended[mine], ack_at[acks])), np.concatenate((length[mine], ack_end[acks])), begun[mine]
        )
        for at in np.flatnonzero(length[mine] < promised)[:_SHOWN]:
            yield Violation("length", f"segment {one} had {promised[at]} bytes and then {length[mine][at]}")
        least = _latest(
            np.concatenate((ended[mine], cut_ended[cuts])), np.concatenate((start[mine], cut[cuts])), begun[mine]
        )
        for at in np.flatnonzero(start[mine] < least)[:_SHOWN]:
            yield Violation("start", f"segment {one} began at {least[at]} and then at {start[mine][at]}")
        most = _latest(cut_begun[cuts], cut[cuts], ended[mine])
        for at in np.flatnonzero(start[mine] > np.maximum(most, 0))[:_SHOWN]:
            yield Violation("start", f"segment {one} begins at {start[mine][at]}, without a truncation")
        for at in np.flatnonzero(start[mine] > length[mine])[:_SHOWN]:
            yield Violation("start", f"segment {one} begins at {start[mine][at]}, after its end {length[mine][at]}")


def _latest(at: Column, value: Column, asked: Column) -> Column:
    """The highest `value` that was known strictly before each of `asked`; -1 where none was."""
    order = np.argsort(at, kind="stable")
    highest = np.concatenate(([-1], np.maximum.accumulate(value[order]))) if len(order) else np.array([-1])
    return highest[np.searchsorted(at[order], asked, side="left")]


def _below_start(history: LogHistory, reads: _Reads) -> Iterator[Violation]:
    cut_segment, cut, _, cut_ended = history.truncations.columns()
    for one in np.unique(cut_segment):
        mine = np.flatnonzero(reads.segment == one)
        cuts = cut_segment == one
        least = _latest(cut_ended[cuts], cut[cuts], reads.begun[mine])
        for at in mine[reads.offset[mine] < least][:_SHOWN]:
            yield Violation("below-start", f"reader {reads.reader[at]} got offset {reads.offset[at]} of segment {one}")
