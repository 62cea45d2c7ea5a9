"""Starts: some of the offsets in a run of a segment's bytes where appends began, packed.

An append holds whole events, so each start is an event boundary.  (Appends to a transient segment are pieces of one
event, which begins where the whole segment was merged.)  With the starts, the store finds an event boundary near an
offset without reading data.

Theory of operation.  Starts are offsets from the beginning of the run, 4 bytes each, ascending.  So many of them are
retained that the steps between them are at most BOUNDARY_STEP_BYTES; a longer append makes a step of its own length.
When runs are joined, their starts are thinned again.  The steps do not grow however often bytes are joined, since
thinning never removes a start whose neighbours are more than a step apart.  At most two starts are retained for each
step, and usually one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from sarit.storage.limits import APPEND_START_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FIRST: Final = bytes(APPEND_START_BYTES)
"""The packed form for one start, at the first byte of the run."""

NONE: Final = b""
"""The packed form without a known start."""


def pack(starts: Sequence[int]) -> bytes:
    """Return the packed form of starts, which are ascending offsets."""
    return struct.pack(f">{len(starts)}I", *starts)


def unpack(packed: bytes) -> tuple[int, ...]:
    """Return the starts in a packed form."""
    return struct.unpack(f">{len(packed) // APPEND_START_BYTES}I", packed)


def first_at_or_after(packed: bytes, offset: int) -> int | None:
    """Return the smallest start at or after an offset in the run; None when there is none."""
    if offset <= 0 and packed:
        return int.from_bytes(packed[:APPEND_START_BYTES], "big")
    count = len(packed) // APPEND_START_BYTES

    def start(number: int) -> int:
        return int.from_bytes(packed[number * APPEND_START_BYTES : (number + 1) * APPEND_START_BYTES], "big")

    at = bisect_left(range(count), offset, key=start)
    return None if at == count else start(at)


def thin(starts: Sequence[int], length: int, step: int) -> bytes:
    """Return the packed form of as few of these starts (ascending) as steps of at most `step` bytes need.

    `length`: the length of the run, at whose end another run begins.  The time is a search for each retained start."""
    if not starts:
        return NONE
    kept = [starts[0]]
    at, last = 0, len(starts) - 1
    while at < last:
        # Take the last start within a step, or the next one if there is none.
        following = max(bisect_right(starts, starts[at] + step, at + 1) - 1, at + 1)
        if following == last and length - starts[at] <= step:
            break
        kept.append(starts[following])
        at = following
    return pack(kept)


def join(runs: Iterable[tuple[int, bytes]], length: int, step: int) -> bytes:
    """Return the starts of a run of `length` bytes that consists of other `runs`, given by their offsets in it and
    their starts."""
    return thin([offset + start for offset, packed in runs for start in unpack(packed)], length, step)
