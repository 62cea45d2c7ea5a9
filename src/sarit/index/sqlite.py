"""The index on one node: an SQLite database per container.

Theory of operation.  One table, `entries(k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID`: a B-tree ordered by the bytes of
the key.  In WAL mode with `synchronous=FULL`, COMMIT returns when the write-ahead log is synced.  There are two
connections, each on a thread of its own: one writes, the other reads what is committed, so reads never wait for a
commit.  A call of its own copies the WAL into the database after a commit, never inside one.  Opening raises the epoch
in the table `owner`.  Every commit checks it in its transaction, which fences an earlier owner, in this process or
another.

Warnings.  (1) The sqlite3 module releases the interpreter lock at every row it steps over, and with a busy event loop
to take it back costs about 0.1 ms (measured; switch interval 0.2 ms).  So a statement writes ROWS_PER_STATEMENT rows,
and a query returns the values of several keys as columns of one row.  (2) After an I/O error of a commit or of a WAL
copy the handle is dead: the content of the disk is unknown.  A full disk is different: SQLite rolls back, and the
handle lives.  (3) After a failed sync the page cache shows commits that the disk does not have, and SQLite takes every
commit in the WAL for durable.  So opening writes the WAL again and syncs it before it uses or copies anything in it.
(4) This module opens files without `Env.files`; it is never simulated.

Format: `application_id` and `user_version` of the file are checked (docs/formats/sqlite-index.md).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.core.errors import Corrupt, Fenced, Invalid, SaritError, Unavailable
from sarit.core.limits import (
    INDEX_LOCK_TIMEOUT_SECONDS,
    INDEX_REWRITE_BYTES,
    INDEX_ROW_OVERHEAD_BYTES,
    INDEX_WAL_COPY_BYTES,
    MAX_INDEX_WAL_FILE_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Env, Files, Worker
    from sarit.index.port import WriteBatch

T = TypeVar("T")

APPLICATION_ID: Final = 0x53617269  # "Sari"
SCHEMA_VERSION: Final = 1
ROWS_PER_STATEMENT: Final = (128, 16, 1)
KEYS_PER_QUERY: Final = (64, 8, 2, 1)
MAX_KEYS_PER_READ: Final = 4096
CACHE_KIB: Final = 4096

_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ALIVE_AFTER: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_QUERIES: Final = {size: "SELECT " + ",".join(["(SELECT v FROM entries WHERE k=?)"] * size) for size in KEYS_PER_QUERY}
_UPSERTS: Final = {
    size: f"INSERT INTO entries VALUES {','.join(['(?,?)'] * size)} ON CONFLICT(k) DO UPDATE SET v=excluded.v"
    for size in ROWS_PER_STATEMENT
}
_DELETES: Final = {size: f"DELETE FROM entries WHERE k IN ({','.join('?' * size)})" for size in ROWS_PER_STATEMENT}
_DELETE_RANGE: Final = "DELETE FROM entries WHERE k>=? AND k<?"
_SCAN: Final = "SELECT k,v FROM entries WHERE k>=? AND k<? ORDER BY k LIMIT ?"
_SCAN_REVERSE: Final = "SELECT k,v FROM entries WHERE k>=? AND k<? ORDER BY k DESC LIMIT ?"


class Dead(Unavailable):
    """The outcome of the failed call is unknown; the index must be opened again."""


def map_error(error: sqlite3.Error, doing: str) -> SaritError:
    """An SQLite error as the port's error; no other place maps them."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    text = f"{doing}: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    primary = code & 0xFF
    if primary in _CORRUPT:
        return Corrupt(text)
    return Unavailable(text) if primary in _ALIVE_AFTER else Dead(text)


# -- what runs on the threads -----------------------------------------------------------------


def _connect(path: str) -> sqlite3.Connection:
    # No implicit transactions (isolation level None).  sqlite3 refuses a connection on another thread than the one
    # that made it, so each is made on its worker.
    connection = sqlite3.connect(path, timeout=INDEX_LOCK_TIMEOUT_SECONDS, isolation_level=None)
    # Negative: KiB instead of pages.
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _open_writer(path: str, files: Files) -> tuple[sqlite3.Connection, int]:
    """A connection to a checked, perhaps new, database that is durable as a whole, and the epoch of this owner."""
    connection = _connect(path)
    try:
        version, application = _pragma(connection, "user_version"), _pragma(connection, "application_id")
        if version > SCHEMA_VERSION and application == APPLICATION_ID:
            raise Invalid(f"index {path} is of format {version}; this version of Sarit reads up to {SCHEMA_VERSION}")
        # No table and no marks: a new file, or one whose creation a crash undid.  `_create` is part of one transaction
        # with its marks, so there is nothing in between.
        fresh = version == 0 and application == 0 and _pragma(connection, "schema_version") == 0
        if not fresh and (version != SCHEMA_VERSION or application != APPLICATION_ID):
            raise Invalid(f"{path} is not an index of Sarit")
        # SQLite does not raise: it answers the mode that it uses.
        if _pragma(connection, "journal_mode=WAL") != "wal":
            raise Unavailable(f"the file system of {path} does not support SQLite's WAL mode")
        # Else SQLite would copy the WAL inside a commit, which clients wait for (`_copy_wal`).
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={MAX_INDEX_WAL_FILE_BYTES}")
        connection.execute("BEGIN IMMEDIATE")
        _rewrite_wal(files, f"{path}-wal")  # under SQLite's write lock: there is no other writer
        if fresh:
            _create(connection)
        # The fence: every commit of an earlier owner compares this number in its own transaction.
        connection.execute("UPDATE owner SET epoch=epoch+1")
        (epoch,) = connection.execute("SELECT epoch FROM owner").fetchone()
        connection.execute("COMMIT")
        # After COMMIT: SQLite does not copy the WAL inside a transaction.
        _empty_wal(connection)
        return connection, epoch
    except BaseException:
        connection.close()
        raise


def _rewrite_wal(files: Files, wal: str) -> None:
    """Make the visible content of the WAL durable.

    After a failed sync the kernel does not write the pages again, and the next sync reports success.  Without this, a
    power cut during the copy of the WAL would leave half a commit in the database, and none in the WAL."""
    if not files.exists(wal):
        return
    file = files.open(wal, "write")
    try:
        at = 0
        # The read comes from the page cache.  The write of the same bytes makes their pages dirty again.
        while piece := file.pread(INDEX_REWRITE_BYTES, at):
            file.pwrite([piece], at)
            at += len(piece)
        file.datasync()
    finally:
        file.close()


def _empty_wal(connection: sqlite3.Connection) -> None:
    """Copy the WAL into the database, and sync the database.

    The copy is partial when the disk is full, or when another process (a backup) reads the database for longer than
    SQLite waits.  The rest stays in the WAL, which is durable, and a later copy takes it."""
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
            raise  # a full disk must not prevent the opening: the container that opens frees space


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS entries (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS owner (one INTEGER PRIMARY KEY CHECK (one=1), epoch INTEGER NOT NULL)"
    )
    connection.execute("INSERT OR IGNORE INTO owner VALUES (1, 0)")
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _open_reader(path: str) -> sqlite3.Connection:
    connection = _connect(path)
    connection.execute("PRAGMA query_only=1")
    return connection


def _lookup(connection: sqlite3.Connection, keys: Sequence[bytes]) -> list[bytes | None]:
    """The values of `keys` in one snapshot: a batch is seen whole or not at all."""
    found: list[bytes | None] = []
    at = 0
    one_statement = len(keys) <= KEYS_PER_QUERY[0]
    if not one_statement:
        # One statement is a snapshot by itself; several need a transaction.
        connection.execute("BEGIN")
    try:
        while at < len(keys):
            left = len(keys) - at
            # The smallest query that takes all keys that are left, or the largest there is.
            size = next((size for size in reversed(KEYS_PER_QUERY) if size >= left), KEYS_PER_QUERY[0])
            requested: list[bytes | None] = list(keys[at : at + size])
            count = len(requested)
            # NULL equals no key: the columns that pad the query come back empty and are cut off.
            requested.extend([None] * (size - count))
            found.extend(connection.execute(_QUERIES[size], requested).fetchone()[:count])
            at += count
    finally:
        if not one_statement:
            connection.execute("COMMIT")
    return found


