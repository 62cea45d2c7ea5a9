"""What a node claims before it starts: its data directory and its place in long-term storage.

Two nodes that write to one place delete each other's chunks: both use the same chunk names, and each collects the
chunks it does not know.  Three claims prevent that.

1. *The data directory* is locked for the life of the process.
   It is also checked to be complete: see `pieces.py`.
2. *The owner chunk.*  The first node that uses a place in long-term storage writes its id to the chunk OWNER_CHUNK.
   Every start reads that chunk before it writes or collects anything.  A node that wrote its id once must find it
   again.  If it does not, this is not its storage: for example, a directory that is not mounted.
3. *Ownership tokens.*  A copy of a data directory has the node id of its original, so the owner chunk admits both.
   Therefore every start writes a token of its own to long-term storage: a chunk with a rising number in its name and a
   random token in it.  The data directory holds, in the file `last-start`, the tokens that it has written since the
   newest token it has seen there.  A token in storage that the directory does not know belongs to another copy
   (docs/decisions/0308).

`last-start` is written before the token chunk.  After a crash between the two, the directory knows a token that does
not exist in storage, which does no harm.  The reverse order would make a node refuse its own storage.
"""

from __future__ import annotations

import json
import logging
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Corrupt, Exists, Invalid, NotFound, Unavailable
from sarit.core.limits import MAX_UNSEEN_OWNERSHIP_TOKENS, RETAINED_OWNERSHIP_TOKENS
from sarit.env.own_directory import require_own_directory
from sarit.node.log_place import log_name
from sarit.node.pieces import (
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
from sarit.storage.names import container_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Env, File, Files
    from sarit.node.settings import NodeConfig
    from sarit.storage.port import ChunkStorage

_log = logging.getLogger("sarit.node")

META_VERSION: Final = 2

NODE_FOLDER: Final = "node"
OWNER_CHUNK: Final = f"{NODE_FOLDER}/owner"
NODE_ID_CHARACTERS: Final = 32

TOKENS_VERSION: Final = 1
TOKEN_CHARACTERS: Final = 32
# In long-term storage, CRC-32 in hexadecimal digits follows node id and token: neither chunk is named by the index.
_CHECK_CHARACTERS: Final = 8
_TOKEN_PREFIX: Final = f"{NODE_FOLDER}/start-"
_REMEDY: Final = (
    f"start the other one; or, if no other will ever be started again, delete {_TOKEN_PREFIX}* from long-term storage"
)


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
    """A new directory; or one that has lost its description, which is refused.  Raises Invalid."""
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
    """What `meta` says: see docs/formats/README.md.  Blocks.  Raises Invalid (damaged, or of another format)."""
    path = f"{directory}/meta"
    try:
        meta = dict(json.loads(_read(files, path)))
    except (ValueError, TypeError):
        raise Invalid(f"{path} is damaged: put it back from a backup, it says what is in {directory}") from None
    if meta.get("version") != META_VERSION:
        raise Invalid(f"{directory} is of format {meta.get('version')}; this version of Sarit reads {META_VERSION}")
    if meta.get("check") != _check({name: value for name, value in meta.items() if name != "check"}):
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
    meta["check"] = _check(meta)
    _replace_file(env.files, f"{config.data_dir}/meta", json.dumps(meta, indent=2).encode())
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
            # After the owner chunk is durable, never before: with this file a missing owner chunk is refused.
            files.open(path, "create").close()
            files.sync_dir(config.data_dir)
        # Last: only a place that is known to be this node's gets a token.
        await _claim_start(files, config.data_dir, storage, token, accept_loss=accept)
    except Unavailable as error:
        if not written:
            raise
        # An outage must not keep a node down that has used this place before.
        _log.warning("long-term storage is unavailable; it belonged to this node at its last start: %s", error)
        tokens = f"{config.data_dir}/{LAST_START}"
        if not claim.complete and not files.exists(tokens):
            # No start of this node got as far as a token: its first one.  The directory is complete with the file.
            _replace_file(files, tokens, encode_tokens(next_tokens([], None, token)))


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
        known = decode_tokens(_read(files, path)) if files.exists(path) else []
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
    # The file first: after a crash in between, this directory must know every token that it may have written.
    _replace_file(files, path, encode_tokens(tokens))
    await write_token(storage, tokens[-1])
    # After the new one is there: storage holds a token of this directory at any moment.
    await delete_old_tokens(storage, tokens[-1])


def _read(files: Files, path: str) -> bytes:
    file = files.open(path, "read")
    try:
        return bytes(file.pread(file.size(), 0))
    finally:
        file.close()


def _replace_file(files: Files, path: str, data: bytes) -> None:
    """Replace a file atomically; durable when this returns.

    A temporary file of an earlier attempt is removed, not reused: its sync may have failed."""
    temporary = path + ".new"
    # Left by a crash or an error.
    if files.exists(temporary):
        files.remove(temporary)
    file = files.open(temporary, "create")
    try:
        file.pwrite([data], 0)
        file.datasync()
    finally:
        file.close()
    # Content first, then the name, then the directory: a reader finds the old file or the whole new one.
    files.rename(temporary, path)
    files.sync_dir(path.rpartition("/")[0])


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
            ) from None
        # Chunks without an owner chunk are not this node's.  A directory of an earlier version may own them: `new`
        # is false for it.
        if new and await _holds_chunks(storage, containers):
            raise Invalid(
                "long-term storage holds chunks that are not this node's: give it a place of its own with --storage, "
                "or start it on the data directory that they belong to"
            ) from None
        with suppress(Exists):  # another node wrote it first; the next read decides
            await storage.write(OWNER_CHUNK, [_checked(node)])
        owner = await storage_owner(storage)
    if owner != node:
        raise Invalid(
            f"long-term storage belongs to the node {owner}, this is {node}: they would delete each other's chunks; "
            "give each a place of its own with --storage"
        )


