"""Makes a backup of a running node.

1. The stores make a joint checkpoint and delete no chunk from here on (`moment.py`).  A read transaction on each index
   shows it.
2. The indexes are copied, and what they name is listed.
3. Chunks that the place does not have are copied, each compared with the checksums that its index has.
4. The manifest is written.  Only now the backup exists.

A backup that is killed leaves objects that no manifest names: the next one finds them and copies the rest.  So does
the next attempt, when a store has ended, a container has moved or storage was away in between.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Corrupt, Invalid, NotFound, Unavailable
from sarit.ops.backup.index_copy import check_chunk, chunks_of, length_of
from sarit.ops.backup.indexes import path_of_copy, remove_copies
from sarit.ops.backup.limits import ATTEMPT_PAUSE_SECONDS, ATTEMPTS, INDEX_PART_BYTES, MAX_ATTEMPT_PAUSE_SECONDS
from sarit.ops.backup.manifest import ContainerBackup, Manifest, Piece, digest_of
from sarit.ops.backup.moment import Stores
from sarit.ops.backup.node_connection import Refused
from sarit.ops.backup.pacer import Pacer, for_each
from sarit.ops.backup.place import open_place, url_of
from sarit.ops.backup.source import describe_node
from sarit.ops.limits import BACKUP_WAIT_SECONDS
from sarit.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sarit.env.ports import Env, Worker
    from sarit.ops.backup.indexes import Indexes, Snapshot
    from sarit.ops.backup.pacer import Progress
    from sarit.ops.backup.place import Place
    from sarit.ops.backup.source import Source
    from sarit.storage.layout import Extent
    from sarit.storage.port import ChunkStorage


_log = logging.getLogger("sarit.ops.backup")


async def create(
    env: Env, directory: str, place_name: str, rate: int, progress: Progress, wait: float = BACKUP_WAIT_SECONDS
) -> Manifest:
    """Back up the node that runs on `directory`; `rate` in bytes per second, 0: no limit; `wait`: see `_keep_trying`.

    Raises Invalid (source or place cannot be used), Corrupt (a chunk of the node is damaged: its name), Unavailable."""
    return await create_from(env, describe_node(env, directory), place_name, rate, progress, wait)


async def create_from(
    env: Env, source: Source, place_name: str, rate: int, progress: Progress, wait: float = BACKUP_WAIT_SECONDS
) -> Manifest:
    """Create a backup of a node or a cluster, as `create` does."""
    if url_of(place_name) in source.places or any(
        f"{url_of(place_name)}/".startswith(f"{each}/") for each in source.places
    ):
        raise Invalid(f"{place_name} is part of the node: a backup must be elsewhere, best on another machine")
    async with AsyncExitStack() as closing:
        backup = _Backup(env, source, place_name, rate, progress, closing)
        return await _keep_trying(env, backup, wait)


async def _keep_trying(env: Env, backup: _Backup, wait: float) -> Manifest:
    """Make attempts with growing pauses, ATTEMPTS at least, until `wait` seconds have passed since the first failure.

    Raises Refused (somebody has to do something first), Unavailable (the last failure)."""
    first_failure: float | None = None
    pause = ATTEMPT_PAUSE_SECONDS
    for attempt in count(1):
        try:
            return await backup.attempt()
        except Refused:
            raise
        except Unavailable as error:
            now = env.clock.monotonic()
            first_failure = now if first_failure is None else first_failure
            left = first_failure + wait - now
            if attempt >= ATTEMPTS and left <= 0:
                raise Unavailable(f"{error} (tried {attempt} times in {now - first_failure:.0f} s)") from error
            if attempt >= ATTEMPTS:
                pause = min(pause, left)
            _log.warning(
                "the backup begins again with another moment in %.0f s (attempt %d): %s", pause, attempt + 1, error
            )
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_ATTEMPT_PAUSE_SECONDS)
    raise AssertionError("an attempt returns or raises")


class _Backup:
    """One command.  What it opens is closed by `closing`."""

    def __init__(
        self, env: Env, source: Source, place_name: str, rate: int, progress: Progress, closing: AsyncExitStack
    ) -> None:
        self._env = env
        self._source = source
        self._place_name = place_name
        self._rate = rate
        self._progress = progress
        self._closing = closing
        self._opened: tuple[Place, Indexes, _Copier] | None = None

    async def attempt(self) -> Manifest:
        """Make one attempt.  Raises as `create`, and Refused."""
        stores = Stores(await self._source.connect(), self._source.containers)
        try:
            manifest = await stores.while_kept(self._work(stores))
            await stores.completed()
            return manifest
        finally:
            await stores.close()

    async def _work(self, stores: Stores) -> Manifest:
        place, indexes, copier = self._opened or await self._open()
        moment_ms = self._env.clock.wall_ms()
        await stores.take()
        # Only one backup at a time gets as far as the first index: a mark that is in the place is of a dead one.
        snapshots = await _snapshots(self._source.containers, stores, indexes)
        try:
            return await _locked(place, copier.copy(snapshots, moment_ms))
        finally:
            await _close(snapshots)

    async def _open(self) -> tuple[Place, Indexes, _Copier]:
        """Open the place and the indexes.  Called once, by the first attempt whose stores answer, so that no place is
        made in vain."""
        env, source, closing = self._env, self._source, self._closing
        place = await open_place(env, self._place_name, create=True)
        closing.push_async_callback(place.close)
        await place.claim(source.node)
        storage = await open_storage(source.storage_url, env)
        closing.push_async_callback(storage.close)
        worker = env.threads.worker("backup")
        closing.push_async_callback(worker.close)
        copier = _Copier(env, source, place, storage, worker, Pacer(env.clock, self._rate), self._progress)
        closing.push_async_callback(copier.clean)
        self._opened = place, source.indexes(worker), copier
        return self._opened


async def _locked(place: Place, copying: Coroutine[Any, Any, Manifest]) -> Manifest:
    try:
        await place.lock("backup")
    except BaseException:
        copying.close()
        raise
    try:
        return await copying
    finally:
        await place.unlock()


async def _snapshots(containers: int, stores: Stores, indexes: Indexes) -> dict[int, tuple[int, Snapshot]]:
    """Return snapshots of all indexes, with the frames that they show.  Raises Unavailable, TryAgain."""
    found: dict[int, tuple[int, Snapshot]] = {}

    async def take(number: int) -> None:
        frame = await stores.committed(number)
        found[number] = frame, await indexes.snapshot(number, frame)
        await stores.read(number)

    try:
        await for_each(range(containers), take)
    except BaseException:
        await _close(found)
        raise
    return found


async def _close(snapshots: dict[int, tuple[int, Snapshot]]) -> None:
    for _, snapshot in snapshots.values():
        await snapshot.close()


class _Copier:
    """Copies what the snapshots name."""

    def __init__(
        self, env: Env, source: Source, place: Place, storage: ChunkStorage, worker: Worker, pacer: Pacer,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._env = env
        self._work = source.work
        self._source = source
        self._place = place
        self._storage = storage
        self._worker = worker
        self._pacer = pacer
        self._progress = progress
        self._there: dict[str, Piece] = {}  # chunks in the place, by name
        self._parts: set[Piece] = set()  # parts of indexes in the place
        self.copied_bytes = 0

    async def copy(self, snapshots: dict[int, tuple[int, Snapshot]], moment_ms: int) -> Manifest:
        """Copy everything; the manifest is written when this returns."""
        files, worker = self._env.files, self._worker
        await worker.run(lambda: files.make_dirs(self._work))
        # Copies all indexes before the chunks: the WAL of the node grows while its index is read.
        for number, (_, snapshot) in snapshots.items():
            await snapshot.copy(path_of_copy(self._work, number), self._progress)
        for piece in await self._place.pieces():
            if piece.name:
                self._there[piece.name] = piece
            else:
                self._parts.add(piece)
        containers = [await self._copy_container(number, frame) for number, (frame, _) in sorted(snapshots.items())]
        earlier = await self._place.numbers()
        manifest = Manifest(
            max(earlier, default=0) + 1, self._source.node, moment_ms, self.copied_bytes, tuple(containers)
        )
        await self._place.write_manifest(manifest)
        return manifest

    async def clean(self) -> None:
        """Remove copies of indexes that are not stored yet: the backup has failed, or was interrupted."""
        await self._worker.run(lambda: remove_copies(self._env.files, self._work, self._source.containers))

    async def _copy_container(self, number: int, frame: int) -> ContainerBackup:
        named = await self._worker.run(lambda: chunks_of(path_of_copy(self._work, number)))
        missing = {name: extents for name, extents in named.items() if not self._has(name, extents)}
        self._progress.begin(f"chunks of container {number}", sum(map(length_of, missing.values())))
        await for_each(missing.items(), lambda item: self._copy_chunk(*item))
        index = await self._copy_index(number)
        return ContainerBackup(frame, index, tuple(self._there[name] for name in sorted(named)))

    def _has(self, name: str, extents: list[Extent]) -> bool:
        piece = self._there.get(name)
        return piece is not None and piece.length == length_of(extents)

    async def _copy_chunk(self, name: str, extents: list[Extent]) -> None:
        length = length_of(extents)
        try:
            data = memoryview(await self._storage.read(name, 0, length))
        except NotFound:
            raise Corrupt(f"chunk {name} of the node is missing: `sarit verify` says what is lost with it") from None
        digest = await self._worker.run(lambda: _checked_digest(name, extents, data))
        piece = Piece(name, digest, length)
        await self._place.write(piece, [data], self._pacer.block)
        self._there[name] = piece
        self.copied_bytes += length
        self._progress.add(length)

    async def _copy_index(self, number: int) -> tuple[Piece, ...]:
        files, path, worker = self._env.files, path_of_copy(self._work, number), self._worker
        file = await worker.run(lambda: files.open(path, "read"))
        parts: list[Piece] = []
        try:
            while data := await worker.run(lambda: file.pread(INDEX_PART_BYTES, len(parts) * INDEX_PART_BYTES)):
                piece = Piece("", await worker.run(partial(digest_of, data)), len(data))
                if piece not in self._parts:
                    await self._place.write(piece, [data], self._pacer.block)
                    self._parts.add(piece)
                    self.copied_bytes += len(data)
                parts.append(piece)
        finally:
            file.close()
        await worker.run(lambda: files.remove(path))
        return tuple(parts)


def _checked_digest(name: str, extents: list[Extent], data: memoryview) -> str:
    """Return the digest of a chunk, after checking its extents.  Raises DamagedChunk.  Blocking."""
    check_chunk(name, extents, data)
    return digest_of(data)
