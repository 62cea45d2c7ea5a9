"""Mirrors of tables at a target: made, compared with the source, changed as the source was, promoted.

Theory of operation.  A mirror's partition is changed only at a position that the change names, and its position rises
with every change.  So a late or repeated call changes nothing, and needs no lock.

*Comparison.*  Its begin moves the partition, and gives it a number: all that an earlier one still sends is refused.
Then for each range of keys the rows become those of the source.  Changes that the source made meanwhile come last, and
with them the partition equals the source's at a position.  Until then each row is one that the source had, at one time
or another.  Where the partition equals is stored with the position that it has there itself.

*Changes.*  From there on each batch of the source is one batch here, and moves both positions by the same number of
bytes.  So the position of the mirror says up to where the source's changes are applied, and nothing else is stored.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sarit.controller import keys
from sarit.controller.catalog import PAGE
from sarit.controller.key_value_tables import partition_segments
from sarit.controller.model import codec
from sarit.controller.model.records import State, TableRecord
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import gather_all
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Unavailable
from sarit.core.limits import MAX_TABLE_KEY_BYTES, MAX_TABLE_VALUE_BYTES, NOT_EXISTS
from sarit.core.names import SYSTEM_SCOPE, StreamName, is_user_name
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM
from sarit.mirror import table_records
from sarit.mirror.attachments import NO_POSITION, TableState
from sarit.mirror.limits import (
    MAX_MIRROR_PATH,
    MAX_MIRROR_ROWS,
    MAX_MIRROR_ROWS_BYTES,
    MAX_TABLE_COPY_ATTEMPTS,
    MIRROR_BATCH_BYTES,
    MIRROR_ID_BYTES,
)
from sarit.mirror.registry_rows import check_registry_row
from sarit.mirror.table_records import Equality, Life, TableMirror, decode_table_mirror, encode_table_mirror
from sarit.mirror.table_source import REGISTRY, owner_of
from sarit.mirror.values import MirrorStatus
from sarit.registry.keys import MIRROR, REGISTRY_TABLE
from sarit.registry.records import MARK
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.key_value_tables import KeyValueTables
    from sarit.controller.ports import Segments
    from sarit.controller.scopes import Scopes
    from sarit.mirror.attachments import TableChanges, TableFacts, TableWrite
    from sarit.mirror.link_table import LinkTable
    from sarit.mirror.values import LinkIdentity

Rows = dict[bytes, bytes | None]


class _Found(NamedTuple):
    """A mirror, the version of its row, its segments, and the length of its keys (0: any)."""

    record: TableMirror
    version: int
    segments: Sequence[str]
    key_length: int


class TableTarget:
    """The mirrors of tables of an installation."""

    def __init__(
        self, catalog: Catalog, scopes: Scopes, tables: KeyValueTables, segments: Segments, installation: str,
        links: LinkTable | None = None,
    ) -> None:  # fmt: skip
        """`links`: of this installation; None: mirrors are never taken over."""
        self._links = links
        self._catalog = catalog
        self._rows = catalog.tables
        self._scopes = scopes
        self._tables = tables
        self._segments = segments
        self._installation = installation

    async def begin(self, link: LinkIdentity, facts: TableFacts) -> TableState:
        """Make a mirror of a table, if there is none, and return its state.  Raises Invalid, Unavailable."""
        check_facts(facts)
        name = facts.name
        if self._installation in facts.path:
            return _refused(name, f"a loop: it came through this installation, {self._installation}")
        for _ in range(MAX_TABLE_COPY_ATTEMPTS):
            found = await self._find(name)
            if found is not None:
                if await self._take_over(link, facts, found):
                    continue
                return await self._state(name, found, link, facts)
            if await self._is_taken(name):
                what = "has schemas of its own" if name == REGISTRY else "is a table that no link made"
                return _refused(name, f"{name} {what}: delete it, or leave it out of the link")
            try:
                await self._create(link, facts)
            except (Exists, Conflict):
                continue
        raise Unavailable(f"table {name} is changed by too many others at once; try again")

    async def _take_over(self, link: LinkIdentity, facts: TableFacts, found: _Found) -> bool:
        """Give a mirror whose link was deleted here to another link from the same source.  Returns whether to look
        again."""
        record = found.record
        if self._links is None or record.life is not Life.MIRROR or record.link.link_id == link.link_id:
            return False
        if (facts.creation_id, facts.partitions) != (record.creation_id, len(record.partitions)):
            return False
        if any(one.link_id == record.link.link_id for one in await self._links.list()):
            return False
        # Whatever the former link still sends names another comparison, or other positions.
        partitions = tuple(Equality(comparison=one.comparison + 1) for one in record.partitions)
        await self._store(facts.name, replace(record, link=link, path=facts.path, partitions=partitions), found.version)
        return True

    async def compare(self, link: LinkIdentity, name: StreamName, partition: int) -> TableState:
        """Begin a comparison of a partition.  Returns the state of the table."""
        for _ in range(MAX_TABLE_COPY_ATTEMPTS):
            found = await self._find(name)
            if found is None or not 0 <= partition < len(found.segments):
                raise NotFound(f"{name} is no mirror, or has no partition {partition}")
            if (refusal := _refusal(name, found, link)) is not None:
                return refusal
            before = found.record.partitions[partition]
            compared = found.record.with_partition(partition, Equality(comparison=before.comparison + 1))
            if not await self._store(name, compared, found.version):
                continue
            await self._move(name, found.segments[partition], found.key_length)
            return await self.state(link, name)
        raise Unavailable(f"the mirror of {name} is changed by too many others at once; try again")

    async def write(self, link: LinkIdentity, write: TableWrite) -> TableState:
        """Change a partition as the source was changed.  Returns the state of the table."""
        changes, name = write.changes, write.changes.name
        found = await self._find(name)
        if found is None or not 0 <= changes.partition < len(found.segments):
            raise NotFound(f"{name} is no mirror, or has no partition {changes.partition}")
        check_changes(changes, found.key_length)
        if (refusal := _refusal(name, found, link)) is not None:
            return refusal
        known = found.record.partitions[changes.partition]
        if known.comparison == write.state.comparison:
            if known.source != NO_POSITION:
                with suppress(Conflict):  # another copier was faster, or this call is late
                    await self._follow(found, write)
            else:
                await self._compare_rows(found, write)
        return await self.state(link, name)

    async def state(self, link: LinkIdentity, name: StreamName) -> TableState:
        """Return the state of a mirror.  Raises NotFound."""
        found = await self._find(name)
        if found is None:
            raise NotFound(f"{name} is no mirror")
        return await self._state(name, found, link, None)

    async def promote(self, link: LinkIdentity, name: StreamName) -> TableState | None:
        """Let clients change a table that the link copied.  None: the link has no mirror of this name.

        Returns its state; the reason says if a partition was being compared."""
        for _ in range(MAX_TABLE_COPY_ATTEMPTS):
            found = await self._find(name)
            if found is None or found.record.link.link_id != link.link_id:
                return None
            if found.record.life is Life.PROMOTED:
                return await self._state(name, found, link, None)
            if found.record.life is Life.MIRROR:
                await self._store(name, replace(found.record, life=Life.PROMOTING), found.version)
                continue
            for segment in found.segments:
                # Move each partition, so that no change that is under way is applied after this.
                await self._move(name, segment, found.key_length)
                if name == REGISTRY:
                    await self._rows.update(segment, [TableUpdate(MIRROR, None, NO_VERSION)])
                else:
                    await self._segments.set_mirror(segment, False)
            await self._store(name, replace(found.record, life=Life.PROMOTED), found.version)
        raise Unavailable(f"the mirror of {name} is changed by too many others at once; try again")

    async def names(self, scope: str, after: str) -> list[StreamName]:
        """Return a page of the scope's tables, mirrors or not; none only at the end."""
        if scope == SYSTEM_SCOPE:
            return [] if after else [REGISTRY]
        return [StreamName(scope, table) for table in await self._catalog.page(scope, keys.TABLES, after)]

    # -- rows beside a table --------------------------------------------------------------------

    async def _find(self, name: StreamName) -> _Found | None:
        """Return a mirror; None: there is none, or a table of the name that no link made."""
        wanted = [keys.mirror_key(owner_of(name)), keys.table_key(name.stream)]
        try:
            mirror, value = await self._catalog.get(name.scope, wanted)
        except NotFound:
            return None
        if mirror is None:
            return None
        record = decode_table_mirror(name, mirror.value)
        if name == REGISTRY:
            return _Found(record, mirror.version, [REGISTRY_TABLE], 0)
        table = None if value is None else codec.decode_table(value.value)
        if table is None or table.state is State.DELETING:
            return None
        if table.state is State.CREATING:
            table = await self._tables.find(name.scope, name.stream)
        length = table.primary_key_length + table.secondary_key_length
        return _Found(record, mirror.version, partition_segments(name.scope, name.stream, table), length)

    async def _store(self, name: StreamName, record: TableMirror, version: int) -> bool:
        """Store a mirror's record in place of the one of a version.  Returns whether it was that."""
        update = TableUpdate(keys.mirror_key(owner_of(name)), encode_table_mirror(record), version)
        try:
            await self._catalog.update(name.scope, [update])
        except Conflict:
            return False
        return True

    async def _is_taken(self, name: StreamName) -> bool:
        """Return whether there is a table of the name, which no link made."""
        if name == REGISTRY:
            try:
                rows = await self._rows.scan(REGISTRY_TABLE, b"", None, 2)
            except NotFound:
                return False
            return any(key != MIRROR for key, _ in rows)
        try:
            (value,) = await self._catalog.get(name.scope, [keys.table_key(name.stream)])
        except NotFound:
            return False
        return value is not None

    async def _create(self, link: LinkIdentity, facts: TableFacts) -> None:
        """Make a mirror.  Raises Exists, Conflict: somebody else made one, or a table."""
        name = facts.name
        record = TableMirror(link, facts.creation_id, facts.path, (Equality(),) * facts.partitions)
        if name != REGISTRY:
            wanted = TableRecord(
                State.CREATING, 0, facts.partitions, facts.primary_key_length, facts.secondary_key_length,
                facts.rollover_bytes, 0,
            )  # fmt: skip
            with suppress(Exists):
                await self._scopes.create(name.scope)
            await self._tables.create(name.scope, name.stream, wanted, encode_table_mirror(record))
            return
        with suppress(Exists):
            await self._rows.create(REGISTRY_TABLE)
        # Forbid changes before the record of the mirror is there, on the condition that there was none meanwhile.
        position = await self._rows.position(REGISTRY_TABLE)
        if not await self._is_taken(name):
            await self._rows.update_at(REGISTRY_TABLE, [TableUpdate(MIRROR, MARK, NO_VERSION)], position)
            await self._store(name, record, NOT_EXISTS)

    async def _state(
        self, name: StreamName, found: _Found, link: LinkIdentity, facts: TableFacts | None
    ) -> TableState:  # fmt: skip
        if (refusal := _refusal(name, found, link)) is not None and refusal.status is not MirrorStatus.PROMOTED:
            return refusal
        record = found.record
        if facts is not None and (facts.creation_id, facts.partitions) != (record.creation_id, len(found.segments)):
            return _refused(name, f"{name} was deleted and created again at the source: delete the mirror of the old")
        if record.life is Life.MIRROR:
            positions = await gather_all([self._rows.position(segment) for segment in found.segments])
            return TableState(name, MirrorStatus.READY, table_records.states(record, positions))
        reason = ""
        if any(one.source == NO_POSITION for one in record.partitions):
            reason = f"{name} was promoted while it was compared: its rows may be of different moments"
        return TableState(name, MirrorStatus.PROMOTED, reason=reason)

    # -- changes of a partition -----------------------------------------------------------------

    async def _follow(self, found: _Found, write: TableWrite) -> None:
        """Apply changes of the source to a partition that equals it.  Raises Conflict: it is elsewhere."""
        changes = write.changes
        known, segment = found.record.partitions[changes.partition], found.segments[changes.partition]
        if changes.since == NO_POSITION or changes.lost or changes.since < known.source:
            return
        position = known.mirror + changes.since - known.source
        updates = [TableUpdate(key, value, NO_VERSION) for key, value in changes.rows]
        after = await self._rows.update_at(segment, updates, position) if updates else position
        if after - position != changes.until - changes.since:
            # The source's batches moved it by another number of bytes, so that the partition does not equal it.
            unequal = replace(known, source=NO_POSITION)
            await self._store(changes.name, found.record.with_partition(changes.partition, unequal), found.version)

    async def _compare_rows(self, found: _Found, write: TableWrite) -> None:
        """Make rows equal to the source's, and end the comparison if it is complete, or if the partition is not where
        the write says: the copier begins another one."""
        changes = write.changes
        known = found.record.partitions[changes.partition]
        try:
            position = await self._make_equal(found, write)
        except Conflict:
            other = Equality(comparison=known.comparison + 1)
            await self._store(changes.name, found.record.with_partition(changes.partition, other), found.version)
            return
        if write.ends_comparison:
            equal = Equality(changes.until, position, known.comparison)
            await self._store(changes.name, found.record.with_partition(changes.partition, equal), found.version)

    async def _make_equal(self, found: _Found, write: TableWrite) -> int:
        """Make rows equal to the source's.  Returns the position of the partition then.  Raises Conflict."""
        changes = write.changes
        segment = found.segments[changes.partition]
        position = write.state.position
        if changes.since == NO_POSITION:
            low: bytes | None = changes.low
            left: Rows = dict(changes.rows)
            while low is not None:
                here, low = await self._differences(segment, low, changes.high, left)
                position = await self._apply(segment, here, position)
            position = await self._apply(segment, left, position)
        else:
            position = await self._apply(segment, dict(changes.rows), position)
        if position != await self._rows.position(segment):
            raise Conflict(f"the mirror of {changes.name} moved on meanwhile")
        return position

    async def _differences(
        self, segment: str, low: bytes, high: bytes | None, left: Rows
    ) -> tuple[Rows, bytes | None]:  # fmt: skip
        """Return the changes that make a page of a partition's rows, from `low` on, those in `left`, which are taken
        out of it; and where the next page begins, None after the last."""
        page = await self._rows.scan(segment, low, high, PAGE)
        found: Rows = {}
        for key, value in page:
            wanted = left.pop(key, None)
            if wanted != value.value and not (key == MIRROR and segment == REGISTRY_TABLE):
                found[key] = wanted
        return found, page[-1][0] + b"\0" if page else None

    async def _apply(self, segment: str, rows: Rows, position: int) -> int:
        """Apply rows in some batches, at a position.  Returns the position behind them.  Raises Conflict."""
        batch: list[TableUpdate] = []
        size = 0
        for key, value in rows.items():
            batch.append(TableUpdate(key, value, NO_VERSION))
            size += len(key) + len(value or b"")
            if size >= MIRROR_BATCH_BYTES:
                position = await self._rows.update_at(segment, batch, position)
                batch, size = [], 0
        return await self._rows.update_at(segment, batch, position) if batch else position

    async def _move(self, name: StreamName, segment: str, key_length: int) -> None:
        """Move a partition without changing it, so that changes which are under way find it elsewhere."""
        key = MIRROR if name == REGISTRY else b"\0" * key_length
        for _ in range(MAX_TABLE_COPY_ATTEMPTS):
            position = await self._rows.position(segment)
            (row,) = await self._rows.get(segment, [key])
            updates = [TableUpdate(key, b"" if row is None else row.value, NO_VERSION)]
            if row is None:
                updates.append(TableUpdate(key, None, NO_VERSION))
            try:
                await self._rows.update_at(segment, updates, position)
            except Conflict:
                continue
            return
        raise Unavailable(f"the mirror of {name} is changed by too many others at once; try again")


