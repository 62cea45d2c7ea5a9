"""One suite for the files of the real disk and of the simulated one: a fake that passes may be trusted."""

from __future__ import annotations

import errno
import random

import pytest

from sarit.env.real_files import RealFiles
from simulation.disk import SimulatedDisk


@pytest.fixture(params=["real", "simulated"])
def files(request):
    return RealFiles() if request.param == "real" else SimulatedDisk(random.Random(0))


@pytest.fixture
def root(files, tmp_path) -> str:
    files.make_dirs(f"{tmp_path}/root")
    return f"{tmp_path}/root"


def fails(number: int):
    return pytest.raises(OSError, check=lambda error: error.errno == number)


def test_writes_are_read_back_and_holes_are_zeros(files, root) -> None:
    file = files.open(f"{root}/a", "create")
    assert file.pwrite([b"abc", bytearray(b"de"), memoryview(b"f"), b""], 5) == 6
    assert file.size() == 11
    assert file.pread(100, 0) == b"\0\0\0\0\0abcdef"
    assert file.pread(3, 6) == b"bcd"
    assert file.pread(3, 11) == b""
    assert file.pwrite([b"XY"], 6) == 2
    file.datasync()
    assert file.pread(100, 5) == b"aXYdef"


def test_durable_writes_are_writes(files, root) -> None:
    file = files.open(f"{root}/a", "create")
    assert file.pwrite_durably([b"abc", memoryview(b"de")], 2) == 5
    assert file.pwrite_durably([b"X"], 3) == 1
    assert file.pread(100, 0) == b"\0\0aXcde"
    blocks = files.open(f"{root}/a", "blocks")
    assert blocks.pwrite_durably([b"1" * 4096, b"2" * 4096], 4096) == 8192
    with pytest.raises(ValueError, match="whole blocks"):
        blocks.pwrite_durably([b"abc"], 0)
    assert file.pread(8192, 4096) == b"1" * 4096 + b"2" * 4096


def test_scan_at_any_offset_and_length(files, root) -> None:
    """For any block size of the disk; at and after the end of the file there are fewer bytes."""
    data = bytes(n * 7919 % 251 for n in range(700_001))
    files.open(f"{root}/a", "create").pwrite([data], 0)
    file = files.open(f"{root}/a", "scan")
    for offset, length in (
        (0, 700_001), (0, 4096), (4096, 300_000), (1, 4095), (4095, 2), (262_143, 262_146), (699_000, 5000),
        (700_000, 1), (700_001, 1), (700_500, 9), (800_000, 9), (5, 0), (0, 10_000_000),
    ):  # fmt: skip
        assert bytes(file.scan(length, offset)) == data[offset : offset + length], (offset, length)
    retained = file.scan(9, 100)
    file.scan(9, 200)
    assert bytes(retained) == data[100:109], "the memory is the result's own"


def test_allocate_only_grows_and_truncate_cuts_or_grows(files, root) -> None:
    file = files.open(f"{root}/a", "create")
    file.pwrite([b"abc"], 0)
    file.allocate(2)
    assert file.size() == 3
    file.allocate(10_000)
    assert file.pread(10_001, 0) == b"abc" + bytes(9_997)
    file.truncate(2)
    assert file.pread(10, 0) == b"ab"
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"


def test_open_modes(files, root) -> None:
    for mode in ("read", "write"):
        with fails(errno.ENOENT):
            files.open(f"{root}/a", mode)
    file = files.open(f"{root}/a", "create")
    with fails(errno.EEXIST):
        files.open(f"{root}/a", "create")
    with fails(errno.ENOENT):
        files.open(f"{root}/missing/a", "create")
    file.pwrite([b"abc"], 0)
    file.close()
    file.close()
    with fails(errno.EBADF):
        file.pread(1, 0)
    reader = files.open(f"{root}/a", "read")
    assert reader.pread(5, 0) == b"abc"
    with fails(errno.EBADF):
        reader.pwrite([b"x"], 0)


def test_valid_and_invalid_names(files, root) -> None:
    assert files.list(root) == []
    files.make_dirs(f"{root}/x/y")
    files.make_dirs(f"{root}/x/y")
    for name in ("b", "a"):
        files.open(f"{root}/{name}", "create").close()
    files.sync_dir(root)
    assert files.list(root) == ["a", "b", "x"]
    assert files.list(f"{root}/x") == ["y"]
    assert files.exists(f"{root}/a")
    assert files.exists(f"{root}/x/y")
    files.remove(f"{root}/a")
    assert not files.exists(f"{root}/a")
    with fails(errno.ENOENT):
        files.remove(f"{root}/a")
    with fails(errno.ENOENT):
        files.rename(f"{root}/a", f"{root}/c")
    with fails(errno.ENOENT):
        files.list(f"{root}/missing")


def test_a_rename_replaces_and_open_files_follow_their_content(files, root) -> None:
    old, new = files.open(f"{root}/old", "create"), files.open(f"{root}/new", "create")
    old.pwrite([b"old"], 0)
    new.pwrite([b"new"], 0)
    files.rename(f"{root}/new", f"{root}/old")
    assert files.list(root) == ["old"]
    assert files.open(f"{root}/old", "read").pread(9, 0) == b"new"
    assert old.pread(9, 0) == b"old"
    files.remove(f"{root}/old")
    new.pwrite([b"er"], 3)
    assert new.pread(9, 0) == b"newer"


def test_a_rename_to_a_new_name_replaces_nothing(files, root) -> None:
    for name in ("old", "new"):
        file = files.open(f"{root}/{name}", "create")
        file.pwrite([name.encode()], 0)
        file.close()
    with fails(errno.EEXIST):
        files.rename_new(f"{root}/new", f"{root}/old")
    assert files.list(root) == ["new", "old"]
    assert files.open(f"{root}/old", "read").pread(9, 0) == b"old"
    files.rename_new(f"{root}/new", f"{root}/newer")
    assert files.list(root) == ["newer", "old"]
    assert files.open(f"{root}/newer", "read").pread(9, 0) == b"new"
    with fails(errno.ENOENT):
        files.rename_new(f"{root}/new", f"{root}/newest")


def test_locks_are_exclusive_and_end_with_their_file(files, root) -> None:
    for path in (root, f"{root}/lock"):
        if path != root:
            files.open(path, "create").close()
        first, second = files.open(path, "read"), files.open(path, "read")
        assert first.lock()
        assert first.lock()
        assert not second.lock()
        first.close()
        assert second.lock()
        second.close()


def test_free_bytes_is_positive(files, root) -> None:
    assert files.free_bytes(root) > 1 << 20
