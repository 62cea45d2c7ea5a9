"""The SQLite index: faults, formats, kills and WAL copies of the real database."""

import asyncio
import errno
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt, Fenced, Invalid, Unavailable
from sarit.env.real import real_env
from sarit.index import sqlite
from sarit.index.database import APPLICATION_ID, pragma
from sarit.index.port import WriteBatch
from sarit.index.sqlite import SqliteIndexProvider
from sarit.index.wal import FRAME, HEADER, WalUse, wal_use
from tests.limits import HANG_SECONDS

ALL = (b"", b"\xff" * 9)


@pytest.fixture
def provider(tmp_path):
    return SqliteIndexProvider(real_env(), str(tmp_path / "index"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "index" / "container-0.db"


def puts(**entries: bytes) -> WriteBatch:
    return WriteBatch({key.encode(): value for key, value in entries.items()})


def script(body: str, *args: str, **options) -> subprocess.Popen:
    head = """
        import asyncio, resource, sys
        from sarit.core.errors import *
        from sarit.env.real import real_env
        from sarit.index.port import WriteBatch
        from sarit.index.sqlite import SqliteIndexProvider
        provider = SqliteIndexProvider(real_env(), sys.argv[1])
        """
    code = textwrap.dedent(head) + textwrap.dedent(body)
    return subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True, **options)


def test_commits_are_synced_and_the_wal_is_copied_outside_of_them(provider, path):
    async def main():
        index = await provider.open(0)
        connection = index._write_connection
        pragmas = ("journal_mode", "synchronous", "wal_autocheckpoint")
        values = await index._writer.run(lambda: [pragma(connection, name) for name in pragmas])
        assert values == ["wal", 2, 0]
        database, wal = path, path.with_name(path.name + "-wal")
        for number in range(6):
            value = bytes(1 << 20)
            await index.commit(WriteBatch({b"%d-%d" % (number, at): value for at in range(4)}))
        await index._writer.run(lambda: None)
        assert database.stat().st_size > 16 << 20, "the WAL was copied into the database"
        assert wal.stat().st_size < 64 << 20, "the WAL is used again"
        await index.close()
        assert not wal.exists()

    asyncio.run(main())


def test_commits_survive_kill(tmp_path, provider):
    process = script(
        """
        async def main():
            index = await provider.open(0)
            for number in range(1000):
                await index.commit(WriteBatch({b"a": b"%d" % number, b"k%d" % number: b""}))
                print(number, flush=True)
        asyncio.run(main())
        """,
        str(tmp_path / "index"),
    )
    seen = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    seen += [int(line) for line in process.stdout if line.endswith("\n")]
    process.wait()
    process.stdout.close()

    async def main():
        index = await provider.open(0)
        (last,) = await index.get([b"a"])
        assert int(last) in (seen[-1], seen[-1] + 1)
        assert len(await index.scan(*ALL, 2000)) == int(last) + 2
        await index.close()

    asyncio.run(main())


def test_file_shrinks_after_rows_are_deleted(provider, path):
    """It grew with what trickling segments had inlined, and stayed so when that was joined or deleted."""

    async def main():
        index = await provider.open(0)
        for number in range(6):
            await index.commit(WriteBatch({b"%d-%04d" % (number, at): bytes(4000) for at in range(2000)}))
        await index._writer.run(lambda: None)
        large = path.stat().st_size
        assert large > 40 << 20
        for number in range(5):
            await index.commit(WriteBatch(range_deletes=[(b"%d-" % number, b"%d." % number)]))
        for _ in range(100):  # of its steps, no more commits are needed
            await index._writer.run(lambda: None)
        assert path.stat().st_size < large // 2
        assert len(await index.scan(*ALL, 20_000)) == 2000
        await index.close()
        index = await provider.open(0)
        assert len(await index.scan_sizes(*ALL, 20_000)) == 2000
        await index.close()

    asyncio.run(main())


def test_another_process_fences_too(tmp_path, provider):
    async def main():
        index = await provider.open(0)
        await index.commit(puts(a=b"1"))
        process = script("index = asyncio.run(provider.open(0)); print(index)", str(tmp_path / "index"))
        output, _ = await asyncio.to_thread(process.communicate)
        assert "epoch 2" in output
        with pytest.raises(Fenced):
            await index.commit(puts(a=b"2"))
        assert await index.get([b"a"]) == [b"1"]
        await index.close()

    asyncio.run(main())


def test_full_disk_fails_commit_and_handle_survives(provider):
    async def main():
        index = await provider.open(0)
        await index.commit(puts(a=b"1"))
        run = index._writer.run
        pages = await run(lambda: pragma(index._write_connection, "page_count"))
        await run(lambda: pragma(index._write_connection, f"max_page_count={pages + 2}"))
        with pytest.raises(Unavailable, match="full"):
            await index.commit(puts(a=b"2", large=bytes(100_000)))
        assert await index.get([b"a", b"large"]) == [b"1", None]
        await index.commit(puts(a=b"3"))
        await run(lambda: pragma(index._write_connection, "max_page_count=100000"))
        await index.commit(puts(large=bytes(100_000)))
        assert await index.get([b"a", b"large"]) == [b"3", bytes(100_000)]
        await index.close()

    asyncio.run(main())


def test_io_error_kills_handle_until_reopened(tmp_path):
    """Writes beyond RLIMIT_FSIZE fail with EFBIG, which is an I/O error to SQLite."""
    process = script(
        """
        async def main():
            index = await provider.open(0)
            await index.commit(WriteBatch({b"a": b"1"}))
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
            try:
                await index.commit(WriteBatch({b"a": b"2", b"large": bytes(1 << 20)}))
            except Unavailable as error:
                print(type(error).__name__, error)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            for call in (index.commit(WriteBatch({b"a": b"3"})), index.get([b"a"]), index.scan(b"", b"z", 1)):
                try:
                    print(await call)
                except Unavailable as error:
                    print("refused:", error)
            await index.close()
            index = await provider.open(0)
            print(await index.get([b"a", b"large"]))
            await index.commit(WriteBatch({b"a": b"4"}))
            await index.close()
        asyncio.run(main())
        """,
        str(tmp_path / "index"),
    )
    output, _ = process.communicate(timeout=HANG_SECONDS)
    lines = output.splitlines()
    assert process.returncode == 0
    assert lines[0].startswith("Dead commit"), lines
    assert [line.partition(":")[0] for line in lines[1:4]] == ["refused"] * 3
    assert lines[4] == "[b'1', None]"


def test_wal_is_copied_by_its_pages_however_small_the_rows_are(provider, path):
    """A row of 20 bytes on a page of its own is a page in the WAL: with rows counted, it grew to 13 times its bound."""

    async def main():
        index, wal = await provider.open(0), path.with_name(path.name + "-wal")
        await index.commit(WriteBatch({b"%06d" % row: bytes(500) for row in range(16_000)}))
        for number in range(12):
            value = bytes([number + 1]) * 500
            await index.commit(WriteBatch({b"%06d" % row: value for row in range(number, 16_000, 32)}))
        # One commit is 2 MiB, the first one 9; a copy begins at 8.
        assert wal.stat().st_size < 14 << 20
        await asyncio.gather(*(index.commit(puts(a=bytes(10_000))) for _ in range(5)))
        await index.close()

    asyncio.run(main())


@pytest.mark.parametrize("before", [0, 1, 6, 7])
@pytest.mark.parametrize("used", [0, 1, 2, 7, 8, 9, 40])
def test_frames_of_a_wal_in_use_are_those_with_its_salts(used, before):
    page, salts = 512, (7, 8)

    def frame(number):
        return FRAME.pack(1, 0, *(salts if number < used else (5, 6)), 0, 0) + bytes(page)

    data = HEADER.pack(0x377F0682, 0, page, 0, *salts, 0, 0) + b"".join(map(frame, range(max(used, 20))))
    read = lambda length, at: data[at : at + length]  # noqa: E731
    assert wal_use(WalUse(), read) == wal_use(WalUse((3, 4), 30), read) == WalUse(salts, used, page + 24)
    if before <= used:
        assert wal_use(WalUse(salts, before, page + 24), read).frames == used
    assert wal_use(WalUse(), lambda length, at: b"") == WalUse()


def test_failed_wal_copy_kills_the_handle(provider, monkeypatch):
    class Failing:
        def execute(self, statement):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
            raise error

    async def main():
        index = await provider.open(0)
        await index.commit(puts(a=b"1"))
        connection, index._write_connection = index._write_connection, Failing()
        await index._writer.run(index._copy_wal)
        index._write_connection = connection
        with pytest.raises(Unavailable, match="WAL could not be copied"):
            await index.commit(puts(a=b"2"))
        await index.close()
        again = await provider.open(0)
        assert await again.get([b"a"]) == [b"1"]
        await again.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, Unavailable),
        (sqlite3.SQLITE_BUSY, Unavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, sqlite.Dead),
        (sqlite3.SQLITE_CANTOPEN, sqlite.Dead),
        (sqlite3.SQLITE_CORRUPT_INDEX, Corrupt),
        (sqlite3.SQLITE_NOTADB, Corrupt),
    ],
)
def test_map_error_by_sqlite_code(code, kind):
    error = sqlite3.OperationalError("text")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "NAME"
    known = sqlite.map_error(error, "commit x")
    assert type(known) is kind
    assert str(known) == "commit x: text (NAME)"


