"""The metadata of one container in memory: segments, attributes, table entries, short index ranges.

Theory of operation.  Whatever a check needs is loaded here first; the check itself then runs in one synchronous
step.  Only this process changes the index, and only by commits.  So there are two kinds of cached data:

* Segments and attributes in `ContainerState` stay valid until they are evicted, as every change is applied to them.
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

# How many segments one call of `evict` examines: it blocks the event loop meanwhile.
EVICTION_SCAN = 200
# How many attributes a busy segment keeps while memory is short: beyond this, idle ones are evicted.
_FEW_ATTRIBUTES = 8
# The memory of a cached entry besides its key and value.
_ENTRY_OVERHEAD = 200

# How many segments `find_all` loads at a time.
_LOADS_AT_ONCE = 64

Rows = list[tuple[bytes, bytes]]


class LoadAbandoned(Exception):
    """The task that loaded a segment was cancelled: a task that waited for it loads the segment itself."""


class EntryCache:
    """A cache of table entries as the index has them, absent keys included: first in, first out, bounded in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._entries: dict[tuple[int, bytes], Entry | None] = {}

    def get(self, segment: int, key: bytes) -> tuple[bool, Entry | None]:
        """Return whether the key is cached, and its entry, None when the index has no such key."""
        at = (segment, key)
        if at in self._entries:
            return True, self._entries[at]
        return False, None

    def put(self, segment: int, key: bytes, entry: Entry | None) -> None:
        """Cache the entry that the index has for a key, None when it has no such key."""
        self.drop(segment, key)
        self._entries[segment, key] = entry
        self._bytes += _entry_bytes(key, entry)
        # Evict the oldest entries first: a dict keeps the order of insertion.
        while self._bytes > self._limit:
            (_, old_key), old = next(iter(self._entries.items()))
            del self._entries[next(iter(self._entries))]
            self._bytes -= _entry_bytes(old_key, old)

    def committed(self, segment: int, entry: Entry) -> None:
        """Follow a commit of `entry` to the index.  Removed keys are not cached: they are seldom read again."""
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
    """A cache of the last few short ranges read from the index, each with all its rows, as of one generation.

    The controller scans the same few ranges for each commit.  Ranges are cached by their end, so that the cache also
    answers a scan that begins within a range and ends where the range ends."""

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
        # Do not cache rows if a commit ended during their scan: they may be older than the commit.
        if generation < self._generation:
            return
        if generation > self._generation:
            self._generation = generation
            self._ranges.clear()
        size = sum(len(key) + len(value) for key, value in rows)
        if len(rows) > MAX_CACHED_RANGE_ROWS or size > MAX_CACHED_RANGE_BYTES:
            return
        # Keep a cached range that covers the new one.
        if high in self._ranges and self._ranges[high][0] <= low:
            return
        self._ranges.pop(high, None)
        self._ranges[high] = (low, rows)
        if len(self._ranges) > MAX_CACHED_RANGES:
            del self._ranges[next(iter(self._ranges))]


