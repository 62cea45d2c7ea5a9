"""Opens the SQLite database of an index: checks what it is, makes all of it durable, and fences an earlier owner.

Blocking; runs on the index's threads (`sqlite.py`, where the theory is).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from sarit.core.errors import Corrupt, Invalid, Unavailable
from sarit.core.limits import KIB
from sarit.index.examination import SCHEMA, Gap, check_header, check_schema, check_structure, find_gaps
from sarit.index.keys import FORMAT_VERSION
from sarit.index.limits import (
    INDEX_EXAMINED_BYTES,
    INDEX_HEADER_BYTES,
    INDEX_LOCK_TIMEOUT_SECONDS,
    INDEX_REWRITE_BYTES,
    MAX_INDEX_WAL_FILE_BYTES,
)
from sarit.index.wal import check_wal, last_valid_frame

if TYPE_CHECKING:
    from sarit.env.ports import Files

APPLICATION_ID: Final = 0x53617269  # "Sari"


@dataclass(frozen=True, slots=True)
class Opened:
    """The writing connection, the epoch of this owner, and where records were lost (None: not examined)."""

    connection: sqlite3.Connection
    epoch: int
    gaps: list[Gap] | None


def connect(path: str, cache_bytes: int) -> sqlite3.Connection:
    """Return a connection for the thread that calls this."""
    # No implicit transactions (isolation level None).  sqlite3 refuses a connection on another thread than the one
    # that made it, so each is made on its worker.
    connection = sqlite3.connect(path, timeout=INDEX_LOCK_TIMEOUT_SECONDS, isolation_level=None)
    # Negative: KiB instead of pages.
    connection.execute(f"PRAGMA cache_size=-{cache_bytes // KIB}")
    connection.execute("PRAGMA synchronous=FULL")
    connection.text_factory = as_text
    return connection


def make_database_file(files: Files, path: str) -> None:
    """Create an empty file, which is a new database for SQLite, with the mode of our files, if there is none."""
    with suppress(FileExistsError):
        files.open(path, "create").close()


def as_text(data: bytes) -> str:
    """Return no value of an index is a text.  A damaged one may be: as a `str` it is recognized, whatever its bytes."""
    return data.decode("latin-1")


def pragma(connection: sqlite3.Connection, name: str) -> Any:
    """Return the value of a pragma."""
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def open_writer(path: str, files: Files, cache_bytes: int) -> Opened:
    """Return a connection to a checked, perhaps new, database that is durable as a whole.

    Raises Invalid (another format), Corrupt, Unavailable, sqlite3.Error, OSError."""
    # SQLite would make the file readable by others, and then its WAL with the same mode.
    make_database_file(files, path)
    connection = connect(path, cache_bytes)
    try:
        fresh = _is_fresh(connection, path)
        if fresh:
            # Before anything is written: SQLite lays a database out for it from the first page on.
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        # SQLite does not raise: it answers the mode that it uses.
        if pragma(connection, "journal_mode=WAL") != "wal":
            raise Unavailable(f"the file system of {path} does not support SQLite's WAL mode")
        # Else SQLite would copy the WAL inside a commit, which clients wait for (`_copy_wal`).
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={MAX_INDEX_WAL_FILE_BYTES}")
        connection.execute("BEGIN IMMEDIATE")
        # Under SQLite's write lock, so there is no other writer.  All checks come before the first change.
        gaps: list[Gap] | None = []
        if not fresh:
            check_files(files, path)
            check_schema(connection, path)
            gaps = _examine(connection, path)
        _rewrite_wal(files, f"{path}-wal")
        if fresh:
            _create(connection)
        # The fence: every commit of an earlier owner compares this number in its own transaction.
        connection.execute("UPDATE owner SET epoch=epoch+1")
        row = connection.execute("SELECT epoch FROM owner").fetchone()
        if row is None or not isinstance(row[0], int):
            raise Corrupt(f"index {path}: its epoch is lost")
        connection.execute("COMMIT")
        # After COMMIT: SQLite does not copy the WAL inside a transaction.
        _empty_wal(connection)
        return Opened(connection, row[0], gaps)
    except BaseException:
        _close_unchanged(connection, path)
        raise


def _is_fresh(connection: sqlite3.Connection, path: str) -> bool:
    """Return whether the database is new.  Raises Invalid (it is not an index, or of another format)."""
    version, application = pragma(connection, "user_version"), pragma(connection, "application_id")
    if version != FORMAT_VERSION and application == APPLICATION_ID:
        raise Invalid(f"index {path} is of format {version}; this version of Sarit reads format {FORMAT_VERSION}")
    # No table and no marks: a new file, or one whose creation a crash undid.  `_create` is part of one transaction
    # with its marks, so there is nothing in between.
    fresh = version == 0 and application == 0 and pragma(connection, "schema_version") == 0
    if not fresh and (version != FORMAT_VERSION or application != APPLICATION_ID):
        raise Invalid(f"{path} is not an index of Sarit")
    return bool(fresh)


def check_files(files: Files, path: str, *, wal: bool = True) -> None:
    """Check the header of the database, and whether its WAL (unless `wal` is false) has lost durable commits.

    SQLite has read the WAL before.  Raises Corrupt, OSError."""
    with closing(files.open(path, "read")) as file:
        check_header(bytes(file.pread(INDEX_HEADER_BYTES, 0)), path)
    shared = f"{path}-shm"
    if not wal or not files.exists(f"{path}-wal") or not files.exists(shared):
        return
    with closing(files.open(shared, "read")) as file:
        valid = last_valid_frame(bytes(file.pread(INDEX_HEADER_BYTES, 0)))
    with closing(files.open(f"{path}-wal", "read")) as file:
        check_wal(path, file.size(), lambda length, at: bytes(file.pread(length, at)), valid)


def _examine(connection: sqlite3.Connection, path: str) -> list[Gap] | None:
    if pragma(connection, "page_count") * pragma(connection, "page_size") > INDEX_EXAMINED_BYTES:
        return None
    check_structure(connection, path)
    return find_gaps(connection, path)


def _close_unchanged(connection: sqlite3.Connection, path: str) -> None:
    """Close without copying the WAL, which the last connection of a database does, and then deletes it.

    A WAL that is damaged must be found damaged the next time, too.  A connection that may only read copies nothing."""
    with suppress(sqlite3.Error):
        connection.execute("ROLLBACK")
    reader: sqlite3.Connection | None = None
    try:
        with suppress(sqlite3.Error):
            reader = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        connection.close()
    finally:
        if reader is not None:
            reader.close()


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
    for statement in SCHEMA.values():
        connection.execute(statement)
    connection.execute("INSERT OR IGNORE INTO owner VALUES (1, 0)")
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")


def open_reader(path: str, cache_bytes: int) -> sqlite3.Connection:
    """Return a connection that changes nothing."""
    connection = connect(path, cache_bytes)
    connection.execute("PRAGMA query_only=1")
    return connection
