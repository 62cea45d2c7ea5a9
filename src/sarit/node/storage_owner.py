"""Whose chunks these are.

Two nodes that write to one place delete each other's chunks: they give them the same names, and each sweeps what it
does not know.  So the first node to use a place leaves its id there, in the chunk MARKER, and every start looks at it
before anything is written or swept.  A node that has left its id finds it again, or what it looks at is not its
storage: a directory that is not mounted, for one.  A copy of its data directory has its id, too: see `starts.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Exists, Invalid, NotFound
from sarit.storage.names import container_prefix

if TYPE_CHECKING:
    from sarit.storage.port import ChunkStorage

MARKER_FOLDER: Final = "node"
MARKER: Final = f"{MARKER_FOLDER}/owner"
ID_CHARACTERS: Final = 32


async def claim_storage(storage: ChunkStorage, node: str, containers: int, *, marked: bool, new: bool) -> None:
    """Make sure that a place holds nobody's chunks but those of the node with the id `node`.

    `marked`: this node left its id there before.  `new`: it never wrote a chunk.  Raises Invalid (it is another
    node's, or not the place it was), Unavailable (it is away)."""
    assert len(node) == ID_CHARACTERS, node
    try:
        owner = await _owner(storage)
    except NotFound:
        if marked:
            raise Invalid(
                "long-term storage does not hold this node's mark any more: is it mounted, is it the same place?"
            ) from None
        if new and await _holds_chunks(storage, containers):
            raise Invalid(
                "long-term storage holds chunks that are not this node's: give it a place of its own with --storage, "
                "or start it on the data directory that they belong to"
            ) from None
        with suppress(Exists):  # another node was faster
            await storage.write(MARKER, [node.encode()])
        owner = await _owner(storage)
    if owner != node:
        raise Invalid(
            f"long-term storage belongs to the node {owner}, this is {node}: they would delete each other's chunks; "
            "give each a place of its own with --storage"
        )


async def _owner(storage: ChunkStorage) -> str:
    try:
        return bytes(await storage.read(MARKER, 0, ID_CHARACTERS)).decode("ascii", "replace")
    except Corrupt as error:
        raise Invalid(f"long-term storage has a damaged mark of its owner: {error}") from None


async def _holds_chunks(storage: ChunkStorage, containers: int) -> bool:
    """Whether there are any that would be taken for ours.  What else there may be is not looked at."""
    for number in range(containers):
        async for _ in storage.list(container_prefix(number)):
            return True
    return False
