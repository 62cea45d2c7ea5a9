"""The index on an object store: a SlateDB database per container, below one prefix of a bucket.

Theory of operation.  SlateDB is an LSM tree whose files are objects.  Its write-ahead log is off, since the container
has one.  A commit is one write into its memtable and a flush, which puts a sorted table and then a manifest; the commit
is durable when the manifest is put.  Opening raises the writer's epoch in the manifest, which fences an earlier owner:
its next flush fails.  Keys get a prefix of one byte (SlateDB has no empty key), values are sealed as in SQLite.
A get of several keys reads from one snapshot, at most GETS_AT_ONCE keys at the same time.

Warnings.  (1) With the library's default settings a commit stalls for seconds now and then, and an idle database polls
the store every second: `_SETTINGS` has other settings, with the reasons.  (2) The library retries for minutes while the
store is unavailable, so each call has a time limit.  After a failed commit the handle is dead, as with SQLite: the
commit may still take effect until the index is opened again, never after.  (3) The library's tasks complete some
requests after a close, which does not wait for them: the next owner fences them.  (4) An uncommitted write is visible
to reads of this handle for the time of its flush.  (5) A put takes 50 us of the event loop, so a batch is built
ROWS_PER_TURN at a time.  (6) A range delete reads the keys of its range and deletes each, a slice in every commit
(`sweeps.py`).  (7) The simulation never uses this module; only `slate_snapshot.py` also imports `slatedb`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import slatedb.uniffi as slatedb

from sarit.core.errors import Corrupt, Fenced, Invalid, SaritError, Unavailable
from sarit.core.s3_errors import explained
from sarit.env.background import gather, ignore_outcome, shielded
from sarit.index.keys import after
from sarit.index.limits import (
    INDEX_BLOCK_CACHE_BYTES,
    INDEX_CHECKSUM_BYTES,
    INDEX_CLOSE_SECONDS,
    INDEX_COLLECTION_SECONDS,
    INDEX_DONE_SECONDS,
    INDEX_POLL_SECONDS,
    INDEX_READ_AHEAD_BYTES,
    INDEX_REQUEST_SECONDS,
    INDEX_WARM_SECONDS,
    INDEX_WORK_SECONDS,
)
from sarit.index.record_seals import seal, unseal
from sarit.index.statistics import REQUEST_KINDS
from sarit.index.sweeps import Sweeps, decode_mark, encode_mark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from sarit.index.port import WriteBatch
    from sarit.index.statistics import IndexStatistics
    from sarit.index.sweeps import Range

_log = logging.getLogger("sarit.index")

ROWS_PER_TURN: Final = 20
GETS_AT_ONCE: Final = 256
SWEPT_ROWS: Final = 1000
"""A commit deletes at most so many rows of each new range, and of one range that an earlier commit began."""

_MAX_TABLES: Final = 4096
_MAX_RETRIES: Final = 3
_WARMED_AT_ONCE: Final = 32
_MAX_WARMED: Final = 1024  # tables; more are left when compaction cannot keep up
# The opening of a container fills at most one of so many parts of the cache.
_WARMED_PARTS: Final = 4

_PREFIX: Final = b"k"
_MARK_PREFIX: Final = b"x"
_AFTER_MARKS: Final = b"\xff" * 5
_MAX_MARKS: Final = 1 << 20
# InternalError is a panic of the library, which its bindings do not count among its errors.
ERRORS: Final = (slatedb.Error, slatedb.InternalError)

_REQUEST_COUNT: Final = "slatedb.object_store.request_count"
_REQUEST_KINDS: Final = {
    "put": "put", "multipart_init": "put", "multipart_part": "put", "multipart_complete": "put",
    "get": "get", "get_range": "get", "get_ranges": "get", "head": "head",
    "list": "list", "list_with_offset": "list", "list_with_delimiter": "list", "delete": "delete",
}  # fmt: skip

_POLL: Final = f"{INDEX_POLL_SECONDS}s"
_COLLECTION: Final = {"interval": f"{INDEX_COLLECTION_SECONDS}s", "min_age": f"{INDEX_COLLECTION_SECONDS}s"}
_SETTINGS: Final[Mapping[str, object]] = {
    # The container's log is the write-ahead log.
    "wal_enabled": False,
    # Each commit makes a table.  At this number of tables (8 by default) a commit would wait for a compaction, which
    # runs once per poll interval, for minutes here.
    "l0_max_ssts": _MAX_TABLES,
    "l0_max_ssts_per_key": _MAX_TABLES,
    # One compaction takes up to so many tables, and runs once in a poll interval: 8, the default, would not keep pace
    # with a commit every 2 s.  The values of this setting are texts.
    "compactor_options.scheduler_options": {"max_compaction_sources": "512"},
    # Do not split compactions: each part would read filter and index of each table, and write another table.
    "compactor_options.worker.max_subcompactions": 1,
    # Poll seldom, since each poll costs requests, and with one writer and no other readers it finds no changes.
    "manifest_poll_interval": _POLL,
    "compactor_options.poll_interval": _POLL,
    "compactor_options.worker.compactions_poll_interval": f"{INDEX_WORK_SECONDS}s",
    "compactor_options.commit_compacted_interval": f"{INDEX_DONE_SECONDS}s",
    # Without a number the library retries for ever.
    "object_store_max_retries": _MAX_RETRIES,
    "compactor_options.object_store_max_retries": _MAX_RETRIES,
    "garbage_collector_options.object_store_max_retries": _MAX_RETRIES,
    # Delete unneeded objects late: if a manifest's name is free again, it does not fence an owner that was suspended.
    **{
        f"garbage_collector_options.{kind}_options.{name}": value
        for kind in ("manifest", "compacted", "compactions")
        for name, value in _COLLECTION.items()
    },
}


def map_error(error: Exception, doing: str) -> SaritError:
    """Return the port's error for an error of SlateDB; no other function maps these."""
    reason = getattr(error, "message", None) or str(error) or type(error).__name__
    text = f"{doing}: {explained(reason)}"
    if isinstance(error, slatedb.Error.Closed) and error.reason == slatedb.CloseReason.FENCED:
        return Fenced(f"{doing}: the index was opened by another owner")
    # A clock that was set back is reported as unordered data, but is temporary.
    if isinstance(error, slatedb.Error.Data) and "clock" not in reason:
        return Corrupt(text)
    return Unavailable(text)


