"""Makes a backup of a running node.

1. The node makes a joint checkpoint and deletes no chunk from here on.  A read transaction on each index shows it.
2. The indexes are copied, and what they name is listed.
3. Chunks that the place does not have are copied, each compared with the checksums that its index has.
4. The manifest is written.  Only now the backup exists.

A backup that is killed leaves objects that no manifest names: the next one finds them and copies the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sarit.backup.index_copy import IndexSnapshot, check_chunk, chunks_of, length_of
from sarit.backup.limits import INDEX_PART_BYTES
from sarit.backup.manifest import ContainerBackup, Manifest, Piece, digest_of
from sarit.backup.node_connection import NodeConnection
from sarit.backup.pacing import Pacer, for_each
from sarit.backup.place import open_place, url_of
from sarit.core.errors import Corrupt, Invalid, NotFound
from sarit.node.ownership import read_description
from sarit.node.pieces import CHUNKS_FOLDER, index_file
from sarit.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sarit.backup.pacing import Progress
    from sarit.backup.place import Place
    from sarit.env.ports import Env, Worker
    from sarit.storage.layout import Extent
    from sarit.storage.port import ChunkStorage

_WORK_FOLDER = "backup-work"


@dataclass(frozen=True, slots=True)
class Source:
    """The data directory of a running node, as `meta` describes it."""

    directory: str
    node: str
    containers: int
    storage_url: str


def describe_source(env: Env, directory: str) -> Source:
    """Raises Invalid: it is not a data directory whose node can be backed up."""
    if not env.files.exists(f"{directory}/meta"):
        raise Invalid(f"{directory} is not a data directory of Sarit: it has no file `meta`")
    meta = read_description(env.files, directory)
    storage = str(meta["storage"])
    url = f"file://{directory}/{CHUNKS_FOLDER}" if storage == CHUNKS_FOLDER else storage
    return Source(directory, str(meta["node"]), int(meta["containers"]), url)


async def create(env: Env, directory: str, place_name: str, rate: int, progress: Progress) -> Manifest:
    """Back up the node that runs on `directory`; `rate` in bytes per second, 0 for no limit.

    Raises Invalid (source or place cannot be used), Corrupt (a chunk of the node is damaged: its name), Unavailable."""
    source = describe_source(env, directory)
    folder = url_of(place_name).removeprefix("file://")
    if f"{folder}/".startswith(f"{directory}/") or url_of(place_name) == source.storage_url:
        raise Invalid(f"{place_name} is part of the node: a backup must be elsewhere, best on another machine")
    connection = await NodeConnection.open(directory)
    place = storage = worker = None
    try:
        place = await open_place(env, place_name, create=True)
        await place.claim(source.node)
        storage, worker = await open_storage(source.storage_url, env), env.threads.worker("backup")
        moment_ms = env.clock.wall_ms()
        # Only one backup at a time gets as far as the first index: a mark that is in the place is of a dead one.
        snapshots = await _snapshots(source, connection, worker)
        copier = _Copier(env, source, place, storage, worker, Pacer(env.clock, rate), progress)
        return await connection.while_kept(_locked(place, copier.copy(snapshots, moment_ms)))
    finally:
        await connection.close()
        for part in (worker, storage, place):
            if part is not None:
                await part.close()


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


async def _snapshots(
    source: Source, connection: NodeConnection, worker: Worker
) -> dict[int, tuple[int, IndexSnapshot]]:
    """Read transactions on all indexes, with the frames that they show.  Raises Unavailable."""
    found: dict[int, tuple[int, IndexSnapshot]] = {}
    try:
        while len(found) < source.containers:
            number, frame = await connection.committed()
            path = f"{source.directory}/{index_file(number)}"
            found[number] = frame, await worker.run(partial(IndexSnapshot, path, frame))
            await connection.read(number)
    except BaseException:
        for _, snapshot in found.values():
            snapshot.close()
        raise
    return found


class _Copier:
    """Copies what the snapshots name."""

    def __init__(
        self, env: Env, source: Source, place: Place, storage: ChunkStorage, worker: Worker, pacer: Pacer,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._env = env
        self._work = f"{source.directory}/{_WORK_FOLDER}"
        self._source = source
        self._place = place
        self._storage = storage
        self._worker = worker
        self._pacer = pacer
        self._progress = progress
        self._there: dict[str, Piece] = {}  # chunks in the place, by name
        self._parts: set[Piece] = set()  # parts of indexes in the place
        self.copied_bytes = 0

    async def copy(self, snapshots: dict[int, tuple[int, IndexSnapshot]], moment_ms: int) -> Manifest:
        """Copy everything; the manifest is written when this returns."""
        files, worker = self._env.files, self._worker
        await worker.run(lambda: files.make_dirs(self._work))
        # All of them first: the WAL of the node grows while it is read.
        for number, (_, snapshot) in snapshots.items():
            path = f"{self._source.directory}/{index_file(number)}"
            self._progress.begin(f"index {number}", await worker.run(partial(_length, self._env, path)))
            await worker.run(partial(snapshot.copy, files, self._path(number), self._progress.add))
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

    def _path(self, number: int) -> str:
        return f"{self._work}/index-{number}"

    async def _copy_container(self, number: int, frame: int) -> ContainerBackup:
        named = await self._worker.run(lambda: chunks_of(self._path(number)))
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
        files, path, worker = self._env.files, self._path(number), self._worker
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
    """Raises DamagedChunk.  Blocking."""
    check_chunk(name, extents, data)
    return digest_of(data)


def _length(env: Env, path: str) -> int:
    file = env.files.open(path, "read")
    try:
        return file.size()
    finally:
        file.close()
