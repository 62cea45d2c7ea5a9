"""Workflows on streams: read the record, decide with `model.streams`, store the decision, execute its effects.

A change is a loop: complete pending work, decide, store by compare-and-set.  After a conflict, read and decide again.

The stored record states the pending work, so any controller can complete work that another one began.  Three callers
do: the next change of the stream, a query that needs its segments, and the recovery sweeper.  The sweeper finds such
streams in the pending-work index.  An entry is written there before a change begins and removed after it is complete,
unless another controller has written the entry again for its own change.  Creations have no entry: clients repeat them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from sarit.controller import keys
from sarit.controller.catalog import Found
from sarit.controller.hold_records import require_not_held
from sarit.controller.limits import CREATION_ID_BYTES
from sarit.controller.mirror_deletion import release_mirror
from sarit.controller.model import codec, streams
from sarit.controller.model.cuts import follows, is_cut, segments_between
from sarit.controller.model.effects import RemoveMark
from sarit.controller.model.epochs import Epoch, SegmentRange, creation_epoch, known_segments, successors
from sarit.controller.model.records import CreationRecord, State, StreamRecord
from sarit.controller.ports import TableUpdate
from sarit.controller.promoted_cuts import beyond_promotion
from sarit.controller.runner import KeyedLocks, gather_all
from sarit.controller.statistics import ControllerStatistics
from sarit.controller.transactions.completed_log import roll_updates
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SegmentId, StreamName, is_internal_name, is_user_name
from sarit.core.policies import RetentionType, StreamConfig
from sarit.security.quotas import QuotaExceeded
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.effects import Effect
    from sarit.controller.numbers import ScopePlace
    from sarit.controller.ports import TableValue
    from sarit.controller.runner import EffectRunner, Lengths
    from sarit.core.keyspace import KeyRange
    from sarit.env.ports import Env

Epochs = tuple[Epoch, ...]
Decide: TypeAlias = "Callable[[StreamRecord, Epochs], StreamRecord]"
Precondition: TypeAlias = "Callable[[], Awaitable[bool]]"
Drain: TypeAlias = "Callable[[StreamName, Found], Awaitable[Found]]"
# Checks that a scope may have so many more streams, and segments that accept appends.  Raises QuotaExceeded.
Admit: TypeAlias = "Callable[[str, int, int], Awaitable[None]]"

MAX_ATTEMPTS: Final = 50
_REMOVALS_AT_ONCE: Final = 1000


class Streams:
    """Workflows on streams, and queries."""

    def __init__(self, catalog: Catalog, runner: EffectRunner, env: Env, admit: Admit, drain: Drain) -> None:
        """`admit`: checks quotas before a scope gets more streams or segments.  `drain`: ends all transactions of a
        stream that is being sealed."""
        self.catalog = catalog
        self.runner = runner
        self.locks: KeyedLocks[StreamName] = KeyedLocks()
        self.admit = admit
        self._drain = drain
        self.statistics = ControllerStatistics()
        self._env = env

    # -- changes ----------------------------------------------------------------------------------

    async def create(self, name: StreamName, config: StreamConfig) -> None:
        """Create a stream.  Raises Invalid (name or configuration), QuotaExceeded, NotFound (scope), Exists.

        Completes an incomplete creation with the same configuration, and counts that as success."""
        if not is_internal_name(name.stream):
            raise Invalid(f"{name.stream!r} is not a stream name")
        for tag in config.tags:
            keys.tag_prefix(tag)
        if config.retention.type is not RetentionType.NONE and not await self.catalog.scope_exists(name.scope):
            raise NotFound(f"scope {name.scope} does not exist")  # keeps it out of the maintenance index
        if is_user_name(name.stream):
            try:
                await self.admit(name.scope, 1, config.scaling.min_segments)
            except QuotaExceeded:
                if await self.catalog.find(name) is None:  # a repeated creation is counted already
                    raise
        await self._index_retention(name, config)
        await self._create(name, config)
        await self._index_retention(name, config)  # maintenance may have removed the entry before the creation

    async def _create(self, name: StreamName, config: StreamConfig) -> None:
        async with self.locks.hold(name):
            for _ in range(MAX_ATTEMPTS):
                place = await self.catalog.numbers.place(name.scope)
                stream, number, *mark = await self.catalog.get(name.scope, _creation_keys(name))
                if stream is not None:
                    record = self.catalog.seen.decode(name, stream).record
                    ours = record.state is State.CREATING and record.config == config
                    # First complete a creation or deletion that another call began.
                    if record.state in (State.CREATING, State.DELETING):
                        await self._complete_pending(name)
                    if record.state is State.DELETING:
                        continue
                    if ours:
                        return
                    raise Exists(f"stream {name} exists")
                now_ms = self._env.clock.wall_ms()
                first = _first_number(place, number)
                record = streams.create(config, first, now_ms)
                updates = _creation(name, record, number)
                created = CreationRecord(first, self._env.random.bytes(CREATION_ID_BYTES))
                updates.append(TableUpdate(keys.creation_key(name.stream), codec.encode_creation(created), NO_VERSION))
                # Create the watermark stream in the same batch, so that no crash leaves a stream without it.
                if mark and mark[0] is None:
                    begin = streams.create(StreamConfig(), _first_number(place, mark[1]), now_ms)
                    updates += _creation(streams.mark_of(name), begin, mark[1])
                try:
                    # Update only the table that `place` was read for: a recreated scope may have a higher first number.
                    versions = await self.catalog.update(name.scope, updates, place.table)
                except Conflict:
                    continue
                # The record states the pending work: after a crash the client's next call, or a query, completes it.
                await self._execute_steps(name, record, versions[0])
                return
        raise _contended(name)

    async def update(self, name: StreamName, config: StreamConfig) -> None:
        """Replace the configuration, and all segments if it requires another number of them.

        Raises NotFound, Sealed, Invalid, QuotaExceeded."""
        found = await self.catalog.require(name)
        streams.require_unsealed(found.record)  # before the configuration is checked
        for tag in config.tags:
            keys.tag_prefix(tag)
        await self.admit(name.scope, 0, config.scaling.min_segments - len(found.record.current.segments))
        await self._index_retention(name, config)
        await self.change(name, lambda record, _: streams.update(record, config, self._env.clock.wall_ms()))
        await self._index_retention(name, config)  # maintenance may have removed the entry before the update

    async def _index_retention(self, name: StreamName, config: StreamConfig) -> None:
        """Enter a stream in the maintenance index if the configuration has a retention policy."""
        if config.retention.type is not RetentionType.NONE:
            await self.catalog.index_for_maintenance(keys.RETENTION_INDEX, name)

    async def scale(
        self, name: StreamName, replaced: Sequence[int], ranges: Sequence[KeyRange]
    ) -> tuple[int, tuple[SegmentRange, ...]]:
        """Replace segments.  Returns the number of the previous epoch, and the new segments in the order of `ranges`.

        Raises NotFound, QuotaExceeded, and what `model.streams.scale` raises."""
        await self.admit(name.scope, 0, len(ranges) - len(replaced))
        planned: list[Epoch] = []

        def decide(record: StreamRecord, _: Epochs) -> StreamRecord:
            changed = streams.scale(record, replaced, ranges, self._env.clock.wall_ms())
            # Set at each attempt.  A record without work means that the scale is repeated: its epoch is the last one.
            planned[:] = changed.work.epochs or changed.epochs[-1:]
            return changed

        await self.change(name, decide)
        self.statistics.scales_by_call += 1
        epoch = planned[0]
        # Leave out the segments that continue from the previous epoch.
        brought = [s for s in epoch.segments if SegmentId.unpack(s.segment).epoch == epoch.number]
        return epoch.number - 1, tuple(sorted(brought, key=lambda s: s.segment))

    async def truncate(
        self, name: StreamName, cut: Mapping[int, int], precondition: Precondition | None = None
    ) -> None:
        """Truncate a stream at a cut.  Raises NotFound, Sealed, Invalid, Conflict (the precondition is false, or a link
        has not copied all that would go)."""
        record = await self.ready(name)
        streams.require_unsealed(record)  # before the cut is checked
        # Refuse segments of later epochs: they might be created after their offsets are checked below.
        if newer := [s for s in cut if creation_epoch(s) > record.current.number]:
            raise Invalid(f"stream {name} has no segment {SegmentId.unpack(newer[0])}")
        await self._check_offsets(name, await self.catalog.epochs_of(name, record, list(streams.head(record))), cut)

        async def allowed() -> bool:
            await require_not_held(self.catalog, name, cut)
            return precondition is None or await precondition()

        await self.change(
            name, lambda record, epochs: streams.truncate(record, epochs, cut), history=True, precondition=allowed
        )

    async def seal(self, name: StreamName) -> None:
        """Seal a stream, which may be sealed already.  Raises NotFound."""
        await self.change(name, lambda record, _: streams.seal(record))

    async def delete(self, name: StreamName) -> None:
        """Delete a sealed stream, or a mirror whose link is gone.  Raises NotFound, Conflict (it is not sealed),
        Forbidden (its link would make it again)."""
        async with self.locks.hold(name):
            found = await self.catalog.find(name)
            if found is None:
                raise NotFound(f"stream {name} does not exist")
            if found.record.state is State.DELETING:  # begun by an earlier call, perhaps by this client
                await self._complete_pending(name)
                return
        if found.record.mirrored:
            await release_mirror(self.catalog, self.runner, name, found.record)
        # Release the lock first: `change` takes it itself.
        await self.change(name, lambda record, _: streams.delete(record))

    async def change(
        self, name: StreamName, decide: Decide, *, history: bool = False, precondition: Precondition | None = None
    ) -> StreamRecord:
        """Replace the record by the result of `decide`, and execute the work that it states.  Returns the new record.

        `history`: `decide` gets all epochs from the head on, not only those in the record.  `precondition`: evaluated
        on the version of the record that is replaced.  Raises NotFound, Conflict (the precondition is false), and what
        `decide` raises."""
        async with self.locks.hold(name):
            for _ in range(MAX_ATTEMPTS):
                found = await self._complete_pending(name)
                if found is None:
                    raise NotFound(f"stream {name} does not exist")
                record, version = found
                if precondition is not None and not await precondition():
                    raise Conflict(f"stream {name} changed in between")
                first = list(streams.head(record)) if history else ()
                changed = decide(
                    record, await self.catalog.epochs_of(name, record, first) if history else record.epochs
                )
                if changed is record or changed == record:
                    return record
                entry = keys.pending_stream_key(name)
                if changed.pending:
                    # Enter the work before the record states it: after a crash, the sweeper finds it by this entry.
                    # A conflict may leave a stale entry, which does no harm.
                    entered = await self.catalog.index_pending(entry)
                updates = [TableUpdate(keys.stream_key(name.stream), codec.encode_stream(changed), version)]
                updates += _tag_updates(name, record, changed)
                try:
                    versions = await self.catalog.update(name.scope, updates)
                except Conflict:
                    continue
                if changed.pending:
                    await self._execute_steps(name, changed, versions[0])
                    # Remove only this version: a controller that changes the record after this one writes the entry
                    # again, and keeps it.
                    await self.catalog.remove_pending_if_unchanged(entry, entered)
                return changed
        raise _contended(name)

    async def remove(self, name: StreamName, first_number: int) -> None:
        """Delete the stream of this name and first number, whatever its state, but no later stream of the name."""
        async with self.locks.hold(name):
            for _ in range(MAX_ATTEMPTS):
                found = await self.catalog.find(name)
                if found is None or found.record.first_number != first_number:
                    return
                record, version = found
                if record.state is not State.DELETING:
                    record = streams.force_delete(record)
                    update = TableUpdate(keys.stream_key(name.stream), codec.encode_stream(record), version)
                    try:
                        (version,) = await self.catalog.update(name.scope, [update])
                    except Conflict:
                        continue
                await self._execute_steps(name, record, version)
                return
        raise _contended(name)

    async def complete_pending(self, name: StreamName) -> Found | None:
        """Complete a stream's pending work.  Returns its record and version then; None: there is no stream."""
        async with self.locks.hold(name):
            return await self._complete_pending(name)

    async def recover(self, name: StreamName) -> bool:
        """Complete a stream's pending work for the sweeper, and make changes decided on its old record conflict.
        Returns False if the record was changed meanwhile, so that the entry must stay."""
        async with self.locks.hold(name):
            found = await self._complete_pending(name)
            if found is None:
                return True
            value = codec.encode_stream(found.record)
            return await self.catalog.renew(name.scope, keys.stream_key(name.stream), value, found.version)

    # -- queries --------------------------------------------------------------------------------

    async def ready(self, name: StreamName) -> StreamRecord:
        """Return the record of a stream whose segments exist.  Raises NotFound."""
        found = await self.catalog.require(name)
        # Segments may be missing only in this state: a later epoch becomes current after its segments were created.
        if found.record.state is State.CREATING:
            settled = await self.complete_pending(name)
            if settled is None:
                raise NotFound(f"stream {name} does not exist")
            return settled.record
        return found.record

    async def active(self, name: StreamName) -> tuple[SegmentRange, ...]:
        """Return the segments that accept appends; none once sealing has begun.  Raises NotFound."""
        record = await self.ready(name)
        return record.current.segments if record.state is State.ACTIVE else ()

    async def epoch(self, name: StreamName, number: int) -> Epoch:
        """Return the epoch of a stream that was in force at a number.  Raises NotFound.

        That is the epoch of this number, except between the last epoch of a mirror and the one that its promotion
        began: clients count back from the epoch of a segment to find the segments before it."""
        record = await self.ready(name)
        epochs = await self.catalog.epochs(name, record, max(0, number))
        if epochs and epochs[0].number != number:
            epochs = tuple(epoch for epoch in await self.catalog.epochs(name, record, 0) if epoch.number < number)[-1:]
        if not epochs:
            raise NotFound(f"stream {name} has no epoch {number}")
        return epochs[0]

    async def successors_of(self, name: StreamName, segment: int) -> list[tuple[SegmentRange, list[int]]]:
        """Return the successors of a segment, each with all of its predecessors; none if the segment is active, or
        sealed with its stream.  Raises NotFound, Invalid (negative id)."""
        record = await self.ready(name)
        try:
            return successors(await self.catalog.epochs_of(name, record, [segment]), segment)
        except KeyError:
            raise NotFound(f"stream {name} never had a segment {SegmentId.unpack(segment)}") from None

    async def is_cut(self, name: StreamName, cut: Mapping[int, int], after: Mapping[int, int] | None = None) -> bool:
        """Return whether `cut` is a cut of the stream, and nowhere before the cut `after`.  Raises NotFound."""
        record = await self.ready(name)
        if min(cut, default=-1) < 0:
            return False
        after = after or {}
        known = known_segments(await self.catalog.epochs_of(name, record, [*cut, *after]))
        if not is_cut(known, cut) or (is_cut(known, after) and not follows(known, after, cut)):
            return False
        return await beyond_promotion(self.runner.segments, name, record, cut) is None

    async def segments_between(self, name: StreamName, start: Mapping[int, int], end: Mapping[int, int]) -> list[int]:
        """Return the segments from one cut to another.  An empty `start` means the head, an empty `end` the tail.
        Raises NotFound, Invalid."""
        record = await self.ready(name)
        start = start or streams.head(record)
        end = end or {s.segment: 0 for s in record.current.segments}
        known = known_segments(await self.catalog.epochs_of(name, record, [*start, *end]))
        if not (is_cut(known, start) and is_cut(known, end)):
            raise Invalid(f"the segments of a cut do not cover stream {name} exactly once")
        for cut in (start, end):
            if (beyond := await beyond_promotion(self.runner.segments, name, record, cut)) is not None:
                raise Invalid(beyond)
        return segments_between(known, start, end)

    # -- steps ------------------------------------------------------------------------------------

    async def _complete_pending(self, name: StreamName) -> Found | None:
        found = await self.catalog.find(name)
        if found is None or not found.record.pending:
            return found
        return await self._execute_steps(name, found.record, found.version)

    async def _execute_steps(self, name: StreamName, record: StreamRecord, version: int) -> Found | None:
        """Execute all steps of a record's pending work.  Returns the record then; None: the stream was removed."""
        for _ in range(MAX_ATTEMPTS):
            step = streams.step(name, record, await self._epochs_to_delete(name, record))
            if step is None:
                return Found(record, version)
            try:
                if step.drain:
                    drained, version = await self._drain(name, Found(record, version))
                    # Draining may have made a roll pending, which is executed before the seal.
                    if drained != record:
                        record = drained
                        continue
                lengths: Lengths = {}
                # Execute the stages in order.  After a crash all stages are executed again.
                for stage in step.stages:
                    lengths |= await self._run(name, stage, version)
                if step.then is None:
                    await self._forget(name, record, version)
                    return None
                updates = [TableUpdate(keys.stream_key(name.stream), codec.encode_stream(step.then), version)]
                # Store the ends of transactions and the chunk of old epochs in one batch with the record.
                updates += await self._companion_updates(name, step, lengths)
                record, version = step.then, (await self.catalog.update(name.scope, updates))[0]
            except Conflict:  # another controller completed this step, perhaps more
                found = await self.catalog.find(name)
                if found is None:
                    return None
                record, version = found
        raise _contended(name)

    async def _companion_updates(self, name: StreamName, step: streams.Step, lengths: Lengths) -> list[TableUpdate]:
        """Return the updates to store in one batch with a step's record."""
        updates: list[TableUpdate] = []
        if step.committed:
            updates += await roll_updates(self.catalog, name, step.committed, lengths, self._env.clock.wall_ms())
        if step.spilled:
            chunk = keys.chunk_key(name.stream, step.spilled[0].number)
            updates.append(TableUpdate(chunk, codec.encode_chunk(step.spilled), NO_VERSION))
        return updates

    async def _run(self, name: StreamName, stage: Sequence[Effect], version: int) -> Lengths:
        for effect in stage:
            if isinstance(effect, RemoveMark):
                mark = await self.catalog.find(streams.mark_of(effect.stream))
                mine = await self.catalog.find(name)
                # While the stream's record has this version, the mark stream is not that of a recreated stream.
                if mark is not None and mine is not None and mine.version == version:
                    await self.remove(streams.mark_of(effect.stream), mark.record.first_number)
        return await self.runner.run([effect for effect in stage if not isinstance(effect, RemoveMark)])

    async def _epochs_to_delete(self, name: StreamName, record: StreamRecord) -> tuple[Epoch, ...]:
        if record.state is not State.DELETING:
            return record.epochs
        return await self.catalog.epochs_of(name, record, list(streams.head(record)))

    async def _forget(self, name: StreamName, record: StreamRecord, version: int) -> None:
        """Remove all records of a stream, its own last, and store the next segment number.  Raises Conflict."""
        # Each batch expects the record's version: a delayed controller must not remove records of a recreated stream.
        mine = keys.stream_key(name.stream)
        while rows := await self.catalog.scan(name.scope, keys.of_stream(name.stream), limit=_REMOVALS_AT_ONCE):
            removals = [TableUpdate(key, None, NO_VERSION) for key, _ in rows]
            unchanged = TableUpdate(mine, codec.encode_stream(record), version)
            version = (await self.catalog.update(name.scope, [unchanged, *removals]))[0]
        updates = [
            TableUpdate(keys.stream_key(name.stream), None, version),
            # Keep the next segment number when the stream is gone: segment names are never reused.
            TableUpdate(keys.number_key(name.stream), codec.encode_number(streams.next_number(record)), NO_VERSION),
        ]
        updates += (TableUpdate(keys.tag_key(tag, name.stream), None, NO_VERSION) for tag in record.config.tags)
        await self.catalog.update(name.scope, updates)

    async def _check_offsets(self, name: StreamName, epochs: Sequence[Epoch], cut: Mapping[int, int]) -> None:
        """Check that no offset of a cut is beyond the end of its segment.  Raises Invalid."""
        known = known_segments(epochs)
        asked = [segment for segment, offset in cut.items() if offset > 0 and segment in known]

        async def one(segment: int) -> None:
            found = SegmentId.unpack(segment)
            try:
                info = await self.runner.segments.info(name.segment(found))
            except NotFound:
                raise Invalid(f"segment {found} of stream {name} no longer exists") from None
            if cut[segment] > info.length:
                raise Invalid(f"segment {found} of stream {name} has {info.length} bytes, not {cut[segment]}")

        await gather_all([one(segment) for segment in asked])


