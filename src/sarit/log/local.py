"""The durable log on local files: group commit on one thread (docs/formats/durable-log.md).

Theory of operation.  The event loop queues frames; the log's thread takes all that are
queued, writes them with one call and syncs once, and reports them in order.  While it syncs,
the next frames gather.  A second thread prepares the next file and recycles truncated ones,
so that the first never waits for an allocation or a directory.

Warnings.  (1) After the first failed write or sync the descriptor is never used again: what
the page cache holds then is undefined.  (2) Frames of the file before are synced before any
record goes to the next file, and the next file's name is durable before that.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sarit.core.errors import Corrupt, SaritError, Unavailable
from sarit.core.limits import LOG_FILE_BYTES, MAX_SPARE_LOG_FILES
from sarit.log.format import SECTOR_BYTES, FileHeader, decode_epoch, encode_epoch, encode_record, file_name
from sarit.log.recovery import Listing, LogFile, frames_of, list_log, read_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer, Env, File, Worker
    from sarit.log.port import Frame, FrameDone

T = TypeVar("T")


@dataclass(slots=True)
class _Written:
    """A file with frames; `last` is the highest number in it (0 while it is the current one)."""

    path: str
    first: int
    last: int


class LocalLogProvider:
    """Logs under one directory, a subdirectory each."""

    def __init__(self, env: Env, directory: str, file_bytes: int = LOG_FILE_BYTES) -> None:
        self._env = env
        self._directory = directory
        self._file_bytes = file_bytes

    def __repr__(self) -> str:
        return f"<LocalLogProvider {self._directory}>"

    async def open(self, container: int) -> LocalLog:
        """Open in a new, durably recorded epoch.  Raises Corrupt, Unavailable."""
        worker = self._env.threads.worker(f"log-{container}")
        try:
            return await self._open(container, worker)
        except OSError as error:
            await worker.close()
            raise Unavailable(f"the log of container {container} cannot be opened: {error}") from error
        except BaseException:
            await worker.close()
            raise

    async def _open(self, container: int, worker: Worker) -> LocalLog:
        directory = f"{self._directory}/{container:04d}"
        lock = await worker.run(lambda: _claim(self._env, directory, container))
        try:
            listing, epoch = await worker.run(lambda: _new_epoch(self._env, directory, container))
        except BaseException:
            lock.close()
            raise
        return LocalLog(self._env, directory, container, epoch, listing, lock, worker, self._file_bytes)


def _claim(env: Env, directory: str, container: int) -> File:
    files = env.files
    files.make_dirs(directory)
    path = f"{directory}/lock"
    lock = files.open(path, "write" if files.exists(path) else "create")
    if not lock.lock():
        lock.close()
        raise Unavailable(f"another process owns the log of container {container}")
    return lock


def _new_epoch(env: Env, directory: str, container: int) -> tuple[Listing, int]:
    """Durably record an epoch above all before; it fences them."""
    files = env.files
    listing = list_log(files, directory, container)
    epoch = listing.last_epoch
    path = f"{directory}/epoch"
    if files.exists(path):
        file = files.open(path, "read")
        try:
            epoch = max(epoch, decode_epoch(file.pread(file.size(), 0)))
        finally:
            file.close()
    elif listing.files:
        raise Corrupt(f"{directory} has log files but no epoch file")
    epoch += 1
    temporary = f"{path}.new"
    if files.exists(temporary):
        files.remove(temporary)
    file = files.open(temporary, "create")
    try:
        file.pwrite([encode_epoch(epoch)], 0)
        file.datasync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(directory)
    return listing, epoch


def _sync(env: Env, path: str) -> None:
    file = env.files.open(path, "write")
    try:
        file.datasync()
    finally:
        file.close()


class LocalLog:
    """An open log."""

    def __init__(
        self, env: Env, directory: str, container: int, epoch: int, listing: Listing, lock: File,
        worker: Worker, file_bytes: int,
    ) -> None:  # fmt: skip
        self._env = env
        self._directory = directory
        self._container = container
        self._epoch = epoch
        self._listing = listing
        self._lock = lock
        self._worker = worker
        self._housekeeper = env.threads.worker(f"log-files-{container}")
        self._file_bytes = file_bytes
        self._dead: BaseException | None = None
        self._closed = False
        # Loop side.
        self._queue: deque[tuple[int, Sequence[Buffer], FrameDone]] = deque()
        self._busy = False
        self._written: deque[_Written] = deque()
        self._spares: list[str] = list(listing.unused)
        self._spare_number = 0
        # Thread side.
        self._file: File | None = None
        self._path = ""
        self._seed = 0
        self._position = 0
        self._sequence = 0
        self._first_sector = b""
        self._synced = 0
        self._rolled: list[tuple[str, int]] = []
        # Between the threads; each operation used on them is atomic.
        self._sequences = itertools.count(listing.last_sequence + 1)
        self._prepared: deque[tuple[int, str]] = deque()
        self._preparing = False

    def __repr__(self) -> str:
        return f"<LocalLog {self._directory} epoch {self._epoch}, {len(self._written)} files>"

    @property
    def epoch(self) -> int:
        """This owner's epoch."""
        return self._epoch

    # -- reading ------------------------------------------------------------------------------

    async def replay(self, after: int) -> AsyncIterator[Frame]:
        """Durable frames above `after`, in order.  Raises Corrupt, Unavailable."""
        files = self._listing.files
        expected = files[0].header.first_frame if files else after + 1
        if expected > after + 1:
            raise Corrupt(f"{self._directory}: frames {after + 1} to {expected - 1} are missing")
        for at, file in enumerate(files):
            following = files[at + 1] if at + 1 < len(files) else None
            last = expected - 1
            if following is not None and following.header.first_frame <= after + 1:
                last = following.header.first_frame - 1  # none of its frames is asked for
            else:
                async for frame in self._frames(file, expected, following):
                    last = frame.number
                    if last > after:
                        yield frame
            self._written.append(_Written(file.path, expected, last))
            expected = last + 1
        if files:
            # A crash of the process leaves frames that only the page cache holds: what recovery
            # has read must be durable before anything is built on it.
            await self._run(lambda: _sync(self._env, files[-1].path))
        if expected <= after:
            # What was flushed and checkpointed outlives a log that lost its unsynced tail.
            self._synced = after
        self._synced = max(self._synced, expected - 1)
        self._prepare()

    async def _frames(self, file: LogFile, expected: int, following: LogFile | None) -> AsyncIterator[Frame]:
        data = await self._run(lambda: read_file(self._env.files, file))
        frames = await self._worker.run(lambda: list(frames_of(file, data, expected, following)))
        for frame in frames:
            yield frame

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await self._worker.run(call)
        except OSError as error:
            raise Unavailable(f"the log of container {self._container} cannot be read: {error}") from error

    # -- writing ------------------------------------------------------------------------------

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """Queue a frame; `done` on the loop once it is durable, in order."""
        if self._dead is not None or self._closed:
            error = self._dead or Unavailable("the log is closed")
            asyncio.get_running_loop().call_soon(done, error)
            return
        self._queue.append((number, payload, done))
        if not self._busy:
            self._write_queued()

    def _write_queued(self) -> None:
        batch = list(self._queue)
        self._queue.clear()
        self._busy = True
        self._worker.submit(lambda: self._write(batch), lambda _, error: self._written_batch(batch, error))

    def _write(self, batch: list[tuple[int, Sequence[Buffer], FrameDone]]) -> None:
        """On the log's thread: write all, sync once (twice where the batch goes on in the next file)."""
        parts: list[Buffer] = []
        begin = position = self._position
        for number, payload, _ in batch:
            record, size = encode_record(self._seed, number, position, self._synced, payload)
            if self._file is None or position + size > self._file_bytes:
                self._flush(parts, begin)
                self._roll(number, size)
                parts, begin, position = [], 0, SECTOR_BYTES
                parts.append(self._first_sector)
                record, size = encode_record(self._seed, number, position, self._synced, payload)
            parts.extend(record)
            position += size
        self._flush(parts, begin)
        self._position = position
        self._synced = batch[-1][0]

    def _flush(self, parts: list[Buffer], begin: int) -> None:
        if parts:
            assert self._file is not None
            self._file.pwrite(parts, begin)
            self._file.datasync()

    def _roll(self, first_frame: int, size: int) -> None:
        """On the log's thread: go on in the next file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._sequence, self._path = self._next_file()
        assert size + SECTOR_BYTES <= self._file_bytes, size
        self._file = self._env.files.open(self._path, "write")
        header = FileHeader(self._container, self._epoch, self._sequence, first_frame, self._env.random.bytes(8))
        self._first_sector, self._seed = header.encode()
        self._rolled.append((self._path, first_frame))

    def _next_file(self) -> tuple[int, str]:
        while self._prepared:
            sequence, path = self._prepared.popleft()
            if sequence > self._sequence:
                return sequence, path
            self._spares.append(path)  # made so late that a later one is in use: names must rise
        return self._make_file(self._file_bytes)

    def _make_file(self, length: int) -> tuple[int, str]:
        """A file of `length` bytes under the next name, durably: a spare when there is one.

        Runs on the housekeeper's thread ahead of need, or on the log's when that was too slow."""
        files = self._env.files
        sequence = next(self._sequences)
        path = f"{self._directory}/{file_name(self._epoch, sequence)}"
        try:
            spare = self._spares.pop()
        except IndexError:
            file = files.open(path, "create")
            try:
                file.allocate(length)
                file.datasync()
            except OSError:
                file.close()
                files.remove(path)
                raise
        else:
            files.rename(spare, path)
            file = files.open(path, "write")
            if file.size() < length:
                file.allocate(length)
                file.datasync()
        file.close()
        files.sync_dir(self._directory)
        return sequence, path

    def _written_batch(self, batch: list[tuple[int, Sequence[Buffer], FrameDone]], error: BaseException | None) -> None:
        self._busy = False
        if error is not None:
            self._die(error, batch)
            return
        for path, first in self._rolled:
            if self._written:
                self._written[-1].last = self._written[-1].last or first - 1
            self._written.append(_Written(path, first, 0))
        rolled = bool(self._rolled)
        self._rolled.clear()
        # Start the next sync before telling anybody: the disk should not wait for the loop.
        if self._queue:
            self._write_queued()
        if rolled:
            self._prepare()
        for _, _, done in batch:
            done(None)
        if self._queue and not self._busy:
            self._write_queued()

    def _die(self, error: BaseException, batch: list[tuple[int, Sequence[Buffer], FrameDone]]) -> None:
        if not isinstance(error, SaritError):
            failure = Unavailable(f"the log of container {self._container} failed: {error}")
            failure.__cause__ = error
            error = failure
        self._dead = error
        queued, self._queue = list(self._queue), deque()
        for _, _, done in (*batch, *queued):
            done(error)

    # -- files --------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Have the next file made ahead of need."""
        if self._prepared or self._preparing or self._closed:
            return
        self._preparing = True

        def done(made: tuple[int, str] | None, error: BaseException | None) -> None:
            self._preparing = False
            # A failure (no room) is met again, and reported, when the file is needed.
            if error is None and made is not None:
                self._prepared.append(made)

        self._housekeeper.submit(lambda: self._make_file(self._file_bytes), done)

    def truncate(self, below: int) -> None:
        """Frames below a number are not needed: their files become spares."""
        recycled = []
        while len(self._written) > 1 and self._written[0].last and self._written[0].last < below:
            recycled.append(self._written.popleft().path)
        if recycled and not self._closed:
            self._housekeeper.submit(lambda: self._recycle(recycled), lambda _, error: None)

    def _recycle(self, paths: list[str]) -> None:
        files = self._env.files
        for path in paths:
            if len(self._spares) >= MAX_SPARE_LOG_FILES:
                files.remove(path)
                continue
            self._spare_number += 1
            spare = f"{self._directory}/spare-{self._epoch:010d}-{self._spare_number:06d}.log"
            files.rename(path, spare)
            self._spares.append(spare)
        files.sync_dir(self._directory)

    def backlog_bytes(self) -> int:
        """Bytes of the files that hold frames not truncated."""
        return len(self._written) * self._file_bytes

    async def close(self) -> None:
        """Finish what is queued, end the threads, release the files."""
        if self._closed:
            return
        self._closed = True
        await self._worker.close()
        await self._housekeeper.close()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.close()
