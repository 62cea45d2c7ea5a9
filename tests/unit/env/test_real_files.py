"""The machine's files: O_DIRECT and buffered writes, and what is durable when a call returns."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import subprocess
from typing import Any

import pytest

from sarit.env.limits import (
    DIRECT_BACKGROUND_WRITE_BYTES,
    DIRECT_READ_PIECE_BYTES,
    DIRECT_WRITE_BYTES,
    READ_BLOCK_BYTES,
)
from sarit.env.real_files import RealFiles
from sarit.store.limits import LARGE_PIECE_BYTES, SMALL_PIECE_BYTES


@pytest.fixture
def files() -> RealFiles:
    return RealFiles()


def test_parts_are_written_one_after_the_other(tmp_path, files) -> None:
    file = files.open(f"{tmp_path}/a", "create")
    assert file.pwrite([b"abc", bytearray(b"de"), memoryview(b"xfgx")[1:3], b""], 2) == 7
    assert file.pread(100, 0) == b"\0\0abcdefg"
    assert file.size() == 9


def test_a_short_write_goes_on_where_it_stopped(tmp_path, files, monkeypatch) -> None:
    """Cut at every place, also inside a part and between two."""
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset, flags: real(fd, [b"".join(parts)[:3]], offset))
    file = files.open(f"{tmp_path}/a", "create")
    parts = [b"ab", b"cdef", b"", b"ghi", b"jklmnopqrstuvw"]
    assert file.pwrite(parts, 5) == 23
    assert file.pread(100, 5) == b"".join(parts)


def test_whole_blocks_are_written_with_direct_io_for_any_parts(tmp_path, files, monkeypatch) -> None:
    """More than is staged at once, in parts of odd sizes; a short write goes on at a block."""
    real = os.pwrite
    sizes: list[int] = []

    def short(fd: int, data: memoryview, offset: int) -> int:
        sizes.append(len(data))
        return real(fd, data, offset) if len(sizes) > 1 else min(real(fd, data[: 4 * 4096], offset), 3 * 4096 + 512)

    monkeypatch.setattr(os, "pwrite", short)
    files.open(f"{tmp_path}/a", "create").close()
    parts = [bytes([n % 251]) * (n * 7919 % 70_001) for n in range(150)]
    parts.append(bytes(-sum(map(len, parts)) % 4096))
    file = files.open(f"{tmp_path}/a", "blocks")
    assert file.pwrite(parts, 8192) == sum(map(len, parts)) > 4 << 20
    assert files.open(f"{tmp_path}/a", "read").pread(100 << 20, 8192) == b"".join(parts)
    assert sizes[:2] == [4 << 20, (4 << 20) - 3 * 4096]  # a short write goes on at a block
    file.datasync()


@pytest.mark.parametrize(("parts", "offset"), [([b"abc"], 0), ([bytes(4096)], 512), ([bytes(4095), b"", b"12"], 0)])
def test_partial_blocks_are_refused_and_not_written(tmp_path, files, parts, offset) -> None:
    files.open(f"{tmp_path}/a", "create").close()
    file = files.open(f"{tmp_path}/a", "blocks")
    with pytest.raises(ValueError, match="whole blocks"):
        file.pwrite(parts, offset)
    assert file.size() == 0


@pytest.mark.parametrize("refused_by", ["fcntl", "pwrite"])
def test_writes_fall_back_to_page_cache_without_direct_io(tmp_path, files, monkeypatch, refused_by) -> None:
    real_fcntl, real_write = fcntl.fcntl, os.pwrite

    def fcntl_without(fd: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL and flags & os.O_DIRECT and refused_by == "fcntl":
            raise OSError(errno.EINVAL, "no direct writes here")
        return real_fcntl(fd, command, flags)

    def write_without(fd: int, data: memoryview, offset: int) -> int:
        if real_fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "larger blocks, please")
        return real_write(fd, data, offset)

    files.open(f"{tmp_path}/a", "create").close()
    monkeypatch.setattr(fcntl, "fcntl", fcntl_without)
    monkeypatch.setattr(os, "pwrite", write_without)
    file = files.open(f"{tmp_path}/a", "blocks")
    large = [b"x" * (3 << 19), b"y" * (3 << 19)]
    for at in (0, 3 << 20):
        assert file.pwrite(large, at) == 3 << 20
    assert files.open(f"{tmp_path}/a", "read").pread(9 << 20, 0) == b"".join(large) * 2


def test_small_and_large_writes_of_blocks_mix(tmp_path, files) -> None:
    files.open(f"{tmp_path}/a", "create").close()
    file = files.open(f"{tmp_path}/a", "blocks")
    expected, at = b"", 0
    for number in range(12):
        block = bytes([number]) * (4096 if number % 3 else 2 << 20)
        assert file.pwrite([block], at) == len(block)
        file.datasync()
        expected += block
        at += len(block)
    assert files.open(f"{tmp_path}/a", "scan").scan(len(expected) + 1, 0) == expected


def test_rate_limited_chunk_pieces_use_the_page_cache() -> None:
    assert SMALL_PIECE_BYTES < DIRECT_BACKGROUND_WRITE_BYTES <= LARGE_PIECE_BYTES, "they would hold up the log's syncs"


def test_background_writes_use_direct_io_from_a_smaller_size(tmp_path, files, monkeypatch) -> None:
    cached: list[int] = []
    real = os.pwritev

    def pwritev(fd: int, parts: Any, offset: int, flags: int = 0) -> int:
        cached.append(sum(map(len, parts)))
        return real(fd, parts, offset, flags)

    monkeypatch.setattr(os, "pwritev", pwritev)
    files.open(f"{tmp_path}/a", "create").close()
    file = files.open(f"{tmp_path}/a", "blocks")
    size = DIRECT_BACKGROUND_WRITE_BYTES
    file.pwrite([b"a" * size], 0)
    assert cached == []
    file.pwrite([b"b" * (size - 4096)], size)
    file.pwrite_durably([b"c" * size], 2 * size - 4096)  # the log's: appends wait for the copy, too
    assert cached == [size - 4096, size]
    assert files.open(f"{tmp_path}/a", "read").pread(4 * size, 0) == b"a" * size + b"b" * (size - 4096) + b"c" * size


@pytest.fixture
def calls(monkeypatch) -> list[tuple[str, int]]:
    """The writes and syncs there were, with their flags."""
    made: list[tuple[str, int]] = []
    write, sync = os.pwritev, os.fdatasync

    def pwritev(fd: int, parts: Any, offset: int, flags: int = 0) -> int:
        made.append(("write", flags))
        return min(write(fd, parts, offset, flags), 5)

    def fdatasync(fd: int) -> None:
        made.append(("sync", 0))
        sync(fd)

    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return made


def test_a_durable_write_is_one_call_that_syncs_what_it_writes(tmp_path, files, calls) -> None:
    """All of it: what a short write left is synced, too."""
    file = files.open(f"{tmp_path}/a", "create")
    assert file.pwrite_durably([b"abc", b"defgh"], 2) == 8
    assert file.pread(99, 0) == b"\0\0abcdefgh"
    assert calls == [("write", os.RWF_DSYNC)] * 2


def test_large_and_many_parts_are_written_and_then_synced(tmp_path, files, calls) -> None:
    for parts in ([bytes(DIRECT_WRITE_BYTES)], [b"1"] * 1025):
        calls.clear()
        files.open(f"{tmp_path}/{len(parts)}", "create").close()
        file = files.open(f"{tmp_path}/{len(parts)}", "blocks" if len(parts) == 1 else "write")
        assert file.pwrite_durably(parts, 0) == sum(map(len, parts))
        assert calls[-1] == ("sync", 0)
        assert ("write", os.RWF_DSYNC) not in calls


def test_durable_write_falls_back_to_write_and_sync(tmp_path, files, calls, monkeypatch) -> None:
    counted = os.pwritev

    def pwritev(fd: int, parts: Any, offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "no such flag")
        return counted(fd, parts, offset, flags)

    monkeypatch.setattr(os, "pwritev", pwritev)
    file = files.open(f"{tmp_path}/a", "create")
    for at in (0, 3):
        calls.clear()
        assert file.pwrite_durably([b"abc"], at) == 3
        assert calls == [("write", 0), ("sync", 0)]
    assert file.pread(99, 0) == b"abcabc"


def test_a_failed_durable_write_is_not_tried_in_another_way(tmp_path, files, calls, monkeypatch) -> None:
    def pwritev(fd: int, parts: Any, offset: int, flags: int = 0) -> int:
        raise OSError(errno.EIO, "a bad sector")

    monkeypatch.setattr(os, "pwritev", pwritev)
    with pytest.raises(OSError, match="bad sector"):
        files.open(f"{tmp_path}/a", "create").pwrite_durably([b"abc"], 0)
    assert calls == []


def test_scans_use_direct_io(tmp_path, files, monkeypatch) -> None:
    """In pieces, so that the disk serves other syncs in between; a short read is continued."""
    real, asked = os.preadv, []

    def short(fd: int, into: list[memoryview], offset: int) -> int:
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        asked.append((offset, len(into[0])))
        return min(real(fd, into, offset), 8192 if len(asked) == 1 else 1 << 30)

    monkeypatch.setattr(os, "preadv", short)
    files.open(f"{tmp_path}/a", "create").pwrite([b"ab" * 250_000], 0)
    assert files.open(f"{tmp_path}/a", "scan").scan(300_000, 5000) == b"ab" * 150_000
    piece = DIRECT_READ_PIECE_BYTES
    assert asked == [(4096, piece), (4096 + 8192, piece), (4096 + 8192 + piece, 303_104 - 8192 - piece)]


def test_half_blocks_in_the_middle_of_a_file_are_not_its_end(tmp_path, files, monkeypatch) -> None:
    real = os.preadv

    def odd(fd: int, into: list[memoryview], offset: int) -> int:
        direct = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        return min(real(fd, into, offset), 5000) if direct else real(fd, into, offset)

    monkeypatch.setattr(os, "preadv", odd)
    files.open(f"{tmp_path}/a", "create").pwrite([b"ab" * 150_000], 0)
    file = files.open(f"{tmp_path}/a", "scan")
    for _ in range(2):
        assert file.scan(400_000, 0) == b"ab" * 150_000


@pytest.mark.parametrize("refused_by", ["fcntl", "preadv"])
def test_scans_fall_back_to_page_cache_without_direct_io(tmp_path, files, monkeypatch, refused_by) -> None:
    real_fcntl, real_read = fcntl.fcntl, os.preadv

    def fcntl_without(fd: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL and flags & os.O_DIRECT and refused_by == "fcntl":
            raise OSError(errno.EINVAL, "no direct reads here")
        return real_fcntl(fd, command, flags)

    def read_without(fd: int, into: list[memoryview], offset: int) -> int:
        if real_fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "larger blocks, please")
        return real_read(fd, into, offset)

    monkeypatch.setattr(fcntl, "fcntl", fcntl_without)
    monkeypatch.setattr(os, "preadv", read_without)
    files.open(f"{tmp_path}/a", "create").pwrite([b"xyz" * 200_000], 0)
    file = files.open(f"{tmp_path}/a", "scan")
    for _ in range(2):
        assert file.scan(600_001, 3) == b"xyz" * 199_999


def test_consecutive_scans_reuse_memory(tmp_path, files, monkeypatch) -> None:
    """Also the last one, which is shorter: it shows nothing of what was read before."""
    blocks = [bytes([n]) * READ_BLOCK_BYTES for n in range(1, 21)] + [b"z" * 1_100_000]
    (tmp_path / "a").write_bytes(b"".join(blocks))
    made: list[int] = []
    real = mmap.mmap

    def count(fd: int, size: int, **options: Any) -> mmap.mmap:
        made.append(size)
        return real(fd, size, **options)

    monkeypatch.setattr(mmap, "mmap", count)
    file = files.open(f"{tmp_path}/a", "scan")
    held: list[Any] = []
    for number, block in enumerate(blocks):
        held = [*held[-2:], (file.scan(READ_BLOCK_BYTES, number * READ_BLOCK_BYTES), block)]
        assert all(got == wanted for got, wanted in held)
    assert len(made) <= 4


def test_scan_raises_disk_errors(tmp_path, files, monkeypatch) -> None:
    def failing(fd: int, into: list[memoryview], offset: int) -> int:
        raise OSError(errno.EIO, "a bad sector")

    files.open(f"{tmp_path}/a", "create").pwrite([b"x"], 0)
    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(OSError, match="bad sector"):
        files.open(f"{tmp_path}/a", "scan").scan(1, 0)


def test_a_write_without_progress_is_an_error_not_a_loop(tmp_path, files, monkeypatch) -> None:
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset, flags: 0)
    with pytest.raises(OSError, match="no progress"):
        files.open(f"{tmp_path}/a", "create").pwrite([b"abc"], 0)


def test_more_parts_than_one_system_call_takes(tmp_path, files) -> None:
    file = files.open(f"{tmp_path}/a", "create")
    parts = [bytes([n % 251]) * (n % 7) for n in range(5000)]
    assert file.pwrite(parts, 0) == sum(map(len, parts))
    assert file.pread(20_000, 0) == b"".join(parts)


def test_modes_and_directory_calls(tmp_path, files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(f"{tmp_path}/a", "write")
    files.open(f"{tmp_path}/a", "create").close()
    with pytest.raises(FileExistsError):
        files.open(f"{tmp_path}/a", "create")
    files.make_dirs(f"{tmp_path}/x/y")
    files.rename(f"{tmp_path}/a", f"{tmp_path}/x/b")
    files.sync_dir(f"{tmp_path}/x")
    assert files.list(f"{tmp_path}/x") == ["b", "y"]
    assert files.free_bytes(str(tmp_path)) > 0


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV])
def test_rename_new_works_without_hard_links(tmp_path, files, monkeypatch, refusal) -> None:
    def link(source, target):
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "link", link)
    for name in ("old", "new"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        files.rename_new(f"{tmp_path}/new", f"{tmp_path}/old")
    assert (tmp_path / "old").read_text() == "old"
    files.rename_new(f"{tmp_path}/new", f"{tmp_path}/newer")
    assert files.list(str(tmp_path)) == ["newer", "old"]
    assert (tmp_path / "newer").read_text() == "new"


def cached_pages(path: str) -> int:
    """How many pages of a file the system keeps in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        pages = -(-len(memory) // mmap.PAGESIZE)
        found = (ctypes.c_ubyte * pages)()
        start = (ctypes.c_char * len(memory)).from_buffer(memory)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(memory)), found) == 0
        del start
        return sum(one & 1 for one in found)


