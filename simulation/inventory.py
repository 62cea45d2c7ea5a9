"""The content of the index and of long-term storage, in the terms of `checkers/storage.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.index import keys
from sarit.process.ownership.tokens import NODE_FOLDER
from sarit.storage.layout import Extent, load_chunk_extent, load_inlined_extent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from checkers.storage import Placed
    from sarit.storage.port import ChunkStorage


def placed_in(container: int, rows: Mapping[bytes, bytes]) -> dict[str, list[Placed]]:
    """The extents of one container's index, by segment."""
    found: dict[str, list[Extent]] = {}
    for key, value in rows.items():
        if key.startswith(keys.EXTENT):
            segment, start = keys.parse_extent_key(key)
            extent = load_chunk_extent(start, value)
        elif key.startswith(keys.INLINED):
            segment, start = keys.parse_inlined_key(key)
            extent = load_inlined_extent(start, value)
        else:
            continue
        found.setdefault(f"container {container} segment {segment}", []).append(extent)
    return {
        segment: [(e.start, e.length, e.chunk, e.object_offset) for e in sorted(extents, key=lambda e: e.start)]
        for segment, extents in found.items()
    }


def awaiting_in(rows: Mapping[bytes, bytes]) -> set[str]:
    """The chunks that one container's index lists as garbage."""
    return {keys.parse_garbage_key(key) for key in rows if key.startswith(keys.GARBAGE)}


async def chunks_in(storage: ChunkStorage, folder: str = "") -> dict[str, int]:
    """Names and lengths of all chunks of segments, or of those in a folder.  Raises Unavailable."""
    markers = f"{NODE_FOLDER}/"
    return {name: length async for name, length in storage.list(folder) if not name.startswith(markers)}