class SlateIndex:
    """The index of one container; `SlateIndexProvider.open` makes this object."""

    def __init__(self, database: Any, place: str, closing: set[asyncio.Task[None]] | None = None) -> None:
        """`closing`: a set that holds the tasks of closed handles until they end."""
        self._database = database
        self._place = place
        self._shutdowns = set() if closing is None else closing
        self._failure: SaritError | None = None
        self._closed = False
        self._writing = asyncio.Lock()
        self._sweeps = Sweeps()

    def __repr__(self) -> str:
        return f"<SlateIndex {self._place} {self._failure or ('closed' if self._closed else 'open')}>"

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._require()
        found: dict[bytes, bytes | None] = {}
        async with self._calling("get from"):
            distinct = sorted(set(keys))
            # Several keys need a snapshot, one does not.
            source = self._database if len(distinct) <= 1 else await self._database.snapshot()
            for first in range(0, len(distinct), GETS_AT_ONCE):
                some = distinct[first : first + GETS_AT_ONCE]
                values = await gather(*(source.get(_PREFIX + key) for key in some))
                found.update(zip(some, values, strict=True))
        hidden = self._sweeps.hides
        return [None if (stored := found[key]) is None or hidden(key) else unseal(key, stored) for key in keys]

    async def scan(self, start: bytes, end: bytes, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        rows = await self._scan(start, end, limit, reverse=reverse)
        return [(key, unseal(key, stored)) for key, stored in rows]

    async def scan_sizes(
        self, start: bytes, end: bytes, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, int]]:
        """List keys with the lengths of their values, which are read, since SlateDB cannot do without."""
        rows = await self._scan(start, end, limit, reverse=reverse)
        return [(key, len(stored) - INDEX_CHECKSUM_BYTES) for key, stored in rows]

    async def commit(self, batch: WriteBatch) -> None:
        """Commit a batch.  A commit goes on after a cancellation, as with SQLite on its thread."""
        self._require()
        committing = asyncio.ensure_future(self._commit(batch))
        # Ignore an error that a cancelled caller cannot get: `_failure` keeps it for the next call.
        committing.add_done_callback(ignore_outcome)
        await shielded(committing)

    async def close(self) -> None:
        """Close the database, after the commit in progress.  Some requests of the library go on after that."""
        if self._closed:
            return
        self._closed = True
        async with self._writing:
            task = asyncio.ensure_future(self._shut_down())
            self._shutdowns.add(task)
            task.add_done_callback(self._shutdowns.discard)

    async def _shut_down(self) -> None:
        try:
            async with asyncio.timeout(INDEX_CLOSE_SECONDS):
                # Flush nothing: commits were flushed, and the outcome of a failed commit is unknown.
                await self._database.shutdown_with_options(slatedb.CloseOptions(flush_type=None))
        except (*ERRORS, TimeoutError) as error:
            _log.info("index %s: closed without an answer of the store: %s", self._place, map_error(error, "close"))

    async def _commit(self, batch: WriteBatch) -> None:
        # Apply commits in the order of the calls.
        async with self._writing:
            self._require()
            try:
                made = await self._changes(batch)
                if made is None:
                    return
                changes, sweeps = made
                async with self._calling("commit to"):
                    await self._database.write(changes)
                    self._sweeps = sweeps
                    await self._database.flush_with_options(
                        slatedb.FlushOptions(flush_type=slatedb.FlushType.MEM_TABLE)
                    )
            except SaritError as error:
                # Allow no further commit, with which SlateDB would apply this one, whose outcome is unknown.
                self._failure = self._failure or error
                raise

    async def _changes(self, batch: WriteBatch) -> tuple[Any, Sweeps] | None:
        """Return the batch in SlateDB's form, built in turns of the event loop, and the ranges to sweep after it.

        Returns None when the batch changes nothing."""
        # Follow the order that `WriteBatch` defines; a key that is put needs no delete.
        gone = {_PREFIX + key: None for key in sorted(batch.deletes) if key not in batch.puts}
        added: list[Range] = []
        for span in batch.range_deletes:
            for start, end in self._sweeps.visible(*span):
                rows, whole = await self._rows_of(start, end, all_of_them=any(start <= key < end for key in batch.puts))
                gone.update((_PREFIX + key, None) for key in rows if key not in batch.puts)
                if not whole:
                    added.append((start, end))
        if not gone and not batch.puts:
            return None
        ranges = [*self._sweeps.ranges, *added]
        # Delete a slice of an earlier range in each commit, and all of a range before a key is put there.
        for span in self._sweeps.touched(batch.puts) or self._sweeps.ranges[:1]:
            rows, whole = await self._rows_of(*span, all_of_them=span in self._sweeps.touched(batch.puts))
            gone.update((_PREFIX + key, None) for key in rows if key not in batch.puts)
            if whole:
                ranges.remove(span)
                gone[_MARK_PREFIX + encode_mark(span)] = None
        changes = slatedb.WriteBatch()
        for count, key in enumerate(gone, 1):
            changes.delete(key)
            if count % ROWS_PER_TURN == 0:
                await asyncio.sleep(0)
        for count, key in enumerate(sorted(batch.puts), 1):
            changes.put(_PREFIX + key, seal(key, batch.puts[key]))
            if count % ROWS_PER_TURN == 0:
                await asyncio.sleep(0)
        for span in added:
            changes.put(_MARK_PREFIX + encode_mark(span), b"")
        return changes, Sweeps(ranges)

    async def _rows_of(self, start: bytes, end: bytes, *, all_of_them: bool) -> tuple[list[bytes], bool]:
        """Return the keys of the first rows of a range, also of swept ranges, and whether these are all rows."""
        keys: list[bytes] = []
        while True:
            rows = await self._scan_one(_PREFIX, start, end, SWEPT_ROWS)
            keys += [key for key, _ in rows]
            if len(rows) < SWEPT_ROWS:
                return keys, True
            start = after(rows[-1][0])
            if not all_of_them:
                return keys, False

    async def _scan(self, start: bytes, end: bytes, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """Return keys and sealed values outside of the swept ranges, as `scan` does."""
        rows: list[tuple[bytes, bytes]] = []
        spans = list(self._sweeps.visible(start, end))
        for first, last in reversed(spans) if reverse else spans:
            rows += await self._scan_one(_PREFIX, first, last, limit - len(rows), reverse=reverse)
            if len(rows) >= limit:
                break
        return rows

    async def _scan_one(
        self, prefix: bytes, start: bytes, end: bytes, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Scan one prefix of the database as `_scan` does."""
        self._require()
        # Answer an empty range here, which SlateDB refuses.
        if start >= end or limit <= 0:
            return []
        span = slatedb.KeyRange(start=prefix + start, start_inclusive=True, end=prefix + end, end_inclusive=False)
        order = slatedb.IterationOrder.DESCENDING if reverse else slatedb.IterationOrder.ASCENDING
        options = slatedb.ScanOptions(
            durability_filter=slatedb.DurabilityLevel.MEMORY,
            dirty=False,
            read_ahead_bytes=INDEX_READ_AHEAD_BYTES if limit > 1 else 1,
            cache_blocks=True,
            max_fetch_tasks=1,
            order=order,
        )
        async with self._calling("scan"):
            iterator = await self._database.scan_with_options(span, options)
            rows = await iterator.next_batch(limit)
        return [(row.key[len(prefix) :], row.value) for row in rows]

    async def reader_shutdown(self) -> None:
        """Close a handle that only reads.  Raises errors of SlateDB."""
        self._closed = True
        await self._database.shutdown()

    async def load(self) -> None:
        """Read the ranges to sweep, once, before any other call.  Raises Unavailable, Corrupt."""
        marks = await self._scan_one(_MARK_PREFIX, b"", _AFTER_MARKS, _MAX_MARKS)
        self._sweeps = Sweeps(decode_mark(key) for key, _ in marks)

    @asynccontextmanager
    async def _calling(self, doing: str) -> AsyncIterator[None]:
        """Map the errors of a call, and end it after INDEX_REQUEST_SECONDS.  Raises Unavailable, Fenced, Corrupt."""
        doing = f"{doing} {self._place}"
        try:
            async with asyncio.timeout(INDEX_REQUEST_SECONDS):
                yield
        except TimeoutError as error:
            raise Unavailable(f"{doing}: no answer within {INDEX_REQUEST_SECONDS} s") from error
        except ERRORS as error:
            raise map_error(error, doing) from error

    def _require(self) -> None:
        """Check that the handle can be used.  Raises Unavailable (closed, or dead after a failed commit), Fenced."""
        if self._closed:
            raise Unavailable(f"the index {self._place} is closed")
        if isinstance(self._failure, Fenced):
            raise Fenced(str(self._failure))
        if self._failure is not None:
            raise Unavailable(f"the index {self._place} is dead after a failed commit: {self._failure}")


class SlateIndexProvider:
    """The indexes of a node: a database per container at `PREFIX/index/container-N` of one object store.

    `place`: the store's name, for messages.  `cache_bytes`: the cache of blocks of all containers together.
    `statistics`: counts the requests."""

    def __init__(
        self, objects: Any, place: str, prefix: str = "", cache_bytes: int = INDEX_BLOCK_CACHE_BYTES,
        statistics: IndexStatistics | None = None,
    ) -> None:  # fmt: skip
        self.objects = objects
        self._place = place
        self._prefix = f"{prefix}/" if prefix else ""
        self._cache_bytes = cache_bytes
        options = slatedb.MokaCacheOptions(max_capacity=cache_bytes, time_to_live=None, time_to_idle=None)
        self._cache = slatedb.DbCache.new_moka_cache(options)
        self._closing: set[asyncio.Task[None]] = set()
        # All databases share one recorder, which counts the sum of their requests.
        self._recorder = slatedb.DefaultMetricsRecorder()
        if statistics is not None:
            statistics.count_requests_with(self.requests)

    def __repr__(self) -> str:
        return f"<SlateIndexProvider {self._place}>"

    def path_of(self, container: int) -> str:
        """Return the path of a container's database in the object store."""
        return f"{self._prefix}index/container-{container}"

    def place_of(self, container: int) -> str:
        """Return the name of a container's database in messages."""
        return f"{self._place}/index/container-{container}"

    def requests(self) -> dict[str, int]:
        """Return the number of requests to the object store by kind, since the provider was made.

        Requests of snapshots, and those of `_warm` for a manifest, are not counted."""
        found = dict.fromkeys(REQUEST_KINDS, 0)
        for metric in self._recorder.metrics_by_name(_REQUEST_COUNT):
            api = next(label.value for label in metric.labels if label.key == "api")
            found[_REQUEST_KINDS.get(api, "get")] += metric.value[0]
        return found

    async def open(self, container: int) -> SlateIndex:
        """Open the database of a container, which fences its earlier owner.  Raises Unavailable, Corrupt."""
        place, path = self.place_of(container), self.path_of(container)
        builder = slatedb.DbBuilder(path, self.objects)
        settings = slatedb.Settings.default()
        for name, value in _SETTINGS.items():
            settings.set(name, json.dumps(value))
        builder.with_settings(settings)
        # Use large blocks, since after a compaction each block is fetched again, by a request.
        builder.with_sst_block_size(slatedb.SstBlockSize.BLOCK64_KIB)
        builder.with_db_cache(self._cache, container)
        builder.with_metrics_recorder(self._recorder)
        # Read the manifest during the opening, which changes no tables.
        reading = asyncio.ensure_future(slatedb.AdminBuilder(path, self.objects).build().read_manifest(None))
        reading.add_done_callback(ignore_outcome)
        try:
            async with asyncio.timeout(INDEX_REQUEST_SECONDS):
                database = await builder.build()
        except TimeoutError as error:
            raise Unavailable(f"open the index {place}: no answer within {INDEX_REQUEST_SECONDS} s") from error
        except ERRORS as error:
            raise map_error(error, f"open the index {place}") from error
        index = SlateIndex(database, place, self._closing)
        try:
            # Fill the cache for recovery and the first clients, whose reads are all over the index.
            await self._warm(database, reading, path, place)
            await index.load()
        except BaseException:
            await index.close()
            raise
        return index

    async def _warm(self, database: Any, reading: asyncio.Future[Any], path: str, place: str) -> None:
        """Read filter and index of each table into the cache, and the newest tables whole, many at a time."""
        slots = asyncio.Semaphore(_WARMED_AT_ONCE)
        everything = slatedb.KeyRange(start=None, start_inclusive=True, end=None, end_inclusive=False)
        search = [slatedb.CacheTarget.FILTERS(), slatedb.CacheTarget.INDEX()]

        async def warm(table: Any, *, whole: bool) -> None:
            async with slots:
                await database.warm_sst(table.sst.id, [*search, *([slatedb.CacheTarget.DATA(everything)] * whole)])

        try:
            async with asyncio.timeout(INDEX_WARM_SECONDS):
                try:
                    manifest = await reading
                except ERRORS:  # the database is new
                    manifest = await slatedb.AdminBuilder(path, self.objects).build().read_manifest(None)
                tables = [*manifest.l0, *(table for run in manifest.compacted for table in run.sst_views)]
                left, work = self._cache_bytes // _WARMED_PARTS, []
                for table in tables[:_MAX_WARMED]:
                    left -= table.estimated_size_bytes
                    work.append(warm(table, whole=left >= 0))
                await gather(*work)
        except (*ERRORS, TimeoutError, AttributeError) as error:
            # Go on without a warm cache, which only makes reads slower.
            _log.info("index %s: its cache stays empty: %s", place, error)


def open_on_s3(
    bucket: str, prefix: str, config: Mapping[str, Any], cache_bytes: int = INDEX_BLOCK_CACHE_BYTES,
    statistics: IndexStatistics | None = None,
) -> SlateIndexProvider:  # fmt: skip
    """Return the indexes in an S3 bucket, below `prefix` ("" for none), without a request yet.

    `config`: endpoint, region and keys, by their names in `storage/open.py`.  Raises Invalid."""
    place = f"s3://{bucket}/{prefix}".rstrip("/")
    builder = slatedb.ObjectStoreBuilder(slatedb.ObjectStoreType.S3)
    try:
        builder.with_url(f"s3://{bucket}")
        for name, value in config.items():
            builder.with_config(name, str(value))
        if str(config.get("endpoint", "")).startswith("http://"):
            builder.with_config("allow_http", "true")
        return SlateIndexProvider(builder.build(), place, prefix, cache_bytes, statistics)
    except slatedb.Error as error:
        raise Invalid(f"index storage {place}: {getattr(error, 'message', error)}") from error


def open_in_memory() -> SlateIndexProvider:
    """Return indexes in memory, which are lost with the process, for tests."""
    return SlateIndexProvider(slatedb.ObjectStore.resolve("memory:///"), "memory://")
