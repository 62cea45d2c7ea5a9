"""The metadata of one container in memory: segments, attributes, table entries, short index ranges.

Theory of operation.  Whatever a check needs is loaded here first; the check itself then runs in one synchronous
step.  Only this process changes the index, and only by commits.  So there are two kinds of cached data:

* Segments and attributes in `ContainerState` stay valid until they are evicted.  Every change is applied to them too.
  A caller that must await between loading and checking pins the segment.
* Table entries and ranges that were read from the index are valid for one `generation`: until the next commit.
  Entries in memory (pending, dirty, flushing) are newer and come first.

Extents are found by offset and cached elsewhere (`extents.py`).  Segments, attributes and cached extents together
have a bound in bytes.  Idle segments are evicted, and idle attributes of the others.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Corrupt, NotFound
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.env.background import shielded
from sarit.index import keys
from sarit.index.port import DamagedRecord
from sarit.index.scans import scan_readable
from sarit.store.container.extents import Commits, Extents
from sarit.store.container.operations import Create, Entry
from sarit.store.container.segment import Attribute, Segment, load_segment
from sarit.store.limits import (
    ATTRIBUTE_OVERHEAD_BYTES,
    MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT,
    MAX_CACHED_RANGE_BYTES,
    MAX_CACHED_RANGE_ROWS,
    MAX_CACHED_RANGES,
    SEGMENT_OVERHEAD_BYTES,
)
from sarit.store.statistics import StoreStatistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence, Set

    from sarit.index.port import Index, WriteBatch
    from sarit.store.container.state import ContainerState

# Segments that one eviction examines: a turn of the event loop, which others wait for.
EVICTION_SCAN = 200
# Of a busy segment, while memory is short: idle ones beyond are evicted.
_FEW_ATTRIBUTES = 8
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
        """Return all rows of a range, None when they are not cached."""
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

    def __init__(
        self, index: Index, state: ContainerState, max_segments: int, entry_cache_bytes: int, metadata_bytes: int,
        forget_cached: Callable[[set[int]], None], statistics: StoreStatistics | None = None,
    ) -> None:  # fmt: skip
        self._statistics = statistics or StoreStatistics()
        self._index = index
        self._state = state
        self._max_segments = max_segments
        self._forget_cached = forget_cached
        # A quarter is for extents.
        self.max_segment_bytes = metadata_bytes * 3 // 4
        self.commits = Commits()
        self.extents = Extents(index, self.commits, metadata_bytes // 4)
        self._loading: dict[str, asyncio.Future[Segment | None]] = {}
        self.entries = EntryCache(entry_cache_bytes)
        self.ranges = RangeScanCache()

    @property
    def generation(self) -> int:
        """How many commits to the index have ended."""
        return self.commits.generation

    async def commit(self, batch: WriteBatch) -> None:
        """Commit to the index.  The caller must apply the change in memory before it awaits again."""
        async with self.committed(batch):
            return

    @asynccontextmanager
    async def committed(self, batch: WriteBatch) -> AsyncIterator[None]:
        """Commit to the index; the caller applies the change in memory inside, and may await meanwhile.

        Until it ends, a merge does not load extents: those of a segment that memory is behind with would come twice."""
        # Before the await: a lookup of extents that is under way is repeated.
        self.commits.begin()
        try:
            try:
                await self._index.commit(batch)
            finally:
                self.commits.returned()
            yield
        finally:
            self.commits.end()

    async def find(self, name: str) -> Segment | None:
        """Return the newest incarnation of a name; None when it is deleted in the assigned state, or was never
        created."""
        while True:
            segment = self._state.names.get(name)
            if segment is not None:
                self._statistics.metadata_hits += 1
                # A deletion in flight counts.  `Container.change` delays its refusal until that is durable.
                return None if segment.assigned_deleted else segment
            loading = self._loading.get(name)
            if loading is None:
                self._statistics.metadata_misses += 1
                return await self._load_by_name(name)
            try:
                # Many tasks wait for one load: the cancellation of one must not cancel the future of all.
                found = await shielded(loading)
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

    async def stand_in(self, name: str) -> Segment:
        """Return an empty segment in place of one whose record cannot be read: it can be deleted, and nothing else.

        Delete it before the next await.  Raises NotFound, Corrupt (its name cannot be read either)."""
        (row,) = await self._index.get([keys.name_key(name)])
        # The read has awaited: another task may have deleted it.
        if row is None or name in self._state.names:
            raise NotFound(f"segment {name} does not exist")
        return self._add_stand_in(keys.parse_id_value(row), name)

    async def stand_in_of(self, segment_id: int) -> Segment:
        """Return a stand-in of a segment as `stand_in` does, for a deletion in the log, which has no name.  Recovery
        alone calls this."""
        rows, _ = await scan_readable(self._index, *keys.kind_range(keys.NAME))
        found = [key for key, value in rows if keys.parse_id_value(value) == segment_id]
        return self._add_stand_in(segment_id, keys.parse_name_key(found[0]) if found else "")

    def _add_stand_in(self, segment_id: int, name: str) -> Segment:
        segment = Segment(Create(segment_id, name), 0)
        segment.created = segment.committed = segment.saved = True
        self._state.add(segment)
        return segment

    async def attribute(self, segment: Segment, key: bytes) -> Attribute:
        """Return an attribute, loaded into memory; its value is NULL_ATTRIBUTE_VALUE when absent.  Pin the segment."""
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
                self._evict_attributes(segment, MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT)
                found = self._state.attribute(segment, key, value)
        return found

    async def attributes(self, segment: Segment, wanted: Sequence[bytes]) -> None:
        """Load all of `wanted` into memory, where they stay until the caller awaits again.  Pin the segment."""
        # In rounds: while one read waits, attributes that were in memory may be evicted.
        while missing := [key for key in dict.fromkeys(wanted) if key not in segment.attributes]:
            found: list[bytes | None] = [None] * len(missing)
            if segment.committed:
                found = await self._index.get([keys.attribute_key(segment.id, key) for key in missing])
            self._evict_attributes(segment, MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT, set(wanted))
            for key, stored in zip(missing, found, strict=True):
                value = NULL_ATTRIBUTE_VALUE if stored is None else keys.parse_attribute_value(stored)
                # Never replace one that another task has loaded or changed meanwhile.
                self._state.attribute(segment, key, value)

    async def merge_extents(self, segment: Segment) -> None:
        """Load all extents with their bytes into memory, for a merge of the segment.  Pin it until that is assigned.

        Compaction discards them: see to it that they are still there when the merge is assigned."""
        if segment.extents is None:
            segment.extents = await self.extents.load_all(segment.id) if segment.committed else []

    async def load(self, segment_ids: Sequence[int]) -> list[Segment]:
        """Load the segments that exist and can be read.  Pin them before the next await."""
        state = self._state
        present = [state.segments[number] for number in segment_ids if number in state.segments]
        for segment in present:
            segment.pins += 1
        try:
            missing = [one for one in segment_ids if one not in state.segments and one not in state.unreadable]
            # The read has awaited: another task may have loaded some of them.
            loaded = [segment for segment in await self.stored(missing) if segment.id not in state.segments]
            self.evict()  # before they are added: the new segments are not pinned yet
        finally:
            for segment in present:
                segment.pins -= 1
        for segment in loaded:
            state.add(segment)
        return [state.segments[number] for number in segment_ids if number in state.segments]

    async def stored(self, segment_ids: Sequence[int]) -> list[Segment]:
        """Return the segments whose records the index holds and can be read, as they are there, not in memory."""
        found = []
        for number, record in zip(segment_ids, await self._records(segment_ids), strict=True):
            if record is not None:
                with suppress(Corrupt):  # whoever reads or writes it gets the error
                    found.append(load_segment(number, record))
        return found

    async def _records(self, segment_ids: Sequence[int]) -> list[bytes | None]:
        try:
            return await self._index.get([keys.segment_key(number) for number in segment_ids])
        except DamagedRecord:
            if len(segment_ids) == 1:
                return [None]
            half = len(segment_ids) // 2
            return [*await self._records(segment_ids[:half]), *await self._records(segment_ids[half:])]

    async def stored_entries(self, segment: Segment, wanted: Sequence[bytes]) -> dict[bytes, Entry | None]:
        """Return what the index holds for keys of a table, as of one generation."""
        while True:
            generation = self.commits.generation
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
            if generation != self.commits.generation:
                continue
            for key, row in zip(missing, rows, strict=True):
                version_value = None if row is None else keys.parse_entry_value(row)
                found = None if version_value is None else Entry(key, version_value[1], version_value[0])
                self.entries.put(segment.id, key, found)
                out[key] = found
            return out

    async def stored_rows(self, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows of the index with low <= key < high; fewer only when there are no more."""
        known = self.ranges.rows(self.commits.generation, low, high)
        if known is not None:
            return known[:limit]
        generation = self.commits.generation
        # The generation is that of before the scan: rows that a commit overtakes are never served for the next one.
        rows = await self._index.scan(low, high, limit)
        # Fewer than asked for: these are all rows of the range.
        if len(rows) < limit:
            self.ranges.put(generation, low, high, rows)
        return rows

    @property
    def segment_bytes(self) -> int:
        """Memory of segments and their attributes, about."""
        state = self._state
        overhead = len(state.segments) * SEGMENT_OVERHEAD_BYTES + state.attributes * ATTRIBUTE_OVERHEAD_BYTES
        return overhead + state.name_bytes

    def evict(self) -> bool:
        """Evict idle segments, the longest in memory first, down to the bounds; of the others idle attributes.

        It examines some of them; true when more are in excess, and perhaps idle."""
        excess = len(self._state.segments) - self._max_segments
        if excess <= 0 and self.segment_bytes <= self.max_segment_bytes:
            return False
        self._evict_idle(excess, self.max_segment_bytes, cached=False)
        if self.segment_bytes > self.max_segment_bytes:
            # An eighth at once: what is cached of them must be found among all cached bytes.
            self._evict_idle(0, self.max_segment_bytes // 8 * 7, cached=True)
        return len(self._state.segments) > self._max_segments or self.segment_bytes > self.max_segment_bytes

    def _evict_idle(self, excess: int, most_bytes: int, *, cached: bool) -> None:
        """`cached`: also those with cached bytes, which the memory budget counts and refers to."""
        evicted: set[int] = set()
        # A dict keeps the order of insertion: the longest in memory come first.
        for segment in list(islice(self._state.segments.values(), EVICTION_SCAN)):
            if excess <= 0 and self.segment_bytes <= most_bytes:
                break
            if segment.idle and (cached or not segment.cached):
                coverage_probe("segment_evicted")
                self._state.forget(segment)
                excess -= 1
                if segment.cached:
                    evicted.add(id(segment))
                continue
            # To the end: the next eviction examines others.
            self._state.segments[segment.id] = self._state.segments.pop(segment.id)
            if self.segment_bytes > self.max_segment_bytes:
                self._evict_attributes(segment, _FEW_ATTRIBUTES)
        if evicted:
            self._forget_cached(evicted)

    async def _load_by_name(self, name: str) -> Segment | None:
        future: asyncio.Future[Segment | None] = asyncio.get_running_loop().create_future()
        self._loading[name] = future
        found: Segment | None = None
        try:
            (segment_id,) = await self._index.get([keys.name_key(name)])
            if segment_id is not None:
                number = keys.parse_id_value(segment_id)
                if number in self._state.unreadable:
                    raise Corrupt(f"segment {name} is unreadable: {self._state.unreadable[number]}")
                (record,) = await self._index.get([keys.segment_key(number)])
                if record is None:
                    raise Corrupt(f"the index names segment {name} (id {number}) and holds no record of it")
                # The reads have awaited: it may be in memory by now.
                found = self._state.segments.get(number)
                if found is None:
                    self.evict()  # before the load: the new segment is not pinned yet
                    found = load_segment(number, record)
                    if found.name != name:
                        raise Corrupt(f"the index has the record of segment {found.name} for {name} (id {number})")
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

    def _evict_attributes(self, segment: Segment, most: int, wanted: Set[bytes] = frozenset()) -> None:
        """When there are `most` or more, evict idle ones."""
        if len(segment.attributes) < most:
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
        del idle[len(segment.attributes) - most // 2 :]
        for key in idle:
            del segment.attributes[key]
        self._state.attributes -= len(idle)
