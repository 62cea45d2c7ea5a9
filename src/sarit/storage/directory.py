"""Chunks as files of a directory: a local disk, or a mounted network file system.

Theory of operation.  Chunk `a/b/c` is the file `ROOT/a/b/c.chunk`; the suffix distinguishes chunks from folders and
from other files.  A write goes to a temporary file (`storage/chunk_file.py`, `storage/incoming_files.py`); before it
returns, the file is synced and renamed and its folder synced.  Writes and reads have threads of their own, so that a
read does not queue after a write.  Reader threads cache open files.

Warnings.  (1) A large write followed by one fdatasync delays every other fdatasync of the disk, above all the log's:
measured 16 to 21 ms at p95 for 32 MiB.  So a chunk is written in pieces that are synced one by one; the caller's
`limiter` decides when each is written, and its size (docs/internals/tuning.md).  (2) After a failed write or sync the
file is closed and removed, and never retried: its content is undefined, and the caller writes another chunk.  (3) When
the directory was unmounted, chunks are missing but not deleted.  So the claim in `.incoming/` is checked before
NotFound is raised, and no chunk is written without it.
"""

from __future__ import annotations

import asyncio
import errno
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.core.errors import Corrupt, Exists, NotFound, Unavailable
from sarit.env.own_directory import require_own_directory
from sarit.storage.checksums import too_short
from sarit.storage.chunk_file import ChunkFile, Pieces
from sarit.storage.incoming_files import INCOMING, Claim, claim, sweep
from sarit.storage.limits import CHUNK_PIECE_BYTES
from sarit.storage.names import check_name, check_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer, Env, File, Files, Worker
    from sarit.storage.port import Check, Observe, WriteLimiter

T = TypeVar("T")

SUFFIX: Final = ".chunk"
WRITERS: Final = 3
READERS: Final = 3
MAX_OPEN_FILES_PER_READER: Final = 64
_SIZES_PER_CALL: Final = 256


def _nothing() -> None:
    pass


def unavailable(error: OSError, doing: str) -> Unavailable:
    """Return the port's error for an error of the operating system."""
    return Unavailable(f"{doing}: {error}")


# -- calls on the threads, which raise OSError and the errors of core.errors ----------------------


def entries_of(files: Files, root: str, folder: str) -> list[str]:
    """Return the chunks and folders (with a final "/") in `folder`, in descending order of name."""
    found = []
    for entry in files.list(f"{root}/{folder}".rstrip("/")):
        if entry.startswith("."):
            continue
        chunk = entry.removesuffix(SUFFIX)
        found.append(f"{folder}{entry}/" if chunk == entry else folder + chunk)
    return sorted(found, reverse=True)


