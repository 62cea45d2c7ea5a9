"""Opens the SQLite database of an index: checks its format, makes all of it durable, and fences an earlier owner.

All calls block, and run on the index's threads (`sqlite.py` has the theory of operation).
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
    """The connection of the writer, the epoch of this owner, and the gaps of lost records (None: not examined)."""

    connection: sqlite3.Connection
    epoch: int
    gaps: list[Gap] | None


def connect(path: str, cache_bytes: int) -> sqlite3.Connection:
    """Return a connection for the calling thread: sqlite3 refuses it on any other."""
    # The isolation level None means no implicit transactions.
    connection = sqlite3.connect(path, timeout=INDEX_LOCK_TIMEOUT_SECONDS, isolation_level=None)
    # A negative number is in KiB instead of pages.
    connection.execute(f"PRAGMA cache_size=-{cache_bytes // KIB}")
    connection.execute("PRAGMA synchronous=FULL")
    connection.text_factory = as_text
    return connection


def make_database_file(files: Files, path: str) -> None:
    """Create an empty file, which SQLite takes for a new database, with the mode of our files, if there is none."""
    with suppress(FileExistsError):
        files.open(path, "create").close()


def as_text(data: bytes) -> str:
    """Return a text value as a `str`, whatever its bytes: only a damaged value of an index is a text."""
    return data.decode("latin-1")


def pragma(connection: sqlite3.Connection, name: str) -> Any:
    """Return the value of a pragma."""
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def open_writer(path: str, files: Files, cache_bytes: int) -> Opened:
    """Open a database for writing: check it or create it, make all of it durable, and fence an earlier owner.

    Raises Invalid (another format), Corrupt, Unavailable, sqlite3.Error, OSError."""
    # Create the file before SQLite does, which would make it, and its WAL, readable by others.
    make_database_file(files, path)
    connection = connect(path, cache_bytes)
    try:
        fresh = _is_fresh(connection, path)
        if fresh:
            # Set this before anything is written, since it determines the layout from the first page on.
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        # Compare the answer, because SQLite does not raise when it cannot use this mode.
        if pragma(connection, "journal_mode=WAL") != "wal":
            raise Unavailable(f"the file system of {path} does not support SQLite's WAL mode")
        # Do not let SQLite copy the WAL inside a commit, which clients wait for (`SqliteIndex._copy_wal` does).
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA journal_size_limit={MAX_INDEX_WAL_FILE_BYTES}")
        connection.execute("BEGIN IMMEDIATE")
        # Make all checks before the first change; SQLite's write lock, taken above, excludes other writers.
        gaps: list[Gap] | None = []
        if not fresh:
            check_files(files, path)
            check_schema(connection, path)
            gaps = _examine(connection, path)
        _rewrite_wal(files, f"{path}-wal")
        if fresh:
            _create(connection)
        # Fence earlier owners: each of their commits compares this number in its transaction.
        connection.execute("UPDATE owner SET epoch=epoch+1")
        row = connection.execute("SELECT epoch FROM owner").fetchone()
        if row is None or not isinstance(row[0], int):
            raise Corrupt(f"index {path}: its epoch is lost")
        connection.execute("COMMIT")
        # Copy the WAL after COMMIT, since SQLite does not copy it inside a transaction.
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
    # Without tables and numbers the file is new, or a crash undid its creation: `_create` writes both in one
    # transaction.
    fresh = version == 0 and application == 0 and pragma(connection, "schema_version") == 0
    if not fresh and (version != FORMAT_VERSION or application != APPLICATION_ID):
        raise Invalid(f"{path} is not an index of Sarit")
    return bool(fresh)


def check_files(files: Files, path: str, *, wal: bool = True) -> None:
    """Check the header of the database, and (unless `wal` is false) that its WAL has not lost durable commits.

    The caller has let SQLite read the WAL before.  Raises Corrupt, OSError."""
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
    """Close a connection without a copy and deletion of the WAL, so that a damaged WAL is found again next time.

    The last connection of a database does both; here that is a connection that may only read."""
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
        # Write the bytes that the page cache returns, which makes their pages dirty again.
        while piece := file.pread(INDEX_REWRITE_BYTES, at):
            file.pwrite([piece], at)
            at += len(piece)
        file.datasync()
    finally:
        file.close()


def _empty_wal(connection: sqlite3.Connection) -> None:
    """Copy the WAL into the database, and sync the database.

    The copy is partial when the disk is full, or when another process (a backup) reads the database for longer than
    SQLite waits.  The rest stays in the WAL, which is durable, until a later copy."""
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
            raise  # but not on a full disk, which the opened container will free


def _create(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA.values():
        connection.execute(statement)
    connection.execute("INSERT OR IGNORE INTO owner VALUES (1, 0)")
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")


def open_reader(path: str, cache_bytes: int) -> sqlite3.Connection:
    """Return a connection that can only read."""
    connection = connect(path, cache_bytes)
    connection.execute("PRAGMA query_only=1")
    return connection
