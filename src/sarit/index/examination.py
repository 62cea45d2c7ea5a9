"""Examines a whole database of the index: SQLite's structure, the order of the keys, the checksum of each record.

A damaged value is found when its record is read.  A damaged *key* is worse: the record is not found under its right
key, and seems to be absent.  So an index of up to INDEX_EXAMINED_BYTES is examined whenever it is opened, and `sarit
verify` examines an index of any size.  The results:

- Damage to the structure: pages, their links, the schema, the order of keys.  Any search may miss any record then, so
  the whole database is Corrupt.
- Damaged records, each with the range of keys in which its right key must be (`Gap`).  A search for an absent key in
  this range raises an error; everything else is served.

CRC-32C locates a single flipped bit: of all records that differ in one bit, only the right one has this checksum.  If
that bit is in the key, the right key is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from sarit.core.errors import Corrupt
from sarit.index.keys import after, describe
from sarit.index.limits import INDEX_CHECKSUM_BYTES
from sarit.index.port import DamagedRecord
from sarit.index.record_seals import is_whole

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

SCHEMA: Final = {
    "entries": "CREATE TABLE entries (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID",
    "owner": "CREATE TABLE owner (one INTEGER PRIMARY KEY CHECK (one=1), epoch INTEGER NOT NULL)",
}

_ROWS_PER_FETCH: Final = 2000
_MAX_MESSAGES: Final = 20
# The bytes of the file's header that SQLite writes for every index, by offset.
_HEADER: Final = (
    (0, b"SQLite format 3\0"),
    (18, b"\x02\x02"),
    (20, b"\x00\x40\x20\x20"),
    (44, b"\x00\x00\x00\x04"),
    (56, b"\x00\x00\x00\x01"),
)
# Only values up to this size are searched for a flipped bit.
_MAX_SEARCHED: Final = 4096


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of keys, begin <= key < end, in which a record was lost, as the record found as `key` is damaged."""

    begin: bytes
    end: bytes
    key: bytes

    def error(self) -> DamagedRecord:
        """Return the error of a search in the gap."""
        return DamagedRecord(
            f"the index record of {describe(self.key)} is damaged: its checksum does not match", self.key,
            begin=self.begin, resume=self.end,
        )  # fmt: skip


def check_header(head: bytes, path: str) -> None:
    """Check the first bytes of a database file.  Raises Corrupt."""
    for at, expected in _HEADER:
        if head[at : at + len(expected)] != expected:
            raise Corrupt(f"index {path}: the header of the file is damaged at byte {at}")


def check_schema(connection: sqlite3.Connection, path: str) -> None:
    """Check that the tables are those that were created, and that there is one owner.  Raises Corrupt."""
    found = dict(connection.execute("SELECT name, sql FROM sqlite_schema"))
    if found != SCHEMA:
        raise Corrupt(f"index {path}: its schema is damaged: {found}")
    rows = connection.execute("SELECT one, epoch FROM owner").fetchall()
    if len(rows) != 1 or rows[0][0] != 1 or not isinstance(rows[0][1], int):
        raise Corrupt(f"index {path}: the epoch of its owner is damaged: {rows}")


def check_structure(connection: sqlite3.Connection, path: str) -> None:
    """Let SQLite check every page.  Raises Corrupt."""
    messages = [str(text) for (text,) in connection.execute(f"PRAGMA quick_check({_MAX_MESSAGES})")]
    if messages != ["ok"]:
        raise Corrupt(f"index {path}: its pages are damaged: {'; '.join(messages)[:2000]}")


def every_record(connection: sqlite3.Connection, path: str) -> Iterator[list[tuple[Any, Any]]]:
    """Yield all rows as they are stored, in lists, in the order of the pages.  Raises Corrupt (keys out of order)."""
    cursor = connection.execute("SELECT k, v FROM entries")
    before = b""
    first = True
    while rows := cursor.fetchmany(_ROWS_PER_FETCH):
        for key, _ in rows:
            if not isinstance(key, bytes) or (key <= before and not first):
                raise Corrupt(f"index {path}: its keys are out of order at {repr(key)[:200]}")
            before, first = key, False
        yield rows


def find_gaps(connection: sqlite3.Connection, path: str) -> list[Gap]:
    """Return the gaps in which records were lost by damage to their keys.  Raises Corrupt."""
    gaps: list[Gap] = []
    before, waiting = b"", b""
    for rows in every_record(connection, path):
        for key, stored in rows:
            if waiting:
                gaps.append(Gap(before, key, waiting))
                waiting = b""
            if not is_whole(key, stored):
                right = right_record(key, stored)
                if right is None:
                    waiting = key
                    continue
                if right[0] != key:
                    gaps.append(Gap(right[0], after(right[0]), key))
            before = after(key)
    if waiting:
        gaps.append(Gap(before, b"\xff" * 9, waiting))
    return gaps


def right_record(key: bytes, stored: object) -> tuple[bytes, bytes] | None:
    """Return the key and the sealed value that differ in one bit from a damaged record and have its checksum.

    Returns None without such a record, or when the value is too large to search."""
    if not isinstance(stored, bytes) or not INDEX_CHECKSUM_BYTES <= len(stored) <= _MAX_SEARCHED:
        return None
    value = stored[INDEX_CHECKSUM_BYTES:]
    # The flipped bit may be in the checksum itself.
    difference = crc32c(value, crc32c(key)) ^ int.from_bytes(stored[:INDEX_CHECKSUM_BYTES], "big")
    if difference.bit_count() == 1:
        return key, crc32c(value, crc32c(key)).to_bytes(INDEX_CHECKSUM_BYTES, "big") + value
    both = bytearray(key + value)
    for bit in range(8 * len(both)):
        both[bit // 8] ^= 1 << bit % 8
        if crc32c(both) == int.from_bytes(stored[:INDEX_CHECKSUM_BYTES], "big"):
            return bytes(both[: len(key)]), stored[:INDEX_CHECKSUM_BYTES] + bytes(both[len(key) :])
        both[bit // 8] ^= 1 << bit % 8
    return None
