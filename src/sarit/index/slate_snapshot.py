"""Snapshots of the index of a container, read from its object store while its owner writes to it.

A checkpoint of SlateDB keeps the objects that it names from deletion.  It has a lifetime, so that a killed backup keeps
no objects for ever, and the lifetime is extended while the snapshot is read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import slatedb.uniffi as slatedb

from sarit.core.errors import Unavailable
from sarit.index.keys import after
from sarit.index.limits import (
    INDEX_CLOSE_SECONDS,
    INDEX_REQUEST_SECONDS,
    INDEX_SNAPSHOT_RENEWAL_SECONDS,
    INDEX_SNAPSHOT_SECONDS,
)
from sarit.index.slate import ERRORS, SlateIndex, map_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.index.slate import SlateIndexProvider

_log = logging.getLogger("sarit.index")


class SlateSnapshot:
    """A snapshot of one container's index, to be closed after use.

    A checkpoint of SlateDB keeps its objects until then.  The checkpoint is renewed meanwhile: after the death of this
    process it ends within INDEX_SNAPSHOT_SECONDS."""

    def __init__(self, checkpoint: _Checkpoint, index: SlateIndex) -> None:
        self._checkpoint = checkpoint
        self._index = index
        self._renewing = asyncio.ensure_future(checkpoint.renew())
        self._closed = False

    def __repr__(self) -> str:
        return f"<SlateSnapshot {self._checkpoint} of {self._index!r}>"

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of `keys`, as `Index.get` does."""
        return [next((v for _, v in await self.scan(key, after(key), 1)), None) for key in keys]

    async def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return await self._index.scan(start, end, limit)

    async def close(self) -> None:
        """Close the snapshot, and delete its checkpoint, so that the owner may delete its objects."""
        if self._closed:
            return
        self._closed = True
        self._renewing.cancel()
        try:
            async with asyncio.timeout(INDEX_CLOSE_SECONDS):
                await self._index.reader_shutdown()
        except (*ERRORS, TimeoutError) as error:
            _log.info("a reader of an index ends without an answer: %s", map_error(error, "close"))
        finally:
            await self._checkpoint.delete()


class _Checkpoint:
    """A checkpoint of one database, which keeps what it names from the garbage collector."""

    def __init__(self, admin: Any, number: str, place: str) -> None:
        self._admin = admin
        self.number = number
        self._place = place

    def __repr__(self) -> str:
        return f"<_Checkpoint {self.number} of {self._place}>"

    @classmethod
    async def make(cls, admin: Any, place: str) -> _Checkpoint:
        """Create a checkpoint.  Raises errors of SlateDB."""
        options = slatedb.CheckpointOptions(lifetime_ms=INDEX_SNAPSHOT_SECONDS * 1000, source=None, name="sarit-backup")
        return cls(admin, (await admin.create_detached_checkpoint(options)).id, place)

    async def renew(self) -> None:
        """Extend the lifetime of the checkpoint again and again, until this is cancelled."""
        while True:
            await asyncio.sleep(INDEX_SNAPSHOT_RENEWAL_SECONDS)
            try:
                async with asyncio.timeout(INDEX_REQUEST_SECONDS):
                    await self._admin.refresh_checkpoint(self.number, INDEX_SNAPSHOT_SECONDS * 1000)
            except (*ERRORS, TimeoutError) as error:
                # The next renewal may succeed.  If the checkpoint ends, reads raise errors of missing objects.
                _log.warning("a snapshot was not renewed: %s", map_error(error, f"renew {self._place}"))

    async def delete(self) -> None:
        """Delete the checkpoint, if possible; otherwise it ends after its lifetime."""
        try:
            async with asyncio.timeout(INDEX_CLOSE_SECONDS):
                await self._admin.delete_checkpoint(self.number)
        except (*ERRORS, TimeoutError) as error:
            _log.info("a snapshot of an index stays for a while: %s", map_error(error, f"close {self._place}"))


async def take_snapshot(provider: SlateIndexProvider, container: int) -> SlateSnapshot:
    """Take a snapshot of a container's index as of the owner's newest commit.  Raises Unavailable, Corrupt."""
    place, path = provider.place_of(container), provider.path_of(container)
    doing = f"read the index {place}"
    try:
        async with asyncio.timeout(INDEX_REQUEST_SECONDS):
            checkpoint = await _Checkpoint.make(slatedb.AdminBuilder(path, provider.objects).build(), place)
            try:
                builder = slatedb.DbReaderBuilder(path, provider.objects)
                builder.with_reader_mode(slatedb.ReaderMode.CHECKPOINT(checkpoint.number))
                index = SlateIndex(await builder.build(), place)
            except BaseException:
                await checkpoint.delete()
                raise
    except TimeoutError as error:
        raise Unavailable(f"{doing}: no answer within {INDEX_REQUEST_SECONDS} s") from error
    except ERRORS as error:
        raise map_error(error, doing) from error
    snapshot = SlateSnapshot(checkpoint, index)
    try:
        await index.load()
    except BaseException:
        await snapshot.close()
        raise
    return snapshot
