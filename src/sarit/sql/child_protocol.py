"""What the console's process and the process of one query say to each other, over two pipes (sans-IO).

    parent                                  child
      │ ◀──────────────────────── READY ────── │  it has loaded all it needs
      │ ── QUERY ───────────────────────────▶  │  and confines itself (`env/confinement.py`)
      │ ◀───────────────── FIND shop.orders ── │  for each table that the query names
      │ ── RELATION: parts, schema ──────────▶ │  or ABSENT: names that are like it; or FAILED
      │ ◀─── READ 1: parts, columns, of 0 ──── │  for each scan that DuckDB begins; no answer
      │ ◀─────────────────────── NEXT 1 ────── │  rows only when they are asked for
      │ ── BATCH ────────────────────────────▶ │  or END; or FAILED
      │ ◀────────────────────── CLOSE 1 ────── │  the scan needs no more; no answer
      │ ◀──────────────── COLUMNS, ROWS, … ─── │  the result, as text
      │ ◀──────────────── DONE or ERROR ────── │  and the child ends

The child asks for one thing at a time, so an answer has no number.  The end of a pipe is the end of the other process.

A frame is its length (4 bytes, big-endian, the kind included), its kind (1 byte), and its body: JSON, text, or Arrow's
IPC stream.  The parent takes nothing from the child on trust: a frame that is too long or not what it should be raises
Corrupt, and the child is killed.
"""

from __future__ import annotations

import enum
import json
import struct
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Corrupt
from sarit.sql.limits import MAX_PARTS, MAX_QUERY_COLUMNS, MAX_QUERY_FRAME_BYTES, MAX_QUERY_NAME_PARTS
from sarit.sql.ports import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HEAD: Final = struct.Struct(">IB")
_LENGTH: Final = struct.Struct(">I")


class Kind(enum.IntEnum):
    """The kinds of frames: to the child below 64, from it above."""

    QUERY = 1
    RELATION = 2
    ABSENT = 3
    BATCH = 4
    END = 5
    FAILED = 6
    READY = 65
    FIND = 66
    READ = 67
    NEXT = 68
    CLOSE = 69
    COLUMNS = 70
    ROWS = 71
    DONE = 72
    ERROR = 73


@dataclass(frozen=True, slots=True)
class Frame:
    """One message."""

    kind: Kind
    body: bytes = b""

    def encode(self) -> bytes:
        """Return the bytes of the frame."""
        return _HEAD.pack(len(self.body) + 1, self.kind) + self.body

    def json(self) -> Any:
        """Return the body, which is JSON.  Raises Corrupt."""
        try:
            return parse_json(self.body)
        except ValueError:
            raise Corrupt(f"the body of {self.kind.name} is not JSON") from None


def frame(kind: Kind, document: Any = None) -> Frame:
    """Return a frame with a document; None: without a body."""
    return Frame(kind, b"" if document is None else json.dumps(document, separators=(",", ":")).encode())


class Frames:
    """Bytes of a pipe in, frames out."""

    def __init__(self, most_bytes: int = MAX_QUERY_FRAME_BYTES) -> None:
        self._most_bytes = most_bytes
        self._left = bytearray()

    def __repr__(self) -> str:
        return f"<Frames, {len(self._left)} bytes of one>"

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete now.  Raises Corrupt."""
        self._left += data
        while len(self._left) >= _HEAD.size:
            length, number = _HEAD.unpack_from(self._left)
            end = _LENGTH.size + length
            if not 1 <= length <= self._most_bytes:
                raise Corrupt(f"a message of {length} bytes, where at most {self._most_bytes} are allowed")
            if len(self._left) < end:
                return
            try:
                kind = Kind(number)
            except ValueError:
                raise Corrupt(f"a message of the unknown kind {number}") from None
            body = bytes(self._left[_HEAD.size : end])
            del self._left[:end]
            yield Frame(kind, body)


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and what it may use.

    `form`: "page": rows as JSON, with cells of at most `cell_chars`; "csv": rows as CSV, whole.  `rows`, `text_bytes`:
    of the result; what is beyond them is left out.  `limit_bytes`: to read of streams."""

    sql: str
    form: str
    rows: int
    cell_chars: int
    text_bytes: int
    limit_bytes: int
    memory_bytes: int
    address_bytes: int
    threads: int
    cpu_seconds: int

    def frame(self) -> Frame:
        """Return the frame of the query."""
        return frame(Kind.QUERY, asdict(self))


def query_of(found: Frame) -> Query:
    """Return the query in a frame.  Raises Corrupt."""
    try:
        return Query(**found.json())
    except TypeError as error:
        raise Corrupt(f"the query cannot be read: {error}") from None


def relation_frame(number: int, parts: Sequence[Part], schema: bytes) -> Frame:
    """Return the answer to FIND.  `number`: by which READ names the relation.  `schema`: of Arrow, serialized."""
    rows = [
        [part.number, part.bytes, part.segment, part.start, part.end, part.ingested_us] for part in parts
    ]  # fmt: skip
    head = json.dumps({"relation": number, "parts": rows}, separators=(",", ":")).encode()
    return Frame(Kind.RELATION, _LENGTH.pack(len(head)) + head + schema)


def relation_of(found: Frame) -> tuple[int, list[Part], bytes]:
    """Return number, parts and serialized schema of a relation."""
    (length,) = _LENGTH.unpack_from(found.body)
    head = json.loads(found.body[_LENGTH.size : _LENGTH.size + length])
    parts = [
        Part(number, size, segment, start, end, None if times is None else (times[0], times[1]))
        for number, size, segment, start, end, times in head["parts"]
    ]
    return int(head["relation"]), parts, found.body[_LENGTH.size + length :]


@dataclass(frozen=True, slots=True)
class Read:
    """A scan that begins: the `numbers` of parts of a `relation`, and columns.  `scan`: by which NEXT names it."""

    scan: int
    relation: int
    numbers: Sequence[int]
    columns: Sequence[str]

    def frame(self) -> Frame:
        """Return the frame of the read."""
        return frame(Kind.READ, [self.scan, self.relation, list(self.numbers), list(self.columns)])


def read_of(found: Frame) -> Read:
    """Return the read in a frame from the child.  Raises Corrupt."""
    body = found.json()
    match body:
        case [int(scan), int(relation), list(numbers), list(columns)] if (
            len(numbers) <= MAX_PARTS
            and len(columns) <= MAX_QUERY_COLUMNS
            and all(type(number) is int for number in numbers)
            and all(isinstance(name, str) for name in columns)
        ):
            return Read(scan, relation, numbers, columns)
    raise Corrupt("a read cannot be understood")


def path_of(found: Frame) -> tuple[str, ...]:
    """Return the name of a table in a frame from the child.  Raises Corrupt."""
    body = found.json()
    if not isinstance(body, list) or not 1 <= len(body) <= MAX_QUERY_NAME_PARTS:
        raise Corrupt("a table's name cannot be understood")
    if not all(isinstance(part, str) for part in body):
        raise Corrupt("a table's name is not text")
    return tuple(body)


def number_of(found: Frame) -> int:
    """Return the number of a scan in a frame from the child.  Raises Corrupt."""
    body = found.json()
    if type(body) is not int:
        raise Corrupt("a scan's number is not a number")
    return body
