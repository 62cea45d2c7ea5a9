"""Key-value tables, whose partitions are table segments with keys of one length.

The first query of a partly created table completes its creation.  The recovery sweeper completes an unfinished
deletion, which has an entry in the pending-work index.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.limits import CREATION_ID_BYTES
from sarit.controller.model import codec
from sarit.controller.model.effects import CreateMirrorTable, CreateTable, DeleteSegment
from sarit.controller.model.epochs import SegmentRange, first_epoch
from sarit.controller.model.records import CreationRecord, State, TableRecord
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import KeyedLocks
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.core.errors import Conflict, Exists, Forbidden, Invalid, NotFound, Unavailable
from sarit.core.limits import MAX_TABLE_KEY_BYTES, NOT_EXISTS
from sarit.core.names import TABLE_SUFFIX, SegmentId, is_user_name, segment_name
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.runner import EffectRunner
    from sarit.env.ports import Env


class KeyValueTables:
    """Workflows on key-value tables."""

    def __init__(self, catalog: Catalog, runner: EffectRunner, env: Env) -> None:
        self._catalog = catalog
        self._runner = runner
        self._env = env
        self._locks: KeyedLocks[tuple[str, str]] = KeyedLocks()

    async def create(self, scope: str, table: str, wanted: TableRecord, mirror: bytes = b"") -> None:
        """Create a table.  `mirror`: what is known of its source; then clients only read it.

        Raises Invalid, NotFound (scope), Exists."""
        _check(table, wanted)
        async with self._locks.hold((scope, table)):
            for _ in range(MAX_ATTEMPTS):
                if await self._complete_pending(scope, table) is not None:
                    raise Exists(f"table {scope}/{table} exists")
                place = await self._catalog.numbers.place(scope)
                key = keys.number_key(table + TABLE_SUFFIX)
                (number,) = await self._catalog.get(scope, [key])
                first = max(place.first_number, 0 if number is None else codec.decode_number(number.value))
                record = replace(wanted, state=State.CREATING, first_number=first, created_ms=self._env.clock.wall_ms())
                created = CreationRecord(first, self._env.random.bytes(CREATION_ID_BYTES))
                updates = [
                    TableUpdate(keys.table_key(table), codec.encode_table(record), NOT_EXISTS),
                    TableUpdate(key, None, NOT_EXISTS if number is None else number.version),
                    TableUpdate(keys.creation_key(table + TABLE_SUFFIX), codec.encode_creation(created), NO_VERSION),
                ]
                if mirror:
                    updates.append(TableUpdate(keys.mirror_key(table + TABLE_SUFFIX), mirror, NOT_EXISTS))
                try:
                    await self._catalog.update(scope, updates, place.table)
                except Conflict:
                    continue
                await self._complete_pending(scope, table)
                return
        raise _contended(scope, table)

    async def find(self, scope: str, table: str) -> TableRecord:
        """Return a table whose partitions exist.  Raises NotFound."""
        found = await self._read(scope, table)
        if found is not None and found[0].state is State.CREATING:
            async with self._locks.hold((scope, table)):
                found = await self._complete_pending(scope, table)
        if found is None or found[0].state is State.DELETING:
            raise NotFound(f"table {scope}/{table} does not exist")
        return found[0]

    async def delete(self, scope: str, table: str) -> None:
        """Delete a table.  Raises NotFound."""
        entry = keys.pending_table_key(scope, table)
        async with self._locks.hold((scope, table)):
            for _ in range(MAX_ATTEMPTS):
                found = await self._read(scope, table)
                if found is None:
                    raise NotFound(f"table {scope}/{table} does not exist")
                deleting = codec.encode_table(replace(found[0], state=State.DELETING))
                # Enter the work before the record states it: after a crash, the sweeper finds the work by this entry.
                entered = await self._catalog.index_pending(entry)
                with suppress(Conflict):
                    await self._catalog.update(scope, [TableUpdate(keys.table_key(table), deleting, found[1])])
                    await self._complete_pending(scope, table)
                    await self._catalog.remove_pending_if_unchanged(entry, entered)
                    return
        raise _contended(scope, table)

    async def recover(self, scope: str, table: str) -> bool:
        """Complete a table's pending work for the sweeper, and make changes decided on its old record conflict.
        Returns False if the record was changed meanwhile, so that the entry must stay."""
        async with self._locks.hold((scope, table)):
            with suppress(NotFound):  # the scope was deleted
                if (found := await self._complete_pending(scope, table)) is not None:
                    value = codec.encode_table(found[0])
                    return await self._catalog.renew(scope, keys.table_key(table), value, found[1])
        return True

    async def _read(self, scope: str, table: str) -> tuple[TableRecord, int] | None:
        (value,) = await self._catalog.get(scope, [keys.table_key(table)])
        return None if value is None else (codec.decode_table(value.value), value.version)

    async def _complete_pending(self, scope: str, table: str) -> tuple[TableRecord, int] | None:
        """Complete a table's pending work.  Returns its record and version then; None: there is no table."""
        for _ in range(MAX_ATTEMPTS):
            found = await self._read(scope, table)
            if found is None or found[0].state is State.ACTIVE:
                return found
            record, version = found
            segments = partition_segments(scope, table, record)
            updates = [TableUpdate(keys.table_key(table), None, version)]
            if record.state is State.DELETING:
                # Delete the segments before the record, without which their names are not known.
                await self._runner.run([DeleteSegment(segment) for segment in segments])
                # Keep the next segment number when the table is gone: segment names are never reused.
                number = codec.encode_number(record.first_number + record.partitions)
                updates.append(TableUpdate(keys.number_key(table + TABLE_SUFFIX), number, NO_VERSION))
                updates.append(TableUpdate(keys.creation_key(table + TABLE_SUFFIX), None, NO_VERSION))
                updates.append(TableUpdate(keys.mirror_key(table + TABLE_SUFFIX), None, NO_VERSION))
            else:
                length = record.primary_key_length + record.secondary_key_length
                (mirror,) = await self._catalog.get(scope, [keys.mirror_key(table + TABLE_SUFFIX)])
                create = CreateTable if mirror is None else CreateMirrorTable
                try:
                    await self._runner.run([create(segment, length) for segment in segments])
                except Conflict as error:
                    # A client made a table of this name over the wire, as Rust and Python make their groups, and would
                    # read and write the entries of this one.
                    raise Forbidden(
                        f"table {scope}/{table} is not served, since a client made a group or a table of the name: "
                        f"{error}; delete the table, which deletes that, and create it again"
                    ) from None
                active = codec.encode_table(replace(record, state=State.ACTIVE))
                updates = [TableUpdate(keys.table_key(table), active, version)]
            # Whether this update is stored or another controller was first: the next round reads the record.
            with suppress(Conflict):
                await self._catalog.update(scope, updates)
        raise _contended(scope, table)


