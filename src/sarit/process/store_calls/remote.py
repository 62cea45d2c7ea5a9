"""Implements the controller's ports with requests to segment stores of other processes.

*Outcomes.*  A request is repeated, for REMOTE_RETRY_SECONDS, if no store has accepted it, or if it changes nothing.
If the reply to any other request is lost, Unavailable is raised: the outcome is unknown, and the caller decides what to
do (`controller/ports.py`).

*Connections* (`store_connections.py`).  Each store has separate ones for tables, segments, creations, and requests that
wait: a store stops reading from a connection with many requests in progress, and creations, which wait while memory is
short, must not block requests that free memory.  Requests that stores of an earlier version do not know have a
connection of their own, too, because such a store closes it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.replies import error_of
from sarit.client.core.retry import NotSent
from sarit.controller.ports import SegmentInfo, TableFeed, TableUpdate, TableValue
from sarit.controller.runner import gather_all
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, SaritError, Truncated, Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.core.metering import NO_RATES, Rates, ScaleAdvice
from sarit.process.limits import EARLIER_STORE_SECONDS
from sarit.process.store_calls.remote_batches import BATCHES, SegmentBatches
from sarit.process.store_calls.scale_request_watch import ScaleRequestWatch
from sarit.process.store_calls.store_connections import QUOTAS
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.env.ports import Env
    from sarit.process.store_calls.store_connections import Address, StoreConnections
    from sarit.security.quotas import Quotas

_log = logging.getLogger("sarit.process")

_TABLES: Final = "tables"
_SEGMENTS: Final = "segments"
_CREATIONS: Final = "creations"
# These requests have connections of their own: a store of an earlier version, which does not know them, closes them.
_FEEDS: Final = "feeds of tables"
_FRESH: Final = "fresh creations"

_NO_POSITION: Final = -1


def _expect(reply: Any, kind: type[Any], segment: str) -> Any:
    """Return a reply of the expected kind.  Raises the error that any other reply stands for."""
    if type(reply) is kind:
        return reply
    if type(reply) is wire.ConditionFailed:
        raise Conflict(reply.message)
    if type(reply) is wire.TableSegmentNotEmpty:
        raise Exists(f"table {segment} is not empty")
    raise error_of(reply, segment)


async def create_one(
    stores: StoreConnections, segment: str, scale_type: int = 0, target_rate: int = 0, rollover_bytes: int = 0
) -> None:
    """Create an empty segment.  Raises Exists."""

    def make(request_id: int) -> Any:
        return wire.CreateSegment(request_id, segment, target_rate, scale_type, "", rollover_bytes)

    _expect(await stores.ask(segment, make, _CREATIONS), wire.SegmentCreated, segment)


def _changes(updates: Sequence[TableUpdate]) -> tuple[wire.TableChange, ...]:
    return tuple(
        wire.TableChange(update.key, update.expected, update.fresh, update.value is None, update.value or b"")
        for update in updates
    )


class RemoteTables:
    """`controller.ports.Tables`."""

    def __init__(self, stores: StoreConnections) -> None:
        self._stores = stores

    async def _ask(self, table: str, make: Callable[[int], Any], kind: type[Any], *, repeatable: bool = False) -> Any:
        return _expect(await self._stores.ask(table, make, _TABLES, repeatable=repeatable), kind, table)

    async def create(self, table: str) -> None:
        """Create a table.  Raises Exists."""
        await self._ask(table, lambda i: wire.CreateTableSegment(i, table, ""), wire.SegmentCreated)

    async def get(self, table: str, keys: Sequence[bytes]) -> list[TableValue | None]:
        """Return the current values of keys, in order; None for a missing key."""
        wanted = tuple(wire.TableKey(key) for key in keys)
        try:
            reply = await self._ask(
                table, lambda i: wire.ReadTable(i, table, "", wanted), wire.TableRead, repeatable=True
            )
        except Invalid:
            if len(keys) < 2:
                raise
            # The values do not fit in one reply.
            half = len(keys) // 2
            return [*await self.get(table, keys[:half]), *await self.get(table, keys[half:])]
        return [
            None if entry.version == NOT_EXISTS else TableValue(bytes(entry.value), entry.version)
            for entry in reply.entries
        ]

    async def update(self, table: str, updates: Sequence[TableUpdate]) -> list[int]:
        """Apply all updates atomically.  Raises Conflict (a key does not have its expected version)."""
        changes = _changes(updates)
        reply = await self._ask(table, lambda i: wire.ChangeTable(i, table, changes), wire.TableEntriesUpdated)
        return list(reply.versions)

    async def update_at(self, table: str, updates: Sequence[TableUpdate], position: int) -> int:
        """Apply all updates atomically if the table is at a position.  Raises Conflict (it is at another one)."""
        changes = _changes(updates)
        reply = await self._stores.ask(table, lambda i: wire.ChangeTableAt(i, table, position, changes), _FEEDS)
        reply = _expect(reply, wire.TableChangedAt, table)
        return int(reply.position)

    async def changes(self, table: str, position: int, limit: int) -> TableFeed | None:
        """Return the changes behind a position; None: they are not known."""
        reply = await self._stores.ask(
            table, lambda i: wire.FollowTable(i, table, position, limit), _FEEDS, repeatable=True
        )
        reply = _expect(reply, wire.TableFollowed, table)
        if reply.lost:
            return None
        rows = ((bytes(one.key), None if one.removed else bytes(one.value)) for one in reply.changes)
        return TableFeed(tuple(rows), reply.position)

    async def scan(self, table: str, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, TableValue]]:
        """Return up to `limit` entries with start <= key (< end), ascending."""

        def make(request_id: int) -> Any:
            return wire.ScanTable(request_id, table, start, end is not None, end or b"", limit)

        reply = await self._ask(table, make, wire.TableEntriesRead, repeatable=True)
        return [(bytes(entry.key), TableValue(bytes(entry.value), entry.version)) for entry in reply.entries]

    async def position(self, table: str) -> int:
        """Return the offset where the table's next entry begins.  Raises NotFound."""
        reply = await self._ask(
            table, lambda i: wire.GetTableSegmentInfo(i, table, ""), wire.TableSegmentInfo, repeatable=True
        )
        return int(reply.length)

    async def delete(self, table: str, *, must_be_empty: bool = False, unchanged_since: int | None = None) -> None:
        """Delete a table.  Raises NotFound, Exists (it must be empty and is not), Conflict (it was changed)."""
        position = _NO_POSITION if unchanged_since is None else unchanged_since
        await self._ask(table, lambda i: wire.DeleteTable(i, table, must_be_empty, position), wire.SegmentDeleted)