@pytest.mark.parametrize("damage", ["header", "pages"])
def test_a_damaged_database_is_corrupt(provider, path, damage):
    async def main():
        index = await provider.open(0)
        await index.commit(WriteBatch({b"k%05d" % at: bytes(100) for at in range(2000)}))
        await index.close()
        data = bytearray(path.read_bytes())
        start, end = (0, 100) if damage == "header" else (4096, len(data))
        data[start:end] = b"\xa5" * (end - start)
        path.write_bytes(data)

        async def read_all():
            again = await provider.open(0)
            try:
                await again.scan(*ALL, 10_000)
            finally:
                await again.close()

        with pytest.raises(Corrupt):
            await read_all()

    asyncio.run(main())


def test_foreign_and_newer_databases_are_refused(provider, path):
    path.parent.mkdir()

    def made(*statements: str) -> None:
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    async def refused(text: str) -> None:
        before = path.read_bytes()
        with pytest.raises(Invalid, match=re.escape(text)):
            await provider.open(0)
        assert path.read_bytes() == before, "it was not changed"

    async def main():
        for version in (1, 3):  # one without checksums, and a newer one
            made(f"PRAGMA application_id={APPLICATION_ID}", f"PRAGMA user_version={version}")
            await refused(f"of format {version}; this version of Sarit reads format 2")
        made("CREATE TABLE other (x)")
        await refused("is not an index of Sarit")
        made("PRAGMA user_version=2")
        await refused("is not an index of Sarit")

    asyncio.run(main())


