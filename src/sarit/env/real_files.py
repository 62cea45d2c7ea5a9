"""The file system of the machine, as a port of `env/ports.py`.

Large writes to files of whole blocks ("blocks") use O_DIRECT.  Copying into aligned memory and writing that costs half
of a write through the page cache.  Small writes do not: the copy holds the GIL, and their latency matters more
(docs/decisions/0304).  Scans use O_DIRECT, too, into memory made for each read, without a copy (docs/decisions/0305).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.env.limits import (
    DIRECT_BACKGROUND_WRITE_BYTES,
    DIRECT_READ_PIECE_BYTES,
    DIRECT_STAGING_BYTES,
    DIRECT_WRITE_BYTES,
    DISK_BLOCK_BYTES,
)
from sarit.env.real_memory import ReadMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.env.ports import Buffer

# Files made here hold users' events, so other users of this machine cannot read them, whatever the umask.
_ONLY_OWNER: Final = 0o600
_ONLY_OWNER_ENTERS: Final = 0o700
_MAX_PARTS_PER_WRITE: Final = 1024  # IOV_MAX on Linux
_FLAGS: Final = {
    "read": os.O_RDONLY | os.O_CLOEXEC,
    "scan": os.O_RDONLY | os.O_CLOEXEC,
    "write": os.O_RDWR | os.O_CLOEXEC,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
    "blocks": os.O_RDWR | os.O_CLOEXEC,
}
_WRITE_AND_SYNC: Final = getattr(os, "RWF_DSYNC", 0)
_UNKNOWN_FLAG: Final = (errno.EOPNOTSUPP, errno.ENOSYS)


class RealFile:
    """An open file descriptor."""

    def __init__(self, path: str, mode: str) -> None:
        self.path = path
        self._blocks = mode == "blocks"
        self._direct_io = self._direct_io_refused = False
        self._syncs_writes = _WRITE_AND_SYNC != 0
        self._fd = os.open(path, _FLAGS[mode], _ONLY_OWNER)
        if mode == "scan":
            with suppress(OSError):
                # File systems without O_DIRECT refuse it: the reads then go through the page cache.
                self._set_direct_io(True)
            if not self._direct_io:
                self._read_ahead()

    def __repr__(self) -> str:
        return f"<RealFile {self.path}>"

    def pread(self, length: int, offset: int) -> bytes:
        """Return `length` bytes from `offset`, or fewer where the file ends."""
        data = os.pread(self._fd, length, offset)
        # Returns the first piece at once if it is all, the common case: no join.
        if len(data) == length or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < length:
            more = os.pread(self._fd, length - got, offset + got)
            if not more:
                break
            pieces.append(more)
            got += len(more)
        return b"".join(pieces)

    def scan(self, length: int, offset: int) -> Buffer:
        """Read as `pread` does from a file opened with "scan", into memory that only the result refers to."""
        if length <= 0:
            return b""
        # Reads whole blocks, as O_DIRECT requires; the result is a view of the part that was asked for.
        before = offset % DISK_BLOCK_BYTES
        size = before + length + -(before + length) % DISK_BLOCK_BYTES
        memory = _memory.take(size)
        got = self._fill(memory, offset - before)
        return memory[before : min(got, before + length)]

    def _fill(self, memory: memoryview, offset: int) -> int:
        """Fill `memory` with whole blocks.  Returns the bytes read, which are fewer where the file ends."""
        got = 0
        while got < len(memory):
            try:
                count = os.preadv(self._fd, [memory[got : got + DIRECT_READ_PIECE_BYTES]], offset + got)
            except OSError as error:
                if error.errno != errno.EINVAL or not self._direct_io:
                    raise
                self._set_direct_io(False)  # the file system has no direct reads, or none of such blocks
                self._read_ahead()
                continue
            got += count
            if not count:
                break
            if self._direct_io and count % DISK_BLOCK_BYTES:
                # A direct read ends within a block at the end of the file, or when it was cut short.
                if offset + got >= self.size():
                    break
                self._set_direct_io(False)  # the rest does not begin at a block, so it cannot be read directly
                self._read_ahead()
        return got

    def _read_ahead(self) -> None:
        # Without this a cold read was measured to take ten times the processor time at a fifth of the speed.
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write all parts one after the other; after a short write, continue where it stopped."""
        return self._write(parts, offset, self._checked_size(parts, offset), DIRECT_BACKGROUND_WRITE_BYTES)

    def _write(self, parts: Sequence[Buffer], offset: int, size: int, direct_bytes: int) -> int:
        if self._blocks:
            if size >= direct_bytes and not self._direct_io_refused and self._write_blocks(parts, offset, size):
                return size
            self._set_direct_io(False)
        # Writes through the page cache, so memory and lengths of the parts need no alignment.
        total = 0
        for at in range(0, len(parts), _MAX_PARTS_PER_WRITE):
            total += self._write_group(parts[at : at + _MAX_PARTS_PER_WRITE], offset + total, 0)
        return total

    def pwrite_durably(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write and sync, by one system call if the parts are neither large nor many (docs/internals/tuning.md)."""
        size = self._checked_size(parts, offset)
        # Limits the number of parts: more would take several calls, each with a sync.
        if self._syncs_writes and size < DIRECT_WRITE_BYTES and len(parts) <= _MAX_PARTS_PER_WRITE:
            self._set_direct_io(False)
            try:
                return self._write_group(parts, offset, _WRITE_AND_SYNC)
            except OSError as error:
                if error.errno not in _UNKNOWN_FLAG:
                    raise
                self._syncs_writes = False  # the system refused the flag before it wrote anything
        self._write(parts, offset, size, DIRECT_WRITE_BYTES)
        self.datasync()
        return size

    def _checked_size(self, parts: Sequence[Buffer], offset: int) -> int:
        size = sum(map(len, parts))
        if self._blocks and (size % DISK_BLOCK_BYTES or offset % DISK_BLOCK_BYTES):
            raise ValueError(f"{size} bytes at {offset} of {self.path} are not whole blocks")
        return size

    def _write_group(self, group: Sequence[Buffer], offset: int, flags: int) -> int:
        size = sum(map(len, group))
        # The system may write less, on a full disk for example; the next call then gets the error.
        written = os.pwritev(self._fd, group, offset, flags)
        while written < size:
            count = os.pwritev(self._fd, _after(group, written), offset + written, flags)
            if not count:
                raise OSError(errno.EIO, "the write made no progress", self.path)
            written += count
        return written

    def _write_blocks(self, parts: Sequence[Buffer], offset: int, size: int) -> bool:
        """Write with O_DIRECT from aligned memory.  Returns False, with nothing written, where it is not supported."""
        # Copies the parts piece by piece into aligned memory, which O_DIRECT needs.
        staging = _staging()
        total = filled = 0
        try:
            self._set_direct_io(True)
            for part in parts:
                at = 0
                while at < len(part):
                    count = min(len(part) - at, DIRECT_STAGING_BYTES - filled)
                    staging[filled : filled + count] = part if count == len(part) else memoryview(part)[at : at + count]
                    filled += count
                    at += count
                    if filled == DIRECT_STAGING_BYTES:
                        self._write_staged(staging, filled, offset + total)
                        total += filled
                        filled = 0
            self._write_staged(staging, filled, offset + total)
        except OSError as error:
            # EINVAL means a missing feature only before the first piece was written.
            if error.errno != errno.EINVAL or total:
                raise
            self._direct_io_refused = True  # direct writes are not supported here; nothing was written
            self._set_direct_io(False)
            return False
        assert total + filled == size
        return True

    def _write_staged(self, staging: memoryview, size: int, offset: int) -> None:
        written = 0
        while written < size:
            count = os.pwrite(self._fd, staging[written:size], offset + written)
            if written + count < size:
                # The next write must begin at a block: write the part of a block once more.
                count -= count % DISK_BLOCK_BYTES
            if count <= 0:
                raise OSError(errno.EIO, "the write made no progress", self.path)
            written += count

    def _set_direct_io(self, wanted: bool) -> None:
        if wanted != self._direct_io:
            flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT)
            self._direct_io = wanted

    def datasync(self) -> None:
        """Make the data and the length of the file durable (fdatasync)."""
        os.fdatasync(self._fd)

    def forget(self, offset: int, length: int) -> None:
        """Drop the whole synced pages of a range from the page cache."""
        with suppress(OSError):  # a sandbox may refuse the call, which is only advice to the system
            os.posix_fadvise(self._fd, offset, length, os.POSIX_FADV_DONTNEED)

    def allocate(self, length: int) -> None:
        """Give the file real, zeroed blocks up to a length."""
        os.posix_fallocate(self._fd, 0, length)

    def size(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._fd).st_size

    def truncate(self, length: int) -> None:
        """Cut or extend the file to a length."""
        os.ftruncate(self._fd, length)

    def lock(self) -> bool:
        """Take an exclusive lock for the life of this file."""
        try:
            # flock belongs to the open file, not to the process: a second opening in this process is refused, too.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Release the descriptor; closing twice is harmless."""
        # Forgets the number first: at a second `close` it may belong to another file.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_staging_of_thread = threading.local()
_memory = ReadMemory()
MAX_DURABLE_DIRECTORIES = 10_000
# Errors of file systems without hard links, or without links across directories.
_NO_LINKS: Final = frozenset(
    (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES, errno.EINVAL)
)


def _staging() -> memoryview:
    """Return this thread's aligned memory."""
    found: memoryview | None = getattr(_staging_of_thread, "memory", None)
    if found is None:
        found = _staging_of_thread.memory = memoryview(mmap.mmap(-1, DIRECT_STAGING_BYTES))
    return found


def _after(parts: Sequence[Buffer], skipped: int) -> list[memoryview]:
    """Return the rest of `parts` after a short write of `skipped` bytes."""
    rest = []
    for part in parts:
        if skipped < len(part):
            rest.append(memoryview(part)[skipped:])
            skipped = 0
        else:
            skipped -= len(part)
    return rest


class RealFiles:
    """The machine's file system."""

    def __init__(self) -> None:
        self._durable: set[str] = set()

    def open(self, path: str, mode: str) -> RealFile:
        """Open a file; see `ports.Files.open`."""
        return RealFile(path, mode)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of that name exists."""
        return os.path.exists(path)

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(directory))

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents, each durable in its own parent when this returns.

        Existing ones are synced, too: another thread or a killed process may have made one without a sync.
        """
        unknown = []
        at = os.path.abspath(path)
        # Checks also the directories known to be durable: an operator may have removed one.
        while at != "/" and not (at in self._durable and os.path.isdir(at)):
            unknown.append(at)
            at = os.path.dirname(at)
        # Goes from the top down: each directory is synced in its parent before anything is made in it.
        for directory in reversed(unknown):
            try:
                os.mkdir(directory, _ONLY_OWNER_ENTERS)
            except OSError:  # the directory exists, the file system is read-only, or permission is denied
                if not os.path.isdir(directory):
                    raise
                # A parent above the data directory may not be readable; it was there before.
                with suppress(PermissionError):
                    self.sync_dir(os.path.dirname(directory))
            else:
                self.sync_dir(os.path.dirname(directory))
            if len(self._durable) >= MAX_DURABLE_DIRECTORIES:
                # Forgetting costs a sync for each directory, nothing else.
                self._durable.clear()
            self._durable.add(directory)

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; durable after `sync_dir`."""
        os.rename(source, target)

    def rename_new(self, source: str, target: str) -> None:
        """Rename by a hard link, which fails when the target exists; durable after `sync_dir`.

        A crash between link and unlink leaves both names."""
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(target):  # without hard links, this check is the best there is
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
            os.rename(source, target)
        else:
            os.unlink(source)

    def remove(self, path: str) -> None:
        """Unlink a file; durable after `sync_dir`."""
        os.unlink(path)

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable (fsync)."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        """Return the bytes that unprivileged writers may still write."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def volume_bytes(self, path: str) -> int:
        """Return the size of the file system in bytes."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize
