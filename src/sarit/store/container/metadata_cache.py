"""The metadata of one container in memory: segments, attributes, chunk lists, table entries, short index ranges.

Theory of operation.  Whatever a check needs is loaded here first; the check itself then runs in one synchronous
step.  Only this process changes the index, and only by commits.  So there are two kinds of cached data:

* Segments, attributes and chunk lists in `ContainerState` stay valid until they are evicted.  Every change is
  applied to them too.  A caller that must await between loading and checking pins the segment.
* Table entries and ranges that were read from the index are valid for one `generation`: until the next commit.
  Entries in memory (pending, dirty, flushing) are newer and come first.

Extents read while a commit is in progress are discarded: they may or may not include it.  Its extents are added to
the chunk list in memory after the commit, and would be in the list twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import NotFound
from sarit.core.limits import (
    MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT,
    MAX_CACHED_RANGE_BYTES,
    MAX_CACHED_RANGE_ROWS,
    MAX_CACHED_RANGES,
    NULL_ATTRIBUTE_VALUE,
)
from sarit.index import keys
from sarit.storage.layout import ChunkList, Extent, load_chunk_extent, load_inlined_extent
from sarit.store.container.operations import Entry
from sarit.store.container.segment import Attribute, Segment, load_segment

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from sarit.index.port import Index, WriteBatch
    from sarit.store.container.state import ContainerState

_SCAN_ROWS = 1000
# Segments that one eviction examines beyond the excess: busy ones are skipped, and it must not scan all of them.
_EVICTION_SCAN = 2000
# Memory of a cached entry besides its key and value.
_ENTRY_OVERHEAD = 200

Rows = list[tuple[bytes, bytes]]


class LoadAbandoned(Exception):
    """The task that loaded a segment was cancelled: a task that waited for it loads the segment itself."""


class EntryCache:
    """Table entries as the index holds them, absent keys included; bounded by bytes, evicted in order of insertion."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._entries: dict[tuple[int, bytes], Entry | None] = {}

    def get(self, segment: int, key: bytes) -> tuple[bool, Entry | None]:
        """(cached, entry): whether it is known what the index holds, and the entry, None when the key is absent."""
        at = (segment, key)
        if at in self._entries:
            return True, self._entries[at]
        return False, None

    def put(self, segment: int, key: bytes, entry: Entry | None) -> None:
        """Cache what the index holds for a key."""
        self.drop(segment, key)
        self._entries[segment, key] = entry
        self._bytes += _entry_bytes(key, entry)
        # First in, first out: a dict keeps the order of insertion.
        while self._bytes > self._limit:
            (_, old_key), old = next(iter(self._entries.items()))
            del self._entries[next(iter(self._entries))]
            self._bytes -= _entry_bytes(old_key, old)

    def committed(self, segment: int, entry: Entry) -> None:
        """The index holds this entry now.  Removed keys are not cached: they are seldom read again."""
        if entry.value is None:
            self.drop(segment, entry.key)
        else:
            self.put(segment, entry.key, entry)

    def drop(self, segment: int, key: bytes) -> None:
        """Remove a key from the cache."""
        at = (segment, key)
        if at in self._entries:
            self._bytes -= _entry_bytes(key, self._entries.pop(at))


def _entry_bytes(key: bytes, entry: Entry | None) -> int:
    return _ENTRY_OVERHEAD + len(key) + (len(entry.value) if entry is not None and entry.value is not None else 0)


class RangeScanCache:
    """All rows of the last few short ranges that were read from the index, as of one generation.

    The controller scans the same few ranges for each commit.  A range is cached by where it ends: a scan that begins
    later within it is answered too."""

    def __init__(self) -> None:
        self._generation = -1
        self._ranges: dict[bytes, tuple[bytes, Rows]] = {}

    def __repr__(self) -> str:
        return f"<RangeScanCache of {len(self._ranges)} ranges, generation {self._generation}>"

    def rows(self, generation: int, low: bytes, high: bytes) -> Rows | None:
        """All rows of a range, None when they are not cached."""
        found = self._ranges.get(high) if generation == self._generation else None
        if found is None or low < found[0]:
            return None
        return [row for row in found[1] if row[0] >= low]

    def put(self, generation: int, low: bytes, high: bytes, rows: Rows) -> None:
        """Cache all rows of a range, which were read at a generation of the index."""
        # A commit came during the scan: these rows may be of before it.
        if generation < self._generation:
            return
        if generation > self._generation:
            self._generation = generation
            self._ranges.clear()
        size = sum(len(key) + len(value) for key, value in rows)
        if len(rows) > MAX_CACHED_RANGE_ROWS or size > MAX_CACHED_RANGE_BYTES:
            return
        # The cached range covers this one.
        if high in self._ranges and self._ranges[high][0] <= low:
            return
        self._ranges.pop(high, None)
        self._ranges[high] = (low, rows)
        if len(self._ranges) > MAX_CACHED_RANGES:
            del self._ranges[next(iter(self._ranges))]


