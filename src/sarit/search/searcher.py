"""Answers questions to shards from a local copy of their files, which are kept warm.

    a question ─▶ the shard's directory ─▶ missing files ◀─ blobs ─▶ an open reader ─▶ a thread ─▶ the answer

A shard has one directory.  When it has grown, its new files are added, those that it dropped are removed, and a new
reader is opened; searches that have the reader before end on it, since open files stay readable.  A search that is
given up, perhaps since files took too long to come, does not stop their coming: the next one finds them.  Its thread
ends its present piece of the search, and is free then.

*Bounds.*  All files together have at most `SearchBounds.bytes` and `files`: the shards that were not asked for the
longest time make room.  A shard that is in use stays.  Files are checked by their checksums when they come; what is
damaged is not opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid, Unavailable
from sarit.env.background import shielded
from sarit.search.limits import (
    COPIED_PIECE_BYTES,
    MAX_SEARCH_CACHE_BYTES,
    MAX_SEARCH_CACHE_FILES,
    MAX_SEARCH_DOWNLOADS,
    MIN_SEARCH_FREE_BYTES,
    SEARCH_THREADS,
)
from sarit.search.shard_files import check_names, fetch
from sarit.search.threads import SearchThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sarit.env.ports import Env
    from sarit.search.ports import Blobs, ShardAnswer, ShardEngine, ShardQuestion, ShardReader
    from sarit.search.state import Shard, StoredFile

_log = logging.getLogger("sarit.search")


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """The most that a searcher keeps on disk, and the free bytes that it leaves there."""

    bytes: int = MAX_SEARCH_CACHE_BYTES
    files: int = MAX_SEARCH_CACHE_FILES
    free_bytes: int = MIN_SEARCH_FREE_BYTES


class _Caller:
    """Who waits for the answer of a shard; asked on the thread of the search, between its pieces."""

    def __init__(self) -> None:
        self.is_gone = False

    def check(self) -> None:
        """Raise Unavailable once the search is given up: its thread is for others."""
        if self.is_gone:
            raise Unavailable("nobody waits for this search any more")


class _Open:
    """An open reader, and how many searches use it."""

    def __init__(self, reader: ShardReader) -> None:
        self.reader = reader
        self.users = 0
        self.dropped = False

    def drop(self) -> None:
        """Close the reader once nobody uses it."""
        self.dropped = True
        if not self.users:
            self.reader.close()

    def leave(self) -> None:
        """End one use."""
        self.users -= 1
        if self.dropped and not self.users:
            self.reader.close()


class _Copy:
    """The local copy of a shard."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = asyncio.Lock()
        self.files: dict[str, int] = {}  # bytes by name, of those that are there, or are coming
        self.rest: set[str] = set()  # names of further files that may be there, and are to be removed
        self.names: frozenset[str] = frozenset()  # of the files that are open
        self.opened: _Open | None = None
        self.load: asyncio.Task[object] | None = None  # that has the lock, or had it last
        self.users = 0  # searches and loads that are here, from before the lock is taken

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(self.files.values())

    def close(self) -> None:
        """Drop the reader."""
        opened, self.opened, self.names = self.opened, None, frozenset()
        if opened is not None:
            opened.drop()


