"""Mutants of the durable log."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sarit.log import claims as opening
from sarit.log import history, records
from sarit.log.file_reader import survey_tail
from sarit.log.history import history_problem
from sarit.log.limits import LOG_READ_BYTES
from sarit.log.writer import LogWriter
from sarit.process.ownership import claims as ownership
from sarit.store.container import recovery
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _OtherSync:
    """A file whose sync is replaced."""

    def __init__(self, file: Any, sync: Callable[[Any], None]) -> None:
        self._file = file
        self._sync = sync

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite_durably(self, parts: Any, offset: int) -> int:
        """The wrong one."""
        written: int = self._file.pwrite(parts, offset)
        self._sync(self._file)
        return written


@contextmanager
def _groups_synced_by(sync: Callable[[Any], None]) -> Iterator[None]:
    right = LogWriter._commit

    def wrong(self: LogWriter, outcome: Any) -> None:
        files = [file for file in (self._file, self.next_file) if file is not None]
        for file in files:
            if not isinstance(file.file, _OtherSync):
                file.file = _OtherSync(file.file, sync)
        right(self, outcome)

    with patched(LogWriter, LogWriter._commit, wrong):
        yield


@mutant("no acknowledged loss")
def ack_before_fsync() -> Any:
    """Frames are acknowledged when they are written, before the sync."""
    return _groups_synced_by(lambda file: None)


@mutant("no acknowledged loss")
def failed_fsync_retried() -> Any:
    """A failed sync is retried; the second one succeeds without writing."""

    def sync(file: Any) -> None:
        with suppress(OSError):
            file.datasync()
            return
        file.datasync()

    return _groups_synced_by(sync)


@mutant("recovery is a function of the log")
@contextmanager
def recovery_drops_last_frame() -> Iterator[None]:
    """Recovery treats the last frame that is not known to be durable as torn."""

    def wrong(*arguments: Any, **options: Any) -> Any:
        tail = survey_tail(*arguments, **options)
        if tail.carried:
            tail.carried = tail.carried[:-1]
            tail.end -= 1
        return tail

    with patched(opening, survey_tail, wrong):
        yield


@mutant("recovery is a function of the log")
@contextmanager
def torn_tail_not_copied() -> Iterator[None]:
    """Recovery does not copy the frames of the tail to the new file: a power cut after a kill loses them."""

    def wrong(*arguments: Any, **options: Any) -> Any:
        tail = survey_tail(*arguments, **options)
        tail.durable = tail.end
        tail.carried = []
        return tail

    with patched(opening, survey_tail, wrong):
        yield


@mutant("recovery is a function of the log")
@contextmanager
def window_loads_segments_again() -> Iterator[None]:
    """Each window of a recovery loads its segments from the index, also those that an earlier window changed."""
    right = recovery._load_segments

    async def wrong(container: Any, operations: Any) -> None:
        state = container.state
        for segment in {state.segments.get(operation.segment) for operation in operations}:
            if segment is not None and segment.committed and not segment.deleted:
                state.forget(segment)
        await right(container, operations)

    with patched(recovery, recovery._load_segments, wrong):
        yield


@mutant("whole events")
@contextmanager
def torn_record_accepted() -> Iterator[None]:
    """Recovery does not check the checksum of the last record."""
    right = records.Window.record

    def wrong(self: Any, at: int) -> Any:
        found = right(self, at)
        if found != 0 or len(self.data) - at < records.RECORD_HEADER_BYTES:
            return found
        _, tag, kind, length, epoch, number, durable, position = records._RECORD.unpack_from(self.data, at)
        end = at + records.RECORD_HEADER_BYTES + length
        known = tag == self.tag and position == self.position + at and kind == records.FRAME
        if not known or epoch > self.epoch or end > len(self.data):
            return found
        payload = memoryview(self.data)[at + records.RECORD_HEADER_BYTES : end]
        return records.Record(kind, epoch, number, durable, position, self.position + records.aligned(end), payload)

    with patched(records.Window, records.Window.record, wrong):
        yield


@mutant("one owner")
@contextmanager
def epoch_not_incremented() -> Iterator[None]:
    """Opening the log does not increment the epoch: frames of the earlier owner count as those of the new one."""
    right = history.Listing.last_epoch.fget  # type: ignore[attr-defined]  # mypy sees the function, not the property
    assert right is not None
    with patched(history.Listing, history.Listing.last_epoch, property(lambda self: max(right(self) - 1, 0))):
        yield


@mutant("recovery is a function of the log")
@contextmanager
def durable_watermark_before_sync() -> Iterator[None]:
    """A record's durable watermark includes the record itself, before the sync."""
    right = records.GroupEncoder.add

    def wrong(self: Any, kind: int, epoch: int, number: int, durable: int, payload: Any) -> None:
        right(self, kind, epoch, number, number, payload)

    with patched(records.GroupEncoder, records.GroupEncoder.add, wrong):
        yield


@mutant("what is missing is named")
@contextmanager
def missing_log_accepted() -> Iterator[None]:
    """A node whose durable log is missing starts with an empty one (found by review)."""
    with (
        patched(ownership, ownership._require_pieces, lambda config, files, claim: None),
        patched(opening, history_problem, lambda directory, listing, reached, history: None),
    ):
        yield


@mutant("what is missing is named")
@contextmanager
def older_log_accepted() -> Iterator[None]:
    """The epoch in the index is not compared with that of the log (found by review)."""

    def wrong(directory: str, listing: Any, reached: int, history: Any) -> str | None:
        return history_problem(directory, listing, max(reached, history.frame), replace(history, epoch=0))

    with patched(opening, history_problem, wrong):
        yield


@mutant("what is missing is named", found_by="tests/unit/log/test_missing_end.py")
@contextmanager
def missing_newest_file_accepted() -> Iterator[None]:
    """A log whose newest file is missing ends with the file before it."""

    def wrong(files: Any, logs: Any, read_bytes: int = LOG_READ_BYTES, *, covered: int = 0) -> Any:
        tail = survey_tail(files, logs, read_bytes, covered=covered)
        tail.missing_end = ""
        return tail

    with patched(opening, survey_tail, wrong):
        yield


@mutant("recovery is a function of the log")
@contextmanager
def covered_rot_is_fatal() -> Iterator[None]:
    """Damage to frames that a checkpoint covers is damage to the log (found by review)."""

    def wrong(files: Any, logs: Any, read_bytes: int = LOG_READ_BYTES, *, covered: int = 0) -> Any:
        return survey_tail(files, logs, read_bytes, covered=0)

    with patched(opening, survey_tail, wrong):
        yield
