"""The log's own thread: takes all frames queued, writes them at once, syncs once.

The event loop appends to `queue` and submits `commit` unless a submitted one has not begun yet
(`submitted`); the thread resets that flag before it takes frames.  So every queued frame meets a
commit, and while one sync runs the next commit already waits behind it.

After the first failure nothing is written again: what the file holds then is undefined, and a second
sync on the same descriptor may report a success that is none.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import SaritError, Unavailable
from sarit.core.limits import LOG_GROUP_BYTES
from sarit.log.reading import LogFile
from sarit.log.records import BLOCK_BYTES, FRAME, WATERMARK, GroupEncoder, aligned, record_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer
    from sarit.log.allocator import WritableFile
    from sarit.log.port import FrameDone


class QueuedFrame:
    """A frame on its way to the disk."""

    __slots__ = ("done", "number", "payload")

    def __init__(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        self.number = number
        self.payload = payload
        self.done = done


@dataclass(slots=True)
class Outcome:
    """What a commit did.  With an `error` all `frames` failed, else all are durable."""

    frames: list[QueuedFrame] = field(default_factory=list)
    error: BaseException | None = None
    closed: list[LogFile] = field(default_factory=list)
    needs_file: bool = False


class LogWriter:
    """Everything here runs on the log's thread, except that the loop fills `queue` and sets `next_file`."""

    def __init__(self, name: str, epoch: int, file: WritableFile, durable: int) -> None:
        self._name = name
        self._epoch = epoch
        self._file = file
        self._failure: BaseException | None = None
        self.durable = durable
        self.watermark = durable
        self.queue: deque[QueuedFrame] = deque()
        self.submitted = False
        self.next_file: WritableFile | None = None

    def __repr__(self) -> str:
        return f"<LogWriter {self._name} durable {self.durable}, {len(self.queue)} queued>"

    @property
    def file(self) -> WritableFile:
        """The file being written."""
        return self._file

    def commit(self) -> Outcome:
        """Make one group durable.  Never raises: failures are in the outcome."""
        self.submitted = False
        outcome = Outcome()
        try:
            self._commit(outcome)
        except BaseException as error:  # whatever it was: what reached the disk is unknown now
            self.fail(error)
        self._refuse(outcome)
        return outcome

    def write_watermark(self) -> Outcome:
        """Record that everything written is durable."""
        outcome = Outcome()
        try:
            self._write_watermark()
        except BaseException as error:
            self.fail(error)
        self._refuse(outcome)
        return outcome

    def fail(self, error: BaseException) -> None:
        """End the log: this and everything later fails.  The first reason stays."""
        if self._failure is None:
            if not isinstance(error, SaritError):
                cause = error
                error = Unavailable(f"{self._name} failed: {cause}")
                error.__cause__ = cause
            self._failure = error

    def finish(self) -> Outcome:
        """Mark, and release the file.  Nothing is queued any more."""
        outcome = self.write_watermark()
        with suppress(OSError):  # everything was synced, or failed already
            self._file.file.close()
        return outcome

    def _refuse(self, outcome: Outcome) -> None:
        if self._failure is None:
            return
        outcome.error = self._failure
        while self.queue:
            outcome.frames.append(self.queue.popleft())

    def _commit(self, outcome: Outcome) -> None:
        if self._failure is not None or not self.queue:
            return
        file = self._file
        first = self.queue[0]
        size = aligned(record_bytes(sum(map(len, first.payload))), BLOCK_BYTES)
        if file.position + size > file.capacity and file.position > BLOCK_BYTES:
            if self.next_file is None:
                outcome.needs_file = True
                coverage_probe("log_writer_waited_for_file")
                return
            coverage_probe("log_rolled")
            # Every group before this one is synced: the file is whole.
            outcome.closed.append(LogFile(file.path, file.header, file.position, file.first, self.durable))
            file.file.close()
            file, self.next_file = self.next_file, None
            self._file = file
        room = min(file.capacity - file.position, LOG_GROUP_BYTES)
        group = GroupEncoder(file.header, file.position)
        used = 0
        while self.queue:
            frame = self.queue[0]
            used += record_bytes(sum(map(len, frame.payload)))
            if outcome.frames and aligned(used, BLOCK_BYTES) > room:
                break
            outcome.frames.append(self.queue.popleft())
            group.add(FRAME, self._epoch, frame.number, self.durable, frame.payload)
        length = group.finish()
        file.file.pwrite_durably(group.parts, file.position)
        if file.first is None:
            file.first = outcome.frames[0].number
        file.position += length
        self.durable = outcome.frames[-1].number

    def _write_watermark(self) -> None:
        if self._failure is not None or self.queue or self.watermark == self.durable:
            return
        file = self._file
        if file.position + BLOCK_BYTES > file.capacity:
            return  # it would need a block that a full disk may not have; the next file's records say the same
        group = GroupEncoder(file.header, file.position)
        group.add(WATERMARK, self._epoch, self.durable, self.durable, ())
        length = group.finish()
        file.file.pwrite_durably(group.parts, file.position)
        file.position += length
        self.watermark = self.durable
