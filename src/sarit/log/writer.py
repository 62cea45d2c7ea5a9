"""The log's thread: takes all queued frames, writes them at once, syncs once.

This is the second level of group commit.  At the first level a container batches operations into a frame while
earlier frames are in flight (`store/container/group_commit.py`).  At this level the log batches frames into a *group*
while the disk syncs the group before: one write and one sync make all its frames durable.

The event loop appends to `queue` and submits `commit`, unless a submitted commit has not begun yet (`submitted`).
The thread resets that flag before it takes frames.  So every queued frame is seen by a commit, and the next commit is
queued for the thread while the sync of this one runs.

After the first failure nothing is written again.  The content of the file is undefined then, and a second sync of the
same descriptor may report success for pages that the kernel has dropped.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import SaritError, Unavailable
from sarit.core.limits import LOG_BLOCK_BYTES, LOG_GROUP_BYTES
from sarit.log.records import FRAME, WATERMARK, GroupEncoder, LogFile, aligned, record_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer
    from sarit.log.allocator import WritableFile
    from sarit.log.port import FrameDone


class QueuedFrame:
    """A frame that waits for its commit."""

    __slots__ = ("done", "number", "payload")

    def __init__(self, number: int, payload: Sequence[Buffer], done: FrameDone) -> None:
        self.number = number
        self.payload = payload
        self.done = done


@dataclass(slots=True)
class Outcome:
    """What a commit did: with an `error` all `frames` failed, without one all are durable.

    `closed`: files that the commit filled.  `needs_file`: nothing was written, the file is
    full and there is no next one."""

    frames: list[QueuedFrame] = field(default_factory=list)
    error: BaseException | None = None
    closed: list[LogFile] = field(default_factory=list)
    needs_file: bool = False


class LogWriter:
    """Runs on the log's thread; only `queue`, `submitted` and `next_file` are set by the event loop."""

    def __init__(self, name: str, epoch: int, file: WritableFile, durable: int) -> None:
        self._name = name
        self._epoch = epoch
        self._file = file
        self._failure: BaseException | None = None
        # The last frame known durable, and the highest that a watermark record or a file header says so of.
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
            # A frame that is queued from here on finds `submitted` unset, and its append submits another commit.
            self._commit(outcome)
        except BaseException as error:  # whatever it was: the content of the disk is unknown now
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
        """End the log: this commit and all later ones fail.  The first error is the one reported."""
        if self._failure is None:
            # The event loop calls this, too (a fence, a full disk).  A group that is being written at that moment is
            # reported as failed although it may be durable: only opening the log again finds out.
            if not isinstance(error, SaritError):
                cause = error
                error = Unavailable(f"{self._name} failed: {cause}")
                error.__cause__ = cause
            self._failure = error

    def finish(self) -> Outcome:
        """Write the watermark and close the file.  The queue must be empty."""
        assert not self.queue, self
        outcome = self.write_watermark()
        with suppress(OSError):  # everything was synced, or has failed already
            self._file.file.close()
        return outcome

    def _refuse(self, outcome: Outcome) -> None:
        if self._failure is None:
            return
        # The frames of the group come first, the queued ones after them: `done` is called in order of number.
        outcome.error = self._failure
        while self.queue:
            outcome.frames.append(self.queue.popleft())

    def _commit(self, outcome: Outcome) -> None:
        if self._failure is not None or not self.queue:
            return
        file = self._file
        # A group starts a block of its own, so this is what the first frame needs even if it is alone in the group.
        size = aligned(record_bytes(sum(map(len, self.queue[0].payload))), LOG_BLOCK_BYTES)
        # An empty file takes a frame of any length and grows beyond its preallocated blocks.
        if file.position + size > file.capacity and file.position > LOG_BLOCK_BYTES:
            if self.next_file is None:
                # The frames stay queued.  `LocalLog._finished` requests the file; `_file_made` submits the next commit.
                outcome.needs_file = True
                coverage_probe("log_writer_waited_for_file")
                return
            coverage_probe("log_rolled")
            # Every group before this one is synced: nothing in the closed file is torn.
            outcome.closed.append(LogFile(file.path, file.header, file.position, file.first, self.durable))
            file.file.close()
            file, self.next_file = self.next_file, None
            self._file = file
        # In bytes.  The first frame is taken even above the limit: no later group would have more space for it.
        limit = min(file.capacity - file.position, LOG_GROUP_BYTES)
        group = GroupEncoder(file.header, file.position)
        used = 0
        while self.queue:
            frame = self.queue[0]
            used += record_bytes(sum(map(len, frame.payload)))
            if outcome.frames and aligned(used, LOG_BLOCK_BYTES) > limit:
                break
            outcome.frames.append(self.queue.popleft())
            # `durable` is that of the groups before: this group itself may be torn.
            group.add(FRAME, self._epoch, frame.number, self.durable, frame.payload)
        length = group.finish()
        # Before the write; the reader checks the same after a read: numbers are consecutive.
        first, last = outcome.frames[0].number, outcome.frames[-1].number
        assert self.durable < first == last - len(outcome.frames) + 1, (first, last, self)
        file.file.pwrite_durably(group.parts, file.position)
        # Nothing advances before the sync has returned.  An exception above ends the log (`commit`).
        if file.first is None:
            file.first = first
        file.position += length
        self.durable = last

    def _write_watermark(self) -> None:
        # With frames queued there is no need: their records carry the same `durable`.
        if self._failure is not None or self.queue or self.watermark == self.durable:
            return
        file = self._file
        if file.position + LOG_BLOCK_BYTES > file.capacity:
            return  # the block may not be preallocated, and the disk full; the records of the next file say the same
        group = GroupEncoder(file.header, file.position)
        # Its number is `durable` itself: a reader rejects a record whose `durable` exceeds its number.
        group.add(WATERMARK, self._epoch, self.durable, self.durable, ())
        length = group.finish()
        file.file.pwrite_durably(group.parts, file.position)
        file.position += length
        self.watermark = self.durable
