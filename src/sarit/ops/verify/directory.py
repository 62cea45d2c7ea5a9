"""Checks a data directory: its description, each container's index, chunks and log.

A stopped node's directory is checked whole, under the lock that a node takes.  Beside a running node the index is read
in one snapshot, and chunks after it.  A chunk that is missing then may have been replaced since: the index is asked
again.  The log and chunks that nobody names change all the time: they are not checked, and the report says so.

Nothing is changed, except that SQLite may make its `-shm` file and an empty `-wal`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sarit.core.errors import Corrupt, Invalid, SaritError, Unavailable
from sarit.env.whole_files import read_whole
from sarit.index import keys
from sarit.index.database import APPLICATION_ID, as_text, check_files
from sarit.index.examination import check_schema, check_structure
from sarit.ops.verify.contents import Contents, read_contents
from sarit.ops.verify.findings import Finding, Report
from sarit.ops.verify.log import check_log
from sarit.process.ownership.claims import check_ownership, read_description
from sarit.process.ownership.directory_content import LAST_START, LOG_FOLDER, OWNER_CHUNK_WRITTEN, SQLITE
from sarit.process.ownership.tokens import decode_tokens
from sarit.storage.checksums import DamagedChunk
from sarit.storage.names import container_prefix
from sarit.storage.open import open_storage
from sarit.storage.verified_reads import verify_extent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.env.ports import Env, File
    from sarit.ops.backup.pacer import Progress
    from sarit.process.ownership.tokens import OwnershipToken
    from sarit.storage.layout import Extent
    from sarit.storage.port import ChunkStorage

_LOST = "these bytes, unless a backup has the chunk; every other byte of the segment is served"


@dataclass(frozen=True, slots=True)
class Description:
    """The content of `DATA/meta`."""

    containers: int
    storage: str
    node: str
    log: str = LOG_FOLDER


@dataclass(slots=True)
class Directory:
    """A data directory.  `lock` is None while a node runs on it."""

    path: str
    description: Description
    lock: File | None

    def index_path(self, container: int) -> str:
        """Return the index of a container."""
        return f"{self.path}/index/container-{container}.db"

    def index_bytes(self, env: Env, container: int) -> int:
        """Return the length of a container's database; 0 when there is none."""
        if not env.files.exists(self.index_path(container)):
            return 0
        with closing(env.files.open(self.index_path(container), "read")) as file:
            return file.size()

    @property
    def storage_url(self) -> str:
        """The URL of its long-term storage."""
        kind = self.description.storage
        return f"file://{self.path}/chunks" if kind == "chunks" else kind

    def close(self) -> None:
        """Release the lock."""
        if self.lock is not None:
            self.lock.close()


def open_directory(env: Env, path: str) -> Directory:
    """Read the description of a data directory, and lock it if no node runs on it.  Raises Invalid, OSError."""
    description = describe(env, path)
    lock_path = f"{path}/lock"
    lock = env.files.open(lock_path, "write" if env.files.exists(lock_path) else "create")
    if lock.lock():
        return Directory(path, description, lock)
    lock.close()
    return Directory(path, description, None)


def describe(env: Env, path: str) -> Description:
    """Read what `meta` says.  Raises Invalid (missing, damaged, or of another format)."""
    if not env.files.exists(f"{path}/meta"):
        raise Invalid(f"{path} is not a data directory of Sarit: it has no file `meta`")
    meta = read_description(env.files, path)
    if meta["index"] != SQLITE:
        raise Invalid(f"the indexes of {path} are at {meta['index']}: only those in a data directory can be checked")
    log = str(meta.get("log", LOG_FOLDER))
    return Description(int(meta["containers"]), str(meta["storage"]), str(meta["node"]), log)