class FreshCreations:
    """Creations of segments that never existed, by one request to each store that knows it."""

    def __init__(self, stores: StoreConnections) -> None:
        self._stores = stores
        # Stores that did not answer CreateFreshSegments, perhaps of an earlier version, and when to try again.
        self._without_fresh: dict[Address, float] = {}

    def __repr__(self) -> str:
        return f"<FreshCreations by {self._stores!r}>"

    async def create(self, segments: Sequence[str]) -> None:
        """Create empty segments that never existed, by one request to each store."""
        by_store: dict[Address | None, list[str]] = {}
        for segment in segments:
            try:
                by_store.setdefault(self._stores.address_of(segment), []).append(segment)
            except Unavailable:  # no store owns the container now
                by_store.setdefault(None, []).append(segment)
        await gather_all([self._create_at(address, names) for address, names in by_store.items()])

    async def _create_at(self, address: Address | None, segments: Sequence[str]) -> None:
        if address is not None and self._stores.now() >= self._without_fresh.get(address, 0.0):
            request = partial(wire.CreateFreshSegments, segments=tuple(segments))
            try:
                _expect(await self._stores.ask_at(address, request, _FRESH), wire.SegmentsCreated, segments[0])
                return
            except NotSent:
                pass
            except Unavailable as error:
                _log.info("the store at %s:%d creates segments one by one for a while: %s", *address, error)
                self._without_fresh[address] = self._stores.now() + EARLIER_STORE_SECONDS
        # Create the segments one by one if the container has no owner now, another owner, or one that does not know the
        # request.  Some may exist already.
        for segment in segments:
            with suppress(Exists):
                await create_one(self._stores, segment)


