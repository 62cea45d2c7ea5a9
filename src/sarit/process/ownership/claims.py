"""What a node claims before it starts: its data directory and its place in long-term storage.

Two nodes that write to one place delete each other's chunks: both use the same chunk names, and each collects the
chunks it does not know.  Three claims prevent that.

1. *The data directory* is locked for the life of the process.
   It is also checked to be complete: see `pieces.py`.
2. *The owner chunk.*  The first node that uses a place in long-term storage writes its id to the chunk OWNER_CHUNK.
   Every start reads that chunk before it writes or collects anything.  A node that wrote its id once must find it
   again.  If it does not, this is not its storage: for example, a directory that is not mounted.
3. *Ownership tokens.*  Every start leaves one, by which a copy of the data directory is recognized
   (`ownership_tokens.py`).
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Corrupt, Exists, Invalid, NotFound, Unavailable
from sarit.env.own_directory import require_own_directory
from sarit.env.whole_files import read_whole, replace_whole
from sarit.process.ownership.directory_content import (
    CHUNKS_FOLDER,
    LAST_START,
    LOG_FOLDER,
    OWNER_CHUNK_WRITTEN,
    RESTORING,
    SQLITE,
    count_containers,
    find_missing,
    find_traces,
    is_data_directory,
    refusal,
)
from sarit.process.ownership.tokens import (
    NODE_FOLDER,
    TOKEN_CHARACTERS,
    OwnershipToken,
    check_of,
    checked,
    decode_tokens,
    delete_old_tokens,
    encode_tokens,
    newest_token,
    next_tokens,
    read_checked,
    write_token,
)
from sarit.process.places.bookkeeper_logs import log_name
from sarit.storage.names import container_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Env, File, Files
    from sarit.process.settings import NodeConfig
    from sarit.storage.port import ChunkStorage

_log = logging.getLogger("sarit.process")

META_VERSION: Final = 2

OWNER_CHUNK: Final = f"{NODE_FOLDER}/owner"
NODE_ID_CHARACTERS: Final = 32


@dataclass(slots=True)
class DirectoryClaim:
    """A locked data directory.

    `node`: the node's id.  `index`: SQLITE, or the URL of the object store that has the indexes.  `complete`: a node
    has served on it, so that all pieces must be there.  `described`: it had its description; without one, the node's id
    may be adopted from long-term storage.  `damaged`: why a container cannot open, by number."""

    lock: File
    node: str
    index: str
    complete: bool
    described: bool = True
    damaged: dict[int, str] = field(default_factory=dict)

    def mark_complete(self, config: NodeConfig, env: Env) -> None:
        """Record that all pieces exist.  Call it when all containers are open, before anything is served.  Blocks."""
        if not self.complete:
            write_description(config, env, self.node, self.index, complete=True)
            self.complete = True


def claim_directory(config: NodeConfig, env: Env, index: str | None = None) -> DirectoryClaim:
    """Lock the data directory; check its description and that it is complete, or describe a new one.

    `index`: of a simulation.  Blocks.  Raises Unavailable (another node runs on it), Invalid (it is not a node's, was
    made with other settings, or is not complete)."""
    files, directory = env.files, config.data_dir
    index = index or config.index_url or SQLITE
    require_own_directory(files, directory, is_data_directory)
    files.make_dirs(directory)
    lock_path = f"{directory}/lock"
    lock = files.open(lock_path, "write" if files.exists(lock_path) else "create")
    # Before anything in the directory is read.
    if not lock.lock():
        lock.close()
        raise Unavailable(f"another node runs on {directory}: stop it first, or choose another --data-dir")
    try:
        if not files.exists(f"{directory}/meta"):
            return _claim_undescribed(config, env, lock, index)
        claim = _claim_described(config, env, lock, index)
        if claim.complete:
            _require_pieces(config, files, claim)
        return claim
    except BaseException:
        lock.close()
        raise


def _claim_undescribed(config: NodeConfig, env: Env, lock: File, index: str) -> DirectoryClaim:
    """Return a new directory; or one that has lost its description, which is refused.  Raises Invalid."""
    files, directory = env.files, config.data_dir
    if files.exists(f"{directory}/{RESTORING}"):
        raise Invalid(f"the restore of {directory} is not complete: run `sarit restore` again, or delete the directory")
    traces = find_traces(files, directory)
    if traces:
        if not config.accept_data_loss:
            raise Invalid(
                f"{directory} is not complete: its description is missing (meta), but there is {', '.join(traces)}.  "
                "Is its disk mounted?  Put meta back from a backup; --accept-data-loss describes the directory again, "
                "by --containers and --storage"
            )
        containers = count_containers(files, directory)
        if containers not in (0, config.containers):
            raise Invalid(f"{directory} holds {containers} containers: start it with --containers {containers}")
        _log.warning("data loss accepted: %s is described again, its description (meta) was missing", directory)
    node = write_description(config, env, env.random.bytes(NODE_ID_CHARACTERS // 2).hex(), index, complete=False)
    return DirectoryClaim(lock, node, index, complete=False, described=not traces)


def _claim_described(config: NodeConfig, env: Env, lock: File, index: str) -> DirectoryClaim:
    """Check the description of the directory.  Raises Invalid."""
    files, directory = env.files, config.data_dir
    storage = config.storage_url or CHUNKS_FOLDER
    log = log_name(config.log_url)
    files.sync_dir(directory)  # the process that wrote the description may have ended before it did
    meta = read_description(files, directory)
    complete = bool(meta["complete"])
    # A start that failed early, for example on a misspelt storage URL, may be repeated with other settings.
    unused = not complete and not any(files.exists(f"{directory}/{name}") for name in (OWNER_CHUNK_WRITTEN, LOG_FOLDER))
    meta.setdefault("log", LOG_FOLDER)
    for name, value, option in (
        ("containers", config.containers, "--containers"), ("storage", storage, "--storage"), ("log", log, "--log"),
    ):  # fmt: skip
        if meta.get(name) != value:
            if unused:
                write_description(config, env, str(meta["node"]), index, complete=False)
                break
            if (name, meta.get(name)) == ("log", LOG_FOLDER):
                raise Invalid(f"{directory} was made without --log and holds its own log: start it without --log again")
            raise Invalid(f"{directory} was made with {option} {meta.get(name)}, not {value}: start it with that again")
    if meta.get("index") != index:
        if not unused:
            raise Invalid(f"{directory} was made {_index_option(meta.get('index'))}: start it so again")
        write_description(config, env, str(meta["node"]), index, complete=False)
    return DirectoryClaim(lock, str(meta["node"]), index, complete)


def _index_option(index: object) -> str:
    return "without --index-storage" if index == SQLITE else f"with --index-storage {index}"


def read_description(files: Files, directory: str) -> dict[str, Any]:
    """Read what `meta` says (docs/formats/README.md).  Blocks.  Raises Invalid (damaged, or of another format)."""
    path = f"{directory}/meta"
    try:
        meta = dict(json.loads(read_whole(files, path)))
    except (ValueError, TypeError):
        raise Invalid(f"{path} is damaged: put it back from a backup, it says what is in {directory}") from None
    if meta.get("version") != META_VERSION:
        raise Invalid(f"{directory} is of format {meta.get('version')}; this version of Sarit reads {META_VERSION}")
    if meta.get("check") != check_of({name: value for name, value in meta.items() if name != "check"}):
        raise Invalid(f"{path} is damaged: put it back from a backup, it says what is in {directory}")
    return meta


def _require_pieces(config: NodeConfig, files: Files, claim: DirectoryClaim) -> None:
    """Raises Invalid."""
    directory = config.data_dir
    inside = config.storage_url is None
    missing = find_missing(
        files, directory, config.containers, chunks_inside=inside, index=claim.index, log_inside=config.log_url is None
    )
    if not missing:
        return
    if config.accept_data_loss:
        what = ", ".join(str(piece) for piece in missing)
        _log.warning("data loss accepted: %s is not complete: %s; what only it held is lost", directory, what)
    elif config.allow_damaged and all(piece.container is not None for piece in missing):
        claim.damaged = {piece.container: str(piece) for piece in missing if piece.container is not None}
    else:
        raise Invalid(refusal(directory, missing))


def write_description(config: NodeConfig, env: Env, node: str, index: str, *, complete: bool) -> str:
    """Write the description of the directory durably; returns `node`."""
    meta: dict[str, object] = {
        "version": META_VERSION,
        "node": node,
        "containers": config.containers,
        "storage": config.storage_url or CHUNKS_FOLDER,
        "index": index,
        "complete": complete,
    }
    if config.log_url is not None:
        meta["log"] = log_name(config.log_url)
    meta["check"] = check_of(meta)
    replace_whole(env.files, f"{config.data_dir}/meta", json.dumps(meta, indent=2).encode())
    return node


async def claim_long_term_storage(config: NodeConfig, env: Env, storage: ChunkStorage, claim: DirectoryClaim) -> None:
    """Check that long-term storage belongs to this node alone, and write the ownership token of this start.

    Raises Invalid, Unavailable (only before the owner chunk was written), OSError."""
    files, accept = env.files, config.accept_data_loss
    path = f"{config.data_dir}/{OWNER_CHUNK_WRITTEN}"
    marked = files.exists(path)
    written = marked or claim.complete
    token = env.random.bytes(TOKEN_CHARACTERS // 2).hex()
    try:
        if accept:
            await _adopt(config, env, storage, claim)
        # After a crash between owner chunk and file, the next start finds its own id there and goes on.
        await claim_owner_chunk(
            storage, claim.node, config.containers, written=written and not accept, new=not written and not accept
        )
        if not marked:
            # Create the file only after the owner chunk is durable: with this file a missing owner chunk is refused.
            files.open(path, "create").close()
            files.sync_dir(config.data_dir)
        # Writes the token last: only a place that is known to be this node's gets one.
        await _claim_start(files, config.data_dir, storage, token, accept_loss=accept)
    except Unavailable as error:
        if not written:
            raise
        # An outage must not keep a node down that has used this place before.
        _log.warning("long-term storage is unavailable; it belonged to this node at its last start: %s", error)
        tokens = f"{config.data_dir}/{LAST_START}"
        if not claim.complete and not files.exists(tokens):
            # No start of this node got as far as a token: its first one.  The directory is complete with the file.
            replace_whole(files, tokens, encode_tokens(next_tokens([], None, token)))


async def _adopt(config: NodeConfig, env: Env, storage: ChunkStorage, claim: DirectoryClaim) -> None:
    """With --accept-data-loss: say that the storage was lost, or take the node's id from it if that was lost.

    The id is taken only if `last-start` knows the newest token there, or if the storage is in the directory itself."""
    try:
        owner = await storage_owner(storage)
    except NotFound:
        if claim.complete:
            _log.warning("data loss accepted: long-term storage has no owner chunk: what only it held is lost")
        return
    inside = config.storage_url is None
    if owner != claim.node and not claim.described and (inside or env.files.exists(f"{config.data_dir}/{LAST_START}")):
        _log.warning("the node id %s is taken from long-term storage, as the description was missing", owner)
        claim.node = write_description(config, env, owner, claim.index, complete=False)


async def _claim_start(files: Files, directory: str, storage: ChunkStorage, token: str, *, accept_loss: bool) -> None:
    path = f"{directory}/{LAST_START}"
    try:
        known = decode_tokens(read_whole(files, path)) if files.exists(path) else []
    except Corrupt as error:
        raise Invalid(
            f"{path} is damaged ({error}), and a copy of this directory cannot be recognized: if there is none "
            "in use, delete this file, and the chunks node/start-* of long-term storage, and start again"
        ) from None
    newest = await newest_token(storage)
    if accept_loss and not known and newest is not None:
        _log.warning("the ownership tokens (%s) were missing: this directory is taken for the only copy", path)
        known = [newest]
    tokens = next_tokens(known, newest, token)
    # Write the file before the token: after a crash in between, this directory must know all tokens it has written.
    replace_whole(files, path, encode_tokens(tokens))
    await write_token(storage, tokens[-1])
    # Delete the old tokens after the new one is written, so that storage always holds a token of this directory.
    await delete_old_tokens(storage, tokens[-1])


def own_token(files: Files, directory: str) -> OwnershipToken:
    """Read the token of the newest start on a data directory that is claimed.  Blocks.  Raises Corrupt, Invalid."""
    return decode_tokens(read_whole(files, f"{directory}/{LAST_START}"))[-1]


# -- the owner chunk --------------------------------------------------------------------------


async def claim_owner_chunk(storage: ChunkStorage, node: str, containers: int, *, written: bool, new: bool) -> None:
    """Check that a place holds only chunks of the node with the id `node`.

    `written`: this node wrote the owner chunk before.  `new`: it never wrote any chunk.  Raises Invalid (the place
    belongs to another node, or is not the place it was), Unavailable."""
    assert len(node) == NODE_ID_CHARACTERS, node
    try:
        owner = await storage_owner(storage)
    except NotFound:
        if written:
            raise Invalid(
                "long-term storage does not hold this node's owner chunk any more: is it mounted, is it the same place?"
                " If it is lost for good, restore a backup into a new one"
            ) from None
        # Chunks without an owner chunk are not this node's.  A directory of an earlier version may own them: `new`
        # is false for it.
        if new and await _holds_chunks(storage, containers):
            raise Invalid(
                "long-term storage holds chunks that are not this node's: give it a place of its own with --storage, "
                "or start it on the data directory that they belong to"
            ) from None
        with suppress(Exists):  # another node wrote it first; the next read decides
            await storage.write(OWNER_CHUNK, [checked(node)])
        owner = await storage_owner(storage)
    if owner != node:
        raise Invalid(
            f"long-term storage belongs to the node {owner}, this is {node}: they would delete each other's chunks; "
            "give each a place of its own with --storage"
        )


async def storage_owner(storage: ChunkStorage) -> str:
    """Return the id that a place is marked with.  Raises NotFound (it is not), Invalid (the mark is damaged),
    Unavailable."""
    try:
        return await read_checked(storage, OWNER_CHUNK, NODE_ID_CHARACTERS)
    except Corrupt as error:
        raise Invalid(
            f"long-term storage has a damaged owner chunk ({error}): put {OWNER_CHUNK} back from a backup"
        ) from None


async def _holds_chunks(storage: ChunkStorage, containers: int) -> bool:
    """Return whether there is any chunk that this node would take for its own.  Other names are ignored."""
    for number in range(containers):
        async for _ in storage.list(container_prefix(number)):
            return True
    return False


async def check_ownership(storage: ChunkStorage, node: str, known: Sequence[OwnershipToken] | None) -> None:
    """Check what a start would check of long-term storage; changes nothing.

    `known`: the content of `last-start`; None when there is none, or it is damaged.  Raises Invalid, Unavailable."""
    await claim_owner_chunk(storage, node, 0, written=True, new=False)
    newest = await newest_token(storage)
    if known is not None:
        next_tokens(known, newest, "")
