"""Makes a cluster, and reads its description.  The steps of making a cluster:

1. Read log and storage, and refuse those of another cluster before anything is written.
2. Write an incomplete description, with the id of the new cluster, to the coordination service.
3. Mark the log, if it is a directory, long-term storage, and the object store of the index with the id.
4. Write the complete description.

If the command is killed in between, its next run continues with the same id.  If a step fails, the command removes what
it wrote to the coordination service and to the directory of the log, unless long-term storage may have the id already.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sarit.cluster.limits import CLUSTER_ID_BYTES, CLUSTER_SECRET_BYTES
from sarit.cluster.settings import META, ClusterMeta, decode_meta
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, SaritError
from sarit.env.own_directory import names_in, require_own_directory
from sarit.env.whole_files import read_whole
from sarit.process.ownership.claims import claim_owner_chunk, storage_owner
from sarit.process.ownership.directory_content import is_index_directory
from sarit.storage.open import open_storage

if TYPE_CHECKING:
    from sarit.coordination.port import Registers
    from sarit.env.ports import Env, Files
    from sarit.storage.port import ChunkStorage

MARK_FILE: Final = "cluster"
_MADE: Final = "this cluster was made already: `sarit cluster status` shows it"


async def init_cluster(registers: Registers, env: Env, asked: ClusterMeta, storage: ChunkStorage) -> ClusterMeta:
    """Make the cluster that `asked` describes.  Returns its description, with a new id and secret.

    Raises Exists (it was made already), Invalid (log or storage belong to another cluster), Unavailable, OSError."""
    new = await _refuse_others(registers, env, asked, storage)
    meta, version = await _begin(registers, env, asked)
    try:
        mark_log(env.files, meta)
        await claim_owner_chunk(storage, meta.cluster, meta.containers, written=False, new=True)
        await _claim_index(env, meta, new=True)
    except (SaritError, OSError):
        if new and not await _may_be_marked(storage, meta):
            await _take_back(registers, env, meta, version)
        raise
    try:
        await registers.set(META, meta.finished().encode(), version)
    except Conflict:
        raise Exists("another command is making this cluster now") from None
    return meta.finished()


async def _refuse_others(registers: Registers, env: Env, asked: ClusterMeta, storage: ChunkStorage) -> bool:
    """Check that the cluster can be made.  Returns False if an earlier command has begun to make it.  Raises Exists,
    Invalid, Unavailable."""
    asked.checked()
    found = await registers.get(META)
    before = decode_meta(found.value) if found is not None else None
    if before is not None and before.complete:
        raise Exists(_MADE)
    own = before.cluster if before is not None else ""
    directory = asked.log_directory
    if directory is not None and env.files.exists(directory):
        names = names_in(env.files, directory)
        mark = _read_mark(env.files, f"{directory}/{MARK_FILE}") if MARK_FILE in names else ""
        if not own.startswith(mark):
            raise Invalid(f"{directory} is the log of the cluster {mark}, not of a new one: choose another --log")
        if [name for name in names if name != MARK_FILE]:
            raise Invalid(f"--log {asked.log}: there are files in it; a new cluster needs an empty directory")
    try:
        owner = await storage_owner(storage)
    except NotFound:
        owner = own
    if owner != own:
        raise Invalid(
            f"--storage {asked.storage} belongs to {owner}, another cluster or node: they would delete each other's "
            "chunks; give each a place of its own"
        )
    if asked.index_directory is not None:
        require_own_directory(env.files, asked.index_directory, is_index_directory)
    return before is None


async def _may_be_marked(storage: ChunkStorage, meta: ClusterMeta) -> bool:
    """Return whether long-term storage has, or may have, the id of this cluster."""
    try:
        return await storage_owner(storage) == meta.cluster
    except NotFound:
        return False
    except (SaritError, OSError):
        return True


async def _take_back(registers: Registers, env: Env, meta: ClusterMeta, version: int) -> None:
    """Remove the mark of the log and the description, if possible; otherwise the next run continues with them."""
    with suppress(SaritError, OSError):
        directory = meta.log_directory
        if directory is not None and env.files.exists(f"{directory}/{MARK_FILE}"):
            env.files.remove(f"{directory}/{MARK_FILE}")
        await registers.delete(META, version)


async def _begin(registers: Registers, env: Env, asked: ClusterMeta) -> tuple[ClusterMeta, int]:
    asked.checked()
    while True:
        found = await registers.get(META)
        if found is None:
            secret = env.random.bytes(CLUSTER_SECRET_BYTES).hex()
            meta = _with_id(asked, env.random.bytes(CLUSTER_ID_BYTES).hex(), secret)
        else:
            before = decode_meta(found.value)
            if before.complete:
                raise Exists(_MADE)
            meta = _with_id(asked, before.cluster, before.secret)
        try:
            if found is None:
                return meta, await registers.create(META, meta.encode())
            return meta, await registers.set(META, meta.encode(), found.version)
        except (Exists, Conflict):
            continue


def _with_id(asked: ClusterMeta, cluster: str, secret: str) -> ClusterMeta:
    return replace(asked, cluster=cluster, secret=secret, complete=False)


async def read_meta(registers: Registers, cluster: object) -> ClusterMeta:
    """Read a cluster's description.

    Raises Invalid (there is no such cluster, it is not complete, or it is being restored), Unavailable."""
    return (await read_meta_and_version(registers, cluster))[0]


async def read_meta_and_version(
    registers: Registers, cluster: object, *, restoring: str = ""
) -> tuple[ClusterMeta, int]:
    """Read a cluster's description, and the version of its register.  `restoring`: accept the cluster although this
    backup is being restored to it."""
    found = await registers.get(META)
    if found is None:
        raise Invalid(f"there is no cluster {cluster}: make it with `sarit cluster init --cluster {cluster}`")
    meta = decode_meta(found.value)
    if not meta.complete:
        raise Invalid(f"the cluster {cluster} is not complete: run `sarit cluster init` again")
    if meta.restoring not in ("", restoring):
        raise Invalid(
            f"the cluster {cluster} is being restored from {meta.restoring}: wait for its end, or run `sarit restore` "
            "of that again"
        )
    return meta, found.version


def mark_log(files: Files, meta: ClusterMeta) -> None:
    """Mark the log with the cluster's id, if it is a directory.  Blocks.  Raises Invalid, OSError."""
    directory = meta.log_directory
    if directory is not None:
        path = f"{directory}/{MARK_FILE}"
        files.make_dirs(directory)
        marked = files.exists(path)
        found = _read_mark(files, path) if marked else ""
        # A power cut may have left a part of the mark.
        if found != meta.cluster and meta.cluster.startswith(found):
            if [name for name in names_in(files, directory) if name != MARK_FILE]:
                raise Invalid(f"--log {meta.log}: there are files in it; a new cluster needs an empty directory")
            file = files.open(path, "write" if marked else "create")
            try:
                file.pwrite_durably([meta.cluster.encode()], 0)
            finally:
                file.close()
            files.sync_dir(directory)
    check_log(files, meta, meta.machine)


