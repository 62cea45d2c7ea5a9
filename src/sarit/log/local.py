"""The durable log on local files: the event loop's side.

Theory of operation.  `append` queues a frame.  The log's thread (`writer.py`) takes all queued frames, writes them at
once, syncs once and reports them here in order: group commit.  A second thread (`file_manager.py`, `allocator.py`)
makes the next file while the current one fills, holds one recycled file in reserve and recycles truncated files.  So no
append waits for an allocation or a directory.

A claim fences earlier owners.  An owner in this process is failed, its threads end and its descriptors close before the
first byte is read.  Owners in other processes are excluded by the lock on the directory.  Between claim and opening the
owner reads in the index what the log must hold (`opening.py`).

Idle logs write a *durable watermark record*: it says that every frame up to its number is durable.  Recovery then need
not copy those frames, and can distinguish rot from a torn tail.

Warnings.  (1) After the first failure the log is dead: a failed sync leaves the content of the file undefined, and
only opening again reads what is there.  (2) When the disk is full and the next file cannot be made, frames wait for a
truncation to recycle files.  After LOG_SPACE_TIMEOUT_SECONDS they fail with Unavailable, which ends the log, too.

Format and recovery: docs/formats/durable-log.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Fenced, Unavailable
from sarit.core.limits import LOG_BLOCK_BYTES, LOG_FILE_BYTES, LOG_WATERMARK_SECONDS
from sarit.log.file_manager import LogFileManager
from sarit.log.opening import begin_epoch, claim_files, open_files
from sarit.log.reading import replay
from sarit.log.records import LogFile
from sarit.log.writer import LogWriter, Outcome, QueuedFrame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence

    from sarit.env.ports import Buffer, Env, Worker
    from sarit.log.allocator import WritableFile
    from sarit.log.opening import ClaimedFiles, OpenedFiles
    from sarit.log.port import Frame, FrameDone, LogHistory


class LocalLogProvider:
    """Logs under one directory, a subdirectory each.  `file_bytes` is the size of a log file."""

    def __init__(self, env: Env, directory: str, file_bytes: int = LOG_FILE_BYTES) -> None:
        self._env = env
        self._directory = directory
        self._file_bytes = file_bytes
        self._owners: dict[int, LocalClaim] = {}
        self._claiming: dict[int, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<LocalLogProvider {self._directory}>"

    async def claim(self, container: int) -> LocalClaim:
        """See `LogProvider`.  Raises Invalid (another format version), Unavailable."""
        # One claim at a time: the second one finds the first one in `_owners` and fences it.
        async with self._claiming.setdefault(container, asyncio.Lock()):
            before = self._owners.pop(container, None)
            if before is not None:
                # Waits for calls in progress at most: the queue of a fenced log fails.  Its lock is free then.
                await before.fence()
            # A cancellation must not interrupt the claim: its thread would finish it and hold the lock.
            claiming = asyncio.ensure_future(self._claim(container))
            try:
                claim = await asyncio.shield(claiming)
            except asyncio.CancelledError:
                claiming.add_done_callback(_release_unwanted)
                raise
            self._owners[container] = claim
            return claim

    async def open(self, container: int) -> LocalLog:
        """Claim and open a log whose owner has no index.  Raises Corrupt, Invalid, Unavailable."""
        claim = await self.claim(container)
        try:
            return await claim.open(None)
        except BaseException:
            await claim.release()
            raise

    async def _claim(self, container: int) -> LocalClaim:
        directory = f"{self._directory}/{container}"
        worker = self._env.threads.worker(f"log-{container}")
        try:
            claimed = await worker.run(lambda: claim_files(self._env, directory, container))
        except OSError as error:
            await worker.close()
            raise Unavailable(f"the log in {directory} cannot be opened: {error}") from error
        except BaseException:
            await worker.close()
            raise
        return LocalClaim(self._env, claimed, worker, self._file_bytes)


class LocalClaim:
    """A claimed log: see `ClaimedLog`."""

    def __init__(self, env: Env, claimed: ClaimedFiles, worker: Worker, file_bytes: int) -> None:
        self._env = env
        self._claimed = claimed
        self._worker = worker
        self._file_bytes = file_bytes
        self._log: LocalLog | None = None
        self._fenced = False
        self._opening: asyncio.Future[LocalLog] | None = None
        self._releasing: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<LocalClaim of the log in {self._claimed.directory}>"

    async def open(self, history: LogHistory | None, *, accept_loss: bool = False) -> LocalLog:
        """See `ClaimedLog`; may be called again after a failure.  `history` None: the owner has no index."""
        if self._fenced or self._releasing is not None:
            raise Fenced(f"the log in {self._claimed.directory} was claimed by a later owner")
        # A cancellation must not interrupt the opening: its thread would finish it.
        opening = self._opening = asyncio.ensure_future(self._open(history, accept_loss))
        try:
            self._log = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        return self._log

    async def _open(self, history: LogHistory | None, accept_loss: bool) -> LocalLog:
        env, claimed, worker = self._env, self._claimed, self._worker
        try:
            opened = await worker.run(
                lambda: begin_epoch(env, claimed, history, self._file_bytes, accept_loss=accept_loss)
            )
        except OSError as error:
            raise Unavailable(f"the log in {claimed.directory} cannot be opened: {error}") from error
        return LocalLog(env, claimed.directory, claimed.container, opened, worker)

    async def fence(self) -> None:
        """A later owner claims the log: end this one."""
        self._fenced = True
        if self._log is not None:
            self._log.fence()
            await self._log.close()
        else:
            await self.release()

    async def release(self) -> None:
        """See `ClaimedLog`.  Nothing to do once the log is open: it is closed instead."""
        if self._log is None:
            if self._releasing is None:
                self._releasing = asyncio.ensure_future(self._release())
            await asyncio.shield(self._releasing)

    async def _release(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])
            if not self._opening.cancelled() and self._opening.exception() is None:
                await self._opening.result().close()
                return
        await self._worker.close()
        with suppress(OSError):  # the descriptor is gone all the same
            self._claimed.lock.close()


def _release_unwanted(claiming: asyncio.Future[LocalClaim]) -> None:
    if not claiming.cancelled() and claiming.exception() is None:
        asyncio.ensure_future(claiming.result().release()).add_done_callback(_ignore)


def _close_unwanted(opening: asyncio.Future[LocalLog]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().abandon()


class LocalLog:
    """An open log."""

    def __init__(self, env: Env, directory: str, container: int, opened: OpenedFiles, worker: Worker) -> None:
        self._env = env
        self._name = f"the durable log in {directory}"
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        # The carried frames count as durable: they were synced with the first file of this epoch.
        self._writer = LogWriter(self._name, opened.file.header.epoch, opened.file, opened.end)
        self._last = opened.end
        self._any_appended = False
        self._below = 0
        # Failed: no frame will become durable.  Closed: no frame is accepted.  Ended: the thread gets no more calls.
        self._failed = False
        self._closed = False
        self._ended = False
        self._closing: asyncio.Future[None] | None = None
        # Set after each commit, for `_close`.
        self._progress = asyncio.Event()
        # Files that are not written any more, oldest first.
        self._files = deque(opened.logs)
        self._watermark_timer: asyncio.TimerHandle | None = None
        self._last_at_timer = 0
        file_manager = env.threads.worker(f"log-files-{container}")
        self._file_manager = LogFileManager(
            self._name, file_manager, opened.maker, opened.file.header, self._file_made, self._end
        )
        # No frame is in them, so replay does not need them.
        if opened.empty:
            self._file_manager.recycle(opened.empty)
        self._file_manager.reserve()

    def __repr__(self) -> str:
        return f"<LocalLog {self._name} epoch {self.epoch}, last frame {self._last}, {len(self._files)} closed files>"

    @property
    def epoch(self) -> int:
        """This owner's epoch."""
        return self._opened.file.header.epoch

    @property
    def identity(self) -> bytes:
        """See `DurableLog`."""
        return self._opened.file.header.identity

    # -- reading ------------------------------------------------------------------------------

    async def replay(self, after: int) -> AsyncIterator[Frame]:
        """Durable frames above `after`, in order.  Raises Corrupt, Unavailable.

        The next window is read and checked while the caller works on this one."""
        file = self._opened.file
        # The carried frames are read from the current file: the originals are above its base, thus void.
        current = LogFile(file.path, file.header, file.position, file.first, self._opened.end)
        windows = replay(self._env.files, [*self._opened.logs, current], after, self._opened.end)
        coming: Awaitable[list[Frame] | None] | None = self._next_window(windows)
        try:
            while coming is not None:
                frames = await coming
                coming = self._next_window(windows) if frames is not None else None
                for frame in frames or ():
                    yield frame
        except OSError as error:
            raise Unavailable(f"{self._name} cannot be read: {error}") from error
        finally:
            if coming is not None:
                # The caller stopped early.  The read goes on; its error, if any, concerns nobody.
                asyncio.ensure_future(coming).add_done_callback(_ignore)

    def _next_window(self, windows: Iterator[list[Frame]]) -> Awaitable[list[Frame] | None]:
        return self._worker.run(lambda: next(windows, None))

    # -- writing ------------------------------------------------------------------------------

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """Queue a frame; `done` is called on the event loop once it is durable, in order of number."""
        if self._closed:
            self._loop.call_soon(done, Unavailable(f"{self._name} is closed"))
            return
        if number != self._last + 1:
            # Only the first frame may skip numbers: a log restored without its files continues after the checkpoint.
            assert number > self._last, f"frame {number} after {self._last}"
            assert not self._any_appended, f"frame {number} after {self._last}"
        # A failed log takes the frame as well.  The next commit fails it, after those queued before it.
        self._any_appended = True
        self._last = number
        writer = self._writer
        writer.queue.append(QueuedFrame(number, payload, done))
        if not writer.submitted:
            self._submit_commit()

    def _submit_commit(self) -> None:
        self._writer.submitted = True
        self._worker.submit(self._writer.commit, self._finished)

    def _finished(self, outcome: Outcome | None, error: BaseException | None) -> None:
        """A commit has returned: start the next one, prepare files, then report the frames in order."""
        assert outcome is not None, error
        # Before the callbacks: a truncation in one of them sees these files.
        self._files.extend(outcome.closed)
        if outcome.error is not None:
            self._failed = True
            self._file_manager.stop()
        elif outcome.needs_file and self._writer.next_file is None:
            # Checked again: the file may have been made since the commit found none.  Then the next branch commits.
            self._file_manager.require_file(self._writer.durable)
        elif self._writer.queue and not self._writer.submitted and not self._ended:
            self._submit_commit()  # before the callbacks: the disk should not wait for the event loop
        if outcome.frames and not self._failed:
            self._arm_watermark()
            # The thread may be in the next commit already: what is read here is then newer, which does no harm.
            if self._writer.next_file is None and self._writer.file.position * 2 > self._writer.file.capacity:
                self._file_manager.prepare(self._writer.durable)
        self._progress.set()
        bug: Exception | None = None
        for frame in outcome.frames:
            try:
                frame.done(outcome.error)
            except Exception as failure:  # a bug in one callback must not prevent the other callbacks
                bug = bug or failure
        if bug is not None:
            raise bug

    def _arm_watermark(self) -> None:
        if self._watermark_timer is None and not self._closed:
            self._last_at_timer = self._last
            self._watermark_timer = self._loop.call_later(LOG_WATERMARK_SECONDS, self._write_watermark_if_idle)

    def _write_watermark_if_idle(self) -> None:
        """Idle: no frame was appended for LOG_WATERMARK_SECONDS."""
        self._watermark_timer = None
        # One timer for many frames: an append does not restart it.
        if self._last_at_timer != self._last:
            self._arm_watermark()
        elif not self._failed and not self._closed:
            self._worker.submit(self._writer.write_watermark, self._finished)

    def _end(self, error: BaseException) -> None:
        """Fail what is queued and everything later."""
        self._failed = True
        self._file_manager.stop()
        self._writer.fail(error)
        # Also when one is submitted: a commit that finds an empty queue does nothing.
        if not self._ended:
            self._submit_commit()

    # -- files --------------------------------------------------------------------------------

    def _file_made(self, file: WritableFile) -> None:
        self._writer.next_file = file
        # Frames wait since a commit reported `needs_file`.
        if self._writer.queue and not self._writer.submitted and not self._ended:
            self._submit_commit()

    def truncate(self, below: int) -> None:
        """Recycle the files whose frames all have numbers less than `below`."""
        self._below = max(self._below, below)
        if self._failed or self._closed:
            return
        # Closed files alone; the file being written is never recycled.  A crash may bring recycled files back:
        # their frames are below the checkpoint, and nothing reads them.
        paths = []
        while self._files and self._files[0].last < below:
            paths.append(self._files.popleft().path)
        if paths:
            self._file_manager.recycle(paths)

    def release_recycled_files(self) -> None:
        """Remove all recycled files, except the one that the next opening needs."""
        if not (self._failed or self._closed):
            self._file_manager.release_recycled()

    @property
    def short_of_space(self) -> bool:
        """Whether the next file is due and the disk has no space for it."""
        return self._file_manager.short_of_space

    def backlog_bytes(self) -> int:
        """Bytes of the files that hold frames not truncated."""
        current = self._writer.file
        # The first block of a file is its header.
        in_current = current.position - LOG_BLOCK_BYTES if self._writer.durable >= self._below else 0
        return in_current + sum(file.size - LOG_BLOCK_BYTES for file in self._files)

    # -- the end ------------------------------------------------------------------------------

    def fence(self) -> None:
        """A later owner opened the log: frames that are not written yet fail with Fenced."""
        self._end(Fenced(f"{self._name} was opened by a later owner"))

    def abandon(self) -> None:
        """Close in the background; what is queued fails."""
        self.fence()
        self._begin_closing()

    async def close(self) -> None:
        """Write what is queued, end the threads, release the files.  May be called again."""
        # A cancelled caller must not leave the threads and the lock behind.
        await asyncio.shield(self._begin_closing())

    def _begin_closing(self) -> asyncio.Future[None]:
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.ensure_future(self._close())
        return self._closing

    async def _close(self) -> None:
        # No frame is added any more (`_closed`).  Those queued become durable, or fail: with a full disk at once.
        self._file_manager.stop_waiting()
        while self._writer.queue:
            self._progress.clear()
            await self._progress.wait()
        # From here on nothing else is submitted: `finish` is the last call of the thread.
        self._ended = True
        if self._watermark_timer is not None:
            self._watermark_timer.cancel()
        try:
            self._finished(await self._worker.run(self._writer.finish), None)
        finally:  # without this, nobody could open this log again
            await self._worker.close()
            await self._file_manager.close()
            # Both threads have ended, so nobody uses the descriptors.  Once the lock is free, another process may open
            # the log.  It finds the next file without a frame, and recycles it.
            next_file = self._writer.next_file
            for file in (self._opened.lock, *([next_file.file] if next_file is not None else [])):
                with suppress(OSError):  # the descriptor is gone all the same
                    file.close()


def _ignore(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


__all__ = ["LocalClaim", "LocalLog", "LocalLogProvider", "open_files"]
