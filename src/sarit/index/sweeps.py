"""Sweeps: range deletes of an index on an object store whose rows are deleted later, in slices.

A range may have a million rows, and each must be deleted by its key: a commit of all of them would take minutes.  So a
commit deletes the first rows of a range, and writes a mark for the rest.  From then on the range counts as empty:
reads skip it.  Later commits delete its rows slice by slice, and at last the mark.  A mark is a record, so the sweep
goes on after a restart.

Warning.  A key that is put in such a range would be hidden, so all rows of the range are deleted before.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Range = tuple[bytes, bytes]

_LENGTH: Final = struct.Struct(">I")


def encode_mark(span: Range) -> bytes:
    """Return a range (start, end; end excluded) as the key of its mark."""
    start, end = span
    return _LENGTH.pack(len(start)) + start + end


def decode_mark(key: bytes) -> Range:
    """Parse the key of a mark into its range.  Raises Corrupt."""
    if len(key) >= _LENGTH.size:
        size = _LENGTH.size + _LENGTH.unpack_from(key)[0]
        start, end = key[_LENGTH.size : size], key[size:]
        if len(key) > size and start < end:
            return start, end
    raise Corrupt(f"not the mark of a range: {key.hex()}")


class Sweeps:
    """The ranges of one index whose rows count as deleted; they do not overlap."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self.ranges = sorted(ranges)

    def __repr__(self) -> str:
        return f"<Sweeps of {len(self.ranges)} ranges>"

    def hides(self, key: bytes) -> bool:
        """Return whether a key is in one of the ranges."""
        return any(start <= key < end for start, end in self.ranges)

    def visible(self, start: bytes, end: bytes) -> Iterator[Range]:
        """Yield the parts of a range that are outside of all swept ranges, ascending."""
        for first, last in self.ranges:
            if last <= start or first >= end:
                continue
            if start < first:
                yield start, first
            start = last
        if start < end:
            yield start, end

    def touched(self, keys: Iterable[bytes]) -> list[Range]:
        """Return the swept ranges that contain one of the keys."""
        if not self.ranges:
            return []
        found: set[Range] = set()
        for key in keys:
            found.update(span for span in self.ranges if span[0] <= key < span[1])
        return sorted(found)
