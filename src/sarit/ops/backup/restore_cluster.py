"""Restores a backup into a cluster that `sarit cluster init` has just made, and that no store has served yet.

Order: the description of the cluster says that it is being restored, so that no store and no controller starts; chunks;
for each container its index and a new log, which continues after the checkpoint; the description again.  A restore that
was killed goes on: chunks that are there stay, and records of indexes are the same when they are written again.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from sarit.cluster.creation import check_log, check_storage, read_meta_and_version
from sarit.cluster.places import log_size, open_cluster_logs, open_indexes
from sarit.cluster.settings import META, decode_meta
from sarit.cluster.status import view_cluster
from sarit.coordination.map_register import read_map
from sarit.core.errors import Conflict, Invalid
from sarit.index import keys
from sarit.index.port import WriteBatch
from sarit.index.sqlite import SqliteIndexProvider
from sarit.ops.backup.indexes import clear_folder
from sarit.ops.backup.limits import COPY_CACHE_BYTES, INDEX_ROWS_PER_COMMIT
from sarit.ops.backup.restore import restore_chunks, restore_index
from sarit.storage.open import open_storage
from sarit.store.container.recovery import read_checkpoint, record_log

if TYPE_CHECKING:
    from sarit.cluster.settings import ClusterAddress, ClusterMeta
    from sarit.coordination.port import Registers
    from sarit.env.ports import Env, Files, Worker
    from sarit.index.port import Index, IndexProvider
    from sarit.log.port import DurableLog, LogHistory
    from sarit.ops.backup.manifest import ContainerBackup, Manifest
    from sarit.ops.backup.pacer import Pacer, Progress
    from sarit.ops.backup.place import Place


class NewLogs(Protocol):
    """Logs of restored containers."""

    async def create_after(self, container: int, history: LogHistory) -> DurableLog:
        """Return a new log that continues after a checkpoint."""


async def restore_cluster(
    env: Env, place: Place, manifest: Manifest, address: ClusterAddress, machine: str, work: str, pacer: Pacer,
    progress: Progress,
) -> str:  # fmt: skip
    """Fill a new cluster with a backup; return its id.  `machine`: this one.  `work`: a folder for copies of indexes.

    Raises Invalid (the cluster is not new, or has another number of containers), Corrupt (with the name of the damaged
    piece of the backup; the cluster stays closed), Unavailable, OSError."""
    async with AsyncExitStack() as closing:
        view = await closing.enter_async_context(view_cluster(address, env))
        meta = await _begin(view.registers, address, manifest)
        check_log(env.files, meta, machine)
        storage = await open_storage(meta.storage, env)
        closing.push_async_callback(storage.close)
        await check_storage(env, storage, meta)
        logs = await open_cluster_logs(closing, meta, env, log_size(env, meta))
        worker = env.threads.worker("restore")
        closing.push_async_callback(worker.close)
        indexes = open_indexes(meta, env, COPY_CACHE_BYTES)
        # Both kinds of logs of a cluster are `NewLogs`.
        new_logs = cast("NewLogs", logs)
        parts = _Parts(env, place, indexes, new_logs, worker, f"{work}/restored", progress)
        for number, container in enumerate(manifest.containers):
            await restore_chunks(place, storage, number, container, pacer, progress)
        for number, container in enumerate(manifest.containers):
            await parts.restore_container(number, container, meta)
        await _end(view.registers)
        return meta.cluster


async def _begin(registers: Registers, address: ClusterAddress, manifest: Manifest) -> ClusterMeta:
    """Mark the cluster as being restored.  Raises Invalid."""
    wanted = f"backup {manifest.number} of {manifest.node}"
    meta, version = await read_meta_and_version(registers, address, restoring=wanted)
    if meta.containers != len(manifest.containers):
        raise Invalid(
            f"the cluster {address} has {meta.containers} containers and the backup {len(manifest.containers)}: make a "
            f"cluster with --containers {len(manifest.containers)}"
        )
    if not meta.restoring:
        if await read_map(registers) is not None:
            raise Invalid(f"the cluster {address} has served already: restore into one that was made just now")
        meta = replace(meta, restoring=wanted)
        try:
            await registers.set(META, meta.encode(), version)
        except Conflict:
            raise Invalid(f"another command changes the cluster {address} now: try again") from None
        if await read_map(registers) is not None:
            raise Invalid(f"a process of the cluster {address} has started: stop all, and restore again")
    return meta


async def _end(registers: Registers) -> None:
    found = await registers.get(META)
    assert found is not None
    await registers.set(META, replace(decode_meta(found.value), restoring="").encode(), found.version)


class _Parts:
    def __init__(
        self, env: Env, place: Place, indexes: IndexProvider, logs: NewLogs, worker: Worker, work: str,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._env = env
        self._place = place
        self._indexes = indexes
        self._logs = logs
        self._worker = worker
        self._work = work
        self._progress = progress

    async def restore_container(self, number: int, container: ContainerBackup, meta: ClusterMeta) -> None:
        """Restore a container's index, and create a log that continues after it, even if a killed restore made them."""
        if meta.log_directory is not None:
            await self._worker.run(partial(_clear_log, self._env.files, f"{meta.log_directory}/{number}"))
        index = await self._indexes.open(number)
        try:
            await self._copy_index(number, container, index)
            checkpoint = await read_checkpoint(index)
            log = await self._logs.create_after(number, checkpoint.history)
            try:
                await record_log(index, log)
            finally:
                await log.close()
        finally:
            await index.close()

    async def _copy_index(self, number: int, container: ContainerBackup, target: Index) -> None:
        files = self._env.files
        await self._worker.run(partial(clear_folder, files, self._work))
        path = f"{self._work}/container-{number}.db"
        await restore_index(self._place, container, number, files, path, self._worker, self._progress)
        self._progress.begin(f"records of index {number}", sum(piece.length for piece in container.index))
        source = await SqliteIndexProvider(self._env, self._work).open(number)
        try:
            first, end, count = b"", b"\xff" * 64, 0
            while rows := await source.scan(first, end, INDEX_ROWS_PER_COMMIT):
                await target.commit(WriteBatch(puts=dict(rows)))
                self._progress.add(sum(len(key) + len(value) for key, value in rows))
                first, count = keys.after(rows[-1][0]), count + len(rows)
            if await _count(target, end) != count:
                raise Invalid(f"the index of container {number} was not empty: restore into a new cluster")
        finally:
            await source.close()
        await self._worker.run(partial(clear_folder, files, self._work))


async def _count(index: Index, end: bytes) -> int:
    first, count = b"", 0
    while rows := await index.scan_sizes(first, end, INDEX_ROWS_PER_COMMIT):
        first, count = keys.after(rows[-1][0]), count + len(rows)
    return count


def _clear_log(files: Files, folder: str) -> None:
    """Remove the log that an unfinished restore made; no store has written there."""
    with suppress(FileNotFoundError):
        for name in files.list(folder):
            files.remove(f"{folder}/{name}")
