"""Reports damage of chunks, but only as the owner of the container.

The next owner replaces chunks and deletes the old ones, which the index of the former owner still names.  A former
owner that does not know that it was fenced would find them missing.  So damage is reported only after a frame became
durable that was sent after the damage was found.  A container that no other store can own needs no such proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe

if TYPE_CHECKING:
    from sarit.core.errors import Corrupt
    from sarit.storage.checksums import DamagedChunk
    from sarit.store.container.container import Container


async def note_damage(container: Container, segment: str, offset: int, error: DamagedChunk) -> Corrupt:
    """Record that bytes of a segment from `offset` on are damaged.  Returns the error for the reader of the bytes.

    Raises Unavailable or Moved when another store owns the container by now, and may have deleted the chunk."""
    if container.lease is not None:
        coverage_probe("damage_waited_for_proof_of_ownership")
        await container.group_commit.prove_ownership()
    return container.damage.found(segment, offset, error)