def check_facts(facts: TableFacts) -> None:
    """Check what a source says of a table.  Raises Invalid."""
    name, path = facts.name, facts.path
    is_registry = name == REGISTRY
    if not is_registry and not (is_user_name(name.scope) and is_user_name(name.stream)):
        raise Invalid("the source names a table as no table can be named")
    if is_registry and (facts.partitions, facts.primary_key_length) != (1, 0):
        raise Invalid("the source's registry is no table of one partition")
    if len(facts.creation_id) != MIRROR_ID_BYTES or len(facts.positions) != facts.partitions:
        raise Invalid(f"the source's facts of table {name} do not fit each other")
    if not 1 <= facts.partitions <= MAX_SEGMENTS_PER_STREAM or not 1 <= len(path) <= MAX_MIRROR_PATH:
        raise Invalid(f"table {name} came through more than {MAX_MIRROR_PATH} installations, or has no partition")


def check_changes(changes: TableChanges, key_length: int) -> None:
    """Check rows that a copier brings.  Raises Invalid."""
    name, rows = changes.name, changes.rows
    if len(rows) > MAX_MIRROR_ROWS or sum(len(key) + len(value or b"") for key, value in rows) > MAX_MIRROR_ROWS_BYTES:
        raise Invalid(f"the source sends too many rows of table {name} at once")
    is_range = changes.since == NO_POSITION
    before = b""
    for key, value in rows:
        if not 1 <= len(key) <= MAX_TABLE_KEY_BYTES or (key_length and len(key) != key_length):
            raise Invalid(f"the source sends a key of {len(key)} bytes, which table {name} cannot have")
        if value is not None and len(value) > MAX_TABLE_VALUE_BYTES:
            raise Invalid(f"the source sends a value of {len(value)} bytes, which table {name} cannot have")
        if is_range and (value is None or key <= before or key < changes.low or _is_above(key, changes.high)):
            raise Invalid(f"the source sends rows of table {name} out of order")
        if name == REGISTRY:
            check_registry_row(key, value)
        before = key
    if changes.until < max(changes.since, 0):
        raise Invalid(f"the source's changes of table {name} go backwards")


def _is_above(key: bytes, high: bytes | None) -> bool:
    return high is not None and key >= high


def _refusal(name: StreamName, found: _Found, link: LinkIdentity) -> TableState | None:
    record = found.record
    if record.life is not Life.MIRROR:
        return TableState(name, MirrorStatus.PROMOTED, reason=f"{name} was promoted: clients change it now")
    if record.link.link_id != link.link_id:
        return _refused(name, f"{name} is the mirror of another link, {record.link.name}: delete that link first")
    return None


def _refused(name: StreamName, reason: str) -> TableState:
    return TableState(name, MirrorStatus.REFUSED, reason=reason)
