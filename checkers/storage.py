"""Agreement of long-term storage and the index once all is quiet.  Pure.

| kind | meaning |
|---|---|
| `missing-chunk` | an extent names a chunk that is not there, or is shorter than the extent needs |
| `leaked-chunk` | a chunk that no extent names and that is not queued for deletion |
| `untiled` | the extents of a segment overlap, or leave a gap |
| `scattered` | more small extents of a segment adjoin than compaction may leave |
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

# At rest.  Compaction leaves up to seven inlined ones, seven in chunks, and joined ones, each half as long as the one
# before.
MOST_SMALL_EXTENTS = 24

# Start in the segment, length, chunk ("" when the bytes are in the index), offset in the chunk.
Placed = tuple[int, int, str, int]


def check(
    extents: Mapping[str, Sequence[Placed]], chunks: Mapping[str, int], awaiting: Collection[str], small_bytes: int = 0
) -> list[Violation]:
    """`extents` by segment, in order of start; `chunks` are names and lengths; `awaiting` deletion: their names,
    and those of chunks that may stay for ever.

    Extents below `small_bytes` are small."""
    return [
        *_missing(extents, chunks),
        *_untiled(extents),
        *_leaked(extents, chunks, awaiting),
        *_scattered(extents, small_bytes),
    ]


def _scattered(extents: Mapping[str, Sequence[Placed]], small_bytes: int) -> Iterator[Violation]:
    for segment, placed in extents.items():
        for small, run in itertools.groupby(placed, key=lambda extent: extent[1] < small_bytes):
            count = len(list(run))
            if small and count > MOST_SMALL_EXTENTS:
                yield Violation("scattered", f"{segment}: {count} small extents adjoin")


def _missing(extents: Mapping[str, Sequence[Placed]], chunks: Mapping[str, int]) -> Iterator[Violation]:
    for segment, placed in extents.items():
        for start, length, chunk, offset in placed:
            if chunk and chunks.get(chunk, -1) < offset + length:
                yield Violation(
                    "missing-chunk",
                    f"{segment} has {length} bytes from {start} in {chunk} from {offset}, which holds "
                    f"{chunks.get(chunk, 'nothing: it does not exist')}",
                )


def _untiled(extents: Mapping[str, Sequence[Placed]]) -> Iterator[Violation]:
    for segment, placed in extents.items():
        for (start, length, *_), (following, *_) in itertools.pairwise(placed):
            if start + length != following:
                yield Violation("untiled", f"{segment}: an extent ends at {start + length}, the next is at {following}")


def _leaked(
    extents: Mapping[str, Sequence[Placed]], chunks: Mapping[str, int], awaiting: Collection[str]
) -> Iterator[Violation]:
    named = {chunk for placed in extents.values() for _, _, chunk, _ in placed}
    for chunk in sorted(set(chunks) - named - set(awaiting)):
        yield Violation("leaked-chunk", f"no extent names {chunk} ({chunks[chunk]} bytes), and nothing deletes it")