async def verify(env: Env, directory: Directory, progress: Progress) -> Report:
    """Check everything.  Raises Unavailable (long-term storage), OSError."""
    report = Report()
    tokens = _read_last_start(env, directory, report)
    every = [
        _read_index(env, directory, number, report, progress) for number in range(directory.description.containers)
    ]
    contents = [found for found in every if found is not None]
    await _check_storage(env, directory, contents, tokens, report, progress)
    log_inside = directory.description.log == LOG_FOLDER
    if directory.lock is not None and log_inside:
        for found in contents:
            progress.begin(f"log {found.container}", 0)
            report.findings += check_log(env, f"{directory.path}/log/{found.container}", found)
    if not log_inside:
        report.unchecked.append(f"the durable log: it is on {directory.description.log}")
    if directory.lock is None:
        report.unchecked += [
            *(["the durable log: the node writes to it"] if log_inside else []),
            "chunks that nobody names: the node writes and deletes some all the time",
        ]
    return report


def _read_last_start(env: Env, directory: Directory, report: Report) -> list[OwnershipToken] | None:
    """Return the ownership tokens that the directory knows; None when the file is missing or damaged."""
    path = f"{directory.path}/{LAST_START}"
    if not env.files.exists(path):
        return None
    try:
        return decode_tokens(read_whole(env.files, path))
    except (Corrupt, Invalid) as error:
        report.findings.append(
            Finding(
                f"{path}: {error}", lost="no data; a copy of this directory cannot be recognized",
                advice="if no copy is in use, delete this file and the chunks node/start-* of long-term storage",
            )
        )  # fmt: skip
        return None


# -- the index --------------------------------------------------------------------------------


def connect(path: str) -> sqlite3.Connection:
    """Return a connection that cannot change the database.  Raises sqlite3.Error."""
    connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None)
    connection.text_factory = as_text
    return connection


def _read_index(env: Env, directory: Directory, number: int, report: Report, progress: Progress) -> Contents | None:
    """Return the records of a container's index; None when it cannot be read.  Blocking."""
    path, files = directory.index_path(number), env.files
    if not files.exists(path):
        if files.exists(f"{directory.path}/log/{number}"):
            report.findings.append(
                Finding(f"{path} is missing", container=number, lost="the whole container", advice=_RESTORE_BOTH)
            )
        return None
    wal = f"{path}-wal"
    progress.begin(f"index {number}", directory.index_bytes(env, number))
    contents: Contents | None = None
    try:
        with closing(connect(path)) as connection:
            connection.execute("BEGIN")
            # The first read: SQLite finds the end of the WAL.
            marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
            if marks != [APPLICATION_ID, keys.FORMAT_VERSION]:
                raise Corrupt(
                    f"index {path} is of format {marks[1]}; this version of Sarit reads {keys.FORMAT_VERSION}"
                )
            # A running node appends to the WAL at this moment.
            check_files(files, path, wal=directory.lock is not None and files.exists(wal))
            check_schema(connection, path)
            with _noted(report, number, _RESTORE_BOTH):
                check_structure(connection, path)
            contents = read_contents(connection, number, path, progress.add)
    except Corrupt as error:
        report.findings.append(Finding(str(error), container=number, lost=_LOST_CONTAINER, advice=_RESTORE_BOTH))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a message may quote a damaged schema
        report.findings.append(
            Finding(f"index {path}: {error}", container=number, lost=_LOST_CONTAINER, advice=_RESTORE_BOTH)
        )
    if contents is not None:
        report.findings += contents.findings
        report.records += contents.records
        report.segments += sum(found.segment is not None for found in contents.segments.values())
    return contents


_LOST_CONTAINER = "the container does not open; chunks and log are there"
_RESTORE_BOTH = "restore index and log of this container from one backup"


class _noted(suppress):
    """Turns Corrupt into a finding, and goes on."""

    def __init__(self, report: Report, container: int, advice: str) -> None:
        super().__init__(Corrupt)
        self._report, self._container, self._advice = report, container, advice

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        if isinstance(error, Corrupt):
            self._report.findings.append(
                Finding(str(error), container=self._container, lost=_LOST_CONTAINER, advice=self._advice)
            )
        return super().__exit__(kind, error, traceback)


