"""The files of the processes of the proof, complete even after kill -9.

An event is 100 bytes: its *life* (one life of a writer's process, a number of its own), its number in that life from 0,
and filler that follows from both.  A life has `KEYS` routing keys; event t has key t mod KEYS, so that what a life has
had acknowledged is one number.

A writer's side file holds pairs of int64 (passed to the client, acknowledged): the first is written before the events
are passed to the client, the second when they are known to be durable.  A reader's file holds records

    count, length of the position, CRC-32    3 x uint32
    lives, numbers, segments                 3 x count x int64
    the position after them                  text

each written by one call, so that results and position are stored together or not at all.  A partial record at the end
is removed, and its events are read again.  No sync: processes are killed here, not machines.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

EVENT_BYTES: Final = 100
KEYS: Final = 64
GROUP: Final = 64 * KEYS
END: Final = "end"
_HEADER: Final = struct.Struct("<III")
_PAIR: Final = struct.Struct("<qq")
_FILLER_AT: Final = 16


def events_of(life: int, first: int, count: int) -> Any:
    """Events as rows of bytes."""
    rows = np.empty((count, EVENT_BYTES), np.uint8)
    numbers = np.arange(first, first + count, dtype=np.int64)
    rows[:, :8] = np.full(count, life, np.int64).view(np.uint8).reshape(count, 8)
    rows[:, 8:_FILLER_AT] = numbers.view(np.uint8).reshape(count, 8)
    rows[:, _FILLER_AT:] = _filler(life, numbers)[:, None]
    return rows


def _filler(life: Any, numbers: Any) -> Any:
    return ((life * 31 + numbers * 7) & 0xFF).astype(np.uint8)


def parse(rows: Any) -> tuple[Any, Any, Any]:
    """Lives, numbers, and which rows are whole events."""
    lives = np.ascontiguousarray(rows[:, :8]).view(np.int64)[:, 0]
    numbers = np.ascontiguousarray(rows[:, 8:_FILLER_AT]).view(np.int64)[:, 0]
    whole = (rows[:, _FILLER_AT:] == _filler(lives, numbers)[:, None]).all(axis=1)
    return lives, numbers, whole


class SideFile:
    """The reports of a life of a writer."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._delivered = self._acked = 0

    def handing(self, total: int) -> None:
        """Events up to `total` will be passed to the client."""
        self._delivered = total
        self._write()

    def acknowledged(self, total: int) -> None:
        """Events up to `total` are durable."""
        if total > self._acked:
            self._acked = total
            self._write()

    def _write(self) -> None:
        os.write(self._file, _PAIR.pack(self._delivered, self._acked))


def said(path: Path) -> tuple[int, int]:
    """Both numbers of a side file, 0 and 0 when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END) // _PAIR.size
            if not size:
                return 0, 0
            file.seek((size - 1) * _PAIR.size)
            delivered, acked = _PAIR.unpack(file.read(_PAIR.size))
            return delivered, acked
    except FileNotFoundError:
        return 0, 0


@dataclass(slots=True)
class Results:
    """All events of a reader, in order of delivery, over all its lives; a piece for each record, and its position."""

    lives: list[Any] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)
    segments: list[Any] = field(default_factory=list)
    position: str = ""
    positions: list[str] = field(default_factory=list)

    def columns(self) -> tuple[Any, Any, Any]:
        """Lives, numbers, segments."""
        empty = np.empty(0, np.int64)
        lives, numbers, segments = (np.concatenate(part or [empty]) for part in self.parts())
        return lives, numbers, segments

    def parts(self) -> tuple[list[Any], list[Any], list[Any]]:
        """The columns in pieces."""
        return self.lives, self.numbers, self.segments


def together(members: Sequence[Results]) -> Results:
    """The deliveries to the members of a group, ordered by segment: each record is of one segment, and its position
    begins with the offset where it begins."""
    pieces = [
        (int(segments[0]), int(position.partition(":")[0]), lives, numbers, segments)
        for member in members
        for lives, numbers, segments, position in zip(*member.parts(), member.positions, strict=True)
        if len(segments)
    ]
    # By the first epoch of a segment, then by offset: predecessors come before successors.
    pieces.sort(key=lambda piece: piece[:2])
    return Results([p[2] for p in pieces], [p[3] for p in pieces], [p[4] for p in pieces])


def record(lives: Any, numbers: Any, segments: Any, position: str) -> bytes:
    """Results and the position after them."""
    text = position.encode()
    body = b"".join((lives.tobytes(), numbers.tobytes(), segments.tobytes(), text))
    return _HEADER.pack(len(lives), len(text), zlib.crc32(body)) + body


def recovered(path: Path, *, columns: bool = True) -> Results:
    """The whole records of a reader's file, without a partial one at the end."""
    found, good = Results(), 0
    if not path.exists():
        return found
    data = path.read_bytes()
    for count, position, body, end in _records(data):
        if columns:
            values = np.frombuffer(body, np.int64).reshape(3, count)
            for column, part in zip(found.parts(), values, strict=True):
                column.append(part)
            found.positions.append(position)
        found.position, good = position, end
    if good < len(data):
        os.truncate(path, good)
    return found


def _records(data: bytes) -> Iterator[tuple[int, str, memoryview, int]]:
    at, view = 0, memoryview(data)
    while at + _HEADER.size <= len(data):
        count, length, crc = _HEADER.unpack_from(data, at)
        begin, middle = at + _HEADER.size, at + _HEADER.size + 24 * count
        end = middle + length
        if end > len(data) or zlib.crc32(view[begin:end]) != crc:
            return
        yield count, data[middle:end].decode(), view[begin:middle], end
        at = end
