"""References to chunks: updates them in each batch that puts or deletes extents.

A chunk that no extent names any more is garbage, and gets its garbage record in that batch.  A pack holds pieces of
many segments (`storage/packs.py`).  The index has a record for each piece that is needed: a batch that puts an extent
in the piece also puts the record, and a batch that drops the piece's last extent deletes it.  A pack without such a
record is garbage.

Warnings.  (1) A record stands for a piece, whatever the number of its extents, so dropping a piece twice does no harm.
(2) Only one commit of a container that drops references may be built at a time: it reads the index for the pieces that
are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.index import keys
from sarit.index.scans import scan_page
from sarit.storage.names import is_pack
from sarit.storage.packs import pack_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.index.port import Index, WriteBatch
    from sarit.storage.layout import Extent


def stored_key(segment: int, extent: Extent) -> bytes:
    """Return the key of an extent, in a chunk or inlined."""
    return keys.extent_key(segment, extent.start) if extent.chunk else keys.inlined_key(segment, extent.start)


def put_extent(batch: WriteBatch, segment: int, extent: Extent) -> None:
    """Put the record of an extent, and the record of its piece if it is in a pack."""
    extent.check()  # `load_chunk_extent` checks the same after the read
    batch.puts[stored_key(segment, extent)] = extent.record()
    if is_pack(extent.chunk):
        assert extent.checksums is not None, extent
        length, pack_length = extent.checksums.length, extent.checksums.object_length
        batch.puts[keys.piece_key(extent.reference)] = keys.piece_value(segment, extent.start, length, pack_length)


async def drop_references(batch: WriteBatch, index: Index, references: Iterable[str]) -> None:
    """Record as garbage the chunks and packs of `references` that no extent names after `batch`.

    `references`: the chunks and pieces whose extents the batch deletes.  Raises what the index raises."""
    dropped: dict[str, set[bytes]] = {}
    for reference in sorted(references):
        pack = pack_of(reference)
        if pack is None:
            batch.puts[keys.garbage_key(reference)] = b""
        else:
            dropped.setdefault(pack, set()).add(keys.piece_key(reference))
    named = {pack_of(keys.parse_piece_key(key)) for key in batch.puts if key[:1] == keys.PIECE} if dropped else set()
    for pack, pieces in dropped.items():
        # Keep a piece that this batch also puts, as for the target of a merge.
        pieces.difference_update(batch.puts)
        batch.deletes |= pieces
        if pack not in named and not await _has_other_pieces(index, pack, pieces):
            coverage_probe("pack_dropped")
            batch.puts[keys.garbage_key(pack)] = b""


async def _has_other_pieces(index: Index, pack: str, dropped: set[bytes]) -> bool:
    low, high = keys.pieces_range(pack)
    # Read one row more than are dropped: if there are so many, at least one piece is left.
    rows, damaged = await scan_page(index, low, high, len(dropped) + 1)
    # A record that cannot be read may be of a piece that is needed.
    return damaged is not None or any(key not in dropped for key, _ in rows)