class MetadataCache:
    """The metadata of one container: loaded from the index into its `ContainerState`, and evicted when idle."""

    def __init__(
        self, index: Index, state: ContainerState, max_segments: int, entry_cache_bytes: int, metadata_bytes: int,
        forget_cached: Callable[[set[int]], None], statistics: StoreStatistics | None = None,
    ) -> None:  # fmt: skip
        self._statistics = statistics or StoreStatistics()
        self._index = index
        self._state = state
        self._max_segments = max_segments
        self._forget_cached = forget_cached
        # Segments and attributes may take three quarters of the memory, cached extents the fourth.
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
        """Commit to the index; the body of the `async with` applies the change in memory, and may await.

        Until it ends, no merge loads extents: memory does not show the commit yet, and extents would come twice."""
        # Begin before the await, so that a lookup of extents in progress is repeated.
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
        """Return the newest segment of a name; None when it is deleted in the assigned state, or was never created."""
        while True:
            segment = self._state.names.get(name)
            if segment is not None:
                self._statistics.metadata_hits += 1
                # A deletion in flight counts: `Container.change` delays its refusal until the deletion is durable.
                return None if segment.assigned_deleted else segment
            loading = self._loading.get(name)
            if loading is None:
                self._statistics.metadata_misses += 1
                return await self._load_by_name(name)
            try:
                # Many tasks wait for one load: the cancellation of a task must not cancel the load for the others.
                found = await shielded(loading)
            except LoadAbandoned:
                continue
            # Look again if the segment was loaded or created meanwhile: it may be deleted or evicted by now.
            if name not in self._state.names and found is None:
                return None

    async def find_all(self, names: Sequence[str]) -> None:
        """Load segments into memory, where they may be evicted again; what cannot be loaded is left out."""
        missing = [name for name in dict.fromkeys(names) if name not in self._state.names]
        for at in range(0, len(missing), _LOADS_AT_ONCE):
            await asyncio.gather(*map(self.find, missing[at : at + _LOADS_AT_ONCE]), return_exceptions=True)

    async def require(self, name: str) -> Segment:
        """Return the newest segment of a name, as `find` does.  Raises NotFound."""
        segment = await self.find(name)
        if segment is None:
            raise NotFound(f"segment {name} does not exist")
        return segment

    async def stand_in(self, name: str) -> Segment:
        """Return an empty segment in place of one whose record cannot be read: it can only be deleted.

        Delete it before the next await.  Raises NotFound, Corrupt (the row of its name cannot be read either)."""
        (row,) = await self._index.get([keys.name_key(name)])
        # Another task may have deleted the segment, or added a stand-in, during the read.
        if row is None or name in self._state.names:
            raise NotFound(f"segment {name} does not exist")
        return self._add_stand_in(keys.parse_id_value(row), name)

    async def stand_in_of(self, segment_id: int) -> Segment:
        """Return a stand-in as `stand_in` does, by id: recovery replays deletions, which have no name in the log."""
        rows, _ = await scan_readable(self._index, *keys.kind_range(keys.NAME))
        found = [key for key, value in rows if keys.parse_id_value(value) == segment_id]
        return self._add_stand_in(segment_id, keys.parse_name_key(found[0]) if found else "")

    def _add_stand_in(self, segment_id: int, name: str) -> Segment:
        segment = Segment(Create(segment_id, name), 0)
        segment.created = segment.committed = segment.saved = True
        self._state.add(segment)
        return segment

    async def attribute(self, segment: Segment, key: bytes) -> Attribute:
        """Load an attribute into memory and return it; an absent one has NULL_ATTRIBUTE_VALUE.

        The caller pins the segment."""
        found = segment.attributes.get(key)
        if found is None:
            stored: bytes | None = None
            if segment.committed:  # otherwise the index has nothing of the segment: save the round trip to its thread
                (stored,) = await self._index.get([keys.attribute_key(segment.id, key)])
                # Look in memory again, because another task may have loaded the attribute: with two objects for one
                # attribute, two sessions could own one writer.
                found = segment.attributes.get(key)
            if found is None:
                value = NULL_ATTRIBUTE_VALUE if stored is None else keys.parse_attribute_value(stored)
                self._evict_attributes(segment, MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT)
                found = self._state.attribute(segment, key, value)
        return found

    async def attributes(self, segment: Segment, wanted: Sequence[bytes]) -> None:
        """Load all attributes `wanted` into memory, where they stay until the caller, who pins the segment, awaits."""
        # Repeat until all are in memory: during a read, attributes that were there may be evicted.
        while missing := [key for key in dict.fromkeys(wanted) if key not in segment.attributes]:
            found: list[bytes | None] = [None] * len(missing)
            if segment.committed:
                found = await self._index.get([keys.attribute_key(segment.id, key) for key in missing])
            self._evict_attributes(segment, MAX_ATTRIBUTES_IN_MEMORY_PER_SEGMENT, set(wanted))
            for key, stored in zip(missing, found, strict=True):
                value = NULL_ATTRIBUTE_VALUE if stored is None else keys.parse_attribute_value(stored)
                # `state.attribute` does not replace an attribute that another task has loaded or changed meanwhile.
                self._state.attribute(segment, key, value)

    async def merge_extents(self, segment: Segment) -> None:
        """Load all extents of a segment with their bytes into memory, for a merge.

        The caller pins the segment until the merge is assigned, and checks that compaction has not discarded them."""
        if segment.extents is None:
            segment.extents = await self.extents.load_all(segment.id) if segment.committed else []

    async def load(self, segment_ids: Sequence[int]) -> list[Segment]:
        """Load segments into memory and return those that exist and can be read.  Pin them before the next await."""
        state = self._state
        present = [state.segments[number] for number in segment_ids if number in state.segments]
        for segment in present:
            segment.pins += 1
        try:
            missing = [one for one in segment_ids if one not in state.segments and one not in state.unreadable]
            # Skip segments that another task has loaded during the read.
            loaded = [segment for segment in await self.stored(missing) if segment.id not in state.segments]
            self.evict()  # before the new segments are added, which are not pinned yet
        finally:
            for segment in present:
                segment.pins -= 1
        for segment in loaded:
            state.add(segment)
        return [state.segments[number] for number in segment_ids if number in state.segments]

    async def stored(self, segment_ids: Sequence[int]) -> list[Segment]:
        """Return segments as the index has them, regardless of memory; those without a readable record are left out."""
        found = []
        for number, record in zip(segment_ids, await self._records(segment_ids), strict=True):
            if record is not None:
                with suppress(Corrupt):  # a read or write of the segment raises the error
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
        """Return the entries of the index for keys of a table, None for absent ones, as of one generation."""
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
            # Do not cache that these keys are absent: the next commit may put them into the index.
            if not segment.committed:
                return out | dict.fromkeys(missing)
            rows = await self._index.get([keys.entry_key(segment.id, key) for key in missing])
            # Read again if a commit has ended meanwhile: rows and cached entries may be of two moments.
            if generation != self.commits.generation:
                continue
            for key, row in zip(missing, rows, strict=True):
                version_value = None if row is None else keys.parse_entry_value(row)
                found = None if version_value is None else Entry(key, version_value[1], version_value[0])
                self.entries.put(segment.id, key, found)
                out[key] = found
            return out

    async def stored_rows(self, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` rows of the index with low <= key < high; fewer only when there are no more."""
        known = self.ranges.rows(self.commits.generation, low, high)
        if known is not None:
            return known[:limit]
        generation = self.commits.generation
        # Use the generation of before the scan, so that rows that a commit overtakes do not count for the new one.
        rows = await self._index.scan(low, high, limit)
        # Cache complete ranges only: fewer rows than asked for are all rows of the range.
        if len(rows) < limit:
            self.ranges.put(generation, low, high, rows)
        return rows

    @property
    def segment_bytes(self) -> int:
        """About how many bytes of memory segments and their attributes take."""
        state = self._state
        overhead = len(state.segments) * SEGMENT_OVERHEAD_BYTES + state.attributes * ATTRIBUTE_OVERHEAD_BYTES
        return overhead + state.name_bytes

    def evict(self) -> bool:
        """Evict idle segments down to the bounds, the longest in memory first, and idle attributes of busy segments.

        Returns true when memory is still over a bound, since one call examines EVICTION_SCAN segments only."""
        excess = len(self._state.segments) - self._max_segments
        if excess <= 0 and self.segment_bytes <= self.max_segment_bytes:
            return False
        self._evict_idle(excess, self.max_segment_bytes, cached=False)
        if self.segment_bytes > self.max_segment_bytes:
            # Evict an eighth at once, since finding the cached bytes of evicted segments takes a pass over all of them.
            self._evict_idle(0, self.max_segment_bytes // 8 * 7, cached=True)
        return len(self._state.segments) > self._max_segments or self.segment_bytes > self.max_segment_bytes

    def _evict_idle(self, excess: int, most_bytes: int, *, cached: bool) -> None:
        """Evict idle segments.  `cached`: also segments with cached bytes, which the memory budget refers to."""
        evicted: set[int] = set()
        # The segments longest in memory come first: a dict keeps the order of insertion.
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
            # Move the segment to the end, so that the next eviction examines others.
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
                # Another task may have added the segment during the reads.
                found = self._state.segments.get(number)
                if found is None:
                    self.evict()  # before the load: the new segment is not pinned yet
                    found = load_segment(number, record)
                    if found.name != name:
                        raise Corrupt(f"the index has the record of segment {found.name} for {name} (id {number})")
                    self._state.add(found)
        except BaseException as error:
            del self._loading[name]
            # Do not pass a cancellation on to the tasks that wait: their requests would end without a reply.
            future.set_exception(LoadAbandoned() if isinstance(error, asyncio.CancelledError) else error)
            future.exception()  # marks the exception as retrieved: perhaps nobody waits for it
            raise
        del self._loading[name]
        future.set_result(found)
        return found

    def _evict_attributes(self, segment: Segment, most: int, wanted: Set[bytes] = frozenset()) -> None:
        """Evict idle attributes of a segment that has `most` or more, except those `wanted`."""
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
        # Evict down to half of the bound, so that thousands of loads share the cost of one scan of all attributes.
        del idle[len(segment.attributes) - most // 2 :]
        for key in idle:
            del segment.attributes[key]
        self._state.attributes -= len(idle)
