"""Mutants of the durable log."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sarit.log import local
from sarit.log.writer import LogWriter
from simulation.mutants.planting import planted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _OtherSync:
    """A file whose sync is replaced."""

    def __init__(self, file: Any, sync: Callable[[Any], None]) -> None:
        self._file = file
        self._sync = sync

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def datasync(self) -> None:
        """The wrong one."""
        self._sync(self._file)


@contextmanager
def _groups_synced_by(sync: Callable[[Any], None]) -> Iterator[None]:
    right = LogWriter._commit

    def wrong(self: LogWriter, outcome: Any) -> None:
        files = [file for file in (self._file, self.next_file) if file is not None]
        for file in files:
            if not isinstance(file.file, _OtherSync):
                file.file = _OtherSync(file.file, sync)  # type: ignore[assignment]
        right(self, outcome)

    with planted(LogWriter, "_commit", wrong):
        yield


def ack_before_fsync() -> Any:
    """Frames are acknowledged when they are written, not when they are synced."""
    return _groups_synced_by(lambda file: None)


def failed_fsync_retried() -> Any:
    """A failed sync is tried again; the second one reports a success that is none."""

    def sync(file: Any) -> None:
        with suppress(OSError):
            file.datasync()
            return
        file.datasync()

    return _groups_synced_by(sync)


@contextmanager
def recovery_drops_last_frame() -> Iterator[None]:
    """The last frame that is not known to have been durable is taken for torn."""
    right = local.find_tail

    def wrong(*arguments: Any, **options: Any) -> Any:
        tail = right(*arguments, **options)
        if tail.carried:
            tail.carried = tail.carried[:-1]
            tail.end -= 1
        return tail

    with planted(local, "find_tail", wrong):
        yield


@contextmanager
def torn_tail_not_copied() -> Iterator[None]:
    """Frames that recovery found are trusted where they are: a power cut after a kill takes them."""
    right = local.find_tail

    def wrong(*arguments: Any, **options: Any) -> Any:
        tail = right(*arguments, **options)
        tail.mark = tail.end
        tail.carried = []
        return tail

    with planted(local, "find_tail", wrong):
        yield