async def _ask_segment(
    stores: StoreConnections, segment: str, make: Callable[[int], Any], kind: type[Any], *, repeatable: bool = False
) -> Any:
    return _expect(await stores.ask(segment, make, _SEGMENTS, repeatable=repeatable), kind, segment)


async def _create_table(
    stores: StoreConnections, segment: str, key_length: int, make: Callable[[int], Any], purpose: str
) -> None:
    try:
        _expect(await stores.ask(segment, make, purpose), wire.SegmentCreated, segment)
    except Exists:
        info = await _ask_segment(
            stores, segment, lambda i: wire.GetTableSegmentInfo(i, segment, ""), wire.TableSegmentInfo, repeatable=True
        )
        if info.key_length != key_length:
            raise Conflict(f"segment {segment} is a table with keys of another length") from None
        raise


class RemoteSegments:
    """`controller.ports.Segments`."""

    def __init__(self, stores: StoreConnections, advertised: Callable[[Address], Address] = lambda own: own) -> None:
        """`advertised`: returns the address for clients of a store, from its address in the router."""
        self._stores = stores
        self._advertised = advertised
        self._fresh = FreshCreations(stores)
        self._batches = SegmentBatches(stores)
        self._ask = partial(_ask_segment, stores)

    async def create(self, segment: str, *, scale_type: int = 0, target_rate: int = 0, rollover_bytes: int = 0) -> None:
        """Create an empty segment.  Raises Exists."""
        await create_one(self._stores, segment, scale_type, target_rate, rollover_bytes)

    async def create_at(
        self, segment: str, offset: int, *, mirror: bool, scale_type: int = 0, target_rate: int = 0,
        rollover_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Create a segment that begins and ends at `offset`.  Raises Exists."""

        def make(request_id: int) -> Any:
            return wire.CreateSegmentAt(
                request_id, segment, offset, mirror, False, 0, target_rate, scale_type, rollover_bytes
            )

        _expect(await self._stores.ask(segment, make, BATCHES), wire.SegmentCreated, segment)

    async def create_table_at(self, segment: str, *, key_length: int, position: int, mirror: bool = False) -> None:
        """Create a table segment whose versions begin at `position`.  Raises as `create_table`."""

        def make(request_id: int) -> Any:
            return wire.CreateSegmentAt(request_id, segment, position, mirror, True, key_length, 0, 0, 0)

        await _create_table(self._stores, segment, key_length, make, BATCHES)

    async def set_mirror(self, segment: str, mirror: bool) -> None:
        """Let clients change a segment, or only read it.  Raises NotFound."""
        reply = await self._stores.ask(segment, lambda i: wire.SetMirror(i, segment, mirror), BATCHES, repeatable=True)
        _expect(reply, wire.SegmentPolicyUpdated, segment)

    async def create_fresh(self, segments: Sequence[str]) -> None:
        """Create empty segments that never existed."""
        await self._fresh.create(segments)

    async def create_table(self, segment: str, *, key_length: int) -> None:
        """Create a table segment.  Raises Exists, Conflict (it exists with keys of another length)."""

        def make(request_id: int) -> Any:
            return wire.CreateTableSegment(request_id, segment, "", key_length=key_length)

        await _create_table(self._stores, segment, key_length, make, _CREATIONS)

    async def seal(self, segment: str) -> None:
        """Seal a segment, which may be sealed already.  Raises NotFound."""
        await self._ask(segment, lambda i: wire.SealSegment(i, segment, ""), wire.SegmentSealed, repeatable=True)

    async def delete(self, segment: str) -> None:
        """Delete a segment.  Raises NotFound."""
        await self._ask(segment, lambda i: wire.DeleteSegment(i, segment, ""), wire.SegmentDeleted)

    async def truncate(self, segment: str, offset: int) -> None:
        """Raise a segment's start offset to `offset`, unless it is higher already.  Raises NotFound, Invalid."""
        try:
            await self._ask(
                segment, lambda i: wire.TruncateSegment(i, segment, offset, ""), wire.SegmentTruncated, repeatable=True
            )
        except Truncated as error:
            # A repeated request finds the offset truncated already.
            if offset > error.start_offset:
                raise Invalid(f"segment {segment} cannot be truncated at {offset}: {error}") from None

    async def merge(self, target: str, sources: Sequence[str]) -> list[int]:
        """Merge source segments into a target, in order.  Returns the target's length after each source."""
        names = tuple(sources)
        reply = await self._ask(
            target, lambda i: wire.MergeSegmentsBatch(i, target, names, ""), wire.SegmentsBatchMerged
        )
        return [length for _, length in reply.merged]

    async def merge_at(self, target: str, source: str, expected_offset: int) -> int:
        """Merge a source into a target that ends at an offset.  Raises Conflict, NotFound, Sealed."""
        reply = await self._stores.ask(target, lambda i: wire.MergeAt(i, target, source, expected_offset), BATCHES)
        merged = _expect(reply, wire.MergedAt, target)
        if not merged.merged:
            text = f"segment {target} ends at {merged.length}"
            raise Conflict(text, expected=expected_offset, actual=merged.length)
        return int(merged.length)

    async def append_at_many(
        self, writes: Sequence[tuple[str, int, bytes]], *, begin_events: bool = True
    ) -> list[int | SaritError]:
        """Append bytes at offsets of segments.  Returns the length after each append, or why there was none."""
        return await self._batches.append(writes, begin_events=begin_events)

    async def read_many(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes | SaritError]:
        """Return bytes of segments, or in place of them an error."""
        return await self._batches.read(ranges)

    async def infos(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        """Return the states of segments, None for a missing one."""
        return await self._batches.states(segments)

    async def locate(self, segment: str, offset: int) -> int:
        """Return the first known offset at or after `offset` where an append began.  Raises NotFound."""
        reply = await self._ask(
            segment, lambda i: wire.LocateOffset(i, segment, offset, ""), wire.OffsetLocated, repeatable=True
        )
        return int(reply.offset)

    async def info(self, segment: str) -> SegmentInfo:
        """Return the state of a segment.  Raises NotFound."""
        reply = await self._ask(
            segment, lambda i: wire.GetStreamSegmentInfo(i, segment, ""), wire.StreamSegmentInfo, repeatable=True
        )
        if not reply.exists or reply.is_deleted:
            raise NotFound(f"segment {segment} does not exist (any more)")
        return SegmentInfo(reply.write_offset, reply.start_offset, reply.is_sealed, reply.last_modified)

    async def update_policy(self, segment: str, *, scale_type: int, target_rate: int) -> None:
        """Record the scaling policy of a segment.  Raises NotFound."""

        def make(request_id: int) -> Any:
            return wire.UpdateSegmentPolicy(request_id, segment, target_rate, scale_type, "")

        await self._ask(segment, make, wire.SegmentPolicyUpdated, repeatable=True)

    async def rates(self, segments: Sequence[str]) -> list[Rates]:
        """Return the rates of each segment that its store measured; zero for a missing segment."""
        by_store: dict[Address, list[int]] = {}
        for place, segment in enumerate(segments):
            by_store.setdefault(self._stores.address_of(segment), []).append(place)
        found = [NO_RATES] * len(segments)
        for address, places in by_store.items():
            names = tuple(segments[place] for place in places)
            reply = await self._stores.ask_at(address, partial(wire.GetRates, segments=names), _SEGMENTS)
            measured = _expect(reply, wire.RatesMeasured, names[0]).rates
            for place, rate in zip(places, measured, strict=True):
                found[place] = Rates(tuple(rate[:4]), tuple(rate[4:8]), rate.age)
        return found

    async def grown(self) -> list[str]:
        """Segments that may have grown since the last call; those of a store that does not answer come later."""
        asked = (_grown_at(self._stores, address) for address in self._stores.addresses())
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found: list[str] = []
        for answer in answers:
            if isinstance(answer, list):
                found += answer
            elif not isinstance(answer, Unavailable):
                raise answer
        return found

    async def scope_bytes(self, scope: str) -> int:
        """Return the bytes of all segments of a scope.  Raises Unavailable: not all stores have counted theirs."""
        request = partial(wire.MeasureScope, scope=scope)
        asked = (self._stores.ask_at(address, request, QUOTAS) for address in self._stores.addresses())
        found = [_expect(reply, wire.ScopeMeasured, scope) for reply in await gather_all(list(asked))]
        counted, all_of_them = sum(reply.containers for reply in found), self._stores.router.containers
        if counted != all_of_them:
            raise Unavailable(f"the bytes of scope {scope} are known in {counted} of {all_of_them} containers")
        return sum(reply.bytes for reply in found)

    async def read(self, segment: str, offset: int, limit: int) -> bytes:
        """Return up to `limit` bytes from `offset`; none only at the end.  Raises NotFound, Truncated, Invalid."""
        reply = await self._ask(
            segment, lambda i: wire.ReadBytes(i, segment, offset, limit), wire.BytesRead, repeatable=True
        )
        return bytes(reply.data)

    async def write(self, segment: str, data: bytes, expected_offset: int) -> None:
        """Append one event at an offset.  Raises Conflict, NotFound, Sealed."""
        await self._ask(segment, lambda i: wire.AppendAt(i, segment, expected_offset, data), wire.AppendedAt)

    async def get_attribute(self, segment: str, key: bytes) -> int:
        """Return the value of an attribute, NULL_ATTRIBUTE_VALUE if it is not set.  Raises NotFound."""
        reply = await self._ask(
            segment, lambda i: wire.GetSegmentAttribute(i, segment, key, ""), wire.SegmentAttribute, repeatable=True
        )
        return int(reply.value)

    async def update_attribute(self, segment: str, key: bytes, value: int, expected: int) -> bool:
        """Set an attribute if its value is `expected`.  Returns whether it was.  Raises NotFound."""

        def make(request_id: int) -> Any:
            return wire.UpdateSegmentAttribute(request_id, segment, key, value, expected, "")

        return bool((await self._ask(segment, make, wire.SegmentAttributeUpdated)).success)

    def endpoint(self, segment: str) -> Address:
        """Return the host and port of the store that owns a segment.  Raises Unavailable."""
        return self._advertised(self._stores.address_of(segment))


async def _grown_at(stores: StoreConnections, address: Address) -> list[str]:
    found: list[str] = []
    while True:
        reply = await stores.ask_at(address, wire.GetGrown, _SEGMENTS)
        page = _expect(reply, wire.SegmentsGrown, "")
        found += page.segments
        if not page.more:
            return found


class RemoteStores:
    """The stores of other processes, for a controller."""

    def __init__(
        self, connections: StoreConnections, env: Env, advertised: Callable[[Address], Address] = lambda own: own
    ) -> None:
        """`advertised`: returns the address for clients of a store, from its address in the router."""
        self.connections = connections
        self.tables = RemoteTables(connections)
        self.segments = RemoteSegments(connections, advertised)
        self._env = env

    def __repr__(self) -> str:
        return f"<RemoteStores {self.connections!r}>"

    async def use_quotas(self, quotas: Quotas) -> None:
        """Make all stores enforce these quotas.  Raises Unavailable."""
        await self.connections.use_quotas(quotas)

    async def follow_scaling(self, report: Callable[[str, ScaleAdvice], None]) -> None:
        """Pass the scaling requests of all stores to `report`, until cancelled."""
        await ScaleRequestWatch(self.connections, self._env, report).run()

    async def close(self) -> None:
        """Close all connections."""
        await self.connections.close()