def partitions(record: TableRecord) -> tuple[SegmentRange, ...]:
    """Return the partitions of a table, ordered by key range."""
    return first_epoch(record.partitions, record.first_number, record.created_ms).segments


def _check(table: str, wanted: TableRecord) -> None:
    key_length = wanted.primary_key_length + wanted.secondary_key_length
    if not is_user_name(table):
        raise Invalid(f"{table!r} is not a table name")
    if not 1 <= wanted.partitions <= MAX_SEGMENTS_PER_STREAM:
        raise Invalid(f"a table has 1 to {MAX_SEGMENTS_PER_STREAM} partitions, not {wanted.partitions}")
    if wanted.primary_key_length <= 0 or wanted.secondary_key_length < 0 or key_length > MAX_TABLE_KEY_BYTES:
        raise Invalid(f"a table's primary key has 1 byte or more, both keys at most {MAX_TABLE_KEY_BYTES}")


def partition_segments(scope: str, table: str, record: TableRecord) -> list[str]:
    """Return the names of the segments of a table's partitions, ordered by key range."""
    return [_segment(scope, table, partition) for partition in partitions(record)]


def _segment(scope: str, table: str, partition: SegmentRange) -> str:
    return segment_name(scope, table + TABLE_SUFFIX, SegmentId.unpack(partition.segment))


def _contended(scope: str, table: str) -> Unavailable:
    return Unavailable(f"table {scope}/{table} is changed by too many others at once; try again")