def test_forgotten_range_leaves_the_page_cache(tmp_path, files) -> None:
    path = f"{tmp_path}/a"
    if subprocess.check_output(["stat", "-f", "-c", "%T", tmp_path], text=True).strip() == "tmpfs":
        pytest.skip("this file system keeps its files in memory")
    file = files.open(path, "create")
    file.pwrite([bytes(32 * 4096)], 0)
    file.datasync()
    assert cached_pages(path) == 32
    file.forget(0, 32 * 4096)
    assert cached_pages(path) == 0
    assert file.pread(32 * 4096, 0) == bytes(32 * 4096)


def test_allocate_gives_blocks_and_length(tmp_path, files) -> None:
    file = files.open(f"{tmp_path}/a", "create")
    file.allocate(1 << 20)
    assert file.size() == 1 << 20
    assert os.stat(f"{tmp_path}/a").st_blocks * 512 >= 1 << 20


def test_a_lock_is_exclusive_until_the_file_is_closed_also_on_a_directory(tmp_path, files) -> None:
    first, second = files.open(str(tmp_path), "read"), files.open(str(tmp_path), "read")
    assert first.lock()
    assert not second.lock()
    first.close()
    assert second.lock()


def test_existing_directory_is_synced(tmp_path, files, monkeypatch) -> None:
    """A thread that has made one and not synced its parent yet, or could not, or a process that was killed there."""
    (tmp_path / "x").mkdir()
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_dir", synced.append)
    files.make_dirs(f"{tmp_path}/x/y")
    assert synced[-2:] == [str(tmp_path), f"{tmp_path}/x"]

    def failing(path: str) -> None:
        raise OSError(errno.EIO, path)

    monkeypatch.setattr(files, "sync_dir", failing)
    with pytest.raises(OSError, match="Errno 5"):
        files.make_dirs(f"{tmp_path}/z/z")
    synced.clear()
    monkeypatch.setattr(files, "sync_dir", synced.append)
    files.make_dirs(f"{tmp_path}/z/z")
    assert synced == [str(tmp_path), f"{tmp_path}/z"]
    files.make_dirs(f"{tmp_path}/z/z")
    assert len(synced) == 2, "what is known to be durable is left alone"
    os.rmdir(f"{tmp_path}/z/z")
    files.make_dirs(f"{tmp_path}/z/z")
    assert synced[2:] == [f"{tmp_path}/z"]
