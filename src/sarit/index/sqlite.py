"""The index on one node: an SQLite database per container.

Theory of operation.  The records are in one table, `entries(k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID`, that is, in a
B-tree ordered by the bytes of the key.  In WAL mode with `synchronous=FULL`, COMMIT returns when the write-ahead log is
synced.  There are two connections, each on its own thread: one writes, the other reads committed rows, so that reads
never wait for a commit.  The WAL is copied into the database by a separate call after a commit, never inside one.
Another call then releases free pages to the file system, a few at a time, so that the file shrinks with its content.
Opening raises the epoch in the table `owner`.  Every commit checks it in its transaction, which fences an earlier
owner, in this process or another.

Warnings.  (1) The sqlite3 module releases the interpreter lock at every row it steps over, and beside a busy event loop
it takes about 0.1 ms to get it again (measured; switch interval 0.2 ms).  So a statement writes ROWS_PER_STATEMENT
rows, and a query returns the values of several keys as columns of one row.  (2) After an I/O error of a commit or of a
WAL copy the handle is dead, since the content of the disk is unknown.  On a full disk SQLite rolls back, and the handle
stays usable.  (3) After a failed sync the page cache shows commits that the disk does not have, but SQLite takes every
commit in the WAL for durable.  So opening rewrites and syncs the WAL before it uses or copies anything in it.
(4) This module opens files without `Env.files`, so the simulation never uses it.

Format: `application_id` and `user_version` of the file are checked (docs/formats/sqlite-index.md).  Each value
is stored with a checksum (`record_seals.py`), which the threads compute and check.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.core.errors import Corrupt, Fenced, SaritError, Unavailable
from sarit.index.database import open_reader, open_writer, pragma
from sarit.index.keys import after
from sarit.index.limits import (
    FREE_INDEX_BYTES,
    INDEX_CACHE_BYTES,
    INDEX_CHECKSUM_BYTES,
    INDEX_REWRITE_BYTES,
    INDEX_SHRINK_STEP_BYTES,
    INDEX_WAL_COPY_BYTES,
)
from sarit.index.port import DamagedRecord
from sarit.index.record_seals import seal, unseal
from sarit.index.wal import WalUse, wal_use

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Env, File, Files, Worker
    from sarit.index.examination import Gap
    from sarit.index.port import WriteBatch

_log = logging.getLogger("sarit.index")

T = TypeVar("T")
Values = list[bytes | None]

ROWS_PER_STATEMENT: Final = (128, 16, 1)
KEYS_PER_QUERY: Final = (64, 8, 2, 1)
MAX_KEYS_PER_READ: Final = 4096
# Besides FREE_INDEX_BYTES, one in so many pages of the database may stay free, for the next commits.
FREE_PAGES_ONE_IN: Final = 8

_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ALIVE_AFTER: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_QUERIES: Final = {size: "SELECT " + ",".join(["(SELECT v FROM entries WHERE k=?)"] * size) for size in KEYS_PER_QUERY}
# These statements contain only placeholders, no values.
_UPSERTS: Final = {
    size: f"INSERT INTO entries VALUES {','.join(['(?,?)'] * size)} ON CONFLICT(k) DO UPDATE SET v=excluded.v"  # nosec B608
    for size in ROWS_PER_STATEMENT
}
_DELETES: Final = {size: f"DELETE FROM entries WHERE k IN ({','.join('?' * size)})" for size in ROWS_PER_STATEMENT}  # nosec B608
_DELETE_RANGE: Final = "DELETE FROM entries WHERE k>=? AND k<?"
_SCAN: Final = "SELECT k,v FROM entries WHERE k>=? AND k<? ORDER BY k LIMIT ?"
_SCAN_REVERSE: Final = "SELECT k,v FROM entries WHERE k>=? AND k<? ORDER BY k DESC LIMIT ?"
# SQLite reads only the header of a row for the length of its value.
_SIZES: Final = "SELECT k,length(v) FROM entries WHERE k>=? AND k<? ORDER BY k LIMIT ?"
_SIZES_REVERSE: Final = "SELECT k,length(v) FROM entries WHERE k>=? AND k<? ORDER BY k DESC LIMIT ?"


class Dead(Unavailable):
    """The outcome of a failed call is unknown, and the index must be opened again."""


def map_error(error: sqlite3.Error, doing: str, *, opening: bool = False) -> SaritError:
    """Return the port's error for an SQLite error; no other function maps these.

    `opening`: whether it came from an opening, whose statements are valid for every index, so that an error such as
    "unsupported file format" comes from damage of the file."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    text = f"{doing}: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    primary = code & 0xFF
    if primary in _CORRUPT or (opening and primary == sqlite3.SQLITE_ERROR):
        return Corrupt(text)
    return Unavailable(text) if primary in _ALIVE_AFTER else Dead(text)