def _apply(connection: sqlite3.Connection, epoch: int, batch: WriteBatch) -> int:
    """Commit a batch.  Returns about how many bytes it added to the WAL.  Raises Fenced."""
    connection.execute("BEGIN IMMEDIATE")
    # IMMEDIATE took the write lock: the epoch cannot rise between this check and COMMIT.
    (owner,) = connection.execute("SELECT epoch FROM owner").fetchone()
    if owner != epoch:
        # The caller rolls back.
        raise Fenced(f"the index was opened by another owner (epoch {owner}, ours is {epoch})")
    # Range deletes, deletes, puts: the order that `WriteBatch` defines.
    for span in batch.range_deletes:
        connection.execute(_DELETE_RANGE, span)
    _in_statements(connection, _DELETES, sorted(batch.deletes), 1)
    flat: list[bytes] = []
    # Sorted: neighbours of the B-tree are written one after the other.
    for row in sorted(batch.puts.items()):
        flat.extend(row)
    _in_statements(connection, _UPSERTS, flat, 2)
    connection.execute("COMMIT")
    rows = len(batch.puts) + len(batch.deletes)
    return sum(map(len, flat)) + rows * INDEX_ROW_OVERHEAD_BYTES


def _in_statements(connection: sqlite3.Connection, statements: dict[int, str], values: list[bytes], width: int) -> None:
    at = 0
    # From the largest statement to that of one row, so no value is left over.
    for size in ROWS_PER_STATEMENT:
        step = size * width
        while len(values) - at >= step:
            connection.execute(statements[size], values[at : at + step])
            at += step


# -- the port -----------------------------------------------------------------------------------


