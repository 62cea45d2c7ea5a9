"""A backup place: a directory or a prefix of an object store that holds the backups of one node.

It is a `ChunkStorage`: objects are immutable, durable when they are written, and never seen half.  So what a killed
backup has copied stays, and the next one goes on with it.  A backup exists when its manifest does, which is written
last.

One backup or prune at a time: `backup/running` is created by whoever changes the place.  The node admits one backup
at a time, so one that finds the mark of a backup of its own node knows that it is dead.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, Exists, Invalid, NotFound, Unavailable
from sarit.ops.backup.limits import MAX_MANIFEST_BYTES
from sarit.ops.backup.manifest import (
    CHUNKS,
    INDEX,
    MANIFESTS,
    PLACE,
    RUNNING,
    Manifest,
    Piece,
    decode,
    decode_manifest,
    digest_of,
    encode,
    encode_manifest,
    manifest_name,
    manifest_number,
    piece_of,
)
from sarit.ops.backup.node_connection import Refused
from sarit.storage.open import check_storage_url, open_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer, Env
    from sarit.storage.port import ChunkStorage, WriteLimiter


def url_of(place: str) -> str:
    """Return the URL of a place that a user named: a path, or a URL.  Raises Invalid."""
    if "://" not in place:
        return f"file://{os.path.abspath(place)}"
    check_storage_url(place)
    return place


async def open_place(env: Env, place: str, *, create: bool = False) -> Place:
    """Open a place by path or URL.  Raises Invalid (there is none), Unavailable."""
    url = url_of(place)
    folder = url.removeprefix("file://")
    if folder != url and not create and not env.files.exists(folder):
        raise Invalid(f"there is no backup at {place}")
    try:
        return Place(await open_storage(url, env), place)
    except OSError as error:
        raise Unavailable(f"the backup place {place} cannot be opened: {error}") from error


class Place:
    """An open place.  Close it."""

    def __init__(self, storage: ChunkStorage, name: str) -> None:
        self._storage = storage
        self.name = name

    def __repr__(self) -> str:
        return f"<Place {self.name}>"

    async def close(self) -> None:
        """Release threads and connections."""
        await self._storage.close()

    # -- whose it is --------------------------------------------------------------------------

    async def claim(self, node: str) -> None:
        """Make this the place of a node, or check that it is.  Raises Invalid, Unavailable."""
        try:
            owner = await self.owner()
        except NotFound:
            async for name, _ in self._storage.list(""):
                raise Invalid(
                    f"{self.name} is not empty and no backup place (it holds {name}): name an empty one"
                ) from None
            await self._storage.write(PLACE, [encode({"node": node})])
            owner = await self.owner()
        if owner != node:
            raise Invalid(
                f"{self.name} holds backups of the node {owner}, this is {node}: give each node a place of its own"
            )

    async def owner(self) -> str:
        """Return the id of the node whose backups are here.  Raises NotFound, Corrupt, Unavailable."""
        return str(decode(await self._content(PLACE), PLACE)["node"])

    async def require(self) -> None:
        """Check that this is a backup place.  Raises Invalid."""
        try:
            await self.owner()
        except NotFound:
            raise Invalid(f"there is no backup at {self.name}") from None

    async def lock(self, what: str, *, force: bool = False) -> None:
        """Reserve the place for changes by this process.  `what`: backup or prune.

        Raises Refused when another process has reserved it.  `force`: that process is known to be dead."""
        try:
            await self._storage.write(RUNNING, [encode({"what": what})])
        except Exists:
            found = str(decode(await self._content(RUNNING), RUNNING)["what"])
            if not force and (found, what) != ("backup", "backup"):
                raise Refused(
                    f"a {found} of {self.name} runs, or was killed: wait for its end; if there is none, "
                    "give --force to `sarit backup prune`"
                ) from None
            await self._storage.delete(RUNNING)
            await self._storage.write(RUNNING, [encode({"what": what})])

    async def unlock(self) -> None:
        """Let others change the place."""
        await self._storage.delete(RUNNING)

    # -- backups ------------------------------------------------------------------------------

    async def numbers(self) -> list[int]:
        """Return the numbers of all backups, oldest first."""
        found = [manifest_number(name) async for name, _ in self._storage.list(MANIFESTS)]
        return sorted(number for number in found if number is not None)

    async def manifest(self, number: int) -> Manifest:
        """Return the manifest of a backup.  Raises Corrupt, Invalid (no such backup, a newer format), Unavailable."""
        try:
            return decode_manifest(await self._content(manifest_name(number)), number)
        except NotFound:
            raise Invalid(f"there is no backup {number} at {self.name}: `sarit backup list` shows them") from None

    async def write_manifest(self, manifest: Manifest) -> None:
        """Write a manifest; from then on the backup exists."""
        await self._storage.write(manifest_name(manifest.number), [encode_manifest(manifest)])

    async def delete_manifest(self, number: int) -> None:
        """Delete a manifest; from then on the backup does not exist, though its objects stay."""
        await self._storage.delete(manifest_name(number))

    # -- objects ------------------------------------------------------------------------------

    async def pieces(self) -> list[Piece]:
        """Return all objects that are there whole."""
        found = []
        for folder in (CHUNKS, INDEX):
            async for name, length in self._storage.list(folder):
                piece = piece_of(name)
                if piece is not None and piece.length == length:
                    found.append(piece)
        return found

    async def write(self, piece: Piece, parts: Sequence[Buffer], limiter: WriteLimiter | None = None) -> None:
        """Store an object, unless the place has it already.  Raises Unavailable (no space, for example)."""
        try:
            await self._storage.write(piece.object_name, parts, limiter)
        except Exists:
            return

    async def read(self, piece: Piece) -> Buffer:
        """Return an object, checked.  Raises Corrupt (damaged or missing, with its name), Unavailable."""
        try:
            data = await self._storage.read(piece.object_name, 0, piece.length)
        except NotFound:
            raise Corrupt(f"{piece.object_name} of {self.name} is missing") from None
        except Corrupt as error:
            raise Corrupt(f"{piece.object_name} of {self.name} is damaged: {error}") from None
        if digest_of(data) != piece.digest:
            raise Corrupt(f"{piece.object_name} of {self.name} is damaged: its digest does not match")
        return data

    async def delete(self, piece: Piece) -> None:
        """Remove an object that no backup names."""
        await self._storage.delete(piece.object_name)

    async def _content(self, name: str) -> bytes:
        """Return the content of a document.  Raises NotFound, Corrupt, Unavailable."""
        folder = name.rpartition("/")[0]
        async for found, length in self._storage.list(folder):
            if found == name:
                if length > MAX_MANIFEST_BYTES:
                    raise Corrupt(f"{name} of {self.name} has {length} bytes")
                return bytes(await self._storage.read(name, 0, length))
        raise NotFound(f"{name} is not in {self.name}")
