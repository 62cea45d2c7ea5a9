"""What a node claims before it starts: its data directory, and its place in long-term storage."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Invalid, Unavailable
from sarit.node import storage_starts as starts
from sarit.node.storage_owner import claim_storage

if TYPE_CHECKING:
    from sarit.env.ports import Env, File, Files
    from sarit.node.settings import NodeConfig
    from sarit.storage.port import ChunkStorage

_log = logging.getLogger("sarit.node")

META_VERSION: Final = 1
# In the data directory once long-term storage holds the node's mark.
STORAGE_MARKED: Final = "storage-marked"
# In the data directory: the marks that its starts left in long-term storage.
LAST_START: Final = "last-start"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A data directory that is this process's: its lock, the node's id, and whether it writes to long-term storage only
    since that holds the node's mark (directories of earlier versions do not say so)."""

    lock: File
    node: str
    marks: bool


def claim_directory(config: NodeConfig, env: Env) -> Claimed:
    """Lock the data directory and check, or write, what it says of itself.

    Blocks.  Raises Unavailable (another node runs on it), Invalid (it is of other settings)."""
    files, directory = env.files, config.data_dir
    files.make_dirs(directory)
    lock_path = f"{directory}/lock"
    lock = files.open(lock_path, "write" if files.exists(lock_path) else "create")
    if not lock.lock():
        lock.close()
        raise Unavailable(f"another node runs on {directory}: stop it first, or choose another --data-dir")
    try:
        node, marks = _describe(config, env)
    except BaseException:
        lock.close()
        raise
    return Claimed(lock, node, marks)


def _describe(config: NodeConfig, env: Env) -> tuple[str, bool]:
    """The id of the directory's node, and `Claimed.marks`.  Raises Invalid."""
    files, directory = env.files, config.data_dir
    meta_path = f"{directory}/meta"
    storage = config.storage_url or "chunks"
    if not files.exists(meta_path):
        return _settle(config, env, env.random.bytes(16).hex()), True
    files.sync_dir(directory)  # the process that wrote it may have failed to
    try:
        meta = dict(json.loads(_read(files, meta_path)))
    except (ValueError, TypeError):
        raise Invalid(f"{meta_path} is damaged: put it back from a backup, it says what is in {directory}") from None
    if meta.get("version") != META_VERSION:
        raise Invalid(f"{directory} is of format {meta.get('version')}; this version of Sarit reads {META_VERSION}")
    marks = bool(meta.get("marks"))
    # It never got as far as to hold anything: the storage was misspelt, say.
    unused = marks and not any(files.exists(f"{directory}/{name}") for name in (STORAGE_MARKED, "log"))
    for name, value, option in (("containers", config.containers, "--containers"), ("storage", storage, "--storage")):
        if meta.get(name) != value:
            if unused:
                return _settle(config, env, str(meta["node"])), True
            raise Invalid(f"{directory} was made with {option} {meta.get(name)}, not {value}: start it with that again")
    return str(meta["node"]), marks


def _settle(config: NodeConfig, env: Env, node: str) -> str:
    """Write what the directory is from now on; the id of its node."""
    meta = {
        "version": META_VERSION,
        "node": node,
        "containers": config.containers,
        "storage": config.storage_url or "chunks",
        "index": "sqlite",
        "marks": True,
    }
    _write_anew(env.files, f"{config.data_dir}/meta", json.dumps(meta, indent=2).encode())
    return node


async def claim_chunks(config: NodeConfig, env: Env, storage: ChunkStorage, claimed: Claimed) -> None:
    """See that long-term storage is this node's alone, and leave the mark of this start.

    Raises Invalid, Unavailable (only before the first mark was left), OSError."""
    files = env.files
    path = f"{config.data_dir}/{STORAGE_MARKED}"
    marked = files.exists(path)
    try:
        new = claimed.marks and not marked
        await claim_storage(storage, claimed.node, config.containers, marked=marked, new=new)
        if not marked:
            files.open(path, "create").close()
            files.sync_dir(config.data_dir)
        await _mark_start(files, config.data_dir, storage, env.random.bytes(starts.TOKEN_CHARACTERS // 2).hex())
    except Unavailable as error:
        if not marked:
            raise
        _log.warning("long-term storage is away; it was this node's when it was there last: %s", error)


async def _mark_start(files: Files, directory: str, storage: ChunkStorage, token: str) -> None:
    path = f"{directory}/{LAST_START}"
    try:
        known = starts.decode(_read(files, path)) if files.exists(path) else []
    except Corrupt as error:
        raise Invalid(
            f"{path} is damaged ({error}), so that a copy of this directory cannot be told from it: if there is none "
            "in use, delete this file, and the chunks node/start-* of long-term storage, and start again"
        ) from None
    held = starts.following(known, await starts.newest(storage), token)
    # Here first: after a crash in between this directory must know what it left there.
    _write_anew(files, path, starts.encode(held))
    await starts.leave(storage, held[-1])
    await starts.forget(storage, held[-1])


def _read(files: Files, path: str) -> bytes:
    file = files.open(path, "read")
    try:
        return bytes(file.pread(file.size(), 0))
    finally:
        file.close()


def _write_anew(files: Files, path: str, data: bytes) -> None:
    """Replace a file at once; durable when this returns.  What an earlier try left goes: its sync may have failed."""
    temporary = path + ".new"
    if files.exists(temporary):
        files.remove(temporary)
    file = files.open(temporary, "create")
    try:
        file.pwrite([data], 0)
        file.datasync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(path.rpartition("/")[0])
