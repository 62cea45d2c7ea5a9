"""An open log on local files: the event loop's side (`LocalLog`) and the log's thread (`LogWriter`).

This is the second level of group commit.  At the first level a container batches operations into a frame while
earlier frames are in flight (`store/container/group_commit.py`).  At this level the log batches frames into a *group*
while the disk syncs the group before: one write and one sync make all frames of a group durable.

Theory of operation.  `LocalLog.append` queues a frame and submits `LogWriter.commit` to the thread, unless a submitted
commit has not begun yet (`submitted`).  The thread resets that flag before it takes frames.  So every queued frame is
seen by a commit, and the next commit is queued for the thread while the sync of this one runs.  A commit takes all
queued frames, writes them at once, syncs once; `LocalLog._finished` reports them in order on the event loop.

A second thread (`file_manager.py`, `allocator.py`) makes the next file while the current one fills, holds one recycled
file in reserve and recycles truncated files.  So no append waits for an allocation or a directory.

Idle logs write a *durable watermark record*: it says that every frame up to its number is durable.  Recovery then need
not copy those frames, and can distinguish rot from a torn tail.

The next file may be the only one that holds an acknowledged frame.  Its loss as a whole must show in the file before
it: records that are written while the next file exists say so (`followed`).  A file without such a record gets a
durable watermark record that says so before the first frame goes to the next file.  One block is reserved for that.

Warnings.  (1) After the first failure the log is dead and nothing is written again.  A failed sync leaves the content
of the file undefined, a second sync of the same descriptor may report success for pages that the kernel has dropped,
and only a new opening reads what is there.  (2) When the disk is full and the next file cannot be made, frames wait for
a truncation to recycle files.  After LOG_SPACE_TIMEOUT_SECONDS they fail with Unavailable, which also ends the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Fenced, SaritError, Unavailable
from sarit.env.background import ignore_outcome, shielded
from sarit.log.file_manager import LogFileManager
from sarit.log.file_reader import replay
from sarit.log.limits import (
    LOG_BLOCK_BYTES,
    LOG_FILE_GROWTH,
    LOG_FRAMES_IN_FLIGHT,
    LOG_GROUP_BYTES,
    LOG_WATERMARK_SECONDS,
)
from sarit.log.records import FRAME, WATERMARK, GroupEncoder, LogFile, aligned, record_bytes
from sarit.log.statistics import LogStatistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from sarit.env.ports import Buffer, Env, Worker
    from sarit.log.allocator import WritableFile
    from sarit.log.claims import OpenedFiles
    from sarit.log.port import Frame, FrameDone


# -- the log's thread -------------------------------------------------------------------------------


class QueuedFrame:
    """A frame that waits for its commit."""

    __slots__ = ("done", "number", "payload")

    def __init__(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        self.number = number
        self.payload = payload
        self.done = done


@dataclass(slots=True)
class Outcome:
    """The outcome of a commit: with an `error` all `frames` failed, without one all are durable.

    `closed`: files that the commit filled.  `needs_file`: nothing was written, since there was no file with space."""

    frames: list[QueuedFrame] = field(default_factory=list)
    error: BaseException | None = None
    closed: list[LogFile] = field(default_factory=list)
    needs_file: bool = False
    # When the write of the group began, and how long it took with its sync; the bytes of the group.
    began: float = 0.0
    seconds: float = 0.0
    bytes: int = 0


class LogWriter:
    """The writer of a log, on the log's thread; the event loop only sets `queue`, `submitted` and `next_file`."""

    def __init__(
        self, name: str, epoch: int, file: WritableFile, durable: int, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._name = name
        self._epoch = epoch
        self._clock = clock
        self._file = file
        self._failure: BaseException | None = None
        # `durable`: the last frame known to be durable.  `watermark`: the last one recorded as durable on the disk.
        self.durable = durable
        self.watermark = durable
        self.queue: deque[QueuedFrame] = deque()
        self.submitted = False
        self.next_file: WritableFile | None = None

    def __repr__(self) -> str:
        return f"<LogWriter {self._name} durable {self.durable}, {len(self.queue)} queued>"

    @property
    def file(self) -> WritableFile:
        """The file that is being written."""
        return self._file

    def commit(self) -> Outcome:
        """Make one group durable.  Never raises: the outcome holds the error."""
        self.submitted = False
        outcome = Outcome()
        try:
            # The append of a frame from here on submits another commit, since `submitted` is not set.
            self._commit(outcome)
        except BaseException as error:  # after any error the content of the disk is unknown
            self.fail(error)
        self._refuse(outcome)
        return outcome

    def write_watermark(self) -> Outcome:
        """Write a record that says that everything written is durable."""
        outcome = Outcome()
        try:
            self._write_watermark()
        except BaseException as error:
            self.fail(error)
        self._refuse(outcome)
        return outcome

    def fail(self, error: BaseException) -> None:
        """End the log: this commit and all later ones fail with the first error."""
        if self._failure is None:
            # The event loop also calls this (a fence, a full disk).  A group that is being written then is reported as
            # failed, although it may be durable: only a new opening finds out.
            if not isinstance(error, SaritError):
                cause = error
                error = Unavailable(f"{self._name} failed: {cause}")
                error.__cause__ = cause
            self._failure = error

    def finish(self) -> Outcome:
        """Write the watermark and close the file, when the queue is empty."""
        assert not self.queue, self
        outcome = self.write_watermark()
        with suppress(OSError):  # everything was synced, or has failed already
            self._file.file.close()
        return outcome

    def _refuse(self, outcome: Outcome) -> None:
        if self._failure is None:
            return
        # Add the queued frames after those of the group, since `done` is called in order of number.
        outcome.error = self._failure
        while self.queue:
            outcome.frames.append(self.queue.popleft())

    def _commit(self, outcome: Outcome) -> None:
        if self._failure is not None or not self.queue:
            return
        file = self._file
        # `size` is the least length of the group, which has at least one frame and whole blocks.
        size = aligned(record_bytes(sum(map(len, self.queue[0].payload))), LOG_BLOCK_BYTES)
        # Write to an empty file in any case: it grows beyond its preallocated blocks for a long frame.
        if file.position + size > _frames_end(file) and file.position > LOG_BLOCK_BYTES:
            if self.next_file is None:
                # Leave the frames queued: `LocalLog._finished` requests the file, `_file_made` submits the next commit.
                outcome.needs_file = True
                coverage_probe("log_writer_waited_for_file")
                return
            file = self._roll(outcome, self.next_file)
        # Take the first frame even above the limit of bytes: no later group would have more space for it.
        limit = min(_frames_end(file) - file.position, LOG_GROUP_BYTES)
        followed = self.next_file is not None
        group = GroupEncoder(file.header, file.position, followed=followed)
        used = 0
        while self.queue:
            frame = self.queue[0]
            used += record_bytes(sum(map(len, frame.payload)))
            if outcome.frames and aligned(used, LOG_BLOCK_BYTES) > limit:
                break
            outcome.frames.append(self.queue.popleft())
            # Record the `durable` of the groups before, since a crash may tear this group.
            group.add(FRAME, self._epoch, frame.number, self.durable, frame.payload)
        length = group.finish()
        # Numbers are consecutive, as the reader checks.
        first, last = outcome.frames[0].number, outcome.frames[-1].number
        assert self.durable < first == last - len(outcome.frames) + 1, (first, last, self)
        began = self._clock()
        file.file.pwrite_durably(group.parts, file.position)
        outcome.began, outcome.seconds, outcome.bytes = began, self._clock() - began, length
        # Advance only now that the sync has returned; an exception above ends the log (`commit`).
        if file.first is None:
            file.first = first
        file.position += length
        file.followed |= followed
        self.durable = last

    def _roll(self, outcome: Outcome, following: WritableFile) -> WritableFile:
        """Close the current file, and continue with the next one, which is returned."""
        coverage_probe("log_rolled")
        file = self._file
        if not file.followed:
            coverage_probe("log_end_of_file_marked")
            self._write_watermark_record(file, followed=True)
        # The closed file has no torn group, since every group in it is synced.
        outcome.closed.append(LogFile(file.path, file.header, file.position, file.first, self.durable))
        file.file.close()
        self._file, self.next_file = following, None
        return following

    def _write_watermark(self) -> None:
        # Write no watermark if frames are queued, whose records have the same `durable`.
        if self._failure is not None or self.queue or self.watermark == self.durable:
            return
        file = self._file
        followed = self.next_file is not None
        if file.position + LOG_BLOCK_BYTES > (file.capacity if followed else _frames_end(file)):
            return  # the block may not be preallocated, and the disk full; records of the next file have the `durable`
        self._write_watermark_record(file, followed=followed)

    def _write_watermark_record(self, file: WritableFile, *, followed: bool) -> None:
        group = GroupEncoder(file.header, file.position, followed=followed)
        # Use `durable` as the number, since a reader rejects a record whose `durable` exceeds its number.
        group.add(WATERMARK, self._epoch, self.durable, self.durable, ())
        length = group.finish()
        file.file.pwrite_durably(group.parts, file.position)
        file.position += length
        file.followed |= followed
        self.watermark = self.durable


def _frames_end(file: WritableFile) -> int:
    """Return the end of the space for frames; the last block is for the record that says that a file follows."""
    return file.capacity - LOG_BLOCK_BYTES


# -- the event loop's side --------------------------------------------------------------------------


class LocalLog:
    """An open log on local files."""

    def __init__(
        self, env: Env, directory: str, container: int, opened: OpenedFiles, worker: Worker,
        statistics: LogStatistics | None = None,
    ) -> None:  # fmt: skip
        self._env = env
        self._statistics = statistics or LogStatistics()
        self._name = f"the durable log in {directory}"
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        # The carried frames are durable, since they were synced with the first file of this epoch.
        self._writer = LogWriter(self._name, opened.file.header.epoch, opened.file, opened.end, env.clock.monotonic)
        self._last = opened.end
        self._any_appended = False
        self._below = 0
        # `_failed`: no frame becomes durable.  `_closed`: no frame is accepted.  `_ended`: the thread gets no calls.
        self._failed = False
        self._closed = False
        self._ended = False
        self._closing: asyncio.Future[None] | None = None
        # An event that each commit sets, for which `_close` waits.
        self._progress = asyncio.Event()
        # Files that are not written any more, oldest first.
        self._files = deque(opened.logs)
        self._watermark_timer: asyncio.TimerHandle | None = None
        self._last_at_timer = 0
        file_manager = env.threads.worker(f"log-files-{container}")
        self._file_manager = LogFileManager(
            self._name, file_manager, opened.maker, opened.file.header, self._file_made, self._end
        )
        # Recycle files without a frame, which replay does not need.
        if opened.empty:
            self._file_manager.recycle(opened.empty)
        self._file_manager.reserve()

    def __repr__(self) -> str:
        return f"<LocalLog {self._name} epoch {self.epoch}, last frame {self._last}, {len(self._files)} closed files>"

    @property
    def epoch(self) -> int:
        """The epoch of this owner of the log."""
        return self._opened.file.header.epoch

    @property
    def identity(self) -> bytes:
        return self._opened.file.header.identity

    # -- reading ------------------------------------------------------------------------------

    async def replay(self, after: int) -> AsyncIterator[Frame]:
        """Yield the durable frames above `after`, in order.  Raises Corrupt, Unavailable.

        The next window is read and checked while the caller works on this one."""
        file = self._opened.file
        # Read the carried frames from the current file: the originals are above its base, and thus void.
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
                # Ignore the outcome of a read in progress if the caller stopped early.
                asyncio.ensure_future(coming).add_done_callback(ignore_outcome)

    def _next_window(self, windows: Iterator[list[Frame]]) -> Awaitable[list[Frame] | None]:
        return self._worker.run(lambda: next(windows, None))

    # -- writing ------------------------------------------------------------------------------

    def append(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        """Queue a frame.  `done` is called on the event loop once it is durable, in order of number."""
        if self._closed:
            self._loop.call_soon(done, Unavailable(f"{self._name} is closed"))
            return
        if number != self._last + 1:
            # Only the first frame may skip numbers: the log of a restored container continues after the checkpoint.
            assert number > self._last, f"frame {number} after {self._last}"
            assert not self._any_appended, f"frame {number} after {self._last}"
        # Queue the frame even in a failed log: the next commit fails it, after those queued before it.
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
        """Handle a commit that has returned: start the next one, prepare files, then report the frames in order."""
        assert outcome is not None, error
        # Add the closed files before the callbacks, because a truncation in one of them must see these files.
        self._files.extend(outcome.closed)
        if outcome.error is not None:
            self._failed = True
            self._file_manager.stop()
        elif outcome.needs_file and self._writer.next_file is None:
            # If the file was made since the commit found none, the next branch submits the commit instead.
            self._file_manager.require_file(self._writer.durable, self._next_length())
        elif self._writer.queue and not self._writer.submitted and not self._ended:
            self._submit_commit()  # before the callbacks, since the disk should not wait for the event loop
        if outcome.frames and not self._failed:
            statistics = self._statistics
            statistics.frames += len(outcome.frames)
            statistics.sync_seconds.observe(outcome.seconds)
            statistics.group_bytes.observe(outcome.bytes)
            self._arm_watermark()
            # The thread may change these values in the next commit already, which does no harm.
            if self._writer.next_file is None and self._writer.file.position * 2 > self._writer.file.capacity:
                self._file_manager.prepare(self._writer.durable, self._next_length())
        if self._env.traces is not None:
            self._env.traces.synced = outcome.began, outcome.began + outcome.seconds
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
        """Write a watermark if no frame was appended for LOG_WATERMARK_SECONDS, else set the timer again."""
        self._watermark_timer = None
        # Compare the last frame, since an append does not restart the timer.
        if self._last_at_timer != self._last:
            self._arm_watermark()
        elif not self._failed and not self._closed:
            self._worker.submit(self._writer.write_watermark, self._finished)

    def _end(self, error: BaseException) -> None:
        """Fail the queued frames and all later ones."""
        self._failed = True
        self._file_manager.stop()
        self._writer.fail(error)
        # Submit a commit even if another one is submitted: with an empty queue it does nothing.
        if not self._ended:
            self._submit_commit()

    # -- files --------------------------------------------------------------------------------

    def _next_length(self) -> int:
        """Return the length of the next file: longer than this one if one file is too short for this load.

        That is the case when no checkpoint covers the files before this one yet, or a frame was too long."""
        file = self._writer.file
        short = bool(self._files) or file.position > file.capacity
        return max(file.capacity, file.position) * (LOG_FILE_GROWTH if short else 1)

    def _file_made(self, file: WritableFile) -> None:
        self._writer.next_file = file
        # Commit frames that wait since a commit reported `needs_file`.
        if self._writer.queue and not self._writer.submitted and not self._ended:
            self._submit_commit()

    def truncate(self, below: int) -> None:
        """Recycle the files whose frames all have numbers less than `below`."""
        self._below = max(self._below, below)
        if self._failed or self._closed:
            return
        # Recycle closed files only, never the file being written.  A crash may bring recycled files back, but nothing
        # reads their frames, which are below the checkpoint.
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
    def frames_in_flight(self) -> int:
        return LOG_FRAMES_IN_FLIGHT

    @property
    def short_of_space(self) -> bool:
        """Whether the disk has no space for the next file."""
        return self._file_manager.short_of_space

    def backlog_bytes(self) -> int:
        """Return the bytes of the files that hold frames not truncated yet."""
        current = self._writer.file
        # Subtract the first block of each file, its header.
        in_current = current.position - LOG_BLOCK_BYTES if self._writer.durable >= self._below else 0
        return in_current + sum(file.size - LOG_BLOCK_BYTES for file in self._files)

    # -- the end ------------------------------------------------------------------------------

    def fence(self) -> None:
        """Fail frames that are not written yet with Fenced, since a later owner opened the log."""
        self._end(Fenced(f"{self._name} was opened by a later owner"))

    def abandon(self) -> None:
        """Close the log in the background; queued frames fail."""
        self.fence()
        self._begin_closing()

    async def close(self) -> None:
        """Write the queued frames, end the threads, and release the files.  May be called again."""
        # Shield the close, since a cancelled caller must not leave the threads and the lock behind.
        await shielded(self._begin_closing())

    def _begin_closing(self) -> asyncio.Future[None]:
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.ensure_future(self._close())
        return self._closing

    async def _close(self) -> None:
        # Wait until all queued frames are durable or have failed, on a full disk at once; none is added (`_closed`).
        self._file_manager.stop_waiting()
        while self._writer.queue:
            self._progress.clear()
            await self._progress.wait()
        # Submit nothing else from here on: `finish` is the last call of the thread.
        self._ended = True
        if self._watermark_timer is not None:
            self._watermark_timer.cancel()
        try:
            self._finished(await self._worker.run(self._writer.finish), None)
        finally:  # otherwise nobody could open this log again
            await self._worker.close()
            await self._file_manager.close()
            # Close the descriptors after both threads have ended.  Then another process may open the log, and recycles
            # the next file, which has no frame.
            next_file = self._writer.next_file
            for file in (self._opened.lock, *([next_file.file] if next_file is not None else [])):
                with suppress(OSError):  # the descriptor is closed even if `close` reports an error
                    file.close()