class Searcher:
    """Answers questions to shards.  `directory`: of the copies, of this searcher alone."""

    def __init__(
        self, engine: Callable[[], ShardEngine], blobs: Blobs, env: Env, directory: Path,
        bounds: SearchBounds | None = None,
    ) -> None:  # fmt: skip
        """`engine`: makes what opens shards; called once, on a thread.  Raises Invalid: packages are missing."""
        self._engine = engine
        self._made: ShardEngine | None = None
        self._blobs = blobs
        self._files = env.files
        self._directory = directory
        self._bounds = bounds or SearchBounds()
        self._worker = env.threads.worker
        self._threads = SearchThreads(env.threads, "search", SEARCH_THREADS)
        self._disk = SearchThreads(env.threads, "search-files", MAX_SEARCH_DOWNLOADS)
        self._downloads = asyncio.Semaphore(MAX_SEARCH_DOWNLOADS)
        self._making = asyncio.Lock()
        self._copies: OrderedDict[str, _Copy] = OrderedDict()  # the shard that was asked last is the last one
        self._loads: set[asyncio.Task[_Open]] = set()
        self._numbers = 0
        self.downloaded = 0  # bytes

    def __repr__(self) -> str:
        return f"<Searcher in {self._directory}, {len(self._copies)} shards>"

    @property
    def kept(self) -> tuple[int, int, int]:
        """The shards, files and bytes of the copies."""
        copies = list(self._copies.values())
        return len(copies), sum(len(one.files) for one in copies), sum(one.bytes for one in copies)

    async def search(self, shard: Shard, question: ShardQuestion) -> ShardAnswer:
        """Return the answer of a shard.

        Raises Invalid (the query costs too much; the shard is too large for the copies), NotFound (its files were
        deleted: a later state has others), Corrupt, Unavailable."""
        engine = await self._ready()
        with self._copy(shard.id) as copy:
            load = asyncio.create_task(self._load(engine, copy, shard))
            self._loads.add(load)
            load.add_done_callback(self._loads.discard)
            try:
                opened = await shielded(load)
            except asyncio.CancelledError:
                if copy.load is not load:  # another load goes on: callers that give up leave no queue behind
                    load.cancel()
                load.add_done_callback(_leave_unused)
                raise
            caller = _Caller()
            try:
                return await self._threads.run(lambda: opened.reader.search(question, caller.check), opened.leave)
            finally:
                caller.is_gone = True

    async def close(self) -> None:
        """Wait for what threads do, close all shards, and remove the copies."""
        await self._threads.close()
        for load in self._loads:
            load.cancel()
        await asyncio.gather(*self._loads, return_exceptions=True)
        await self._disk.close()
        for copy in self._copies.values():
            copy.close()
        self._copies.clear()
        if (engine := self._made) is not None:
            worker = self._worker("search-end")
            try:
                with suppress(OSError):
                    await worker.run(lambda: self._clear(engine))
            finally:
                await worker.close()

    # -- copies -------------------------------------------------------------------------------------

    async def _ready(self) -> ShardEngine:
        """Return the engine, after what a process before left in the directory was removed."""
        async with self._making:
            if self._made is None:
                engine = await self._disk.run(self._engine)
                with _explained(self._directory):
                    await self._disk.run(lambda: self._clear(engine))
                self._made = engine
        return self._made

    def _clear(self, engine: ShardEngine) -> None:
        self._files.make_dirs(str(self._directory))
        for name in self._files.list(str(self._directory)):
            engine.discard(self._directory / name)

    @contextmanager
    def _copy(self, shard: str) -> Iterator[_Copy]:
        """Keep the copy of a shard during a block."""
        copy = self._copies.get(shard)
        if copy is None:
            self._numbers += 1
            copy = self._copies[shard] = _Copy(self._directory / str(self._numbers))
        self._copies.move_to_end(shard)
        copy.users += 1
        try:
            yield copy
        finally:
            copy.users -= 1

    async def _load(self, engine: ShardEngine, copy: _Copy, shard: Shard) -> _Open:
        """Return the reader of a shard, counted as used once.  Raises as `search`."""
        copy.users += 1
        try:
            async with copy.lock:
                copy.load = asyncio.current_task()
                opened = await self._opened(engine, copy, shard)
                opened.users += 1
                return opened
        finally:
            copy.users -= 1

    async def _opened(self, engine: ShardEngine, copy: _Copy, shard: Shard) -> _Open:
        """Return the reader of a shard, of exactly its present files.  Raises as `search`."""
        wanted = {file.name: file for file in shard.files}
        if copy.opened is not None and copy.names == wanted.keys():
            return copy.opened
        check_names(shard.files)
        copy.close()
        with _explained(copy.directory):
            copy.rest |= copy.files.keys() - wanted.keys()
            for name in copy.files.keys() - wanted.keys():
                del copy.files[name]
            await self._disk.run(lambda: self._remove(copy.directory, list(copy.rest)))
            copy.rest.clear()
            missing = [file for name, file in wanted.items() if name not in copy.files]
            await self._evict_for(engine, copy, missing)
            await self._fetch_all(copy, missing)
            reader = await self._disk.run(lambda: engine.open(copy.directory, shard.mapping))
        copy.opened, copy.names = _Open(reader), frozenset(wanted)
        return copy.opened

    def _remove(self, directory: Path, names: list[str]) -> None:
        self._files.make_dirs(str(directory))
        for name in names:
            with suppress(FileNotFoundError):
                self._files.remove(str(directory / name))

    async def _evict_for(self, engine: ShardEngine, copy: _Copy, missing: list[StoredFile]) -> None:
        """Evict shards until `missing` fits.  Raises Invalid: it never does; Unavailable: not now."""
        bounds = self._bounds
        more, files = sum(file.length for file in missing), len(missing)
        own = copy.bytes + more
        if own > bounds.bytes or len(copy.files) + files > bounds.files:
            raise Invalid(
                f"a part of the index has {own:,} bytes in {len(copy.files) + files} files, and a server keeps "
                f"{bounds.bytes:,} bytes in {bounds.files:,} files: search with a scan (scan=True)"
            )
        while True:
            _, held_files, held_bytes = self.kept
            if held_bytes + more <= bounds.bytes and held_files + files <= bounds.files:
                break
            oldest = next((name for name, one in self._copies.items() if not one.users), None)
            if oldest is None:
                raise Unavailable("other searches need all the room for parts of indexes: search again")
            await self._evict(engine, oldest)
        free = await self._disk.run(lambda: self._files.free_bytes(str(copy.directory)))
        if missing and free - more < bounds.free_bytes:
            raise Unavailable(
                f"the disk of {self._directory} has {free:,} bytes free, and a search needs {more:,} there and leaves "
                f"{bounds.free_bytes:,}: make room"
            )
        # Counted before they come: others make room for them, too.
        copy.files |= {file.name: file.length for file in missing}

    async def _evict(self, engine: ShardEngine, name: str) -> None:
        copy = self._copies.pop(name)
        copy.close()
        try:
            await self._disk.run(lambda: engine.discard(copy.directory))
        except OSError as error:
            _log.warning("the copy of a shard in %s cannot be removed: %s", copy.directory, error)

    async def _fetch_all(self, copy: _Copy, missing: list[StoredFile]) -> None:
        # All end before one fails: what fails must leave no thread that still writes.
        results = await asyncio.gather(*(self._fetch(copy, file) for file in missing), return_exceptions=True)
        failed = [result for result in results if result is not None]
        for file, result in zip(missing, results, strict=True):
            if result is not None:  # the next search fetches the file again
                copy.files.pop(file.name, None)
                copy.rest.add(file.name)
        if failed:
            raise failed[0]

    async def _fetch(self, copy: _Copy, file: StoredFile) -> None:
        """Copy a file from its blob.  Raises Corrupt, NotFound, Unavailable, OSError."""
        async with self._downloads:
            await fetch(self._blobs, file, copy.directory, self._files, self._disk.run, COPIED_PIECE_BYTES)
        self.downloaded += file.length


def _leave_unused(load: asyncio.Task[_Open]) -> None:
    """End the use of a reader that a search has asked for and does not wait for any more."""
    if not load.cancelled() and load.exception() is None:
        load.result().leave()


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Raise errors of the disk as Unavailable: searches elsewhere, and later ones, may succeed."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"a search cannot use {directory}: {error}") from None
