"""Noting damage of chunks, by the owner of the container alone.

The next owner replaces chunks and deletes the old ones.  To an owner that was fenced and does not know it, these are
missing: its index names them still.  So nothing is called damaged before a frame is durable that was sent after the
damage was met.  A container that no other store can own needs no such proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe

if TYPE_CHECKING:
    from sarit.core.errors import Corrupt
    from sarit.storage.checksums import DamagedChunk
    from sarit.store.container.container import Container


async def note_damage(container: Container, segment: str, offset: int, error: DamagedChunk) -> Corrupt:
    """Note that bytes of a segment from `offset` on are damaged; the error for whoever wanted them.

    Raises Unavailable or Moved when the container is another owner's by now: nothing is known of its chunks."""
    if container.lease is not None:
        coverage_probe("damage_waited_for_proof_of_ownership")
        await container.group_commit.prove_ownership()
    return container.damage.found(segment, offset, error)
