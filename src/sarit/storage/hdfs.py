"""Chunks as files of HDFS, through hdfs-native, without a JVM in the process.

Chunk `a/b/c` is the file `ROOT/a/b/c.chunk`.  A write goes to a file of a random name in `ROOT/.incoming`, which is
synced, closed and then renamed without overwriting: so a chunk appears with all its bytes, and only once.  The client's
synchronous calls run on threads, because its asynchronous ones panic when they have to repeat a call.  A call that does
not reach the namenode is repeated for a few seconds (`_CONFIG`), then it fails.  Other settings come from the files of
Hadoop in HADOOP_CONF_DIR, if there are any.

Warnings.  (1) A rename that the client repeats after it took effect does not find its source: the outcome is unknown,
so it raises Unavailable, like every other failure.  (2) Files that an ended process left in `.incoming` are deleted a
day later, when the storage is opened.  (3) The rate limiter is ignored, since HDFS does not share a disk with the log.
(4) The client waits without an end for a namenode or datanode that hangs.  So the caller gives up after
HDFS_CALL_SECONDS, and another thread replaces the one that hangs, MAX_THREADS in all.  A write that such a call makes
in the end is a late write (`storage/port.py`).
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import hdfs_native

from sarit.core.errors import Corrupt, Exists, Invalid, NotFound, SaritError, Unavailable
from sarit.env.background import gather
from sarit.storage.checksums import too_short
from sarit.storage.limits import (
    CLAIM_NAME_BYTES,
    HDFS_ABANDONED_WRITE_MS,
    HDFS_CALL_SECONDS,
    HDFS_CLOSE_SECONDS,
    HDFS_PIECE_BYTES,
)
from sarit.storage.names import check_name, check_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer, Env, Worker
    from sarit.storage.port import Check, Observe, WriteLimiter

T = TypeVar("T")

SUFFIX: Final = ".chunk"
THREADS: Final = 6
MAX_THREADS: Final = 12
_INCOMING: Final = ".incoming"
_CONFIG: Final = {
    # By default the client retries for minutes, without an error for the caller.
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "2000",
}


def map_error(error: BaseException, doing: str) -> SaritError:
    """Return the port's error for an error of hdfs-native; no other function maps these."""
    text = f"{doing}: {str(error).partition(chr(10))[0]}"
    if isinstance(error, FileExistsError):
        return Exists(text)
    if "SafeMode" in str(error):
        return Unavailable(
            f"{doing}: HDFS is in safe mode, which takes no writes: wait until it has left it (`hdfs dfsadmin "
            "-safemode get`)"
        )
    if "AccessControlException" in str(error) or isinstance(error, PermissionError):
        return Unavailable(
            f"{doing}: HDFS refuses that: may this user (HADOOP_USER_NAME) write to the folder? ({text})"
        )
    return NotFound(text) if isinstance(error, FileNotFoundError) else Unavailable(text)


