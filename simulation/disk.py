"""The simulated disk, and its fault model:

- **Unsynced writes** (`pwrite`, `allocate`, `truncate`) are in a page cache.  At a power cut (`crash`) any subset of
them
  may have reached the disk, in any order, torn at sectors of 512 bytes; a sector is old or new, never half.
  `datasync` makes them durable, with the length.
- **Directory entries** (create, rename, remove) are durable only after `sync_dir` of their directory, not after a sync
of
  the file.  At a power cut any subset of the pending ones may have happened.  A rename is atomic; one whose source is
  missing did not happen.
- **A failed sync** (EIO) leaves every page of 4 KiB that was dirty undefined on the disk: old, new or zeros.
  The cache still shows the new bytes and counts them as clean: the next sync succeeds and writes nothing.  (Linux,
  ext4; "fsyncgate".)
- **A failed write** (EIO) may have put any of its sectors into the cache.
- **Disk full**: `allocate` and growing writes raise ENOSPC beyond `capacity_bytes`.
- **Bit rot**: `flip` changes one durable bit.
- **Death of the process** (`kill`): handles and locks end, the page cache survives.  Unsynced bytes can be read, and
  still be lost by a later power cut.

It does not lie about a successful sync, tear a sector, lose synced data, or delay one file against another.
`make_dirs` is durable at once, as the port promises.  The threads that call it are in `simulation/threads.py`.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.env.limits import DISK_BLOCK_BYTES
from simulation.inodes import EntryChange, Inode, LengthChange, SectorWrite, apply_change, apply_entry, directory_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Buffer

SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


@dataclass(slots=True)
class DiskFaults:
    """Faults, by probability or by count.  `sync_error_in`: the n-th sync from now fails (1: the next)."""

    sync_error: float = 0.0
    write_error: float = 0.0
    sync_error_in: int = 0
    write_error_in: int = 0


class SimulatedDisk:
    """One machine's file system (`Files` of env/ports.py)."""

    def __init__(self, rng: random.Random, capacity_bytes: int = 1 << 40) -> None:
        self.rng = rng
        self.capacity_bytes = capacity_bytes
        self.faults = DiskFaults()
        self.boot = 0
        # Called before every change: a point where the power may fail.
        self.listeners: list[Callable[[str], None]] = []
        self._directories: set[str] = {"", "/"}
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._entry_changes: list[EntryChange] = []
        self._locks: dict[str, SimulatedFile] = {}

    def __repr__(self) -> str:
        return f"<SimulatedDisk {len(self._names)} files, {self.used_bytes()} bytes, boot {self.boot}>"

    # -- Files ----------------------------------------------------------------------------------

    def open(self, path: str, mode: str) -> SimulatedFile:
        """See `ports.Files.open`."""
        if path in self._directories:
            if mode != "read":
                raise _error(errno.EISDIR, path)
            return SimulatedFile(self, path, Inode(), mode)
        inode = self._names.get(path)
        if mode == "create":
            if inode is not None:
                raise _error(errno.EEXIST, path)
            self._need_directory(path)
            inode = Inode()
            self._change_entry(EntryChange(None, path, inode), "create")
        elif inode is None:
            raise _error(errno.ENOENT, path)
        return SimulatedFile(self, path, inode, mode)

    def exists(self, path: str) -> bool:
        """See `ports.Files.exists`."""
        return path in self._names or path in self._directories

    def list(self, directory: str) -> list[str]:
        """See `ports.Files.list`."""
        if directory not in self._directories:
            raise _error(errno.ENOENT, directory)
        paths = (*self._names, *self._directories)
        return sorted(path.rpartition("/")[2] for path in paths if path and path.rpartition("/")[0] == directory)

    def make_dirs(self, path: str) -> None:
        """See `ports.Files.make_dirs`."""
        while path not in self._directories:
            self._directories.add(path)
            path = path.rpartition("/")[0]

    def rename(self, source: str, target: str) -> None:
        """See `ports.Files.rename`."""
        inode = self._names.get(source)
        if inode is None:
            raise _error(errno.ENOENT, source)
        self._need_directory(target)
        self._change_entry(EntryChange(source, target, inode), "rename")

    def rename_new(self, source: str, target: str) -> None:
        """See `ports.Files.rename_new`."""
        if self.exists(target):
            raise _error(errno.EEXIST, target)
        self.rename(source, target)

    def remove(self, path: str) -> None:
        """See `ports.Files.remove`."""
        inode = self._names.get(path)
        if inode is None:
            raise _error(errno.ENOENT, path)
        self._change_entry(EntryChange(path, None, inode), "remove")

    def sync_dir(self, path: str) -> None:
        """See `ports.Files.sync_dir`."""
        self.changing("sync_dir")
        pending = []
        for change in self._entry_changes:
            if directory_of(change) == path:
                apply_entry(self._durable_names, change)
            else:
                pending.append(change)
        self._entry_changes = pending

    def free_bytes(self, path: str) -> int:
        """See `ports.Files.free_bytes`."""
        return max(0, self.capacity_bytes - self.used_bytes())

    def volume_bytes(self, path: str) -> int:
        """See `ports.Files.volume_bytes`."""
        return self.capacity_bytes

    # -- faults -----------------------------------------------------------------------------------

    def used_bytes(self) -> int:
        """Bytes of all files."""
        return sum(len(inode.content) for inode in self._names.values())

    def pending(self) -> Sequence[tuple[Inode | None, SectorWrite | LengthChange | EntryChange]]:
        """All changes that a power cut may or may not lose, oldest first within a file."""
        inodes = {id(inode): inode for inode in (*self._durable_names.values(), *self._names.values())}
        return [
            *((inode, change) for inode in inodes.values() for change in inode.pending),
            *((None, change) for change in self._entry_changes),
        ]

    def image(self, retained: Callable[[int], bool]) -> SimulatedDisk:
        """The disk after a power cut that retained the pending changes whose index `retained` accepts."""
        image = SimulatedDisk(self.rng, self.capacity_bytes)
        image._directories = set(self._directories)
        copies: dict[int, Inode] = {}
        names = dict(self._durable_names)
        for index, (inode, change) in enumerate(self.pending()):
            if inode is None:
                assert isinstance(change, EntryChange)
                if retained(index) and (change.source is None or names.get(change.source) is change.inode):
                    apply_entry(names, change)
            elif retained(index):
                assert not isinstance(change, EntryChange)
                copy = copies.setdefault(id(inode), Inode(bytearray()))
                if not copy.pending:
                    copy.durable = bytearray(inode.durable)
                copy.pending.append(change)
                apply_change(copy.durable, change)
        for copy in copies.values():
            copy.pending.clear()
        for name, inode in names.items():
            image._names[name] = copies.setdefault(id(inode), Inode(bytearray(inode.durable)))
        image._durable_names = dict(image._names)
        return image

    def crash(self) -> SimulatedDisk:
        """Cut the power: this disk's handles end; returns the disk that the machine starts with again."""
        self._end_process()
        rng, count = self.rng, len(self.pending())
        share = rng.choice((0.0, 1.0, rng.random()))
        keep = [rng.random() < share for _ in range(count)]
        if count and rng.random() < 0.3:  # in order, up to a moment
            moment = rng.randrange(count + 1)
            keep = [index < moment for index in range(count)]
        after = self.image(keep.__getitem__)
        after.boot = self.boot
        after.faults = self.faults
        return after

    def kill(self) -> None:
        """The process dies, the machine does not: handles and locks end, the page cache survives."""
        self._end_process()

    def evict(self) -> None:
        """Evict clean files from the page cache: after a failed sync, readers then see what the disk has."""
        for inode in self._names.values():
            if not inode.pending:
                inode.cached = None

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Bit rot: change one bit on the disk."""
        inode = self._names[path]
        inode.durable[offset] ^= 1 << bit
        if inode.cached is not None:
            inode.cached[offset] ^= 1 << bit

    def may_be_taken(self, path: str) -> bool:
        """Whether a file and its directory have no unsynced change."""
        folder = path.rpartition("/")[0]
        entries = any(directory_of(change) == folder for change in self._entry_changes)
        return not entries and not self._names[path].pending

    def take(self, path: str) -> Inode:
        """Remove a file, as a disk that is not mounted does; `put_back` undoes it."""
        assert self.may_be_taken(path), path
        self._durable_names.pop(path, None)
        return self._names.pop(path)

    def put_back(self, path: str, inode: Inode) -> None:
        """Undo `take`."""
        self._names[path] = self._durable_names[path] = inode

    def content(self, path: str) -> bytes:
        """What a reader would see."""
        return bytes(self._names[path].content)

    def changing(self, what: str) -> None:
        """Notify the listeners of a change."""
        for listener in self.listeners:
            listener(what)

    def _end_process(self) -> None:
        self.boot += 1
        self._locks.clear()

    def _need_directory(self, path: str) -> None:
        if path.rpartition("/")[0] not in self._directories:
            raise _error(errno.ENOENT, path)

    def _change_entry(self, change: EntryChange, what: str) -> None:
        self.changing(what)
        apply_entry(self._names, change)
        self._entry_changes.append(change)


class SimulatedFile:
    """An open file of a simulated disk (`File` of env/ports.py)."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode, mode: str) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = mode not in ("read", "scan")
        self._whole_blocks = mode == "blocks"
        self._scanned = mode == "scan"
        self._boot = disk.boot
        self._closed = False

    def __repr__(self) -> str:
        return f"<SimulatedFile {self._path}>"

    def pread(self, length: int, offset: int) -> bytes:
        """See `ports.File.pread`."""
        assert not self._scanned, f"{self._path} was opened to be scanned"
        self._check()
        return bytes(memoryview(self._inode.content)[offset : offset + length])

    def scan(self, length: int, offset: int) -> Buffer:
        """See `ports.File.scan`."""
        assert self._scanned, f"{self._path} was not opened to be scanned"
        self._check()
        return memoryview(bytes(self._inode.content[offset : offset + length]))

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> int:
        """See `ports.File.pwrite`."""
        self._check(write=True)
        data = b"".join(parts)
        if self._whole_blocks and (len(data) % DISK_BLOCK_BYTES or offset % DISK_BLOCK_BYTES):
            raise ValueError(f"{len(data)} bytes at {offset} of {self._path} are not whole blocks")
        self._need_space(offset + len(data))
        fails = self._fails("write_error")
        self._disk.changing("pwrite")
        at = 0
        while at < len(data):
            size = min(len(data) - at, SECTOR_BYTES - (offset + at) % SECTOR_BYTES)
            if not fails or self._disk.rng.random() < 0.5:
                self._inode.change(SectorWrite(offset + at, data[at : at + size]))
            at += size
        if fails:
            raise _error(errno.EIO, self._path)
        return len(data)

    def pwrite_durably(self, parts: Sequence[Buffer], offset: int) -> int:
        """See `ports.File.pwrite_durably`; the write, the sync, or the machine between them may fail."""
        assert not self._inode.pending, f"{self._path}: earlier writes must not become durable by this"
        written = self.pwrite(parts, offset)
        self.datasync()
        return written

    def datasync(self) -> None:
        """See `ports.File.datasync`."""
        self._check()
        self._disk.changing("datasync")
        inode, rng = self._inode, self._disk.rng
        if self._fails("sync_error"):
            pages = {c.offset // PAGE_BYTES for c in inode.pending if isinstance(c, SectorWrite)}
            outcome = {page: rng.choice(("old", "new", "zeros")) for page in sorted(pages)}
            for change in inode.pending:
                if isinstance(change, LengthChange) or outcome[change.offset // PAGE_BYTES] == "new":
                    apply_change(inode.durable, change)
            for page, result in outcome.items():
                end = min((page + 1) * PAGE_BYTES, len(inode.durable))
                if result == "zeros":
                    inode.durable[page * PAGE_BYTES : end] = bytes(max(0, end - page * PAGE_BYTES))
            inode.pending.clear()
            raise _error(errno.EIO, self._path)
        for change in inode.pending:
            apply_change(inode.durable, change)
        inode.pending.clear()

    def forget(self, offset: int, length: int) -> None:
        """See `ports.File.forget`: no visible effect."""
        self._check()

    def allocate(self, length: int) -> None:
        """See `ports.File.allocate`."""
        self._check(write=True)
        self._need_space(length)
        if length > self.size():
            self._disk.changing("allocate")
            self._inode.change(LengthChange(length))

    def size(self) -> int:
        """See `ports.File.size`."""
        self._check()
        return len(self._inode.content)

    def truncate(self, length: int) -> None:
        """See `ports.File.truncate`."""
        self._check(write=True)
        self._need_space(length)
        self._disk.changing("truncate")
        self._inode.change(LengthChange(length))

    def lock(self) -> bool:
        """See `ports.File.lock`."""
        self._check()
        return self._disk._locks.setdefault(self._path, self) is self

    def close(self) -> None:
        """See `ports.File.close`."""
        if self._disk._locks.get(self._path) is self:
            del self._disk._locks[self._path]
        self._closed = True

    def _check(self, *, write: bool = False) -> None:
        if self._closed or (write and not self._writable):
            raise _error(errno.EBADF, self._path)
        if self._boot != self._disk.boot:
            raise _error(errno.ENODEV, self._path)

    def _need_space(self, length: int) -> None:
        if length - self.size() > self._disk.free_bytes(self._path):
            raise _error(errno.ENOSPC, self._path)

    def _fails(self, what: str) -> bool:
        faults = self._disk.faults
        countdown = getattr(faults, f"{what}_in")
        if countdown:
            setattr(faults, f"{what}_in", countdown - 1)
            return bool(countdown == 1)
        probability = getattr(faults, what)
        return bool(probability and self._disk.rng.random() < probability)
