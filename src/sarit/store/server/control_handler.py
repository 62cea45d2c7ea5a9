"""Answers every request that is not an append or a read of bytes.

Each command has a method that returns the reply or raises one of `core.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, SaritError, Sealed
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.core.names import transient_segment
from sarit.store.container.container import require_writable
from sarit.store.container.operations import KIND_TABLE_FIXED, Entry
from sarit.store.container.segment import AttributeUpdate
from sarit.store.limits import TABLE_ENTRY_OVERHEAD_BYTES, TABLE_READ_OVERHEAD_BYTES
from sarit.store.server.held_requests import answer_request
from sarit.store.server.replies import error_reply, table_error_reply
from sarit.wire import commands as wire
from sarit.wire.limits import MAX_WIRE_PAYLOAD_BYTES

if TYPE_CHECKING:
    from sarit.env.ports import Buffer
    from sarit.store.container.container import Container
    from sarit.store.server.held_requests import Handler
    from sarit.store.store import SegmentStore

# A function that sends a request to the store that owns its container, and returns the reply (None: close).
AskOwner = Callable[[wire.Command], Awaitable[wire.Command | None]]

# The fields that name the segment of a request, by which its container is found; a command has one of them.
_SUBJECTS = ("segment", "target", "parent_segment")
_TABLE_REQUESTS = (
    wire.GetTableSegmentInfo, wire.UpdateTableEntries, wire.RemoveTableKeys, wire.ReadTable, wire.ReadTableKeys,
    wire.ReadTableEntries, wire.ReadTableEntriesDelta,
)  # fmt: skip
# A continuation token begins with this, since an empty token asks for the first page.
_TOKEN_PREFIX = b"\x01"
_NO_OFFSET = -1
_REFUSED = 0
# The requests of clients that change a segment or table, which must be no mirror.
_CHANGES: Final = (
    wire.CreateTransientSegment, wire.MergeSegments, wire.UpdateSegmentAttribute, wire.TruncateSegment,
    wire.SealSegment, wire.DeleteTableSegment, wire.UpdateTableEntries, wire.RemoveTableKeys,
)  # fmt: skip
# The token of a request that a store forwards for a client: otherwise the owner would take it for a controller's.
FORWARDED: Final = "of a client"


class ControlHandler:
    """The handler of control requests, which all connections of a store share."""

    def __init__(self, store: SegmentStore, ask_owner: AskOwner | None = None) -> None:
        self._store = store
        self._ask_owner = ask_owner
        self._handlers: dict[type, Handler] = {
            wire.GetStreamSegmentInfo: self._info,
            wire.GetSegmentAttribute: self._get_attribute,
            wire.UpdateSegmentAttribute: self._update_attribute,
            wire.CreateSegment: self._create,
            wire.SealSegment: self._seal,
            wire.TruncateSegment: self._truncate,
            wire.DeleteSegment: self._delete,
            wire.UpdateSegmentPolicy: self._update_policy,
            wire.MergeSegments: self._merge,
            wire.MergeSegmentsBatch: self._merge_batch,
            wire.LocateOffset: self._locate,
            wire.CreateTransientSegment: self._create_transient,
            wire.GetTableSegmentInfo: self._table_info,
            wire.CreateTableSegment: self._create_table,
            wire.DeleteTableSegment: self._delete_table,
            wire.UpdateTableEntries: self._update_table,
            wire.RemoveTableKeys: self._remove_keys,
            wire.ReadTable: self._read_table,
            wire.ReadTableKeys: self._read_keys,
            wire.ReadTableEntries: self._read_entries,
            wire.ReadTableEntriesDelta: self._read_delta,
        }

    def handles(self, command: object) -> bool:
        """Return whether `answer` knows this request."""
        return type(command) in self._handlers

    async def answer(self, command: Any, *, groups_alone: bool = False, client: bool = False) -> wire.Command | None:
        """Answer a request.  Returns the reply; None: close the connection.

        `groups_alone`: refuse a request on a key-value table.  `client`: refuse a change of a mirror."""
        segment = _subject(command)
        handler = self._handlers[type(command)]

        def refusal(error: Exception) -> wire.Command | None:
            if isinstance(command, wire.TruncateSegment):
                return error_reply(error, command.request_id, segment, command.truncation_offset)
            return error_reply(error, command.request_id, segment)

        if client and isinstance(command, _CHANGES):
            handler = partial(_unless_mirror, self._store, segment, handler)
        # Do not check the kind at a creation, which is refused anyway if a table of either kind exists.
        if groups_alone and not isinstance(command, wire.CreateTableSegment):
            handler = partial(_unless_key_value_table, self._store, segment, handler)
        return await answer_request(self._store, segment, handler, command, refusal)

    async def forward(
        self, command: wire.Command, wrong_host: wire.WrongHost, *, groups_alone: bool = False
    ) -> wire.Command | None:
        """Forward a request on a table that has moved.  Returns the owner's reply; `wrong_host` for other requests.

        The Rust client asks for the address of a table once, and reports WrongHost to its user as an error, or panics.
        Without forwarding, a table that it uses could never move."""
        if self._ask_owner is None or not isinstance(command, _TABLE_REQUESTS):
            return wrong_host
        coverage_probe("table_request_forwarded")
        if groups_alone:  # check here, since the owner would take the request for a controller's
            segment = _subject(command)
            info = await self._ask_owner(wire.GetTableSegmentInfo(command.request_id, segment, ""))
            if not isinstance(info, wire.TableSegmentInfo):
                return info
            if info.key_length:
                return _no_group(command)
        if isinstance(command, _CHANGES):
            command = replace(command, token=FORWARDED)
        return await self._ask_owner(command)

    # -- segments -----------------------------------------------------------------------------

    async def _info(self, c: wire.GetStreamSegmentInfo) -> wire.Command:
        info = await self._store.container(c.segment).info(c.segment)
        return wire.StreamSegmentInfo(
            c.request_id, c.segment, True, info.sealed, False, info.modified_ms, info.length, info.start_offset
        )

    async def _get_attribute(self, c: wire.GetSegmentAttribute) -> wire.Command:
        value = await self._store.container(c.segment).get_attribute(c.segment, c.attribute_id)
        return wire.SegmentAttribute(c.request_id, value)

    async def _update_attribute(self, c: wire.UpdateSegmentAttribute) -> wire.Command:
        done = await self._store.container(c.segment).update_attribute(
            c.segment, c.attribute_id, c.new_value, c.expected_value
        )
        return wire.SegmentAttributeUpdated(c.request_id, done)

    async def _create(self, c: wire.CreateSegment) -> wire.Command:
        await self._store.container(c.segment).create(
            c.segment, scale_type=c.scale_type, target_rate=c.target_rate, rollover=c.rollover_size_bytes
        )
        return wire.SegmentCreated(c.request_id, c.segment)

    async def _create_transient(self, c: wire.CreateTransientSegment) -> wire.Command:
        # Check the parent in the same container, which is that of the parent, too (`container_of`).
        name = transient_segment(c.parent_segment, c.writer_id, self._store.env.random.bytes(16))
        await self._store.container(name).metadata.require(c.parent_segment)
        await self._store.container(name).create(name)
        return wire.SegmentCreated(c.request_id, name)

    async def _seal(self, c: wire.SealSegment) -> wire.Command:
        with suppress(Sealed):  # success instead of SegmentIsSealed: all clients accept both
            await self._store.container(c.segment).seal(c.segment)
        return wire.SegmentSealed(c.request_id, c.segment)

    async def _truncate(self, c: wire.TruncateSegment) -> wire.Command:
        await self._store.container(c.segment).truncate(c.segment, c.truncation_offset)
        return wire.SegmentTruncated(c.request_id, c.segment)

    async def _delete(self, c: wire.DeleteSegment) -> wire.Command:
        await self._store.container(c.segment).delete(c.segment)
        return wire.SegmentDeleted(c.request_id, c.segment)

    async def _update_policy(self, c: wire.UpdateSegmentPolicy) -> wire.Command:
        await self._store.container(c.segment).set_policy(c.segment, c.scale_type, c.target_rate)
        return wire.SegmentPolicyUpdated(c.request_id, c.segment)

    async def _merge(self, c: wire.MergeSegments) -> wire.Command:
        container = await _merge_target(self._store, c.target, [c.source])
        updates = tuple(
            AttributeUpdate(update.attribute_id, update.update_type, update.new_value, update.old_value)
            for update in c.attribute_updates
        )
        try:
            length = await container.merge(c.target, c.source, updates)
        except Conflict:
            return wire.SegmentAttributeUpdated(c.request_id, False)
        except NotFound as error:
            # Only the error of a missing source is its bare name (`_merge_source`).
            reply = error_reply(error, c.request_id, c.source if str(error) == c.source else c.target)
            assert reply is not None
            return reply
        return wire.SegmentsMerged(c.request_id, c.target, c.source, length)

    async def _merge_batch(self, c: wire.MergeSegmentsBatch) -> wire.Command:
        lengths = await merge_batch(self._store, c.target, list(c.sources))
        return wire.SegmentsBatchMerged(c.request_id, c.target, tuple(zip(c.sources, lengths, strict=True)))

    async def _locate(self, c: wire.LocateOffset) -> wire.Command:
        return wire.OffsetLocated(c.request_id, c.segment, await locate(self._store, c.segment, c.target_offset))

    # -- tables -------------------------------------------------------------------------------

    async def _table_info(self, c: wire.GetTableSegmentInfo) -> wire.Command:
        segment = await self._store.tables(c.segment).info(c.segment)
        return wire.TableSegmentInfo(c.request_id, c.segment, 0, segment.length, segment.entries, segment.key_length)

    async def _create_table(self, c: wire.CreateTableSegment) -> wire.Command:
        await self._store.tables(c.segment).create(c.segment, c.key_length, c.rollover_size_bytes)
        return wire.SegmentCreated(c.request_id, c.segment)

    async def _delete_table(self, c: wire.DeleteTableSegment) -> wire.Command:
        tables = self._store.tables(c.segment)
        if c.must_be_empty and (await tables.info(c.segment)).kind == KIND_TABLE_FIXED:
            raise NotImplementedError("deletion of a table with keys of fixed length on condition that it is empty")
        try:
            await tables.delete(c.segment, c.must_be_empty)
        except Exists:
            return wire.TableSegmentNotEmpty(c.request_id, c.segment, "")
        return wire.SegmentDeleted(c.request_id, c.segment)

    async def _update_table(self, c: wire.UpdateTableEntries) -> wire.Command:
        # Copy keys and values: a view would keep the whole payload in memory as long as one entry is.
        changes = [(bytes(entry.key), bytes(entry.value), entry.version) for entry in c.entries]
        try:
            versions = await self._store.tables(c.segment).update(c.segment, changes, _position(c.table_segment_offset))
        except SaritError as error:
            return _table_reply(error, c, update=True)
        return wire.TableEntriesUpdated(c.request_id, tuple(versions))

    async def _remove_keys(self, c: wire.RemoveTableKeys) -> wire.Command:
        changes = [(bytes(key.key), None, key.version) for key in c.keys]
        try:
            await self._store.tables(c.segment).update(c.segment, changes, _position(c.table_segment_offset))
        except SaritError as error:
            return _table_reply(error, c, update=False)
        return wire.TableKeysRemoved(c.request_id, c.segment)

    async def _read_table(self, c: wire.ReadTable) -> wire.Command:
        wanted = [bytes(key.key) for key in c.keys]
        found = await self._store.tables(c.segment).get(c.segment, wanted)
        size = sum(map(len, wanted)) + sum(len(entry.value or b"") for entry in found if entry is not None)
        # Refuse a reply that does not fit, which would fail in the encoder, and end the connection.
        if size + TABLE_ENTRY_OVERHEAD_BYTES * len(wanted) + TABLE_READ_OVERHEAD_BYTES > MAX_WIRE_PAYLOAD_BYTES:
            raise Invalid(f"the values of these {len(wanted)} keys do not fit in one reply: ask for fewer at once")
        entries = (
            # Version -1 means that there is no such key.
            wire.TableEntry(key, -1, b"") if entry is None else _wire_entry(entry)
            for key, entry in zip(wanted, found, strict=True)
        )
        return wire.TableRead(c.request_id, c.segment, tuple(entries))

    async def _read_keys(self, c: wire.ReadTableKeys) -> wire.Command:
        page = await self._page(c, c.suggested_key_count)
        keys = tuple(wire.TableKey(entry.key, entry.version) for entry in page)
        return wire.TableKeysRead(c.request_id, c.segment, keys, _token(page, c.args.continuation_token))

    async def _read_entries(self, c: wire.ReadTableEntries) -> wire.Command:
        page = await self._page(c, c.suggested_entry_count)
        entries = tuple(_wire_entry(entry) for entry in page)
        return wire.TableEntriesRead(c.request_id, c.segment, entries, _token(page, c.args.continuation_token))

    async def _page(self, c: wire.ReadTableKeys | wire.ReadTableEntries, count: int) -> list[Entry]:
        tables = self._store.tables(c.segment)
        fixed = (await tables.info(c.segment)).kind == KIND_TABLE_FIXED
        token, first, last = bytes(c.args.continuation_token), bytes(c.args.from_key), bytes(c.args.to_key)
        if count <= 0:
            raise Invalid(f"a page of {count} entries was asked for")
        if fixed:
            if token:
                raise Invalid("iterators over keys of fixed length go on by fromKey, not by continuation token")
            # `to_key` is inclusive, the end of a scan is not: key + NUL is the next possible key.
            return await tables.scan(c.segment, first, last + b"\0" if last else None, count)
        if first or last:
            raise Invalid("iterators over keys of any length take no key range")
        # Start at the next possible key after the last one of the previous page.
        start = token[1:] + b"\0" if token else b""
        return await tables.scan(c.segment, start, None, count)

    async def _read_delta(self, c: wire.ReadTableEntriesDelta) -> wire.Command:
        page, reached_end, position = await self._store.tables(c.segment).delta(
            c.segment, c.from_position, max(1, c.suggested_entry_count)
        )
        entries = tuple(_wire_entry(entry) for entry in page)
        return wire.TableEntriesDeltaRead(c.request_id, c.segment, entries, False, reached_end, position)


async def _unless_mirror(store: SegmentStore, segment: str, handler: Handler, command: Any) -> wire.Command:
    found = await store.container(segment).metadata.find(segment)
    if found is not None:
        require_writable(found)
    return await handler(command)


async def _unless_key_value_table(store: SegmentStore, segment: str, handler: Handler, command: Any) -> wire.Command:
    if (await store.tables(segment).info(segment)).kind == KIND_TABLE_FIXED:
        return _no_group(command)
    return await handler(command)


async def merge_batch(store: SegmentStore, target: str, sources: list[str]) -> list[int]:
    """Merge the sources into the target in order, all queued before the first is awaited (one group commit).

    Returns the target's length after each source; a missing source does not change it.  Raises NotFound (the target),
    Invalid (they are in different containers)."""
    container = await _merge_target(store, target, sources)
    lengths: list[int] = []
    durable: list[asyncio.Future[None]] = []
    try:
        for source in sources:
            try:
                length, done = await container.begin_merge(target, source)
                durable.append(done)
            # A missing source was perhaps merged by an earlier attempt; `length` raises if the target is missing.
            except NotFound:
                length = await container.length(target)
            lengths.append(length)
    finally:
        # Wait also after an error, since queued merges take effect, and each future's error must be retrieved.
        outcomes = await asyncio.gather(*durable, return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
    return lengths


async def merge_at(store: SegmentStore, target: str, source: str, offset: int) -> int:
    """Merge a source into a target that ends at `offset`.  Returns the target's length after it.

    Raises Conflict (with the actual length), NotFound, Sealed, Invalid (they are in different containers)."""
    container = await _merge_target(store, target, [source])
    length, durable = await container.begin_merge(target, source, offset=offset)
    await durable
    return length


async def locate(store: SegmentStore, segment: str, target: int) -> int:
    """Return the first known offset at or after `target` where an append began, else the length.  Raises NotFound."""
    info = await store.container(segment).info(segment)
    offset = await store.reads(segment).event_boundary(segment, target)
    # Bound the result, because appends during the second await may put it beyond the length that was read.
    return min(offset, info.length)


async def _merge_target(store: SegmentStore, target: str, sources: list[str]) -> Container:
    """Return the container of target and sources.  Raises Invalid when a source is in another container."""
    container = store.container(target)
    for source in sources:
        other = store.container(source)
        # Refuse a source of another container, which would seem to be missing, as if it had been merged before.
        if other is not container and await container.metadata.find(target) and await other.metadata.find(source):
            raise Invalid(
                f"segments {source} and {target} are in different containers and cannot be merged; transactions and "
                "transient segments are in that of their parent"
            )
    return container


def _no_group(command: Any) -> wire.Command:
    text = f"{_subject(command)} is a key-value table: this request is for tables of reader groups"
    return wire.AuthTokenCheckFailed(command.request_id, text, _REFUSED)


def _subject(command: Any) -> str:
    return next(filter(None, (getattr(command, name, "") for name in _SUBJECTS)), "")


def _position(offset: int) -> int | None:
    # Both of these values on the wire stand for no condition on the table's position.
    return None if offset in (_NO_OFFSET, NULL_ATTRIBUTE_VALUE) else offset


def _table_reply(error: SaritError, c: wire.UpdateTableEntries | wire.RemoveTableKeys, *, update: bool) -> wire.Command:
    reply = table_error_reply(error, c.request_id, c.segment, c.table_segment_offset, update=update)
    if reply is None:
        raise error
    return reply


def _wire_entry(entry: Entry) -> wire.TableEntry:
    return wire.TableEntry(entry.key, entry.version, entry.value or b"")


def _token(page: list[Entry], given: Buffer) -> bytes:
    """Return the continuation token after a page; after an empty page, which ends the iteration, the token `given`."""
    return _TOKEN_PREFIX + page[-1].key if page else bytes(given)
