"""Allocates and recycles log files.  All calls block, and come from one thread at a time.

A recycled file keeps its blocks, so that the next log file needs no allocation.  On the disk its name ends in `.spare`.

Files of one log differ in length: the first ones are short (`first_file_bytes`), and the log asks for longer ones while
it holds several.  The last file of `recycled` is the reserve for the next opening.  It is as long as the newest log
file, so that it has room for copies of the last group even on a full disk.

Two orders matter (docs/formats/durable-log.md, Directory):

1. Sync the header, then rename the file to `.log`, then sync the directory, then use the file.
2. Rename a truncated file to `.spare`, then sync the directory, then write to it.  Otherwise a crash could bring the
   old name back over the new content.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.limits import LOG_IDENTITY_BYTES
from sarit.log.limits import FIRST_LOG_FILE_BYTES, LOG_BLOCK_BYTES, LOG_FILE_GROWTH, LOG_SALT_BYTES
from sarit.log.records import FRAME, LOG, MAX_HEADER_BLOCKS, NEW, RECYCLED, FileHeader, GroupEncoder, file_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import File, Files, Random
    from sarit.log.records import Record

NO_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
# The least length of a file: the header, three groups, and the block for the record that another file follows.
_LEAST_FILE_BYTES: Final = 5 * LOG_BLOCK_BYTES


def first_file_bytes(file_bytes: int) -> int:
    """Return the length of the first files of a log whose files have at most `file_bytes`."""
    return min(file_bytes, FIRST_LOG_FILE_BYTES, max(file_bytes // LOG_FILE_GROWTH, _LEAST_FILE_BYTES))


@dataclass(slots=True)
class WritableFile:
    """A log file of this owner, whose name and header are durable.  `position` and `capacity` are in bytes."""

    file: File
    path: str
    header: FileHeader
    capacity: int
    position: int
    first: int | None = None
    # Whether a durable record of this file says that the next file exists.
    followed: bool = False


class LogFileAllocator:
    """The files of one log's directory, except those that are being written or read."""

    def __init__(
        self, files: Files, random: Random, directory: str, container: int, file_bytes: int, max_recycled: int,
        identity: bytes = b"",
    ) -> None:  # fmt: skip
        self._files = files
        self._random = random
        self._directory = directory
        self._container = container
        self._file_bytes = file_bytes
        # The length of the newest log file; before the first one, the least length.
        self._made_bytes = first_file_bytes(file_bytes)
        self._max_recycled = max_recycled
        # A log without files gets a new identity.
        self._identity = identity or random.bytes(LOG_IDENTITY_BYTES)
        self.next_sequence = 1
        self.recycled: list[str] = []

    def __repr__(self) -> str:
        return f"<LogFileAllocator {self._directory} next {self.next_sequence}, {len(self.recycled)} recycled>"

    def adopt(self, recycled: Sequence[str]) -> None:
        """Take over the recycled files of earlier epochs; the longest becomes the reserve.  Raises OSError."""
        self.recycled = sorted(recycled, key=self._length)

    def make(
        self, epoch: int, base: int, durable: int, carried: Sequence[Record] = (), *, opening: bool = False,
        length: int = 0,
    ) -> WritableFile:  # fmt: skip
        """Make the next log file, of about `length` bytes, with copies of the `carried` records.

        Only the first file of an epoch (`opening`) may use the reserve, so that the log can be opened on a full disk.
        Raises OSError; one of NO_SPACE_ERRNOS leaves everything as it was."""
        sequence = self._take_sequence()
        length = max(first_file_bytes(self._file_bytes), min(length, self._file_bytes))
        # A failure below loses the sequence number: readers permit gaps.
        salt = self._random.bytes(LOG_SALT_BYTES)
        recycled = len(self.recycled) > (not opening)
        taken = -1 if opening else 0
        source = self.recycled[taken] if recycled else self._allocate(sequence, length)
        if recycled:
            coverage_probe("log_file_recycled")
        path = self._path(sequence, LOG)
        file = self._files.open(source, "blocks")
        try:
            if file.size() < length:
                _lengthen(file, length)
            blocks = min(file.size() // LOG_BLOCK_BYTES, MAX_HEADER_BLOCKS)
            header = FileHeader(self._container, sequence, epoch, base, durable, salt, self._identity, blocks)
            group = GroupEncoder(header, LOG_BLOCK_BYTES)
            for record in carried:
                group.add(FRAME, record.epoch, record.number, base, [record.payload])
            position = LOG_BLOCK_BYTES + group.finish()
            # Sync header and copies before the rename: a `.log` file without a valid header counts as damaged.
            file.pwrite([header.block(), *group.parts], 0)
            file.datasync()
            self._files.rename(source, path)
            if recycled:
                del self.recycled[taken]
            self._files.sync_dir(self._directory)
            # The copies may have made the file longer than `length`.
            self._made_bytes = file.size()
        except OSError:
            file.close()
            raise
        return WritableFile(file, path, header, self._made_bytes, position, carried[0].number if carried else None)

    def reserve(self) -> bool:
        """Make sure that the reserve exists and is as long as the newest log file.  Returns false on a full disk."""
        if self.recycled:
            file = self._files.open(self.recycled[-1], "blocks")
            try:
                return file.size() >= self._made_bytes or _lengthen(file, self._made_bytes)
            finally:
                file.close()
        sequence = self._take_sequence()
        try:
            source = self._allocate(sequence, self._made_bytes)
        except OSError as error:
            if error.errno in NO_SPACE_ERRNOS:
                return False
            raise
        self.recycle([source])
        return True

    def recycle(self, paths: Sequence[str]) -> None:
        """Recycle files, up to the maximum; remove the others.  Raises OSError."""
        recycled: list[str] = []
        for path in paths:
            if len(self.recycled) + len(recycled) >= self._max_recycled:
                self._files.remove(path)
                continue
            recycled.append(f"{path.rpartition('.')[0]}.{RECYCLED}")
            self._files.rename(path, recycled[-1])
        self._files.sync_dir(self._directory)
        # Let `make` use the files only after the sync (order 2 above).  Insert them before the reserve, which must stay
        # last: they may be shorter.
        self.recycled[:0] = recycled

    @property
    def recycled_count(self) -> int:
        """How many recycled files there are; safe to read on another thread."""
        return len(self.recycled)

    def release_recycled(self, retained: int = 1) -> None:
        """Remove recycled files until `retained` are left: the next opening needs the last one.  Raises OSError."""
        # No sync of the directory is needed: a removed file that a crash brings back is still a recycled file.
        while len(self.recycled) > retained:
            self._files.remove(self.recycled.pop(0))

    def discard(self, paths: Sequence[str]) -> None:
        """Remove files whose allocation a crash interrupted."""
        for path in paths:
            self._files.remove(path)

    def _take_sequence(self) -> int:
        sequence = self.next_sequence
        self.next_sequence += 1
        return sequence

    def _path(self, sequence: int, kind: str) -> str:
        return f"{self._directory}/{file_name(sequence, kind)}"

    def _length(self, path: str) -> int:
        file = self._files.open(path, "read")
        try:
            return file.size()
        finally:
            file.close()

    def _allocate(self, sequence: int, length: int) -> str:
        path = self._path(sequence, NEW)
        file = self._files.open(path, "create")
        try:
            file.allocate(length)
            file.datasync()
        except OSError:
            with contextlib.suppress(OSError):  # otherwise the next opening removes the file
                self._files.remove(path)
            raise
        finally:
            file.close()
        return path


def _lengthen(file: File, length: int) -> bool:
    """Preallocate up to `length` in a recycled file.  Returns false on a full disk, which leaves the file as it was."""
    try:
        file.allocate(length)
        file.datasync()
    except OSError as error:
        if error.errno in NO_SPACE_ERRNOS:
            coverage_probe("log_file_stayed_short")
            return False
        raise
    return True
