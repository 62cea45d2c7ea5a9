"""Manages the files of a log from the event loop, on another thread, so that no append waits for a directory.

- The next file is made when the current one is half full.
- One recycled file is held in reserve for the next opening.
- Truncated files are recycled.  A log that has needed no new file for LOG_IDLE_SECONDS keeps a few of them.

On a full disk the allocation is retried every LOG_SPACE_RETRY_SECONDS, and at once after files were recycled.  Frames
that wait for a file fail after LOG_SPACE_TIMEOUT_SECONDS.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.errors import Unavailable
from sarit.log.allocator import NO_SPACE_ERRNOS
from sarit.log.limits import (
    IDLE_RECYCLED_LOG_FILES,
    LOG_IDLE_SECONDS,
    LOG_SPACE_RETRY_SECONDS,
    LOG_SPACE_TIMEOUT_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Worker
    from sarit.log.allocator import LogFileAllocator, WritableFile
    from sarit.log.records import FileHeader


class LogFileManager:
    """The file manager of one log.  `made`: called with each new file.  `failed`: called with a final error."""

    def __init__(
        self, name: str, worker: Worker, maker: LogFileAllocator, header: FileHeader,
        made: Callable[[WritableFile], None], failed: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._name = name
        self._worker = worker
        self._maker = maker
        self._header = header
        self._on_made = made
        self._on_failed = failed
        self._loop = asyncio.get_running_loop()
        self._making = False
        self._closing = False
        self._stopped = False
        # Whether the last attempt to make the next file found no space.
        self.short_of_space = False
        self._durable = self._length = 0
        self._space_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._idle_timer = self._loop.call_later(LOG_IDLE_SECONDS, self._release_idle)

    def __repr__(self) -> str:
        state = "waiting for space" if self._space_timer else "making" if self._making else "idle"
        return f"<LogFileManager of {self._name}, {state}>"

    def prepare(self, durable: int, length: int) -> None:
        """Make the next file, unless that is in progress.  `durable`: the last frame known to be durable.

        `length`: how many bytes to preallocate, at most the greatest length of the log's files."""
        self._durable, self._length = durable, length
        # Leave the next attempt to the retry timer if it is set: the disk was full a moment ago.
        if self._making or self._stopped or self._retry_timer is not None:
            return
        self._making = True
        header = self._header
        self._worker.submit(lambda: self._maker.make(header.epoch, header.base, durable, length=length), self._made)

    def require_file(self, durable: int, length: int) -> None:
        """Make the next file, for which frames wait, within LOG_SPACE_TIMEOUT_SECONDS, or end the log."""
        if self._space_timer is None and not self._stopped:
            self._space_timer = self._loop.call_later(LOG_SPACE_TIMEOUT_SECONDS, self._fail_out_of_space)
        self.prepare(durable, length)

    def reserve(self) -> None:
        """Make sure that one recycled file, as long as the newest one, is in reserve, if the disk has the space."""
        if not self._stopped:
            self._worker.submit(self._maker.reserve, self._reserved)

    def recycle(self, paths: Sequence[str]) -> None:
        """Recycle files that are not needed any more."""
        if not self._stopped:
            self._worker.submit(lambda: self._maker.recycle(paths), self._retired)

    def release_recycled(self) -> None:
        """Remove all recycled files but one."""
        if not self._stopped and self._maker.recycled_count > 1:
            self._worker.submit(self._maker.release_recycled, self._reserved)

    def _release_idle(self) -> None:
        """Remove recycled files, since the log has needed no new file for LOG_IDLE_SECONDS."""
        if not self._stopped:
            self._worker.submit(lambda: self._maker.release_recycled(IDLE_RECYCLED_LOG_FILES), self._reserved)
            self._idle_timer = self._loop.call_later(LOG_IDLE_SECONDS, self._release_idle)

    def stop_waiting(self) -> None:
        """Fail frames that wait for space, now and from now on, since the log is being closed."""
        self._closing = True
        # Without a retry timer an attempt is in progress, and `_made` decides when it returns.
        if self._space_timer is not None and self._retry_timer is not None:
            self._fail_out_of_space()

    def stop(self) -> None:
        """Start no further calls of the thread, and cancel all timers."""
        self._stopped = True
        for timer in (self._space_timer, self._retry_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._space_timer = self._retry_timer = None

    async def close(self) -> None:
        """End the thread once its current call has returned."""
        self.stop()
        await self._worker.close()

    def _made(self, file: WritableFile | None, error: BaseException | None) -> None:
        self._making = False
        self.short_of_space = isinstance(error, OSError) and error.errno in NO_SPACE_ERRNOS
        if file is not None:
            if not self._stopped:
                self._idle_timer.cancel()
                self._idle_timer = self._loop.call_later(LOG_IDLE_SECONDS, self._release_idle)
            if self._space_timer is not None:
                self._space_timer.cancel()
                self._space_timer = None
            # Report the file also after `stop`, so that the log closes its descriptor.
            self._on_made(file)
            self.reserve()
        elif self.short_of_space:
            if self._closing and self._space_timer is not None:
                self._fail_out_of_space()
            elif not self._stopped:
                self._retry_timer = self._loop.call_later(LOG_SPACE_RETRY_SECONDS, self._retry)
        elif error is not None:
            self._on_failed(error)

    def _retry(self) -> None:
        if self._retry_timer is not None:
            # Cancel the timer, since recycled files may call this before it does.
            self._retry_timer.cancel()
            self._retry_timer = None
            self.prepare(self._durable, self._length)

    def _fail_out_of_space(self) -> None:
        self.stop()
        self._on_failed(Unavailable(f"{self._name} has no space for the next file: the disk is full"))

    def _reserved(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._on_failed(error)

    def _retired(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._on_failed(error)
        else:
            self._retry()