class SqliteIndex:
    """One container's index; made by `SqliteIndexProvider.open`."""

    def __init__(self, path: str, files: Files, writer: Worker, reader: Worker) -> None:
        self._path = path
        self._files = files
        self._writer = writer
        self._reader = reader
        self._epoch = 0
        self._write_connection: sqlite3.Connection | None = None
        self._read_connection: sqlite3.Connection | None = None
        self._dead_reason = ""
        self._wal_bytes = 0
        self._waiting: deque[tuple[Sequence[bytes], asyncio.Future[list[bytes | None]]]] = deque()
        self._reading = False

    def __repr__(self) -> str:
        return f"<SqliteIndex {self._path} epoch {self._epoch} {self._dead_reason or 'open'}>"

    async def start(self) -> None:
        """Open both connections and fence an earlier owner.  Raises Unavailable, Corrupt, Invalid."""
        path, files = self._path, self._files
        self._write_connection, self._epoch = await self._on(self._writer, lambda: _open_writer(path, files), "open")
        self._read_connection = await self._on(self._reader, lambda: _open_reader(self._path), "open")

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Index`.  Calls made while a read is in progress share the next one."""
        self._require()
        future: asyncio.Future[list[bytes | None]] = asyncio.get_running_loop().create_future()
        self._waiting.append((keys, future))
        # While a read is in progress, the keys of all callers accumulate for the next one.
        if not self._reading:
            self._read()
        return await future

    async def scan(self, start: bytes, end: bytes, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """See `Index`."""
        self._require()
        query = _SCAN_REVERSE if reverse else _SCAN

        def call() -> list[tuple[bytes, bytes]]:
            assert self._read_connection is not None
            return self._read_connection.execute(query, (start, end, limit)).fetchall()

        return await self._on(self._reader, call, "scan")

    async def commit(self, batch: WriteBatch) -> None:
        """See `Index`."""
        self._require()

        def call() -> int:
            connection = self._write_connection
            assert connection is not None
            self._require()  # an earlier commit may have failed while this one was queued
            try:
                return _apply(connection, self._epoch, batch)
            except BaseException as error:
                # Set here on the thread, before the next queued commit runs its check above.
                if isinstance(error, sqlite3.Error) and isinstance(map_error(error, ""), (Dead, Corrupt)):
                    self._dead_reason = self._dead_reason or "dead after a failed commit"
                with suppress(sqlite3.Error):
                    # Suppressed: after some errors SQLite has rolled back by itself, and this fails.
                    connection.execute("ROLLBACK")
                raise

        added = await self._on(self._writer, call, "commit")
        self._wal_bytes += added  # after the await: other commits may have added theirs
        if self._wal_bytes >= INDEX_WAL_COPY_BYTES and not self._dead_reason:
            self._wal_bytes = 0
            # On the writer's thread: commits that are made meanwhile queue behind the copy.
            self._writer.submit(self._copy_wal, lambda _, __: None)

    async def close(self) -> None:
        """See `Index`."""
        closed = self._dead_reason == "closed"
        self._dead_reason = "closed"
        if closed:
            return
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(Unavailable("the index is closed"))
        self._waiting.clear()
        # The writer last: SQLite copies the WAL when the last connection to a database closes.
        for worker, connection in ((self._reader, self._read_connection), (self._writer, self._write_connection)):
            if connection is not None:
                with suppress(sqlite3.Error):
                    await worker.run(connection.close)
            await worker.close()

    def _read(self) -> None:
        batch: list[tuple[Sequence[bytes], asyncio.Future[list[bytes | None]]]] = []
        keys: list[bytes] = []
        while self._waiting and len(keys) < MAX_KEYS_PER_READ:
            batch.append(self._waiting.popleft())
            keys.extend(batch[-1][0])
        self._reading = True

        def call() -> list[bytes | None]:
            assert self._read_connection is not None
            return _lookup(self._read_connection, keys)

        def done(found: list[bytes | None] | None, error: BaseException | None) -> None:
            self._reading = False
            if isinstance(error, sqlite3.Error):
                error = map_error(error, f"get from {self._path}")
            at = 0
            for requested, future in batch:
                # The caller was cancelled; the others of the batch get their values.
                if future.done():
                    pass
                elif error is not None:
                    future.set_exception(error)
                else:
                    assert found is not None
                    future.set_result(found[at : at + len(requested)])
                at += len(requested)
            if self._waiting and not self._reading:
                self._read()

        self._reader.submit(call, done)

    def _copy_wal(self) -> None:
        assert self._write_connection is not None
        if self._dead_reason:
            return
        try:
            # PASSIVE waits for nobody: what a reader still needs stays in the WAL for a later copy.
            self._write_connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            if isinstance(map_error(error, ""), (Dead, Corrupt)):
                self._dead_reason = f"dead after its WAL could not be copied: {error}"

    def _require(self) -> None:
        if self._dead_reason:
            raise Unavailable(f"the index {self._path} is {self._dead_reason}")

    async def _on(self, worker: Worker, call: Callable[[], T], doing: str) -> T:
        try:
            return await worker.run(call)
        except sqlite3.Error as error:
            raise map_error(error, f"{doing} {self._path}") from error


class SqliteIndexProvider:
    """The indexes of a node: one database per container in `directory`."""

    def __init__(self, env: Env, directory: str) -> None:
        self._directory = directory
        self._env = env

    async def open(self, container: int) -> SqliteIndex:
        """See `IndexProvider`.  Raises Unavailable, Corrupt, Invalid (a newer format)."""
        files, threads = self._env.files, self._env.threads
        writer = threads.worker(f"index-{container}-write")
        reader = threads.worker(f"index-{container}-read")
        index = SqliteIndex(f"{self._directory}/container-{container}.db", files, writer, reader)
        try:
            await writer.run(lambda: files.make_dirs(self._directory))
            await index.start()
            # The database may be new: its name must be durable before anything relies on it.
            await writer.run(lambda: files.sync_dir(self._directory))
        except OSError as error:
            await index.close()
            raise Unavailable(f"index directory {self._directory}: {error}") from error
        except BaseException:
            await index.close()
            raise
        return index
