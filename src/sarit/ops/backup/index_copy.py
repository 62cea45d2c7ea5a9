"""Copies of indexes: SQLite's, of one moment, beside the node that writes to them.  Blocking.

A read transaction of a database in WAL mode shows one moment for as long as it lasts.  The writer goes on, and its WAL
grows meanwhile, so the copy is made at once and at full speed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from sarit.core.errors import Corrupt, Unavailable
from sarit.index import keys
from sarit.index.database import make_database_file
from sarit.index.record_seals import unseal
from sarit.ops.backup.limits import EXTENTS_PER_PAGE, SQLITE_PAGES_PER_STEP
from sarit.storage.layout import load_chunk_extent

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.env.ports import Files
    from sarit.storage.checksums import ChunkChecksums
    from sarit.storage.layout import Extent


class IndexSnapshot:
    """A read transaction on the index of a running node."""

    def __init__(self, path: str, frame: int) -> None:
        """Begin the copy of an index.  Raises Unavailable: it does not show the checkpoint of `frame`."""
        self._path = path
        self._stopped = False
        # Every call is made on one worker, whichever thread made the object.
        self._connection = sqlite3.connect(
            f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            self._connection.execute("BEGIN")
            found = _frame(self._connection, path)
        except sqlite3.Error as error:
            self._connection.close()
            raise Unavailable(f"index {path} cannot be read: {error}") from error
        if found != frame:
            self._connection.close()
            raise Unavailable(f"index {path} shows frame {found}, not {frame} of the checkpoint: try again")

    def copy(self, files: Files, target: str, progress: Callable[[int], None]) -> None:
        """Copy the index to a new file, and end the transaction.  Raises Unavailable, OSError."""
        for name in (target, f"{target}-journal"):
            with suppress(FileNotFoundError):
                files.remove(name)
        make_database_file(files, target)
        try:
            with closing(self._connection), closing(sqlite3.connect(target)) as copy:
                (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
                done = 0

                def step(status: int, remaining: int, total: int) -> None:
                    nonlocal done
                    if self._stopped:
                        raise Unavailable(f"the copy of index {self._path} was stopped")
                    progress((total - remaining - done) * page_bytes)
                    done = total - remaining

                self._connection.backup(copy, pages=SQLITE_PAGES_PER_STEP, progress=step, sleep=0)
        except sqlite3.Error as error:
            raise Unavailable(f"index {self._path} cannot be copied: {error}") from error

    def stop(self) -> None:
        """End a copy after its current step.  Any thread may call it."""
        self._stopped = True

    def close(self) -> None:
        """End the transaction without a copy."""
        self._connection.close()


def _frame(connection: sqlite3.Connection, path: str) -> int:
    key = keys.meta_key("frame")
    row = connection.execute("SELECT v FROM entries WHERE k=?", (key,)).fetchone()
    return 0 if row is None else keys.parse_attribute_value(unseal(key, row[0]))


def chunks_of(path: str) -> dict[str, list[Extent]]:
    """Return the chunks that a copied index names, each with the extents in it.  Raises Corrupt, with the record."""
    found: dict[str, list[Extent]] = {}
    at, end = keys.kind_range(keys.EXTENT)
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)) as connection:
            while True:
                rows = connection.execute(
                    "SELECT k,v FROM entries WHERE k>=? AND k<? ORDER BY k LIMIT ?", (at, end, EXTENTS_PER_PAGE)
                ).fetchall()
                for key, stored in rows:
                    _, start = keys.parse_extent_key(key)
                    extent = load_chunk_extent(start, unseal(key, stored))
                    found.setdefault(extent.chunk, []).append(extent)
                if len(rows) < EXTENTS_PER_PAGE:
                    return found
                at = keys.after(rows[-1][0])
    except sqlite3.Error as error:
        raise Corrupt(f"the copied index {path} cannot be read: {error}") from error


def length_of(extents: list[Extent]) -> int:
    """Return the length of the object that these extents are in."""
    sums = extents[0].checksums
    assert sums is not None, extents[0]
    return sums.object_length or sums.length


def check_chunk(chunk: str, extents: list[Extent], data: memoryview) -> None:
    """Compare a whole object with the checksums of what is in it.  Raises DamagedChunk.  Blocking."""
    checked: set[int] = set()
    for extent in extents:
        sums: ChunkChecksums | None = extent.checksums
        assert sums is not None, extent
        if sums.begin not in checked:
            checked.add(sums.begin)
            sums.verify(chunk, 0, data[sums.begin : sums.begin + sums.length])
