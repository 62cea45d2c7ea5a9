"""A file of lines that stays bounded, also with several writers."""

from __future__ import annotations

import os
import stat

import pytest

from sarit.env.rotating_file import RotatingFile


def _lines(path):
    return path.read_text().splitlines()


def test_new_file_is_its_owners_alone_whatever_the_umask(tmp_path):
    path = tmp_path / "a.log"
    before = os.umask(0)
    try:
        file = RotatingFile(str(path), 10, 2)
        for _ in range(3):
            file.append(b"12345678\n")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(found.stat().st_mode) for found in tmp_path.iterdir()} == {0o600}
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2"]
    file.close()
    file.close()


def test_full_file_is_renamed_and_the_oldest_one_goes(tmp_path):
    path = tmp_path / "a.log"
    file = RotatingFile(str(path), 20, 2)
    for number in range(9):
        file.append(b"line %03d\n" % number)
    assert _lines(path) == ["line 008"]
    assert _lines(tmp_path / "a.log.1") == ["line 006", "line 007"]
    assert _lines(tmp_path / "a.log.2") == ["line 004", "line 005"]
    assert len(list(tmp_path.iterdir())) == 3
    file.close()


def test_writers_of_one_file_rotate_it_once_and_lose_nothing(tmp_path):
    path = tmp_path / "a.log"
    files = [RotatingFile(str(path), 200, 50) for _ in range(4)]
    for number in range(200):
        files[number % 4].append(b"line %03d\n" % number)
    found = [line for each in tmp_path.iterdir() for line in _lines(each)]
    assert sorted(found) == [f"line {number:03}" for number in range(200)]
    assert len(list(tmp_path.iterdir())) == 10  # 22 lines each
    for file in files:
        file.close()


def test_file_that_a_tool_renamed_or_removed_is_made_again(tmp_path):
    path = tmp_path / "a.log"
    file = RotatingFile(str(path), 1000, 2)
    file.append(b"one\n")
    path.rename(tmp_path / "kept")
    file.append(b"two\n")
    path.unlink()
    file.append(b"three\n")
    assert (_lines(tmp_path / "kept"), _lines(path)) == (["one"], ["three"])
    file.close()


def test_line_that_a_full_disk_cut_gets_an_end(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    file = RotatingFile(str(path), 1000, 2)
    write, left = os.write, [3]

    def full(fd, data):
        if not left[0]:
            raise OSError(28, "No space left on device")
        done = write(fd, data[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        file.append(b"first\n")
    monkeypatch.setattr(os, "write", write)
    file.append(b"second\n")
    assert _lines(path) == ["fir", "second"]
    file.close()


def test_what_is_no_regular_file_is_only_written_to():
    file = RotatingFile("/dev/null", 1, 2)
    for _ in range(3):
        file.append(b"line\n")
    assert not os.path.exists("/dev/null.1")
    file.close()


def test_file_without_a_directory_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        RotatingFile(str(tmp_path / "missing" / "a.log"), 1, 1)