# -- calls on the threads ---------------------------------------------------------------------


def _shrink_step(connection: sqlite3.Connection) -> bool:
    """Release at most INDEX_SHRINK_STEP_BYTES of free pages, if there are more than may stay.

    Returns whether there were, so that another step may be necessary.  The copy of the WAL then truncates the file."""
    free, pages = pragma(connection, "freelist_count"), pragma(connection, "page_count")
    page_bytes = pragma(connection, "page_size")
    excess = free - pages // FREE_PAGES_ONE_IN - FREE_INDEX_BYTES // page_bytes
    if excess <= 0:
        return False
    # Use `executescript`, which steps over the statement's rows, one per page, without the interpreter lock.
    connection.executescript(f"PRAGMA incremental_vacuum({min(excess, INDEX_SHRINK_STEP_BYTES // page_bytes)})")
    return True


def _lookup(connection: sqlite3.Connection, keys: Sequence[bytes]) -> Values:
    """Return the sealed values of `keys` in one snapshot, which shows each batch whole or not at all."""
    found: Values = []
    at = 0
    one_statement = len(keys) <= KEYS_PER_QUERY[0]
    if not one_statement:
        # Several statements need a transaction; one is a snapshot by itself.
        connection.execute("BEGIN")
    try:
        while at < len(keys):
            left = len(keys) - at
            # Use the smallest query for all keys that are left, or the largest one.
            size = next((size for size in reversed(KEYS_PER_QUERY) if size >= left), KEYS_PER_QUERY[0])
            requested: list[bytes | None] = list(keys[at : at + size])
            count = len(requested)
            # Pad the query with NULL, which equals no key; the empty columns are cut off.
            requested.extend([None] * (size - count))
            found.extend(connection.execute(_QUERIES[size], requested).fetchone()[:count])
            at += count
    finally:
        if not one_statement:
            connection.execute("COMMIT")
    return found


def _unsealed(keys: Sequence[bytes], stored: Values, gaps: list[Gap]) -> Values | DamagedRecord:
    """Return the values of `keys`, or the error of the first that is damaged or may be lost."""
    try:
        if gaps:
            for key, value in zip(keys, stored, strict=True):
                if value is None:
                    _check_gaps(gaps, key, after(key))
        return [None if value is None else unseal(key, value) for key, value in zip(keys, stored, strict=True)]
    except DamagedRecord as error:
        return error


def _check_gaps(gaps: list[Gap], low: bytes, stop: bytes) -> None:
    """Check that no record may have been lost in low <= key < stop.  Raises DamagedRecord."""
    for gap in gaps:
        if gap.begin < stop and low < gap.end:
            raise gap.error()


