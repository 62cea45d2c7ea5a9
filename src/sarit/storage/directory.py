"""Chunks as files of a directory: a local disk, or a mounted network file system.

Theory of operation.  Chunk `a/b/c` is the file `ROOT/a/b/c.chunk`; the suffix tells chunks from
folders and from foreign files.  A write goes to a temporary name
(`storage/chunk_file.py`, `storage/incoming.py`), is synced, renamed, and its folder synced, before it returns.  Writes
and reads have threads of their own, so that a read does not queue behind a write; readers
keep files open.

Warnings.  (1) A large write followed by one fdatasync holds up every other fdatasync of the
disk, the log's above all: 16 to 21 ms at p95 for 32 MiB here.  So a chunk is written in pieces,
each synced by itself; the caller's `limiter` says when and how large (docs/decisions/0201).
(2) After a failed write or sync the file is closed and removed, never tried again: the caller
writes another chunk.  (3) When the directory was unmounted, a chunk that is "not there" is not
gone: the claim in `.incoming/` is looked for before NotFound is said, and nothing is written
without it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.core.errors import Corrupt, Exists, NotFound, Unavailable
from sarit.core.limits import CHUNK_PIECE_BYTES
from sarit.storage.chunk_file import ChunkFile, Pieces
from sarit.storage.incoming import Claim, claim, sweep
from sarit.storage.names import check_name, check_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer, Env, File, Files, Worker
    from sarit.storage.port import WriteLimiter

T = TypeVar("T")

SUFFIX: Final = ".chunk"
WRITERS: Final = 3
READERS: Final = 3
MAX_OPEN_FILES_PER_READER: Final = 64
_LISTED_AT_ONCE: Final = 256


def _nothing() -> None:
    pass


def unavailable(error: OSError, doing: str) -> Unavailable:
    """What an error of the operating system means to the caller."""
    return Unavailable(f"{doing}: {error}")


# -- what runs on the threads: raises OSError and the kinds of core.errors -----------------------


def entries_of(files: Files, root: str, folder: str) -> list[str]:
    """Chunks and folders (with a final "/") in `folder`, the last by name first."""
    found = []
    for entry in files.list(f"{root}/{folder}".rstrip("/")):
        if entry.startswith("."):
            continue
        chunk = entry.removesuffix(SUFFIX)
        found.append(f"{folder}{entry}/" if chunk == entry else folder + chunk)
    return sorted(found, reverse=True)


def sizes_of(files: Files, root: str, names: Sequence[str]) -> list[tuple[str, int]]:
    """Names and lengths of those chunks that are there."""
    found = []
    for name in names:
        try:
            file = files.open(f"{root}/{name}{SUFFIX}", "read")
        except FileNotFoundError:
            continue  # Deleted meanwhile.
        try:
            found.append((name, file.size()))
        finally:
            file.close()
    return found


class _Lane:
    """A worker, and how many calls it has yet to finish."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.load = 0

    def run(self, call: Callable[[], T], after: Callable[[], None] = _nothing) -> asyncio.Future[T]:
        """`call` on the thread; `after` on the loop when it has ended, though nobody waits any more."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.load += 1

        def done(result: T | None, error: BaseException | None) -> None:
            self.load -= 1
            after()
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        self.worker.submit(call, done)
        return future


def _load(lane: _Lane) -> int:
    return lane.load


class _Reader(_Lane):
    """A lane with files open for reading, the least recently used closed first."""

    def __init__(self, worker: Worker, files: Files, limit: int) -> None:
        super().__init__(worker)
        self._files = files
        self._limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()

    def read(self, path: str, offset: int, length: int) -> Buffer:
        """On the thread: up to `length` bytes."""
        file = self._open.get(path)
        if file is None:
            file = self._files.open(path, "scan")
            self._open[path] = file
            if len(self._open) > self._limit:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(path)
        try:
            return file.scan(length, offset)
        except OSError:
            self.forget(path)
            raise

    def forget(self, path: str) -> None:
        """On the thread: close the file if it is open."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def forget_all(self) -> None:
        """On the thread: close every file."""
        while self._open:
            self._open.popitem()[1].close()


# -- the port -------------------------------------------------------------------------------------