def check_log(files: Files, meta: ClusterMeta, machine: str) -> None:
    """Check that directories shared by stores exist and belong to this cluster.  Blocks.  Raises Invalid, OSError."""
    if meta.on_one_machine and machine != meta.machine:
        what, url = ("log", meta.log) if meta.log_directory is not None else ("index", meta.index)
        raise Invalid(
            f"the {what} of this cluster is a directory of the machine {meta.machine} ({url}), and this is {machine}: "
            "start its stores there (--machine names a machine, if the host name does not)"
        )
    directory = meta.log_directory
    if directory is None:
        return
    path = f"{directory}/{MARK_FILE}"
    if not files.exists(path):
        raise Invalid(f"{directory} is not the log of this cluster ({path} is missing): is its disk mounted?")
    found = _read_mark(files, path)
    if found != meta.cluster:
        raise Invalid(f"{directory} is the log of the cluster {found}, not of {meta.cluster}: choose another --log")


async def check_storage(env: Env, storage: ChunkStorage, meta: ClusterMeta) -> None:
    """Check that long-term storage, and an index on an object store, belong to the cluster.  Raises Invalid,
    Unavailable."""
    await claim_owner_chunk(storage, meta.cluster, meta.containers, written=True, new=False)
    await _claim_index(env, meta, new=False)


async def _claim_index(env: Env, meta: ClusterMeta, *, new: bool) -> None:
    if meta.index_directory is not None or meta.index == meta.storage:
        return
    place = await open_storage(meta.index, env)
    try:
        await claim_owner_chunk(place, meta.cluster, meta.containers, written=not new, new=new)
    except Invalid as error:
        raise Invalid(f"--index {meta.index}: {error}") from None
    finally:
        await place.close()


def _read_mark(files: Files, path: str) -> str:
    return read_whole(files, path).decode(errors="replace")
