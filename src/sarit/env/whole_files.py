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
    """Replace a file atomically, or create it; durable when this returns.  Blocks.  Raises OSError.

    A temporary file of an earlier attempt is removed, not reused: its sync may have failed."""
    temporary = path + ".new"
    # A crash or an error may have left the temporary file.
    if files.exists(temporary):
        files.remove(temporary)
    file = files.open(temporary, "create")
    try:
        file.pwrite([data], 0)
        file.datasync()
    finally:
        file.close()
    # Syncs the content before the rename, and the directory after it: a reader finds the old file or the new one.
    files.rename(temporary, path)
    files.sync_dir(path.rpartition("/")[0])
