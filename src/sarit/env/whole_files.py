"""Small files that are read and replaced as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.env.ports import Files


def read_whole(files: Files, path: str) -> bytes:
    """Return the content of a file.  Blocks.  Raises OSError."""
    file = files.open(path, "read")
    try:
        return bytes(file.pread(file.size(), 0))
    finally:
        file.close()


def replace_whole(files: Files, path: str, data: bytes) -> None:
    """Replace a file atomically, or make it; durable when this returns.  Blocks.  Raises OSError.

    A temporary file of an earlier attempt is removed, not reused: its sync may have failed."""
    temporary = path + ".new"
    # Left by a crash or an error.
    if files.exists(temporary):
        files.remove(temporary)
    file = files.open(temporary, "create")
    try:
        file.pwrite([data], 0)
        file.datasync()
    finally:
        file.close()
    # Content first, then the name, then the directory: a reader finds the old file or the whole new one.
    files.rename(temporary, path)
    files.sync_dir(path.rpartition("/")[0])
