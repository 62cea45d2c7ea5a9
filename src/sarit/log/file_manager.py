"""Keeps log files coming and going, on a thread of its own, so that no append waits for a directory.

The next file is made when the current one is half full, a spare is held in reserve, truncated files
are retired.  On a full disk making is tried again, and at once when files were retired;
frames that wait meanwhile give up after LOG_SPACE_TIMEOUT_SECONDS.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.errors import Unavailable
from sarit.core.limits import LOG_SPACE_RETRY_SECONDS, LOG_SPACE_TIMEOUT_SECONDS
from sarit.log.allocator import NO_SPACE_ERRNOS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Worker
    from sarit.log.allocator import LogFileAllocator, WritableFile
    from sarit.log.records import FileHeader


class LogFileManager:
    """The event loop's side.  `made` gets each new file, `failed` the reason why the log must end."""

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
        # Whether there was no room for the next file when it was tried last.
        self.short_of_space = False
        self._durable = 0
        self._space_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "starved" if self._space_timer else "making" if self._making else "idle"
        return f"<LogFileManager of {self._name}, {state}>"

    def prepare(self, durable: int) -> None:
        """Make the next file; `durable` is the last frame known durable."""
        self._durable = durable
        if self._making or self._stopped or self._retry_timer is not None:
            return
        self._making = True
        header = self._header
        self._worker.submit(lambda: self._maker.make(header.epoch, header.base, durable), self._made)

    def require_file(self, durable: int) -> None:
        """Frames wait for the next file."""
        if self._space_timer is None and not self._stopped:
            self._space_timer = self._loop.call_later(LOG_SPACE_TIMEOUT_SECONDS, self._fail_out_of_space)
        self.prepare(durable)

    def reserve(self) -> None:
        """See that a spare is in reserve, if there is room for one."""
        if not self._stopped:
            self._worker.submit(self._maker.reserve, self._reserved)

    def recycle(self, paths: Sequence[str]) -> None:
        """Turn files that are not needed any more into spares."""
        if not self._stopped:
            self._worker.submit(lambda: self._maker.recycle(paths), self._retired)

    def release_recycled(self) -> None:
        """Remove all spares but one."""
        if not self._stopped and self._maker.recycled_count > 1:
            self._worker.submit(self._maker.release_recycled, self._reserved)

    def stop_waiting(self) -> None:
        """The log is being closed: wait for room no longer."""
        self._closing = True
        if self._space_timer is not None and self._retry_timer is not None:
            self._fail_out_of_space()

    def stop(self) -> None:
        """Start nothing new."""
        self._stopped = True
        for timer in (self._space_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        self._space_timer = self._retry_timer = None

    async def close(self) -> None:
        """End the thread, after what it is doing."""
        self.stop()
        await self._worker.close()

    def _made(self, file: WritableFile | None, error: BaseException | None) -> None:
        self._making = False
        self.short_of_space = isinstance(error, OSError) and error.errno in NO_SPACE_ERRNOS
        if file is not None:
            if self._space_timer is not None:
                self._space_timer.cancel()
                self._space_timer = None
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
            self._retry_timer.cancel()
            self._retry_timer = None
            self.prepare(self._durable)

    def _fail_out_of_space(self) -> None:
        self.stop()
        self._on_failed(Unavailable(f"{self._name} has no room: the disk is full"))

    def _reserved(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._on_failed(error)

    def _retired(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._on_failed(error)
        else:
            self._retry()
