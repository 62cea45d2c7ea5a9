"""The indexes of an installation, as its controller keeps them: files in segments, and rows in a table of the system.

    blob <stream id>/<digits>   the segment _system/_search-<stream id>-<digits>/0.#epoch.0, and a row b/<blob>, which
                                is made before it and removed after it: so the rows list all segments

Both are durable, fenced, tiered and in backups as all segments are.  The first index makes the table.  A process that
neither indexes nor answers from an index imports neither `sarit.search` nor Tantivy, and makes no directory.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sarit.controller.calls.identity import IdentityCalls
from sarit.controller.catalog import scan_whole
from sarit.controller.jobs import JobKey, JobTable
from sarit.controller.keys import SEARCH_TABLE, after_prefix
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Conflict, Corrupt, Exists, NotFound, SaritError, Unavailable
from sarit.core.extras import require
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SYSTEM_SCOPE, SegmentId, segment_name
from sarit.core.repeated_log import RepeatedLog
from sarit.process.limits import (
    BLOB_PIECE_BYTES,
    BLOB_PIECES_AT_ONCE,
    INDEX_SWEEP_SECONDS,
    MAX_BLOB_APPEND_ATTEMPTS,
)
from sarit.process.search import private_directory
from sarit.rpc.generated import sarit_pb2
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.controller.assembly import Controller
    from sarit.controller.ports import Segments, Tables
    from sarit.core.names import StreamName
    from sarit.env.ports import Env
    from sarit.process.search.private_directory import PrivateDirectory
    from sarit.search.ports import RowChange, ShardEngine

_log = logging.getLogger("sarit.search")

_BLOBS: Final = b"b/"


class SearchSite:
    """The parts of search on one controller: `blobs`, `rows`, and a directory for files of shards.

    `directory`: in which it may make one; empty: that for temporary files."""

    def __init__(self, controller: Controller, tables: Tables, env: Env, directory: str = "") -> None:
        self.controller = controller
        self.rows = TableRows(tables)
        self.blobs = SegmentBlobs(controller.segments, self.rows)
        self._env = env
        self._directory = directory
        self._made: PrivateDirectory | None = None
        self._making = threading.Lock()
        self._engine: ShardEngine | None = None

    def __repr__(self) -> str:
        return f"<SearchSite in {self._made!r}>"

    def engine(self) -> ShardEngine:
        """Return what makes and opens shards.  Raises MissingExtra.  Blocks: it loads a large library."""
        if self._engine is None:
            require("search", "an index of a stream")
            from sarit.search.tantivy_shards import TantivyShards

            self._engine = TantivyShards()
        return self._engine

    def directory(self, name: str) -> Path:
        """Return the empty directory of this name, for files that this process can download again.  Blocks.

        Raises OSError."""
        with self._making:  # indexers and searches ask on threads of their own
            if self._made is None:
                if self._directory:
                    self._made = private_directory.make_at(Path(self._directory) / "search")
                else:
                    self._made = private_directory.make(self._env.files)
            path = self._made.path / name
        self._env.files.make_dirs(str(path))
        return path

    async def sweep(self) -> None:
        """Delete the indexes of streams that are not searchable any more, now and then, for ever."""
        repeated = RepeatedLog(_log, self._env.clock.monotonic)
        while True:
            await asyncio.sleep(INDEX_SWEEP_SECONDS)
            try:
                await self.sweep_once()
                repeated.ended("")
            except SaritError as error:
                repeated.warning("", f"old indexes are deleted later: {error}")

    async def sweep_once(self) -> None:
        """Delete the indexes of streams that are not searchable any more.  Raises Unavailable, Corrupt."""
        # What is off costs nothing: without a table there was never an index, and nothing is imported.
        if not self.controller.assignment.is_mine(SEARCH_TABLE) or await self.rows.position() < 0:
            return
        from sarit.search.continuous_rows import delete_dead_queries
        from sarit.search.sweep import delete_dead

        await delete_dead_queries(self.rows, self._has_id)
        deleted = await delete_dead(self.blobs, self.rows, self._is_alive)
        if deleted:
            _log.info("%d files of indexes that nobody uses were deleted", deleted)

    async def _has_id(self, stream: StreamName, stream_id: str) -> bool:
        """Return whether a stream is the one with a creation id.  Raises Unavailable, Corrupt."""
        request = sarit_pb2.CreationIdRequest(scope=stream.scope, stream=stream.stream)
        try:
            found: bytes = (await IdentityCalls(self.controller.catalog).creationId(request)).creationId
        except NotFound:
            return False
        return found.hex() == stream_id

    async def _is_alive(self, stream: StreamName, stream_id: str) -> bool:
        """Return whether a job has the index of a stream, as far as it can be read.  Raises Unavailable."""
        from sarit.search.settings import SEARCH_JOB, SEARCH_KIND
        from sarit.search.state import IndexState

        try:
            found = await JobTable(self.controller.catalog).find(JobKey(SEARCH_KIND, stream, SEARCH_JOB))
            return found is not None and IndexState.decode(found.job.state).stream_id in ("", stream_id)
        except Corrupt as error:  # an operator decides: the other indexes are swept
            _log.warning("the index of %s is not swept: %s", stream, error)
            return True

    async def close(self) -> None:
        """Remove the directory."""
        made, self._made = self._made, None
        if made is not None:
            worker = self._env.threads.worker("search-close")
            try:
                await worker.run(made.remove)
            finally:
                await worker.close()


class TableRows:
    """Rows of a table of the system, which the first of them makes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def __repr__(self) -> str:
        return "<TableRows>"

    async def get(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """Return (value, version) of each key; None: there is none.  Raises Unavailable."""
        try:
            found = await self._tables.get(SEARCH_TABLE, keys)
        except NotFound:
            return [None] * len(keys)
        return [None if row is None else (row.value, row.version) for row in found]

    async def put(self, key: bytes, value: bytes | None, version: int | None) -> int:
        """Set the value of a key, or remove it (None), if it has a version; None: if there is none.

        Returns the new version; of a removal -1.  Raises Conflict, and changes nothing; Unavailable."""
        return (await self.put_all([(key, value, version)]))[0]

    async def put_all(self, changes: Sequence[RowChange], mark: tuple[bytes, bytes] | None = None) -> list[int]:
        """Do the same for several rows, for all or for none.  Raises Conflict, Unavailable.

        `mark`: a key and the value that it gets together with them, whatever it has."""
        updates = [
            TableUpdate(key, value, NOT_EXISTS if version is None else version) for key, value, version in changes
        ]
        if mark is not None:
            updates.append(TableUpdate(*mark, NO_VERSION))
        return (await self._update(*updates))[: len(changes)]

    async def put_always(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key, or remove it, whatever it has.  Raises Unavailable."""
        await self._update(TableUpdate(key, value, NO_VERSION))

    async def _update(self, *updates: TableUpdate) -> list[int]:
        try:
            return await self._tables.update(SEARCH_TABLE, updates)
        except NotFound:
            if all(update.value is None for update in updates):
                return [-1] * len(updates)
        with suppress(Exists):
            await self._tables.create(SEARCH_TABLE)
        return await self._tables.update(SEARCH_TABLE, updates)

    async def scan(self, prefix: bytes) -> list[tuple[bytes, bytes, int]]:
        """Return (key, value, version) of all keys that begin with a prefix, ascending.  Raises Unavailable."""
        try:
            end = after_prefix(prefix) if prefix else None
            found = await scan_whole(self._tables, SEARCH_TABLE, prefix, end)
        except NotFound:
            return []
        return [(key, row.value, row.version) for key, row in found]

    async def position(self) -> int:
        """Return a number that rises with every change of any row.  Raises Unavailable."""
        try:
            return await self._tables.position(SEARCH_TABLE)
        except NotFound:
            return -1


class SegmentBlobs:
    """Blobs in segments of the system's scope."""

    def __init__(self, segments: Segments, rows: TableRows) -> None:
        self._segments = segments
        self._rows = rows

    def __repr__(self) -> str:
        return "<SegmentBlobs>"

    async def append(self, name: str, parts: Sequence[bytes]) -> int:
        """Append parts, durably, to a blob that may not exist yet.  Returns the offset of the first of them.

        What a caller that failed appended lies before it: nobody refers to it.  Raises Unavailable."""
        segment, content = _segment(name), b"".join(parts)
        for _ in range(MAX_BLOB_APPEND_ATTEMPTS):
            (info,) = await self._segments.infos([segment])
            if info is None:
                await self._create(name, segment)
                offset = 0
            else:
                offset = info.length
            with suppress(Conflict, NotFound):  # another process appended to it, or deleted it, meanwhile
                await self._append_at(segment, offset, content)
                return offset
        raise Unavailable(f"blob {name} is appended to by others at the same time; try again")

    async def _create(self, name: str, segment: str) -> None:
        await self._rows.put_always(_BLOBS + name.encode(), b"")
        with suppress(Exists):
            await self._segments.create(segment)

    async def _append_at(self, segment: str, offset: int, content: bytes) -> None:
        """Append bytes at an offset.  Raises Conflict, NotFound, Unavailable."""
        pieces = [(segment, offset + at, content[at : at + size]) for at, size in _pieces(len(content))]
        for at in range(0, len(pieces), BLOB_PIECES_AT_ONCE):
            outcomes = await self._segments.append_at_many(pieces[at : at + BLOB_PIECES_AT_ONCE], begin_events=False)
            for outcome in outcomes:
                if not isinstance(outcome, int):
                    raise outcome

    async def read(self, name: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`.  Raises NotFound, Corrupt (it is shorter), Unavailable."""
        segment = _segment(name)
        ranges = [(segment, offset + at, size) for at, size in _pieces(length)]
        found: list[bytes] = []
        for at in range(0, len(ranges), BLOB_PIECES_AT_ONCE):
            asked = ranges[at : at + BLOB_PIECES_AT_ONCE]
            for (_, begin, size), piece in zip(asked, await self._segments.read_many(asked), strict=True):
                if not isinstance(piece, bytes):
                    raise piece
                found.append(piece if len(piece) == size else piece + await self._rest(segment, begin, size, piece))
        return b"".join(found)

    async def _rest(self, segment: str, begin: int, size: int, piece: bytes) -> bytes:
        """Return what is missing of a range.  Raises Corrupt: the segment ends before it."""
        found, at = [], begin + len(piece)
        while at < begin + size:
            more = await self._segments.read(segment, at, begin + size - at)
            if not more:
                raise Corrupt(f"segment {segment} ends at {at}, and is needed to {begin + size}")
            found.append(more)
            at += len(more)
        return b"".join(found)

    async def delete(self, name: str) -> None:
        """Delete a blob; succeeds when it does not exist.  Raises Unavailable."""
        with suppress(NotFound):
            await self._segments.delete(_segment(name))
        await self._rows.put_always(_BLOBS + name.encode(), None)

    async def names(self, prefix: str) -> list[str]:
        """Return the names of all blobs that begin with a prefix, in order, those of failed creations included.

        Raises Unavailable."""
        found = await self._rows.scan(_BLOBS + prefix.encode())
        return [key[len(_BLOBS) :].decode() for key, _, _ in found]


def _segment(blob: str) -> str:
    """Return the segment of a blob, with a name such as those of streams have."""
    return segment_name(SYSTEM_SCOPE, f"_search-{blob.replace('/', '-')}", SegmentId(0, 0))


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    for at in range(0, length, BLOB_PIECE_BYTES):
        yield at, min(BLOB_PIECE_BYTES, length - at)