def _apply(connection: sqlite3.Connection, epoch: int, batch: WriteBatch) -> None:
    """Commit a batch.  Raises Fenced."""
    connection.execute("BEGIN IMMEDIATE")
    # The epoch cannot rise between this check and COMMIT, since IMMEDIATE took the write lock.
    (owner,) = connection.execute("SELECT epoch FROM owner").fetchone()
    if owner != epoch:
        # The caller rolls the transaction back.
        raise Fenced(f"the index was opened by another owner (epoch {owner}, ours is {epoch})")
    # Apply range deletes, deletes, then puts, the order that `WriteBatch` defines.
    for span in batch.range_deletes:
        connection.execute(_DELETE_RANGE, span)
    _in_statements(connection, _DELETES, sorted(batch.deletes), 1)
    flat: list[bytes] = []
    # Sort the puts, so that neighbours in the B-tree are written together, and each kind of record separately, since a
    # sort holds the interpreter lock, for which the event loop waits.
    kinds: dict[bytes, list[bytes]] = {}
    for key in batch.puts:
        kinds.setdefault(key[:1], []).append(key)
    for kind in sorted(kinds):
        for key in sorted(kinds[kind]):
            flat += (key, seal(key, batch.puts[key]))
    _in_statements(connection, _UPSERTS, flat, 2)
    connection.execute("COMMIT")


def _in_statements(connection: sqlite3.Connection, statements: dict[int, str], values: list[bytes], width: int) -> None:
    at = 0
    # Use the statements from the largest to that of one row, so that no value is left over.
    for size in ROWS_PER_STATEMENT:
        step = size * width
        while len(values) - at >= step:
            connection.execute(statements[size], values[at : at + step])
            at += step


# -- the port -----------------------------------------------------------------------------------


