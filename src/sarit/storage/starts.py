"""Where appends began in a run of a segment's bytes: a few of these places, packed.  Pure.

An append holds whole events, so each place is an event boundary.  (Appends to a transient segment do not: only where
the whole of it was merged is one.)  The store answers from them where an event begins near an offset, and reads no
data.

Theory of operation.  Places are offsets from the beginning of the run, 4 bytes each, ascending.  Of many places those
are retained that leave steps of at most BOUNDARY_STEP_BYTES, and no more; where an append is longer than that, the
step is as long as the append.  When runs are joined, the places of the whole are thinned again.  The result has the
same property, since thinning never removes a place whose neighbours are more than a step apart: however often bytes are
joined, the steps do not grow.  At most two places are retained for each step, and usually one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from sarit.storage.limits import APPEND_START_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FIRST: Final = bytes(APPEND_START_BYTES)
"""An append began with the first byte of the run, and nothing is known of others."""

NONE: Final = b""
"""No append is known to have begun in the run."""


def pack(starts: Sequence[int]) -> bytes:
    """Return the packed form of ascending offsets."""
    return struct.pack(f">{len(starts)}I", *starts)


def unpack(packed: bytes) -> tuple[int, ...]:
    """Return the offsets of a packed form."""
    return struct.unpack(f">{len(packed) // APPEND_START_BYTES}I", packed)


def first_at_or_after(packed: bytes, offset: int) -> int | None:
    """Return the smallest place at or after an offset in the run."""
    if offset <= 0 and packed:
        return int.from_bytes(packed[:APPEND_START_BYTES], "big")
    count = len(packed) // APPEND_START_BYTES

    def start(number: int) -> int:
        return int.from_bytes(packed[number * APPEND_START_BYTES : (number + 1) * APPEND_START_BYTES], "big")

    at = bisect_left(range(count), offset, key=start)
    return None if at == count else start(at)


def thin(starts: Sequence[int], length: int, step: int) -> bytes:
    """Return the packed form of as few of these places (ascending) as steps of at most `step` bytes need.

    `length`: of the run; another one follows there.  It takes a search for each place retained, not a pass."""
    if not starts:
        return NONE
    kept = [starts[0]]
    at, last = 0, len(starts) - 1
    while at < last:
        # The last place within a step, or else the next one.
        following = max(bisect_right(starts, starts[at] + step, at + 1) - 1, at + 1)
        if following == last and length - starts[at] <= step:
            break
        kept.append(starts[following])
        at = following
    return pack(kept)


def join(runs: Iterable[tuple[int, bytes]], length: int, step: int) -> bytes:
    """Return the places of a run of `length` bytes that consists of other runs: each its offset in it, and its
    places."""
    return thin([offset + start for offset, packed in runs for start in unpack(packed)], length, step)
