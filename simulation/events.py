"""Events that name their writer and number, and the history of a run."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from checkers.log import TORN, LogHistory
from checkers.table import TableHistory

if TYPE_CHECKING:
    from simulation.trace import Trace

_FRAME: Final = struct.Struct(">ii")
_BODY: Final = struct.Struct(">QQ")
HEAD_BYTES: Final = _FRAME.size + _BODY.size
MAX_EVENT_BYTES: Final = 1 << 20


class BrokenBytes(Exception):
    """The bytes read are not an event of any writer."""


def body(writer: int, number: int, filler: int) -> bytes:
    """The bytes of an event: writer, number, and `filler` bytes derived from these."""
    pattern = b"%d.%d;" % (writer, number)
    return _BODY.pack(writer, number) + (pattern * (filler // len(pattern) + 1))[:filler]


def framed(event: bytes) -> bytes:
    """With its frame, as in the segment."""
    return _FRAME.pack(0, len(event)) + event


def parse(event: bytes) -> tuple[int, int] | None:
    """(writer, number), None when a byte of it is wrong."""
    if len(event) < _BODY.size:
        return None
    writer, number = _BODY.unpack_from(event)
    return (writer, number) if event == body(writer, number, len(event) - _BODY.size) else None


class History:
    """The history of all actors of a run, and the numbers of writers, readers and segments."""

    def __init__(self, trace: Trace) -> None:
        self.log = LogHistory()
        self.table = TableHistory()
        self.trace = trace
        self.segments: dict[str, int] = {}
        self.boundaries: dict[int, list[int]] = {}
        self._writers = 0
        self._readers = 0
        self.acked_events = 0

    def new_writer(self) -> int:
        """A new writer number."""
        self._writers += 1
        return self._writers

    def new_reader(self) -> int:
        """A new reader number."""
        self._readers += 1
        return self._readers

    def segment(self, name: str) -> int:
        """The number of a segment."""
        return self.segments.setdefault(name, len(self.segments))


class SegmentParser:
    """Turns the bytes of one reader's session on one segment into rows of the history."""

    def __init__(self, history: History, reader: int, segment: str, offset: int) -> None:
        self._history = history
        self._reader = reader
        self._segment = history.segment(segment)
        self._rest = b""
        self._begun = 0.0
        self._fresh = True
        self.offset = offset
        self.position = offset
        self.events = 0

    def feed(self, data: bytes, begun: float, ended: float) -> None:
        """Bytes at `position`.  Raises BrokenBytes."""
        if not self._rest:
            self._begun = begun
        self.position += len(data)
        buffer = self._rest + data
        at = 0
        while len(buffer) - at >= _FRAME.size:
            kind, length = _FRAME.unpack_from(buffer, at)
            end = at + _FRAME.size + length
            if kind != 0 or not 0 <= length <= MAX_EVENT_BYTES:
                self._row((TORN, 0, 1), ended)
                raise BrokenBytes(f"segment {self._segment} offset {self.offset}: frame {kind}, {length} bytes")
            if end > len(buffer):
                break
            found = parse(buffer[at + _FRAME.size : end])
            if found is None:
                self._row((TORN, 0, end - at), ended)
                raise BrokenBytes(f"segment {self._segment} offset {self.offset}: {buffer[at : at + 60]!r}")
            self._row((*found, end - at), ended)
            self._fresh = False
            self.events += 1
            self.offset += end - at
            self._begun = begun
            at = end
        self._rest = buffer[at:]

    def _row(self, event: tuple[int, int, int], ended: float) -> None:
        place = (self._segment, self.offset)
        self._history.log.read(self._reader, place, event, fresh=self._fresh, begun=self._begun, ended=ended)
