"""Makes a new node of a backup.

The restored node is another one: it has an id of its own, and claims its long-term storage as a new node does, before
anything is written there.  So it can never share the storage of the node that was backed up.  Its logs are new and
empty; their epochs are above those of the chunks, so that no chunk name is used twice.

Order: the file `restoring`, the claim of the storage, chunks, indexes, logs, `meta`.  Without `meta` no node starts on
the directory.  A restore that was killed goes on: chunks that are there stay, the rest is made again.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.env.own_directory import names_in, require_own_directory
from sarit.env.whole_files import read_whole, replace_whole
from sarit.index.sqlite import SqliteIndexProvider
from sarit.log.local import LocalLogProvider
from sarit.ops.backup.pacer import for_each
from sarit.process.ownership.claims import (
    NODE_ID_CHARACTERS,
    DirectoryClaim,
    claim_long_term_storage,
    write_description,
)
from sarit.process.ownership.directory_content import (
    CHUNKS_FOLDER,
    INDEX_FOLDER,
    LOG_FOLDER,
    RESTORING,
    SQLITE,
    index_file,
    is_data_directory,
)
from sarit.process.places.volume import fit_to_volume
from sarit.process.settings import NodeConfig
from sarit.storage.names import container_prefix
from sarit.storage.open import open_storage
from sarit.store.container.recovery import read_checkpoint, record_log

if TYPE_CHECKING:
    from sarit.env.ports import Env, File, Files, Worker
    from sarit.ops.backup.manifest import ContainerBackup, Manifest, Piece
    from sarit.ops.backup.pacer import Pacer, Progress
    from sarit.ops.backup.place import Place
    from sarit.storage.port import ChunkStorage

_OURS: Final = (RESTORING, "lock", CHUNKS_FOLDER, INDEX_FOLDER, LOG_FOLDER, "last-start", "storage-marked")


async def restore(
    env: Env, place: Place, manifest: Manifest, directory: str, storage_url: str | None, pacer: Pacer,
    progress: Progress,
) -> str:  # fmt: skip
    """Make `directory` the data directory of a new node.  Returns the node's id.

    Raises Invalid (the directory or the storage is not empty), Corrupt (with the name of the damaged piece of the
    backup; no node starts on what was restored), Unavailable, OSError."""
    worker = env.threads.worker("restore")
    try:
        lock, node = await worker.run(lambda: _claim_directory(env, manifest, directory, storage_url))
        try:
            wanted = NodeConfig(data_dir=directory, containers=len(manifest.containers), storage_url=storage_url)
            # Logs are made as large as those of a new node on this disk.  Raises Invalid: it is too small.
            config = await worker.run(lambda: fit_to_volume(wanted, env.files))
            storage = await open_storage(storage_url or f"file://{directory}/{CHUNKS_FOLDER}", env)
            try:
                claim = DirectoryClaim(lock, node, SQLITE, complete=False)
                try:
                    await claim_long_term_storage(config, env, storage, claim)
                except Invalid:  # the storage is another node's, or has unknown chunks: the next try may name another
                    await worker.run(lambda: _forget(env, directory))
                    raise
                await _Restorer(env, place, storage, config, worker, pacer, progress).run(manifest)
            finally:
                await storage.close()
            await worker.run(lambda: _complete(env, config, node))
            return node
        finally:
            lock.close()
    finally:
        await worker.close()


async def restore_chunks(
    place: Place, storage: ChunkStorage, number: int, container: ContainerBackup, pacer: Pacer, progress: Progress
) -> None:
    """Write the chunks of a container that are not in `storage`.  Raises Corrupt, Unavailable."""
    there = {name: length async for name, length in storage.list(container_prefix(number))}
    missing = [piece for piece in container.chunks if there.get(piece.name) != piece.length]
    progress.begin(f"chunks of container {number}", sum(piece.length for piece in missing))

    async def write(piece: Piece) -> None:
        await storage.write(piece.name, [await place.read(piece)], pacer.block)
        progress.add(piece.length)

    await for_each(missing, write)


async def restore_index(
    place: Place, container: ContainerBackup, number: int, files: Files, path: str, worker: Worker, progress: Progress
) -> None:
    """Write the index of a container to a new file, durably.  Raises Corrupt, Unavailable, OSError."""
    progress.begin(f"index {number}", sum(piece.length for piece in container.index))
    file = await worker.run(lambda: files.open(path, "create"))
    at = 0
    try:
        for piece in container.index:
            data = await place.read(piece)
            await worker.run(partial(file.pwrite, [data], at))
            at += piece.length
            progress.add(piece.length)
        await worker.run(file.datasync)
    finally:
        file.close()
    await worker.run(lambda: files.sync_dir(path.rpartition("/")[0]))


def _claim_directory(env: Env, manifest: Manifest, directory: str, storage_url: str | None) -> tuple[File, str]:
    """Lock an empty directory, or one of a restore of the same backup.  Raises Invalid."""
    files = env.files
    require_own_directory(files, directory, is_data_directory)
    files.make_dirs(directory)
    path = f"{directory}/{RESTORING}"
    present = names_in(files, directory)
    if present and not files.exists(path) and present != ["lock"]:
        raise Invalid(f"{directory} is not empty: restore into a directory that does not exist yet")
    lock_path = f"{directory}/lock"
    lock = files.open(lock_path, "write" if files.exists(lock_path) else "create")
    try:
        if not lock.lock():
            raise Invalid(f"another process uses {directory}: a restore, or a node")
        wanted = {"node": manifest.node, "backup": manifest.number, "storage": storage_url}
        if not files.exists(path):
            node = env.random.bytes(NODE_ID_CHARACTERS // 2).hex()
            replace_whole(env.files, path, json.dumps(wanted | {"new_node": node}).encode())
            return lock, node
        found = read_whole(env.files, path)
        try:
            begun = dict(parse_json(found))
            node = str(begun.pop("new_node"))
        except (ValueError, KeyError, TypeError):
            raise Invalid(f"{path} is damaged: delete {directory}, and restore again") from None
        if begun != wanted:
            raise Invalid(
                f"{directory} holds the unfinished restore of backup {begun.get('backup')} to storage "
                f"{begun.get('storage') or 'in the directory'}: go on with that, or delete the directory"
            )
        strange = sorted(set(present) - set(_OURS) - {f"{RESTORING}.new", "meta", "meta.new", "last-start.new"})
        if strange:
            raise Invalid(f"{directory} holds {strange[0]}, which no restore made: restore into an empty directory")
        return lock, node
    except BaseException:
        lock.close()
        raise


class _Restorer:
    def __init__(
        self, env: Env, place: Place, storage: ChunkStorage, config: NodeConfig, worker: Worker, pacer: Pacer,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._env = env
        self._place = place
        self._storage = storage
        self._directory = config.data_dir
        self._log_file_bytes = config.limits.log_file_bytes
        self._worker = worker
        self._pacer = pacer
        self._progress = progress

    async def run(self, manifest: Manifest) -> None:
        """Restore all files but `meta`."""
        for number, container in enumerate(manifest.containers):
            await restore_chunks(self._place, self._storage, number, container, self._pacer, self._progress)
        # Makes indexes and logs again at each attempt: an index and its log belong together.
        await self._worker.run(self._remove_indexes_and_logs)
        for number, container in enumerate(manifest.containers):
            await self._restore_index(number, container)
        for number in range(len(manifest.containers)):
            await self._make_log(number)

    def _remove_indexes_and_logs(self) -> None:
        files = self._env.files
        for folder in (INDEX_FOLDER, LOG_FOLDER):
            files.make_dirs(f"{self._directory}/{folder}")
            for name in files.list(f"{self._directory}/{folder}"):
                path = f"{self._directory}/{folder}/{name}"
                if folder == INDEX_FOLDER:
                    files.remove(path)
                else:
                    for log in files.list(path):
                        files.remove(f"{path}/{log}")

    async def _restore_index(self, number: int, container: ContainerBackup) -> None:
        files, path = self._env.files, f"{self._directory}/{index_file(number)}"
        await restore_index(self._place, container, number, files, path, self._worker, self._progress)

    async def _make_log(self, number: int) -> None:
        """Create a new log that continues after the checkpoint, and note it in the index."""
        logs = LocalLogProvider(self._env, f"{self._directory}/{LOG_FOLDER}", self._log_file_bytes)
        indexes = SqliteIndexProvider(self._env, f"{self._directory}/{INDEX_FOLDER}")
        index = await indexes.open(number)
        try:
            checkpoint = await read_checkpoint(index)
            log = await logs.create_after(number, checkpoint.history)
            try:
                await record_log(index, log)
            finally:
                await log.close()
        finally:
            await index.close()


def _forget(env: Env, directory: str) -> None:
    """Remove the mark of a restore from a directory where nothing was restored yet."""
    if not env.files.exists(f"{directory}/{INDEX_FOLDER}"):
        env.files.remove(f"{directory}/{RESTORING}")
        env.files.sync_dir(directory)


def _complete(env: Env, config: NodeConfig, node: str) -> None:
    files = env.files
    write_description(config, env, node, SQLITE, complete=True)
    files.remove(f"{config.data_dir}/{RESTORING}")
    files.sync_dir(config.data_dir)