# -- chunks -----------------------------------------------------------------------------------


async def _check_storage(
    env: Env, directory: Directory, every: list[Contents], tokens: list[OwnershipToken] | None, report: Report,
    progress: Progress,
) -> None:  # fmt: skip
    url = directory.storage_url
    folder = url.removeprefix("file://")
    if folder != url and not env.files.exists(folder):
        if any(extent.chunk for contents in every for _, extent in _extents(contents)):
            report.findings.append(
                Finding(
                    f"long-term storage is missing: {url}", lost="everything that only chunks hold",
                    advice="is its disk mounted? put it back",
                )
            )  # fmt: skip
        return
    storage = await open_storage(url, env)
    try:
        marked = env.files.exists(f"{directory.path}/{OWNER_CHUNK_WRITTEN}")
        if directory.lock is not None and tokens is not None and marked:
            await _check_owner(directory, tokens, storage, report)
        for contents in every:
            await _check_chunks(directory, contents, storage, report, progress)
    finally:
        await storage.close()


async def _check_owner(
    directory: Directory, tokens: list[OwnershipToken], storage: ChunkStorage, report: Report
) -> None:
    """Check that the node would take long-term storage for its own.  The finding's text has the advice."""
    try:
        await check_ownership(storage, directory.description.node, tokens)
    except Invalid as error:
        report.findings.append(Finding(str(error), lost="no data; the node does not start", advice="as it says"))


async def _check_chunks(
    directory: Directory, contents: Contents, storage: ChunkStorage, report: Report, progress: Progress
) -> None:
    with_chunks = [(number, extent) for number, extent in _extents(contents) if extent.chunk]
    progress.begin(f"chunks of container {contents.container}", sum(extent.length for _, extent in with_chunks))
    checked: set[str] = set()
    for number, extent in with_chunks:
        await _check_extent(directory, contents, number, extent, storage, report)
        checked.add(extent.chunk)
        report.chunk_bytes += extent.length
        progress.add(extent.length)
    report.chunks += len(checked)
    if directory.lock is not None:
        await _check_unnamed(contents, checked | contents.garbage, storage, report)


def _extents(contents: Contents) -> Iterator[tuple[int, Extent]]:
    return (
        (number, extent)
        for number, found in contents.segments.items()
        for extent in sorted(found.extents, key=lambda extent: extent.start)
    )


async def _check_extent(
    directory: Directory, contents: Contents, number: int, extent: Extent, storage: ChunkStorage, report: Report
) -> None:
    try:
        await verify_extent(storage, extent)
    except DamagedChunk as error:
        # Beside a running node: compaction or a deletion may have replaced the extent since the snapshot.
        if directory.lock is None and not _is_stored(contents.path, number, extent):
            return
        report.findings.append(
            Finding(
                str(error), True, contents.container, contents.name_of(number), extent.start, extent.end, _LOST,
                "put the chunk back from a backup; or truncate the stream above these bytes, or delete it",
            )
        )  # fmt: skip


def _is_stored(path: str, number: int, extent: Extent) -> bool:
    with closing(connect(path)) as connection:
        row = connection.execute("SELECT v FROM entries WHERE k=?", (keys.extent_key(number, extent.start),)).fetchone()
    return row is not None and extent.chunk.encode() in row[0]


async def _check_unnamed(contents: Contents, named: set[str], storage: ChunkStorage, report: Report) -> None:
    """Say which chunks nobody names.  The next start deletes those that no commit ever named."""
    count = size = 0
    example = ""
    async for name, length in storage.list(container_prefix(contents.container)):
        if name not in named:
            count, size, example = count + 1, size + length, example or name
    if count:
        report.findings.append(
            Finding(
                f"{count} chunks of {size} bytes are named by no extent, for example {example}", False,
                contents.container,
                lost="nothing, unless records of the index are lost",
                advice="nothing: the node deletes those that were never committed, after its next start",
            )
        )  # fmt: skip


__all__ = ["Directory", "SaritError", "Unavailable", "open_directory", "verify"]