def sizes_of(files: Files, root: str, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the names and lengths of those of the chunks that exist."""
    found = []
    for name in names:
        try:
            file = files.open(f"{root}/{name}{SUFFIX}", "read")
        except FileNotFoundError:
            continue  # the chunk was deleted meanwhile
        try:
            found.append((name, file.size()))
        finally:
            file.close()
    return found


class _Thread:
    """A thread, and the number of its calls that have not ended."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.load = 0

    def run(self, call: Callable[[], T], after: Callable[[], None] = _nothing) -> asyncio.Future[T]:
        """Run `call` on the thread, then `after` on the event loop, even if the caller was cancelled meanwhile."""
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


def _load(thread: _Thread) -> int:
    return thread.load


def _reader_load(reader: _Reader) -> int:
    return reader.thread.load


class _Reader:
    """A thread for reads with a cache of open files; the least recently used are closed first."""

    def __init__(self, worker: Worker, files: Files, limit: int) -> None:
        self.thread = _Thread(worker)
        self._files = files
        self._limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()

    def read(self, name: str, path: str, offset: int, length: int, check: Check | None) -> Buffer:
        """Return exactly `length` bytes, checked by `check`.  Runs on the thread."""
        file = self._open.get(path)
        cached = file is not None
        if file is None:
            file = self._files.open(path, "scan")
            # Keep the file open, since chunks never change; `delete` closes it.
            self._open[path] = file
            if len(self._open) > self._limit:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(path)
        try:
            data = file.scan(length, offset)
            if len(data) != length:
                raise too_short(name, offset + len(data), offset + length)
            if check is not None:
                check(data)
            return data
        except (OSError, Corrupt) as error:
            # Let the next read open the file again, which may have been restored meanwhile.
            self.forget(path)
            # Open the file again if the NFS server was replaced, or another machine deleted the file.
            if cached and isinstance(error, OSError) and error.errno == errno.ESTALE:
                return self.read(name, path, offset, length, check)
            raise

    def forget(self, path: str) -> None:
        """Close the file if it is open.  Runs on the thread."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def forget_all(self) -> None:
        """Close every file.  Runs on the thread."""
        while self._open:
            self._open.popitem()[1].close()


# -- the port -------------------------------------------------------------------------------------


class DirectoryChunks:
    """The chunks in the directory `root`; `open_directory` makes this object."""

    def __init__(self, root: str, env: Env, *, writers: int, readers: int, open_files: int) -> None:
        self._root = root
        self._files = env.files
        self._random = env.random
        worker = env.threads.worker
        self._writers = [_Thread(worker(f"chunk-write-{at}")) for at in range(writers)]
        self._readers = [_Reader(worker(f"chunk-read-{at}"), env.files, open_files) for at in range(readers)]
        self._claim: Claim | None = None
        self._being_written: set[str] = set()

    def __repr__(self) -> str:
        loads = [thread.load for thread in self._threads()]
        return f"<DirectoryChunks {self._root} {'open' if self._claim else 'closed'} loads {loads}>"

    async def start(self) -> None:
        """Create the directory if it is missing, claim it, and remove the files of dead claims.

        Raises Invalid (it holds files that are not Sarit's), Unavailable."""

        def call() -> Claim:
            require_own_directory(self._files, self._root, self._is_own)
            # Claim before the sweep, which skips this claim because its lock is taken.
            ours = claim(self._files, self._root, self._random)
            sweep(self._files, self._root)
            return ours

        try:
            self._claim = await self._writers[0].run(call)
        except OSError as error:
            raise unavailable(error, f"chunk directory {self._root}") from error

    def _is_own(self, names: Sequence[str]) -> bool:
        """Return whether the root was opened before, or has chunks that were copied to it without `.incoming`."""
        if INCOMING in names:
            return True
        # Look for a chunk in a folder: a new storage gets its ownership token as the first chunk.
        return any(chunk.endswith(SUFFIX) for name in names for chunk in self._inside(name))

    def _inside(self, name: str) -> list[str]:
        try:
            return self._files.list(f"{self._root}/{name}")
        except OSError:  # the name is of a file, or of a folder that cannot be read
            return [name]

    async def write(
        self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None, observe: Observe | None = None
    ) -> None:
        folder, target = self._paths(name)
        chunk = ChunkFile(self._files, self._require().next_path(), folder, target, observe)
        if name in self._being_written:
            raise Exists(f"chunk {name} is being written")
        self._being_written.add(name)
        pieces = Pieces(parts)
        # Send all pieces to one thread, in order.  The whole write counts as load, also while the limiter waits.
        thread = min(self._writers, key=_load)
        thread.load += 1
        try:
            size = CHUNK_PIECE_BYTES if limiter is None or not pieces.left else await limiter(pieces.left)
            if size >= pieces.left:
                # Use one call instead of three, since a thousand slow segments make hundreds of small chunks a second.
                await thread.run(partial(chunk.write, pieces.take(size)))
            else:
                await thread.run(chunk.begin)
                # Cut the pieces on the event loop; the views refer to the caller's buffers until a piece is written.
                while pieces.left:
                    await thread.run(partial(chunk.add, pieces.take(size)))
                    if limiter is not None and pieces.left:
                        size = await limiter(pieces.left)
                await thread.run(chunk.finish)
        except BaseException as error:
            chunk.cancelled = True
            # Remove the file after the calls that the thread still has for this write; then the name is free again.
            abandoned = thread.run(chunk.abandon, partial(self._being_written.discard, name))
            if not isinstance(error, Exception):
                raise
            # Wait for the removal after an error, so that the name is free when this raises, not after a cancellation.
            await abandoned
            if isinstance(error, OSError):
                raise unavailable(error, f"write chunk {name}") from error
            raise
        finally:
            thread.load -= 1
        self._being_written.discard(name)

    async def read(self, name: str, offset: int, length: int, check: Check | None = None) -> Buffer:
        _, path = self._paths(name)
        self._require()
        # Choose the least loaded reader: several may have the same file open.
        reader = min(self._readers, key=_reader_load)
        call = partial(reader.read, name, path, offset, length, check)
        return await self._on(reader.thread, call, f"read chunk {name}")

    async def delete(self, name: str) -> None:
        folder, path = self._paths(name)
        self._require()

        def call() -> None:
            self._files.remove(path)
            self._files.sync_dir(folder)

        with suppress(NotFound):
            await self._on(min(self._writers, key=_load), call, f"delete chunk {name}")
        for reader in self._readers:
            # Close the file, whose open descriptor would retain its blocks and serve the deleted chunk.
            await reader.thread.run(partial(reader.forget, path))

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        check_prefix(prefix)
        self._require()
        # `pending` is a stack of entries to list, the next one last; folders end with "/" ("" is the root).
        pending = [f"{prefix}/" if prefix else ""]
        while pending:
            at = pending.pop()
            if not at or at.endswith("/"):
                with suppress(NotFound):  # the folder was removed, or is a file that is no chunk
                    pending.extend(
                        await self._on(self._lister(), partial(entries_of, self._files, self._root, at), "list chunks")
                    )
                continue
            # Ask for the sizes of adjacent names in one call of the thread.
            group = [at]
            while pending and len(group) < _SIZES_PER_CALL and not pending[-1].endswith("/"):
                group.append(pending.pop())
            for name, length in await self._on(
                self._lister(), partial(sizes_of, self._files, self._root, group), "list chunks"
            ):
                yield name, length

    async def close(self) -> None:
        # Without a claim, new calls fail from here on.
        ours, self._claim = self._claim, None
        for reader in self._readers:
            if ours is not None:
                await reader.thread.run(reader.forget_all)
        if ours is not None:
            for thread in self._writers:  # wait for calls of cancelled callers, which need the claim
                await thread.run(_nothing)
            await self._writers[0].run(ours.release)
        for thread in self._threads():
            await thread.worker.close()

    def _threads(self) -> tuple[_Thread, ...]:
        return (*(reader.thread for reader in self._readers), *self._writers)

    async def _on(self, thread: _Thread, call: Callable[[], T], doing: str) -> T:
        """Run `call` on a thread, and map its errors.  Raises NotFound when a file is missing, Unavailable."""
        try:
            return await thread.run(call)
        except (FileNotFoundError, NotADirectoryError) as error:
            # A missing file proves nothing if the whole directory is gone.
            await self._require_mounted()
            raise NotFound(f"{doing}: it does not exist") from error
        except OSError as error:
            raise unavailable(error, doing) from error

    def _lister(self) -> _Thread:
        return min(self._readers, key=_reader_load).thread

    async def _require_mounted(self) -> None:
        """Check that the directory is still there.  Raises Unavailable."""
        ours = self._require()
        if not await self._readers[0].thread.run(ours.is_mounted):
            raise Unavailable(f"chunk directory {self._root} is missing: was it unmounted?")

    def _require(self) -> Claim:
        if self._claim is None:
            raise Unavailable(f"chunk directory {self._root} is closed")
        return self._claim

    def _paths(self, name: str) -> tuple[str, str]:
        """Return the folder and the file of a chunk.  Raises Invalid."""
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
    """Open the chunks under the absolute path `root`.  Raises Invalid (it is not Sarit's), Unavailable."""
    chunks = DirectoryChunks(root, env, writers=writers, readers=readers, open_files=open_files)
    try:
        await chunks.start()
    except BaseException:
        await chunks.close()
        raise
    return chunks