def test_a_directory_that_cannot_be_made_or_synced_is_unavailable(tmp_path):
    class Failing:
        def __init__(self, failing):
            self.failing, self.files = failing, real_env().files

        def __getattr__(self, name):
            if name == self.failing:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return getattr(self.files, name)

    async def main():
        for failing in ("make_dirs", "sync_dir"):
            env = replace(real_env(), files=Failing(failing))
            with pytest.raises(Unavailable, match="No space"):
                await SqliteIndexProvider(env, str(tmp_path / "index")).open(0)

    asyncio.run(main())


def test_close_fails_waiting_reads(provider):
    async def main():
        index = await provider.open(0)
        await index.commit(puts(a=b"1"))
        gets = [asyncio.ensure_future(index.get([b"a"])) for _ in range(5)]
        commit = asyncio.ensure_future(index.commit(puts(a=b"2")))
        await asyncio.sleep(0)
        await index.close()
        for outcome in await asyncio.gather(*gets, commit, return_exceptions=True):
            assert outcome in ([b"1"], [b"2"], None) or isinstance(outcome, Unavailable)

    asyncio.run(main())


def reported_damage() -> sqlite3.DatabaseError:
    """As SQLite reports an EIO of a read."""
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
    return error


def test_damage_that_sqlite_reports_once_does_not_prevent_the_opening(provider, monkeypatch):
    async def main():
        await (await provider.open(0)).close()
        right, errors = sqlite.open_writer, [reported_damage()]

        def open_writer(*arguments):
            if errors:
                raise errors.pop()
            return right(*arguments)

        monkeypatch.setattr(sqlite, "open_writer", open_writer)
        await (await provider.open(0)).close()
        assert not errors

    asyncio.run(main())


def test_read_error_of_the_disk_is_unavailable_and_damage_is_corrupt(provider, path, monkeypatch):
    async def main():
        await (await provider.open(0)).close()
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + b"x" * (len(whole) - 4096))
        with pytest.raises(Corrupt):
            await provider.open(0)

        def unreadable(files, path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(sqlite, "_read_whole", unreadable)
        with pytest.raises(Unavailable, match="Input/output error"):
            await provider.open(0)

    asyncio.run(main())