class _Thread:
    """A thread, its calls that have not ended, and those of them for which nobody waits any more."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        # The numbers of the calls that have not ended; the thread removes them.
        self.unfinished: set[int] = set()
        self.given_up: set[int] = set()

    def hangs(self) -> bool:
        """Return whether the thread still runs a call that lasts too long."""
        self.given_up &= self.unfinished
        return bool(self.given_up)


class HdfsChunks:
    """The chunks below `root` of the file system to which `client` is connected; `open_hdfs` makes this object."""

    def __init__(self, client: Any, root: str, place: str, env: Env) -> None:
        self._client = client
        self._root = root
        self._place = place
        self._env = env
        self._numbers = itertools.count()
        self._threads = [self._new_thread(number) for number in range(THREADS)]
        self._closed = False

    def __repr__(self) -> str:
        return f"<HdfsChunks {self._place}{' closed' if self._closed else ''}>"

    async def start(self) -> None:
        """Create the folder if it is missing, and delete files that ended processes left.

        Raises Unavailable, Invalid."""
        incoming, oldest = f"{self._root}/{_INCOMING}", self._env.clock.wall_ms() - HDFS_ABANDONED_WRITE_MS

        def call() -> None:
            self._client.mkdirs(incoming, create_parent=True)
            for status in self._client.list_status(incoming):
                if not status.isdir and status.modification_time < oldest:
                    self._client.delete(status.path)

        await self._run(call, f"open {self._place}")

    async def write(
        self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None, observe: Observe | None = None
    ) -> None:
        check_name(name)
        unique = self._env.random.bytes(CLAIM_NAME_BYTES).hex()
        temporary, path = f"{self._root}/{_INCOMING}/{unique}", f"{self._root}/{name}{SUFFIX}"

        def call() -> None:
            try:
                self._write(temporary, parts, observe)
                self._client.mkdirs(path.rpartition("/")[0], create_parent=True)
                self._client.rename(temporary, path, overwrite=False)
            except BaseException:
                with suppress(Exception):  # otherwise a start a day later deletes the file
                    self._client.delete(temporary)
                raise

        try:
            await self._run(call, f"write chunk {name} to {self._place}")
        except NotFound as error:  # the source of the rename is gone: renamed by an earlier attempt, or deleted
            raise Unavailable(str(error)) from error

    async def read(self, name: str, offset: int, length: int, check: Check | None = None) -> Buffer:
        check_name(name)
        if not length:
            self._require()
            return b""

        def call() -> bytes:
            file = self._client.read(f"{self._root}/{name}{SUFFIX}")
            if len(file) < offset + length:
                raise too_short(name, len(file), offset + length)
            data = bytes(file.read_range(offset, length))
            if len(data) != length:
                raise OSError(f"{len(data)} of {length} bytes came")
            if check is not None:
                check(data)
            return data

        return await self._run(call, f"read chunk {name} of {self._place}")

    async def delete(self, name: str) -> None:
        check_name(name)
        with suppress(NotFound):
            await self._run(
                lambda: self._client.delete(f"{self._root}/{name}{SUFFIX}"), f"delete chunk {name} of {self._place}"
            )

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """List the chunks of a folder, which is read whole before the first name."""
        check_prefix(prefix)
        folder = f"{self._root}/{prefix}".rstrip("/")

        def call() -> list[tuple[str, int]]:
            found = []
            for status in self._client.list_status(folder, recursive=True):
                name = _path_of(status.path).removeprefix(f"{self._root}/")
                if not status.isdir and name.endswith(SUFFIX) and not name.startswith("."):
                    found.append((name.removesuffix(SUFFIX), status.length))
            return sorted(found)

        try:
            found = await self._run(call, f"list chunks of {self._place}")
        except NotFound:
            # A missing folder below the root has no chunks.  A missing root is an error, since `start` has made it.
            if not prefix:
                raise Unavailable(f"list chunks of {self._place}: the folder is gone") from None
            return
        for entry in found:
            yield entry

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            with suppress(
                TimeoutError
            ):  # a thread that waits for a namenode that hangs; threads do not hold up the exit
                async with asyncio.timeout(HDFS_CLOSE_SECONDS):
                    await gather(*(thread.worker.close() for thread in self._threads))

    def _write(self, path: str, parts: Sequence[Buffer], observe: Observe | None) -> None:
        """Write and sync a new file.  Runs on a thread."""
        file = self._client.create(path, hdfs_native.WriteOptions(overwrite=False, create_parent=True))
        try:
            for part in parts:
                view = memoryview(part).cast("B")
                for at in range(0, len(view), HDFS_PIECE_BYTES):
                    piece = view[at : at + HDFS_PIECE_BYTES]
                    if observe is not None:
                        observe([piece])
                    rest = piece
                    while rest:
                        rest = rest[file.write(bytes(rest)) :]
            # Sync to the disks of the datanodes, not only to their memory.
            file.hsync()
        finally:
            file.close()

    async def _run(self, call: Callable[[], T], doing: str) -> T:
        """Run `call` on the least loaded thread, for HDFS_CALL_SECONDS at most.  Raises the errors of the port."""
        self._require()
        thread, number = self._least_loaded(doing), next(self._numbers)

        def guarded() -> T:
            try:
                if number in thread.given_up:
                    raise OSError("nobody waits for it any more")
                return call()
            except Exception:
                raise
            except BaseException as error:  # a panic of the client must not end the caller
                raise OSError(f"the client failed: {error}") from error
            finally:
                thread.unfinished.discard(number)

        thread.unfinished.add(number)
        try:
            async with asyncio.timeout(HDFS_CALL_SECONDS) as limit:
                return await thread.worker.run(guarded)
        except (SaritError, Corrupt):
            raise
        except Exception as error:
            if limit.expired():
                thread.given_up.add(number)
                raise Unavailable(f"{doing}: no answer within {HDFS_CALL_SECONDS} s") from None
            raise map_error(error, doing) from error

    def _least_loaded(self, doing: str) -> _Thread:
        """Return a thread that does not hang, perhaps a new one.  Raises Unavailable when too many threads hang."""
        free = [thread for thread in self._threads if not thread.hangs()]
        if len(free) < THREADS and len(self._threads) < MAX_THREADS:
            self._threads.append(self._new_thread(len(self._threads)))
            free.append(self._threads[-1])
        if not free:
            raise Unavailable(f"{doing}: HDFS does not answer: {MAX_THREADS} calls wait for it")
        return min(free, key=lambda thread: len(thread.unfinished))

    def _new_thread(self, number: int) -> _Thread:
        return _Thread(self._env.threads.worker(f"hdfs-{number}"))

    def _require(self) -> None:
        if self._closed:
            raise Unavailable(f"long-term storage {self._place} is closed")


def _path_of(path: str) -> str:
    """Return the path without scheme and host, which some listings have."""
    return "/" + path.split("://", 1)[1].partition("/")[2] if "://" in path else path


async def open_hdfs(namenode: str, root: str, env: Env) -> HdfsChunks:
    """Open the chunks at hdfs://NAMENODE/ROOT.  Raises Unavailable, Invalid."""
    place = f"hdfs://{namenode}{root}"
    try:
        client = hdfs_native.Client(f"hdfs://{namenode}", config=_CONFIG)
    except Exception as error:
        raise Invalid(f"storage {place}: {error}") from error
    chunks = HdfsChunks(client, root, place, env)
    try:
        await chunks.start()
    except BaseException:
        await chunks.close()
        raise
    return chunks
