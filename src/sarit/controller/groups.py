"""Reader groups: their configuration, and their subscriptions to streams.  (Their state lives in the `_RG` stream.)

The record of a group states that it is being created, updated or deleted.  Any controller that reads such a record
first completes the change, of the group's stream and of its subscriptions.  An update or deletion is first entered in
the pending-work index, so that the recovery sweeper completes it if no call for the group comes again: an unfinished
change may delay retention.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from sarit.controller import keys
from sarit.controller.model import codec, groups
from sarit.controller.model.records import GroupRecord, MakerRecord, State, SubscriberRecord
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import KeyedLocks
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import READER_GROUP_PREFIX, StreamName, is_user_name
from sarit.core.policies import StreamConfig
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.streams import Streams
    from sarit.env.ports import Env


class Groups:
    """Workflows on reader groups."""

    def __init__(self, catalog: Catalog, streams: Streams, env: Env) -> None:
        self._catalog = catalog
        self._streams = streams
        self._env = env
        self._locks: KeyedLocks[tuple[str, str]] = KeyedLocks()

    async def create(self, scope: str, group: str, wanted: GroupRecord, maker: str = "") -> GroupRecord:
        """Create a group, unless it exists.  Returns its configuration, which is not `wanted` if it existed.  `maker`:
        the user who creates it.

        A group without an id (0-0) gets a random one.  Raises Invalid (its name, or a stream's), NotFound (scope)."""
        if not is_user_name(group):
            raise Invalid(f"{group!r} is not a reader group name")
        groups.check_names(wanted)
        new = groups.create(wanted, str(UUID(bytes=self._env.random.bytes(16), version=4)))
        async with self._locks.hold((scope, group)):
            for _ in range(MAX_ATTEMPTS):
                found = await self._complete_pending(scope, group)
                if found is not None:
                    return found[0]
                updates = [TableUpdate(keys.group_key(group), codec.encode_group(new), NOT_EXISTS)]
                if maker:
                    made = codec.encode_maker(MakerRecord(new.group_id, maker))
                    updates.append(TableUpdate(keys.maker_key(group), made, NO_VERSION))
                try:
                    await self._catalog.update(scope, updates)
                except Conflict:
                    # Another controller may have created the group: the next round reads its record and completes it.
                    continue
        raise _contended(scope, group)

    async def find(self, scope: str, group: str) -> GroupRecord:
        """Return the configuration of a group.  Raises NotFound."""
        found = await self._read(scope, group)
        if found is None or found[0].state is State.DELETING:
            raise NotFound(f"reader group {scope}/{group} does not exist")
        return found[0]

    async def maker(self, scope: str, group: str) -> str:
        """Return the user who created a group; empty: unknown.  Raises NotFound."""
        found, made = await self._catalog.get(scope, [keys.group_key(group), keys.maker_key(group)])
        if found is None:
            raise NotFound(f"reader group {scope}/{group} does not exist")
        record = None if made is None else codec.decode_maker(made.value)
        same = record is not None and record.group_id == codec.decode_group(found.value).group_id
        return record.user if record is not None and same else ""

    async def update(self, scope: str, group: str, wanted: GroupRecord) -> int:
        """Update a group's configuration.  Returns its new generation.  Raises NotFound, Conflict (another generation
        or id), Invalid (the name of a stream)."""
        groups.check_names(wanted)
        entry = keys.pending_group_key(scope, group)
        async with self._locks.hold((scope, group)):
            for _ in range(MAX_ATTEMPTS):
                # Complete an earlier change before the new record replaces its list of streams to leave.
                found = await self._complete_pending(scope, group)
                if found is None:
                    raise NotFound(f"reader group {scope}/{group} does not exist")
                new = groups.update(found[0], wanted)
                # Enter the work before the record states it: after a crash, the sweeper finds the work by this entry.
                entered = await self._catalog.index_pending(entry)
                if await self._replace(scope, group, new, found[1]):
                    await self._complete_pending(scope, group)
                    await self._catalog.remove_pending_if_unchanged(entry, entered)
                    return new.generation
        raise _contended(scope, group)

    async def delete(self, scope: str, group: str, group_id: str = "") -> None:
        """Delete a group.  Raises NotFound, also if it has another id than `group_id` (empty: any)."""
        entry = keys.pending_group_key(scope, group)
        async with self._locks.hold((scope, group)):
            for _ in range(MAX_ATTEMPTS):
                found = await self._read(scope, group)
                if found is None or (group_id and found[0].group_id != group_id):
                    raise NotFound(f"reader group {scope}/{group} does not exist, or has another id")
                deleting = replace(found[0], state=State.DELETING)
                entered = await self._catalog.index_pending(entry)
                if deleting == found[0] or await self._replace(scope, group, deleting, found[1]):
                    await self._complete_pending(scope, group)
                    await self._catalog.remove_pending_if_unchanged(entry, entered)
                    return
        raise _contended(scope, group)

    async def recover(self, scope: str, group: str) -> bool:
        """Complete a group's pending work for the sweeper, and make changes decided on its old record conflict.
        Returns False if the record was changed meanwhile, so that the entry must stay."""
        async with self._locks.hold((scope, group)):
            with suppress(NotFound):  # the scope was deleted
                if (found := await self._complete_pending(scope, group)) is not None:
                    value = codec.encode_group(found[0])
                    return await self._catalog.renew(scope, keys.group_key(group), value, found[1])
        return True

    # -- subscribers ------------------------------------------------------------------------------

    async def subscribers(self, name: StreamName) -> list[str]:
        """Return the subscribers of a stream, as `scope/group`.  Raises NotFound."""
        await self._catalog.require(name)
        prefix, after, out = keys.of_stream(name.stream, keys.SUBSCRIBERS), b"", list[str]()
        while rows := await self._catalog.scan(name.scope, prefix, after):
            after = rows[-1][0]
            out += (key[len(prefix) :].decode() for key, _ in rows)
        return out

    async def record_cut(
        self, name: StreamName, subscriber: str, generation: int, group_id: str, cut: Mapping[int, int]
    ) -> None:
        """Record the cut up to which a subscriber has released a stream.

        Raises NotFound (stream), LookupError (subscriber), Invalid (cut), Conflict (generation)."""
        await self._catalog.require(name)
        key = keys.subscriber_key(name.stream, subscriber)
        for _ in range(MAX_ATTEMPTS):
            (value,) = await self._catalog.get(name.scope, [key])
            present = None if value is None else codec.decode_subscriber(value.value)
            if value is None or present is None or present.group_id != group_id:
                raise LookupError(subscriber)
            if present.generation != generation:
                raise Conflict(f"subscriber {subscriber} is of generation {present.generation}")
            if not await self._streams.is_cut(name, cut, present.cut):
                raise Invalid(
                    f"the segments of the cut do not cover stream {name} once, or it lies before the released one"
                )
            noted = codec.encode_subscriber(replace(present, cut=dict(cut)))
            with suppress(Conflict):
                await self._catalog.update(name.scope, [TableUpdate(key, noted, value.version)])
                return
        raise Unavailable(f"subscriber {subscriber} is changed by too many others at once; try again")

    async def drop_subscriber(self, name: StreamName, subscriber: str) -> bool:
        """Remove a subscription, so that it delays retention no more.  Returns whether it existed.  Raises NotFound
        (stream), Invalid.

        The group goes on reading.  It subscribes again when a user who may read the stream updates the group."""
        StreamName.parse(subscriber)
        await self._catalog.require(name)
        key = keys.subscriber_key(name.stream, subscriber)
        for _ in range(MAX_ATTEMPTS):
            (value,) = await self._catalog.get(name.scope, [key])
            if value is None:
                return False
            with suppress(Conflict):  # the subscriber released more meanwhile
                await self._catalog.update(name.scope, [TableUpdate(key, None, value.version)])
                return True
        raise Unavailable(f"subscriber {subscriber} is changed by too many others at once; try again")

    # -- steps ------------------------------------------------------------------------------------

    async def _read(self, scope: str, group: str) -> tuple[GroupRecord, int] | None:
        (value,) = await self._catalog.get(scope, [keys.group_key(group)])
        return None if value is None else (codec.decode_group(value.value), value.version)

    async def _replace(self, scope: str, group: str, record: GroupRecord, version: int) -> bool:
        update = TableUpdate(keys.group_key(group), codec.encode_group(record), version)
        try:
            await self._catalog.update(scope, [update])
        except Conflict:
            return False
        return True

    async def _complete_pending(self, scope: str, group: str) -> tuple[GroupRecord, int] | None:
        """Complete a group's pending work.  Returns its record and version then; None: there is no group."""
        for _ in range(MAX_ATTEMPTS):
            found = await self._read(scope, group)
            if found is None or not groups.is_pending(found[0]):
                return found
            record, version = found
            stream = StreamName(scope, READER_GROUP_PREFIX + group)
            if record.state is State.DELETING:
                # Every step can be repeated.  Remove the record last: until then any controller can complete the rest.
                await self._unsubscribe(f"{scope}/{group}", (*groups.subscribed(record), *record.leaving))
                state = await self._catalog.find(stream)
                if await self._read(scope, group) != found:
                    continue  # another controller completed it: the stream may belong to a new group
                if state is not None:
                    await self._streams.remove(stream, state.record.first_number)
                (made,) = await self._catalog.get(scope, [keys.maker_key(group)])
                removals = [TableUpdate(keys.group_key(group), None, version)]
                if made is not None:
                    removals.append(TableUpdate(keys.maker_key(group), None, made.version))
                with suppress(Conflict):
                    await self._catalog.update(scope, removals)
                continue
            if record.state is State.CREATING:
                # The stream exists if an earlier attempt or another controller created it.
                with suppress(Exists):
                    await self._streams.create(stream, StreamConfig())
            await self._subscribe(f"{scope}/{group}", record)
            await self._unsubscribe(f"{scope}/{group}", record.leaving)
            # If another controller completes the same work, this conflicts; the next round reads what is left.
            await self._replace(scope, group, groups.completed(record), version)
        raise _contended(scope, group)

    async def _subscribe(self, subscriber: str, record: GroupRecord) -> None:
        """Subscribe the group to its streams; missing streams are skipped.

        A subscription keeps the cut that it has released, except from an earlier generation: the new configuration
        may start before that cut."""
        for name in groups.subscribed(record):
            key = keys.subscriber_key(name.stream, subscriber)
            for _ in range(MAX_ATTEMPTS):
                try:
                    stream, value = await self._catalog.get(name.scope, [keys.stream_key(name.stream), key])
                except NotFound:
                    break
                if stream is None:
                    break
                before = None if value is None else codec.decode_subscriber(value.value)
                # A subscription of a newer generation means that the group was updated meanwhile.
                if before is not None and before.generation > record.generation:
                    break
                identity = (record.group_id, record.generation)
                same = before is not None and (before.group_id, before.generation) == identity
                cut = before.cut if before is not None and same else {}
                entry = codec.encode_subscriber(SubscriberRecord(record.generation, record.group_id, cut))
                expected = NOT_EXISTS if value is None else value.version
                # Write the stream's record again, so that a truncation decided without this subscriber conflicts.
                new_version = TableUpdate(keys.stream_key(name.stream), stream.value, stream.version)
                with suppress(Conflict):
                    await self._catalog.update(name.scope, [new_version, TableUpdate(key, entry, expected)])
                    break

    async def _unsubscribe(self, subscriber: str, streams: Sequence[StreamName]) -> None:
        # Remove whatever version there is: a cut released meanwhile must not keep the subscription alive.
        for name in streams:
            with suppress(NotFound):
                removal = TableUpdate(keys.subscriber_key(name.stream, subscriber), None, NO_VERSION)
                await self._catalog.update(name.scope, [removal])


def _contended(scope: str, group: str) -> Unavailable:
    return Unavailable(f"reader group {scope}/{group} is changed by too many others at once; try again")
