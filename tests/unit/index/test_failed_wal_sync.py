"""A commit whose sync failed: the page cache shows it to the next owner, the disk never got it."""

import asyncio
import os
import shutil
import sqlite3
from dataclasses import dataclass, field, replace

import pytest

from sarit.env.real import real_env
from sarit.index import database
from sarit.index.port import WriteBatch
from sarit.index.record_seals import seal
from sarit.index.sqlite import SqliteIndexProvider

NAME = "container-0.db"


def frame(number: int) -> WriteBatch:
    return WriteBatch({b"frame": b"%d" % number})


@dataclass
class Disk:
    """Three runs on one directory: copies have what the page cache shows, `lost` is what the disk never got."""

    root: str
    lost: tuple[int, int] = (0, 0)
    rewritten: set[int] = field(default_factory=set)

    def directory(self, run: int) -> str:
        return f"{self.root}/{run}"

    def wal(self, run: int) -> str:
        return f"{self.directory(run)}/{NAME}-wal"

    def size(self, run: int) -> int:
        return os.path.getsize(self.wal(run))

    def copy(self, old: int, new: int) -> None:
        """Copy after a kill: with everything that the page cache shows, without shared memory."""
        shutil.copytree(self.directory(old), self.directory(new))
        os.remove(f"{self.directory(new)}/{NAME}-shm")

    def power_cut(self, old: int, new: int) -> None:
        """As `copy`, but pages that were lost and not written again are zero."""
        self.copy(old, new)
        begin, end = self.lost
        if not os.path.exists(self.wal(new)) or self.size(new) < end:
            return
        with open(self.wal(new), "r+b") as file:
            for at in range(begin, end):
                if at not in self.rewritten:
                    file.seek(at)
                    file.write(b"\0")

    async def fail_a_sync(self) -> None:
        """Run 1: frame 50 is committed; the sync of frame 100 fails, and its commit with it; run 2 begins."""
        index = await SqliteIndexProvider(real_env(), self.directory(1)).open(0)
        await index.commit(frame(50))
        begin = self.size(1)
        await index.commit(frame(100))
        self.lost = (begin, self.size(1))
        self.copy(1, 2)
        await index.close()


class RecordingFiles:
    """Records writes and syncs of the WAL that do not go through SQLite."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self._files = disk, real_env().files

    def __getattr__(self, name):
        return getattr(self._files, name)

    def open(self, path, mode):
        return RecordingFile(self._disk, self._files.open(path, mode))


class RecordingFile:
    def __init__(self, disk, file):
        self._disk, self._file, self._written = disk, file, set()

    def __getattr__(self, name):
        return getattr(self._file, name)

    def pwrite(self, parts, offset):
        self._written.update(range(offset, offset + sum(map(len, parts))))
        return self._file.pwrite(parts, offset)

    def datasync(self):
        self._file.datasync()
        self._disk.rewritten |= self._written


def test_commit_after_failed_sync_survives_power_cut(tmp_path):
    async def main():
        disk = Disk(str(tmp_path))
        await disk.fail_a_sync()
        index = await SqliteIndexProvider(real_env(), disk.directory(2)).open(0)
        assert await index.get([b"frame"]) in ([b"50"], [b"100"])
        await index.commit(frame(200))  # acknowledged: the log is truncated below it
        disk.power_cut(2, 3)
        await index.close()
        index = await SqliteIndexProvider(real_env(), disk.directory(3)).open(0)
        assert await index.get([b"frame"]) == [b"200"]
        await index.close()

    asyncio.run(main())


def test_wal_is_synced_before_copy(tmp_path, monkeypatch):
    """Otherwise a power cut during the copy leaves some pages of a commit in the database, and none in the WAL."""

    async def main():
        disk = Disk(str(tmp_path))
        await disk.fail_a_sync()
        right = database._empty_wal

        def copying(connection):
            disk.power_cut(2, 3)
            right(connection)

        monkeypatch.setattr(database, "_empty_wal", copying)
        env = replace(real_env(), files=RecordingFiles(disk))
        index = await SqliteIndexProvider(env, disk.directory(2)).open(0)
        seen = await index.get([b"frame"])
        await index.close()
        monkeypatch.undo()
        index = await SqliteIndexProvider(real_env(), disk.directory(3)).open(0)
        assert await index.get([b"frame"]) == seen
        await index.close()

    asyncio.run(main())


class Answering:
    """A connection whose copy of the WAL ends in a given way."""

    def __init__(self, code: int) -> None:
        self._code = code

    def execute(self, statement):
        assert statement == "PRAGMA wal_checkpoint(TRUNCATE)"
        if self._code:
            error = sqlite3.OperationalError("injected failure")
            error.sqlite_errorcode = self._code
            raise error
        return self

    def fetchone(self):
        return (0, 0, 0)


def test_failed_wal_copy_fails_open_unless_disk_is_full():
    """On a full disk the rest stays in the WAL: opening must be possible there, and frees space."""
    database._empty_wal(Answering(0))
    database._empty_wal(Answering(sqlite3.SQLITE_FULL))
    with pytest.raises(sqlite3.OperationalError):
        database._empty_wal(Answering(sqlite3.SQLITE_IOERR_FSYNC))


def test_index_opens_beside_reader_in_other_process(tmp_path, monkeypatch):
    """A backup must not block the start of a node: the WAL is durable, and copied later."""
    monkeypatch.setattr(database, "INDEX_LOCK_TIMEOUT_SECONDS", 0)

    async def main():
        disk = Disk(str(tmp_path))
        provider = SqliteIndexProvider(real_env(), disk.directory(1))
        index = await provider.open(0)
        await index.commit(frame(1))
        backup = sqlite3.connect(f"{disk.directory(1)}/{NAME}", isolation_level=None)
        backup.execute("BEGIN")
        assert backup.execute("SELECT count(*) FROM entries").fetchone() == (1,)
        await index.commit(frame(2))
        await index.close()
        index = await provider.open(0)
        assert await index.get([b"frame"]) == [b"2"]
        await index.commit(frame(3))
        assert backup.execute("SELECT v FROM entries").fetchone() == (seal(b"frame", b"1"),)
        backup.close()
        await index.close()
        index = await provider.open(0)
        assert await index.get([b"frame"]) == [b"3"]
        assert disk.size(1) == 0, "nobody reads it any more"
        await index.close()

    asyncio.run(main())