def _first_number(place: ScopePlace, number: TableValue | None) -> int:
    """Return the first segment number of a new stream, above the numbers of all earlier streams of its name."""
    return max(place.first_number, 0 if number is None else codec.decode_number(number.value))


def _creation(name: StreamName, record: StreamRecord, number: TableValue | None) -> list[TableUpdate]:
    updates = [
        TableUpdate(keys.stream_key(name.stream), codec.encode_stream(record), NOT_EXISTS),
        # Conflict if the number changed or was stored since it was read: else segment names could be reused.
        TableUpdate(keys.number_key(name.stream), None, NOT_EXISTS if number is None else number.version),
    ]
    updates += (TableUpdate(keys.tag_key(tag, name.stream), b"", NO_VERSION) for tag in record.config.tags)
    return updates


def _creation_keys(name: StreamName) -> list[bytes]:
    """Return the keys of the records and numbers of a stream and, if it has one, its watermark stream."""
    wanted = [name.stream]
    if streams.has_mark(name.stream):
        wanted.append(streams.mark_of(name).stream)
    return [key for stream in wanted for key in (keys.stream_key(stream), keys.number_key(stream))]


def _tag_updates(name: StreamName, before: StreamRecord, after: StreamRecord) -> list[TableUpdate]:
    old, new = set(before.config.tags), set(after.config.tags)
    updates = [TableUpdate(keys.tag_key(tag, name.stream), None, NO_VERSION) for tag in sorted(old - new)]
    return updates + [TableUpdate(keys.tag_key(tag, name.stream), b"", NO_VERSION) for tag in sorted(new - old)]


def _contended(name: StreamName) -> Unavailable:
    return Unavailable(f"stream {name} is changed by too many others at once; try again")