async def storage_owner(storage: ChunkStorage) -> str:
    """The id that a place is marked with.  Raises NotFound (it is not), Invalid (the mark is damaged), Unavailable."""
    try:
        return await _read_checked(storage, OWNER_CHUNK, NODE_ID_CHARACTERS)
    except Corrupt as error:
        raise Invalid(
            f"long-term storage has a damaged owner chunk ({error}): put {OWNER_CHUNK} back from a backup"
        ) from None


def _checked(text: str) -> bytes:
    return f"{text}{zlib.crc32(text.encode()):08x}".encode()


async def _read_checked(storage: ChunkStorage, name: str, characters: int) -> str:
    """The text that `_checked` wrote.  Raises Corrupt, NotFound, Unavailable."""
    try:
        content = bytes(await storage.read(name, 0, characters + _CHECK_CHARACTERS))
    except Corrupt:  # shorter
        # Versions before 2026-11-23 wrote the text alone.
        return bytes(await storage.read(name, 0, characters)).decode("ascii", "replace")
    text = content[:characters].decode("ascii", "replace")
    if content != _checked(text):
        raise Corrupt("its checksum does not match")
    return text


async def _holds_chunks(storage: ChunkStorage, containers: int) -> bool:
    """Whether there is any chunk that this node would take for its own.  Other names are ignored."""
    for number in range(containers):
        async for _ in storage.list(container_prefix(number)):
            return True
    return False


# -- ownership tokens -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class OwnershipToken:
    """The token of one start."""

    number: int
    token: str

    @property
    def name(self) -> str:
        """The name of its chunk."""
        return f"{_TOKEN_PREFIX}{self.number:012d}"


def encode_tokens(tokens: Sequence[OwnershipToken]) -> bytes:
    """The content of `last-start`."""
    marks = [[token.number, token.token] for token in tokens]
    return json.dumps({"version": TOKENS_VERSION, "marks": marks, "check": _check(marks)}).encode() + b"\n"


