"""A directory of one process, which the next process empties or removes if this one is killed.

It lies in a directory that the process has to itself, or among temporary files.  There its owner holds a lock on it:
one whose lock is free was left behind, by a process of the same user.

*Warning.*  Between the creation of a directory and its lock, another process may remove it.  Then it cannot be locked,
or has no name any more: both are checked, and another one is made.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sarit.env.ports import File, Files

_PREFIX: Final = "sarit-search-"
_MAX_ATTEMPTS: Final = 16


class PrivateDirectory:
    """A directory for temporary files, until it is removed or the process ends.  Calls block.

    `lock`: held until then; None: no other process comes to its place."""

    def __init__(self, path: Path, lock: File | None = None) -> None:
        self.path = path
        self._lock = lock

    def __repr__(self) -> str:
        return f"<PrivateDirectory {self.path}>"

    def remove(self) -> None:
        """Remove the directory and what it has, as far as that is possible."""
        try:
            _remove(self.path)
        finally:
            if self._lock is not None:
                self._lock.close()


def make_at(path: Path) -> PrivateDirectory:
    """Return the directory at a place of this process alone, without what is there.  Blocks.  Raises OSError."""
    _clear(path)
    return PrivateDirectory(path)


def make(files: Files) -> PrivateDirectory:
    """Make a directory among temporary files, and remove those that killed processes have left.  Blocks.

    Raises OSError."""
    for name in files.list(tempfile.gettempdir()):
        if name.startswith(_PREFIX):
            _remove_if_left(files, Path(tempfile.gettempdir()) / name)
    for _ in range(_MAX_ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(FileNotFoundError):
            lock = files.open(str(path), "read")
            if lock.lock() and files.exists(str(path)):
                return PrivateDirectory(path, lock)
            lock.close()
    raise OSError(f"no directory in {tempfile.gettempdir()} can be locked: its file system may not support locks")


def _remove(directory: Path) -> None:
    """Remove a directory and what it has, as far as that is possible.  Blocks."""
    with suppress(OSError):  # a search that still runs may write there; the next process removes it
        _clear(directory)
        directory.rmdir()


def _clear(directory: Path) -> None:
    """Remove what an earlier process has left in a directory.  Blocks.  Raises OSError."""
    for folder, folders, files in os.walk(directory, topdown=False):
        for name in files:
            (Path(folder) / name).unlink(missing_ok=True)
        for name in folders:
            (Path(folder) / name).rmdir()


def _remove_if_left(files: Files, path: Path) -> None:
    with suppress(OSError):  # another process has removed it; or it cannot be locked
        found = path.lstat()
        # Only our own: what others make among temporary files may be a link to anywhere.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return
        lock = files.open(str(path), "read")
        try:
            if lock.lock():
                _remove(path)
        finally:
            lock.close()