class DirectoryChunks:
    """Chunks under `root`; made by `open_directory`."""

    def __init__(self, root: str, env: Env, *, writers: int, readers: int, open_files: int) -> None:
        self._root = root
        self._files = env.files
        self._random = env.random
        worker = env.threads.worker
        self._writers = [_Lane(worker(f"chunk-write-{at}")) for at in range(writers)]
        self._readers = [_Reader(worker(f"chunk-read-{at}"), env.files, open_files) for at in range(readers)]
        self._claim: Claim | None = None
        self._being_written: set[str] = set()

    def __repr__(self) -> str:
        loads = [lane.load for lane in (*self._writers, *self._readers)]
        return f"<DirectoryChunks {self._root} {'open' if self._claim else 'closed'} loads {loads}>"

    async def start(self) -> None:
        """Make the directory where it is missing, claim a part of it, sweep.  Raises Unavailable."""

        def call() -> Claim:
            ours = claim(self._files, self._root, self._random)
            sweep(self._files, self._root)
            return ours

        try:
            self._claim = await self._writers[0].run(call)
        except OSError as error:
            raise unavailable(error, f"chunk directory {self._root}") from error

    async def write(self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None) -> None:
        """See `ChunkStorage`."""
        folder, target = self._paths(name)
        chunk = ChunkFile(self._files, self._require().next_path(), folder, target)
        if name in self._being_written:
            raise Exists(f"chunk {name} is being written")
        self._being_written.add(name)
        pieces = Pieces(parts)
        lane = min(self._writers, key=_load)
        lane.load += 1
        try:
            size = CHUNK_PIECE_BYTES if limiter is None or not pieces.left else await limiter(pieces.left)
            if size >= pieces.left:
                # A thousand segments that grow slowly make hundreds of these a second: each hand-over counts.
                await lane.run(partial(chunk.write, pieces.take(size)))
            else:
                await lane.run(chunk.begin)
                while pieces.left:
                    await lane.run(partial(chunk.add, pieces.take(size)))
                    if limiter is not None and pieces.left:
                        size = await limiter(pieces.left)
                await lane.run(chunk.finish)
        except BaseException as error:
            chunk.cancelled = True
            # Queued behind what the thread still does for a caller that was cancelled; the name is free after it.
            abandoned = lane.run(chunk.abandon, partial(self._being_written.discard, name))
            if not isinstance(error, Exception):
                raise
            await abandoned
            if isinstance(error, OSError):
                raise unavailable(error, f"write chunk {name}") from error
            raise
        finally:
            lane.load -= 1
        self._being_written.discard(name)

    async def read(self, name: str, offset: int, length: int) -> Buffer:
        """See `ChunkStorage`."""
        _, path = self._paths(name)
        self._require()
        reader = min(self._readers, key=_load)
        data = await self._on(reader, partial(reader.read, path, offset, length), f"read chunk {name}")
        if len(data) != length:
            raise Corrupt(f"chunk {name} has {offset + len(data)} bytes, not {offset + length}")
        return data

    async def delete(self, name: str) -> None:
        """See `ChunkStorage`."""
        folder, path = self._paths(name)
        self._require()

        def call() -> None:
            self._files.remove(path)
            self._files.sync_dir(folder)

        with suppress(NotFound):
            await self._on(min(self._writers, key=_load), call, f"delete chunk {name}")
        for reader in self._readers:
            await reader.run(partial(reader.forget, path))

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """See `ChunkStorage`."""
        check_prefix(prefix)
        self._require()
        # What is still to be shown, the next at the end; folders end with "/" ("" is the root).
        pending = [f"{prefix}/" if prefix else ""]
        while pending:
            at = pending.pop()
            if not at or at.endswith("/"):
                with suppress(NotFound):  # A folder nobody wrote to, or a file that is not ours.
                    pending.extend(
                        await self._on(self._lister(), partial(entries_of, self._files, self._root, at), "list chunks")
                    )
                continue
            group = [at]
            while pending and len(group) < _LISTED_AT_ONCE and not pending[-1].endswith("/"):
                group.append(pending.pop())
            for name, length in await self._on(
                self._lister(), partial(sizes_of, self._files, self._root, group), "list chunks"
            ):
                yield name, length

    async def close(self) -> None:
        """See `ChunkStorage`."""
        ours, self._claim = self._claim, None
        for reader in self._readers:
            if ours is not None:
                await reader.run(reader.forget_all)
        if ours is not None:
            for lane in self._writers:  # what they still do for callers that were cancelled needs the claim
                await lane.run(_nothing)
            await self._writers[0].run(ours.release)
        for lane in (*self._readers, *self._writers):
            await lane.worker.close()

    async def _on(self, lane: _Lane, call: Callable[[], T], doing: str) -> T:
        """`call` on a thread; NotFound when what it looked for is not there."""
        try:
            return await lane.run(call)
        except (FileNotFoundError, NotADirectoryError) as error:
            await self._still_there()
            raise NotFound(f"{doing}: not there") from error
        except OSError as error:
            raise unavailable(error, doing) from error

    def _lister(self) -> _Lane:
        return min(self._readers, key=_load)

    async def _still_there(self) -> None:
        """Raises Unavailable when the whole directory went away."""
        ours = self._require()
        if not await self._readers[0].run(ours.stands):
            raise Unavailable(f"chunk directory {self._root} is gone: was it unmounted?")

    def _require(self) -> Claim:
        if self._claim is None:
            raise Unavailable(f"chunk directory {self._root} is closed")
        return self._claim

    def _paths(self, name: str) -> tuple[str, str]:
        """(folder, file) of a chunk.  Raises Invalid."""
        check_name(name)
        folder, _, _ = f"{self._root}/{name}".rpartition("/")
        return folder, f"{self._root}/{name}{SUFFIX}"


async def open_directory(
    root: str,
    env: Env,
    *,
    writers: int = WRITERS,
    readers: int = READERS,
    open_files: int = MAX_OPEN_FILES_PER_READER,
) -> DirectoryChunks:
    """Open the chunks under the absolute path `root`.  Raises Unavailable."""
    chunks = DirectoryChunks(root, env, writers=writers, readers=readers, open_files=open_files)
    try:
        await chunks.start()
    except BaseException:
        await chunks.close()
        raise
    return chunks