def decode_tokens(data: bytes) -> list[OwnershipToken]:
    """`encode_tokens` inverted.  Raises Corrupt, Invalid (a newer version)."""
    try:
        content = json.loads(data)
        version, marks, check = content["version"], content.get("marks"), content.get("check")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Corrupt("it is not a list of ownership tokens") from None
    if version != TOKENS_VERSION:
        raise Invalid(f"last-start is of format {version}; this version of Sarit reads {TOKENS_VERSION}")
    if not marks or check != _check(marks):
        raise Corrupt("its checksum does not match")
    return [OwnershipToken(int(number), str(token)) for number, token in marks]


def _check(marks: object) -> str:
    return f"{zlib.crc32(json.dumps(marks).encode()):08x}"


async def newest_token(storage: ChunkStorage) -> OwnershipToken | None:
    """The token of the latest start, if any.  Raises Unavailable, Invalid (it is damaged)."""
    numbers = await _token_numbers(storage)
    return await _read_token(storage, numbers[-1]) if numbers else None


def next_tokens(known: Sequence[OwnershipToken], found: OwnershipToken | None, token: str) -> list[OwnershipToken]:
    """The tokens that `last-start` must hold for the next start, the new token last.

    `known`: its present content.  `found`: the newest token in long-term storage.  Raises Invalid when `found` belongs
    to another copy."""
    retained = list(known)
    if found is not None:
        # A listing may be stale and show a token older than all known ones: that proves nothing.
        if found not in retained and not (retained and found.number < retained[0].number):
            raise Invalid(f"another copy of this data directory was started on its long-term storage since: {_REMEDY}")
        retained = [entry for entry in retained if entry.number >= found.number]
    # The first is the newest token seen in storage, if any; the others may have been written (unknown outcome).
    number = retained[-1].number if retained else 0
    return [*retained[:1], *retained[1:][-MAX_UNSEEN_OWNERSHIP_TOKENS:], OwnershipToken(number + 1, token)]


async def write_token(storage: ChunkStorage, token: OwnershipToken) -> None:
    """Write the token of this start.  Raises Unavailable (unknown outcome), Invalid (another copy was first)."""
    with suppress(Exists):  # a request that was sent twice, or another copy's token: the read below decides
        await storage.write(token.name, [_checked(token.token)])
    if await _read_token(storage, token.number) != token:
        raise Invalid(f"another copy of this data directory starts on its long-term storage: {_REMEDY}")


async def check_ownership(storage: ChunkStorage, node: str, known: Sequence[OwnershipToken] | None) -> None:
    """Check what a start would check of long-term storage; changes nothing.

    `known`: the content of `last-start`; None when there is none, or it is damaged.  Raises Invalid, Unavailable."""
    await claim_owner_chunk(storage, node, 0, written=True, new=False)
    newest = await newest_token(storage)
    if known is not None:
        next_tokens(known, newest, "")


async def delete_old_tokens(storage: ChunkStorage, newest: OwnershipToken) -> None:
    """Delete the tokens of old starts.  RETAINED_OWNERSHIP_TOKENS stay, for a copy that reads a stale listing."""
    with suppress(Unavailable):  # the next start tries again
        for number in await _token_numbers(storage):
            if number <= newest.number - RETAINED_OWNERSHIP_TOKENS:
                await storage.delete(OwnershipToken(number, "").name)


async def _token_numbers(storage: ChunkStorage) -> list[int]:
    found = []
    async for name, _ in storage.list(NODE_FOLDER):
        number = name.removeprefix(_TOKEN_PREFIX)
        if number != name and number.isdecimal():
            found.append(int(number))
    return sorted(found)


async def _read_token(storage: ChunkStorage, number: int) -> OwnershipToken | None:
    name = OwnershipToken(number, "").name
    try:
        token = await _read_checked(storage, name, TOKEN_CHARACTERS)
    except NotFound:
        return None  # deleted, but the listing is stale
    except Corrupt as error:
        raise Invalid(
            f"long-term storage has a damaged ownership token ({error}): delete {name}, if no other copy of this data "
            "directory is in use"
        ) from None
    return OwnershipToken(number, token)