class MetadataCache:
    """Loads from the index into a `ContainerState`, and evicts what is idle."""

    def __init__(self, index: Index, state: ContainerState, max_segments: int, entry_cache_bytes: int) -> None:
        self._index = index
        self._state = state
        self._max_segments = max_segments
        self._loading: dict[str, asyncio.Future[Segment | None]] = {}
        self.entries = EntryCache(entry_cache_bytes)
        self.ranges = RangeScanCache()
        self.generation = 0
        self._committing = 0
        self._no_commit = asyncio.Event()
        self._no_commit.set()

    async def commit(self, batch: WriteBatch) -> None:
        """Commit to the index.  The caller must apply the change in memory before it awaits again."""
        # Before the await: a read of extents under way is discarded, a later one waits (`_consistent_extents`).
        self._committing += 1
        self._no_commit.clear()
        try:
            await self._index.commit(batch)
        finally:
            # After a failure, too: it is unknown whether the index has the batch.
            self.generation += 1
            self._committing -= 1
            if not self._committing:
                self._no_commit.set()

    async def find(self, name: str) -> Segment | None:
        """The newest incarnation of a name; None when it is deleted in the assigned state, or was never created."""
        while True:
            segment = self._state.names.get(name)
            if segment is not None:
                # A deletion in flight counts.  `Container.change` delays its refusal until that is durable.
                return None if segment.assigned_deleted else segment
            loading = self._loading.get(name)
            if loading is None:
                return await self._load_by_name(name)
            try:
                # Many tasks wait for one load: the cancellation of one must not cancel the future of all.
                found = await asyncio.shield(loading)
            except LoadAbandoned:
                continue
            # Otherwise ask again: the segment was loaded, or created meanwhile, and may be deleted or evicted by now.
            if name not in self._state.names and found is None:
                return None

    async def require(self, name: str) -> Segment:
        """Like `find`.  Raises NotFound."""
        segment = await self.find(name)
        if segment is None:
            raise NotFound(f"segment {name} does not exist")
        return segment

    async def by_id(self, segment_id: int) -> Segment:
        """A segment that an operation of the log refers to: it is in memory or in the index."""
        segment = self._state.segments.get(segment_id)
        if segment is None:
            # Recovery alone calls this, one operation after the other: nobody else loads the segment meanwhile.
            (record,) = await self._index.get([keys.segment_key(segment_id)])
            assert record is not None, f"segment {segment_id} is in the log but not in the index"
            segment = load_segment(segment_id, record)
            self._state.add(segment)
        return segment

    async def attribute(self, segment: Segment, key: bytes) -> Attribute:
        """An attribute, loaded into memory; its value is NULL_ATTRIBUTE_VALUE when absent.  Pin the segment."""
        found = segment.attributes.get(key)
        if found is None:
            stored: bytes | None = None
            if segment.committed:  # otherwise the index holds nothing of it: save the round trip to its thread
                (stored,) = await self._index.get([keys.attribute_key(segment.id, key)])
                # Again: another task may have loaded it.  With two objects for one attribute, two sessions could own
                # one writer.
                found = segment.attributes.get(key)
            if found is None:
                value = NULL_ATTRIBUTE_VALUE if stored is None else keys.parse_attribute_value(stored)
                self._evict_attributes(segment)
                found = segment.attributes[key] = Attribute(value)
        return found

    async def attributes(self, segment: Segment, wanted: Sequence[bytes]) -> None:
        """Load all of `wanted` into memory, where they stay until the caller awaits again.  Pin the segment."""
        # In rounds: while one read waits, attributes that were in memory may be evicted.
        while missing := [key for key in dict.fromkeys(wanted) if key not in segment.attributes]:
            found: list[bytes | None] = [None] * len(missing)
            if segment.committed:
                found = await self._index.get([keys.attribute_key(segment.id, key) for key in missing])
            self._evict_attributes(segment, set(wanted))
            for key, stored in zip(missing, found, strict=True):
                value = NULL_ATTRIBUTE_VALUE if stored is None else keys.parse_attribute_value(stored)
                # Never replace one that another task has loaded or changed meanwhile.
                segment.attributes.setdefault(key, Attribute(value))

    async def chunks(self, segment: Segment) -> ChunkList:
        """The extents that checkpoints have committed; the list stays in memory.  Pin the segment."""
        while segment.chunks is None:
            if not segment.committed:
                segment.chunks = ChunkList()
                break
            extents = await self._consistent_extents(segment.id)
            # Another task may have set the list during the scan, and a commit may have added to that.
            if extents is not None and segment.chunks is None:
                segment.chunks = ChunkList(extents)
        return segment.chunks

    async def reload_chunks(self, segment: Segment) -> None:
        """Read the extents again, since a chunk in the list is gone.  Pin the segment.

        The list is replaced and never set to None: a merge may rely on it."""
        while segment.chunks is not None and not segment.deleted:
            extents = await self._consistent_extents(segment.id)
            coverage_probe("chunk_list_reloaded")
            if extents is not None and not segment.deleted:
                segment.chunks = ChunkList(extents)
                return

    async def stored_entries(self, segment: Segment, wanted: Sequence[bytes]) -> dict[bytes, Entry | None]:
        """What the index holds for keys of a table, as of one generation."""
        while True:
            generation = self.generation
            out: dict[bytes, Entry | None] = {}
            missing = []
            for key in wanted:
                known, entry = self.entries.get(segment.id, key)
                if known:
                    out[key] = entry
                else:
                    missing.append(key)
            if not missing:
                return out
            # Not cached: the index will hold them after the next commit.
            if not segment.committed:
                return out | dict.fromkeys(missing)
            rows = await self._index.get([keys.entry_key(segment.id, key) for key in missing])
            # A commit has ended during the read: rows and memory may be of two moments.
            if generation != self.generation:
                continue
            for key, row in zip(missing, rows, strict=True):
                version_value = None if row is None else keys.parse_entry_value(row)
                found = None if version_value is None else Entry(key, version_value[1], version_value[0])
                self.entries.put(segment.id, key, found)
                out[key] = found
            return out

    async def stored_rows(self, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows of the index with low <= key < high; fewer only when there are no more."""
        known = self.ranges.rows(self.generation, low, high)
        if known is not None:
            return known[:limit]
        generation = self.generation
        # The generation is that of before the scan: rows that a commit overtakes are never served for the next one.
        rows = await self._index.scan(low, high, limit)
        # Fewer than asked for: these are all rows of the range.
        if len(rows) < limit:
            self.ranges.put(generation, low, high, rows)
        return rows

    def evict(self) -> None:
        """Evict idle segments, the longest in memory first, down to `max_segments`."""
        excess = len(self._state.segments) - self._max_segments
        if excess <= 0:
            return
        # A dict keeps the order of insertion: the longest in memory come first.
        oldest = list(self._state.segments.values())[: excess + _EVICTION_SCAN]
        for segment in oldest:
            if excess <= 0:
                break
            # One with cached bytes stays: the memory budget still counts them and refers to the segment.
            if segment.idle and not segment.cached:
                coverage_probe("segment_evicted")
                self._state.forget(segment)
                excess -= 1

    async def _load_by_name(self, name: str) -> Segment | None:
        future: asyncio.Future[Segment | None] = asyncio.get_running_loop().create_future()
        self._loading[name] = future
        found: Segment | None = None
        try:
            (segment_id,) = await self._index.get([keys.name_key(name)])
            if segment_id is not None:
                number = keys.parse_id_value(segment_id)
                (record,) = await self._index.get([keys.segment_key(number)])
                assert record is not None, f"index names segment {name} but holds no record of it"
                # The reads have awaited: it may be in memory by now.
                found = self._state.segments.get(number)
                if found is None:
                    self.evict()  # before the load: the new segment is not pinned yet
                    found = load_segment(number, record)
                    self._state.add(found)
        except BaseException as error:
            del self._loading[name]
            # A cancellation must not reach the other tasks that wait: their requests would end without a reply.
            future.set_exception(LoadAbandoned() if isinstance(error, asyncio.CancelledError) else error)
            future.exception()  # retrieved, since perhaps nobody waits for it
            raise
        del self._loading[name]
        future.set_result(found)
        return found

    async def _consistent_extents(self, segment_id: int) -> list[Extent] | None:
        """The extents, read while no commit was in progress; None when one began meanwhile."""
        await self._no_commit.wait()
        generation = self.generation
        extents = await self.scan_extents(segment_id)
        # Began meanwhile and goes on, or began and ended.
        if self._committing or generation != self.generation:
            coverage_probe("extents_read_during_commit")
            return None
        return extents

    async def scan_extents(self, segment_id: int) -> list[Extent]:
        """The extents of a segment as the index holds them, by offset."""
        out: list[Extent] = []
        # Two kinds of rows, each in pages by offset; sorted together below.
        for kind, load in ((keys.EXTENT, _chunk_extent), (keys.INLINED, _inlined_extent)):
            at, end = keys.segment_range(kind, segment_id)
            while True:
                rows = await self._index.scan(at, end, _SCAN_ROWS)
                out.extend(load(key, value) for key, value in rows)
                if len(rows) < _SCAN_ROWS:
                    break
                at = keys.after(rows[-1][0])
        out.sort(key=lambda extent: extent.start)
        return out

    def _evict_attributes(self, segment: Segment, wanted: Set[bytes] = frozenset()) -> None:
        if len(segment.attributes) < MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT:
            return
        idle = [
            key
            for key, value in segment.attributes.items()
            if value.owner is None
            and value.assigned == value.applied
            and key not in segment.dirty_attributes
            and key not in segment.flushing_attributes
            and key not in wanted
        ]
        # Half of the bound at once: the scan of all is paid for once in thousands of loads.
        for key in idle[: MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT // 2]:
            del segment.attributes[key]


def _chunk_extent(key: bytes, value: bytes) -> Extent:
    return load_chunk_extent(keys.parse_extent_key(key)[1], value)


def _inlined_extent(key: bytes, value: bytes) -> Extent:
    return load_inlined_extent(keys.parse_inlined_key(key)[1], value)
