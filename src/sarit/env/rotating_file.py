"""A log file of bounded size: when it is full it is renamed to FILE.1, the earlier FILE.1 to FILE.2, and so on.

Several processes may append to one file, and a tool may rename it: each write first checks whether the name still means
the open file.  The process that gets the lock of a full file renames it; the others then open the new one.  A file that
is not regular, such as /dev/stdout, is never renamed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import Final

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_ONLY_OWNER: Final = 0o600


class RotatingFile:
    """Appends to the file `path`, which may have `limit` bytes; at most `kept` older files are retained.

    Calls other than the constructor block: make them on a `Worker`.  All raise OSError."""

    def __init__(self, path: str, limit: int, kept: int) -> None:
        self.path = path
        self._limit = limit
        self._kept = kept
        self._torn = False  # the last write ended within a line
        self._fd = self._open()

    def __repr__(self) -> str:
        return f"<RotatingFile {self.path}>"

    def append(self, lines: bytes) -> None:
        """Append whole lines; after an error the file may hold some of them."""
        if self._moved():
            self._reopen()
        found = os.fstat(self._fd)
        if found.st_size and found.st_size + len(lines) > self._limit and stat.S_ISREG(found.st_mode):
            self._rotate()
        rest = memoryview(b"\n" + lines if self._torn else lines)
        while rest:
            written = os.write(self._fd, rest)
            if not written:
                raise OSError(errno.EIO, "the write made no progress", self.path)
            rest = rest[written:]
            self._torn = len(rest) > 0

    def close(self) -> None:
        """Release the descriptor; closing twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _open(self) -> int:
        return os.open(self.path, _FLAGS, _ONLY_OWNER)

    def _reopen(self) -> None:
        fd = self._open()  # opened before the old one is closed, which stays in use after an error
        self.close()
        self._fd = fd
        self._torn = False

    def _moved(self) -> bool:
        """Return whether the name now means another file than the open one, or none."""
        try:
            there, ours = os.stat(self.path), os.fstat(self._fd)
        except FileNotFoundError:
            return True
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def _rotate(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # held until `_reopen` closes the descriptor
        if not self._moved():  # otherwise another process has renamed it already
            for number in range(self._kept, 0, -1):
                with suppress(FileNotFoundError):
                    os.rename(self.path if number == 1 else f"{self.path}.{number - 1}", f"{self.path}.{number}")
        self._reopen()