class SqliteIndex:
    """The index of one container; `SqliteIndexProvider.open` makes this object."""

    def __init__(self, path: str, files: Files, writer: Worker, reader: Worker, cache_bytes: int) -> None:
        self._path = path
        self._cache_bytes = cache_bytes // 2  # the cache of each of the two connections
        self._files = files
        self._writer = writer
        self._reader = reader
        self._epoch = 0
        self._write_connection: sqlite3.Connection | None = None
        self._read_connection: sqlite3.Connection | None = None
        self._dead_reason = ""
        self._wal: File | None = None
        self._wal_use = WalUse()
        self._copied_frames = 0  # how many of the frames in use are copied into the database
        self._copying = False
        self._waiting: deque[tuple[Sequence[bytes], asyncio.Future[Values]]] = deque()
        self._reading = False
        self._shrinking = False
        # The gaps of records that were lost when the index was opened; nearly always empty.
        self._gaps: list[Gap] = []

    def __repr__(self) -> str:
        return f"<SqliteIndex {self._path} epoch {self._epoch} {self._dead_reason or 'open'}>"

    async def start(self) -> None:
        """Open both connections and fence an earlier owner.  Raises Unavailable, Corrupt, Invalid."""
        path, files, cache = self._path, self._files, self._cache_bytes
        opened = await self._on(self._writer, lambda: open_writer(path, files, cache), "open")
        self._write_connection, self._epoch = opened.connection, opened.epoch
        self._read_connection = await self._on(self._reader, lambda: open_reader(path, cache), "open")
        for gap in opened.gaps or ():
            _log.error("index %s: %s", path, gap.error())
        self._gaps = opened.gaps or []

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys, as `Index.get` does.  Calls during a read share the next read."""
        self._require()
        future: asyncio.Future[Values] = asyncio.get_running_loop().create_future()
        self._waiting.append((keys, future))
        # During a read, the keys of all callers accumulate for the next read.
        if not self._reading:
            self._read()
        return await future

    async def scan(self, start: bytes, end: bytes, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        query = _SCAN_REVERSE if reverse else _SCAN

        def call() -> list[tuple[bytes, bytes]]:
            assert self._read_connection is not None
            rows = self._read_connection.execute(query, (start, end, limit)).fetchall()
            if self._gaps:
                low, stop = start, end
                if len(rows) == limit and rows:  # check only up to the last row: the caller did not ask for later ones
                    low, stop = (rows[-1][0], end) if reverse else (start, after(rows[-1][0]))
                _check_gaps(self._gaps, low, stop)
            return [(key, unseal(key, stored)) for key, stored in rows]

        self._require()
        return await self._on(self._reader, call, "scan")

    async def scan_sizes(
        self, start: bytes, end: bytes, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, int]]:
        query = _SIZES_REVERSE if reverse else _SIZES

        def call() -> list[tuple[bytes, int]]:
            assert self._read_connection is not None
            rows = self._read_connection.execute(query, (start, end, limit)).fetchall()
            return [(key, stored_bytes - INDEX_CHECKSUM_BYTES) for key, stored_bytes in rows]

        self._require()
        return await self._on(self._reader, call, "scan")

    async def commit(self, batch: WriteBatch) -> None:
        self._require()

        def call() -> int:
            connection = self._write_connection
            assert connection is not None
            self._require()  # an earlier commit may have failed while this one was queued
            try:
                _apply(connection, self._epoch, batch)
            except BaseException as error:
                # Set the reason on this thread, before the next queued commit makes the check above.
                if isinstance(error, sqlite3.Error) and isinstance(map_error(error, ""), (Dead, Corrupt)):
                    self._dead_reason = self._dead_reason or "dead after a failed commit"
                with suppress(sqlite3.Error):
                    # Ignore an error, since after some errors SQLite has rolled back by itself.
                    connection.execute("ROLLBACK")
                raise
            return self._uncopied_bytes()

        uncopied = await self._on(self._writer, call, "commit")
        if uncopied >= INDEX_WAL_COPY_BYTES and not self._copying and not self._dead_reason:
            self._copying = True
            # Copy on the writer's thread, where later commits queue behind the copy.
            self._writer.submit(self._copy_wal, self._copy_ended)
        if batch.deletes or batch.range_deletes:
            self._shrink()

    async def close(self) -> None:
        closed = self._dead_reason == "closed"
        self._dead_reason = "closed"
        if closed:
            return
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(Unavailable("the index is closed"))
        self._waiting.clear()
        # Close the writer after the reader, because SQLite copies the WAL when the last connection closes.
        for worker, connection in ((self._reader, self._read_connection), (self._writer, self._write_connection)):
            if connection is not None:
                with suppress(sqlite3.Error):
                    await worker.run(connection.close)
            await worker.close()
        if self._wal is not None:
            self._wal.close()

    def _read(self) -> None:
        batch: list[tuple[Sequence[bytes], asyncio.Future[Values]]] = []
        keys: list[bytes] = []
        while self._waiting and len(keys) < MAX_KEYS_PER_READ:
            batch.append(self._waiting.popleft())
            keys.extend(batch[-1][0])
        self._reading = True

        def call() -> list[Values | DamagedRecord]:
            assert self._read_connection is not None
            stored, at, answers = _lookup(self._read_connection, keys), 0, []
            # Answer each caller separately: a damaged record is an error only for those who asked for it.
            for requested, _ in batch:
                answers.append(_unsealed(requested, stored[at : at + len(requested)], self._gaps))
                at += len(requested)
            return answers

        def done(answers: list[Values | DamagedRecord] | None, error: BaseException | None) -> None:
            self._reading = False
            if isinstance(error, sqlite3.Error):
                error = map_error(error, f"get from {self._path}")
            for number, (_, future) in enumerate(batch):
                # Skip a caller that was cancelled.
                if future.done():
                    continue
                answer = error if answers is None else answers[number]
                if isinstance(answer, list):
                    future.set_result(answer)
                else:
                    assert answer is not None
                    future.set_exception(answer)
            if self._waiting and not self._reading:
                self._read()

        self._reader.submit(call, done)

    def _shrink(self) -> None:
        """Release free pages in steps, each of which queues behind the commits that came during the step before."""
        if self._shrinking or self._dead_reason:
            return
        self._shrinking = True

        def call() -> bool:
            assert self._write_connection is not None
            try:
                more = not self._dead_reason and _shrink_step(self._write_connection)
            except sqlite3.Error as error:
                # Leave a full or locked database to a later commit; other errors end the handle.
                self._died(error, "it could not be made smaller")
                return False
            if more:
                self._copy_wal()
            return more

        def done(more: bool | None, error: BaseException | None) -> None:
            self._shrinking = False
            if more:
                self._shrink()

        self._writer.submit(call, done)

    def _uncopied_bytes(self) -> int:
        """Return the bytes of pages in the WAL that are not copied into the database yet."""
        before = self._wal_use
        try:
            wal = self._wal = self._wal or self._files.open(f"{self._path}-wal", "read")
            use = self._wal_use = wal_use(before, lambda length, at: bytes(wal.pread(length, at)))
        except OSError:
            # Ask for a copy, which finds out what is wrong with the file; the commit is durable.
            return INDEX_WAL_COPY_BYTES
        if use.salts != before.salts:
            self._copied_frames = 0
        return (use.frames - self._copied_frames) * use.frame_bytes

    def _copy_ended(self, result: None, error: BaseException | None) -> None:
        self._copying = False

    def _copy_wal(self) -> None:
        assert self._write_connection is not None
        if self._dead_reason:
            return
        try:
            # PASSIVE does not wait for readers: pages that a reader still needs stay in the WAL for a later copy.
            _, _, copied = self._write_connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._copied_frames = max(0, copied)
        except sqlite3.Error as error:
            self._died(error, "its WAL could not be copied")

    def _died(self, error: sqlite3.Error, reason: str) -> None:
        if isinstance(map_error(error, ""), (Dead, Corrupt)):
            self._dead_reason = self._dead_reason or f"dead after {reason}: {error}"

    def _require(self) -> None:
        if self._dead_reason:
            raise Unavailable(f"the index {self._path} is {self._dead_reason}")

    async def _on(self, worker: Worker, call: Callable[[], T], doing: str) -> T:
        try:
            return await worker.run(call)
        except sqlite3.Error as error:
            raise map_error(error, f"{doing} {self._path}", opening=doing == "open") from error
        except UnicodeDecodeError as error:  # SQLite's message quotes a damaged schema
            raise Corrupt(f"{doing} {self._path}: its schema is damaged") from error


class SqliteIndexProvider:
    """The indexes of a node: one database per container in `directory`."""

    def __init__(self, env: Env, directory: str, cache_bytes: int = INDEX_CACHE_BYTES) -> None:
        self._directory = directory
        self._cache_bytes = cache_bytes
        self._env = env

    async def open(self, container: int) -> SqliteIndex:
        """Open the index file of a container.  Raises Unavailable, Corrupt, Invalid (a newer format)."""
        try:
            return await self._open(container)
        except Corrupt as error:
            # Open again if all bytes can be read, since SQLite also reports a read error of the disk (EIO) as damage.
            await self._require_readable(container, error)
        return await self._open(container)

    async def _open(self, container: int) -> SqliteIndex:
        files, threads = self._env.files, self._env.threads
        writer = threads.worker(f"index-{container}-write")
        reader = threads.worker(f"index-{container}-read")
        index = SqliteIndex(self._path(container), files, writer, reader, self._cache_bytes)
        try:
            await writer.run(lambda: files.make_dirs(self._directory))
            await index.start()
            # Sync the directory, since the name of a new database must be durable before it is used.
            await writer.run(lambda: files.sync_dir(self._directory))
        except OSError as error:
            await index.close()
            raise Unavailable(f"index directory {self._directory}: {error}") from error
        except BaseException:
            await index.close()
            raise
        return index

    async def _require_readable(self, container: int, found: Corrupt) -> None:
        """Check that all bytes of the database can be read.  Raises Unavailable."""
        path, worker = self._path(container), self._env.threads.worker(f"index-{container}-check")
        try:
            await worker.run(lambda: _read_whole(self._env.files, path))
        except OSError as error:
            raise Unavailable(f"index {path} cannot be read: {error} (reported as: {found})") from error
        finally:
            await worker.close()

    def _path(self, container: int) -> str:
        return f"{self._directory}/container-{container}.db"


def _read_whole(files: Files, path: str) -> None:
    """Read every byte of a database and its WAL.  Raises OSError."""
    for name in (path, f"{path}-wal"):
        if files.exists(name):
            file = files.open(name, "read")
            try:
                at = 0
                while piece := file.pread(INDEX_REWRITE_BYTES, at):
                    at += len(piece)
            finally:
                file.close()
