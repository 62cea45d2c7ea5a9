"""Agreement of long-term storage and the index once all is quiet.  Pure.

| kind | meaning |
|---|---|
| `missing-chunk` | an extent names a chunk that is not there, or is shorter than the extent needs |
| `leaked-chunk` | a chunk that no extent names and that is not queued for deletion |
| `untiled` | the extents of a segment overlap, or leave a gap |
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

# Start in the segment, length, chunk ("" when the bytes are in the index), offset in the chunk.
Placed = tuple[int, int, str, int]


def check(
    extents: Mapping[str, Sequence[Placed]], chunks: Mapping[str, int], awaiting: Collection[str]
) -> list[Violation]:
    """`extents` by segment, in order of start; `chunks` are names and lengths; `awaiting` deletion: their names."""
    return [*_missing(extents, chunks), *_untiled(extents), *_leaked(extents, chunks, awaiting)]


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
