"""The tables of a source: key-value tables, and the table of the schema registry, with their rows and changes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.key_value_tables import partition_segments
from sarit.controller.limits import CREATION_ID_BYTES
from sarit.controller.model import codec
from sarit.controller.model.creation import creation_id
from sarit.controller.model.records import State
from sarit.controller.runner import gather_all
from sarit.core.errors import NotFound
from sarit.core.names import SYSTEM_SCOPE, TABLE_SUFFIX, StreamName
from sarit.mirror.attachments import NO_POSITION, TableChanges, TableFacts
from sarit.mirror.limits import MAX_MIRROR_ROWS, MIRROR_BATCH_BYTES, MIRROR_TABLES_PER_PAGE
from sarit.mirror.table_records import Life, decode_table_mirror
from sarit.registry.keys import MIRROR, REGISTRY_TABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.records import TableRecord
    from sarit.controller.ports import TableValue
    from sarit.mirror.attachments import TableAsk

# How links name the schema registry of an installation.
REGISTRY: StreamName = StreamName(SYSTEM_SCOPE, "_registry")


def owner_of(name: StreamName) -> str:
    """Return the name under which the rows beside a table's record are stored."""
    return name.stream if name == REGISTRY else name.stream + TABLE_SUFFIX


class TableSource:
    """The tables of an installation, for links that copy them."""

    def __init__(self, catalog: Catalog, installation: str) -> None:
        self._catalog = catalog
        self._installation = installation

    async def tables(self, scope: str, after: str) -> list[TableFacts]:
        """Return a page of tables.  See `sides.AttachedSource.tables`."""
        if scope == SYSTEM_SCOPE:
            return await self._registry() if after < REGISTRY.stream else []
        try:
            return await self._page(scope, keys.table_key(after) if after else b"")
        except NotFound:  # the scope
            return []

    async def _page(self, scope: str, start: bytes) -> list[TableFacts]:
        while rows := await self._catalog.scan_once(scope, keys.TABLES, start, MIRROR_TABLES_PER_PAGE):
            start = rows[-1][0]
            found = [
                await self._facts(StreamName(scope, key[len(keys.TABLES) :].decode()), record)
                for key, value in rows
                if (record := codec.decode_table(value.value)).state is State.ACTIVE
            ]
            known = [one for one in found if one is not None]
            if known:
                return known
        return []

    async def changes(self, ask: TableAsk) -> TableChanges:
        """Return rows of a table.  See `sides.AttachedSource.table_changes`."""
        segment = await self._segment(ask)
        tables = self._catalog.tables
        if ask.since != NO_POSITION:
            feed = await tables.changes(segment, ask.since, MIRROR_BATCH_BYTES)
            if feed is None or len(feed.rows) > MAX_MIRROR_ROWS:
                return TableChanges(ask.name, ask.partition, ask.since, ask.since, (), lost=True)
            rows = tuple(row for row in feed.rows if row[0] != MIRROR or ask.name != REGISTRY)
            return TableChanges(ask.name, ask.partition, ask.since, feed.position, rows)
        # Have the store follow the table before the position is read, and read that before the rows.  So every change
        # that the rows may lack is behind the position, and can be asked for.
        await tables.changes(segment, 0, 1)
        until = await tables.position(segment)
        page = await tables.scan(segment, ask.start, ask.end, MAX_MIRROR_ROWS)
        shown: list[tuple[bytes, bytes]] = []
        size = 0
        for key, value in page:
            size += len(key) + len(value.value)
            if shown and size > MIRROR_BATCH_BYTES:
                break
            shown.append((key, value.value))
        # The store may give fewer rows than there are; no row at all is the end.
        high = shown[-1][0] + b"\0" if shown else ask.end
        rows = tuple(row for row in shown if row[0] != MIRROR or ask.name != REGISTRY)
        return TableChanges(ask.name, ask.partition, NO_POSITION, until, rows, ask.start, high)

    async def _registry(self) -> list[TableFacts]:
        """Return the registry as a table, if there ever was a schema."""
        try:
            position = await self._catalog.tables.position(REGISTRY_TABLE)
        except NotFound:
            return []
        (row,) = await self._catalog.get(SYSTEM_SCOPE, [keys.mirror_key(owner_of(REGISTRY))])
        path = self._path(REGISTRY, row)
        return [TableFacts(REGISTRY, self._registry_id(), 0, 1, 0, 0, 0, (position,), path)]

    def _registry_id(self) -> bytes:
        return hashlib.blake2b(self._installation.encode(), digest_size=CREATION_ID_BYTES).digest()

    async def _facts(self, name: StreamName, record: TableRecord) -> TableFacts | None:
        owner = owner_of(name)
        created, mirror, identity = await self._beside(name, owner)
        segments = partition_segments(name.scope, name.stream, record)
        try:
            positions = await gather_all([self._catalog.tables.position(segment) for segment in segments])
        except NotFound:  # the table was deleted meanwhile
            return None
        stored = None if created is None else codec.decode_creation(created.value)
        return TableFacts(
            name,
            creation_id(identity, owner, record.first_number, stored),
            record.created_ms,
            record.partitions,
            record.primary_key_length,
            record.secondary_key_length,
            record.rollover_bytes,
            tuple(positions),
            self._path(name, mirror),
        )

    async def _beside(self, name: StreamName, owner: str) -> tuple[TableValue | None, TableValue | None, bytes]:
        """Return the rows of a table's creation and of its mirror, and the identity of its scope."""

        async def read(table: str) -> tuple[TableValue | None, TableValue | None, bytes]:
            created, mirror = await self._catalog.tables.get(table, [keys.creation_key(owner), keys.mirror_key(owner)])
            return created, mirror, keys.incarnation_of(table)

        return await self._catalog.in_scope(name.scope, read)

    def _path(self, name: StreamName, mirror: TableValue | None) -> tuple[str, ...]:
        if mirror is None:
            return (self._installation,)
        record = decode_table_mirror(name, mirror.value)
        return (*record.path, self._installation) if record.life is Life.MIRROR else (self._installation,)

    async def _segment(self, ask: TableAsk) -> str:
        """Return the segment of the partition that is asked for.  Raises NotFound."""
        name = ask.name
        if name == REGISTRY:
            if ask.partition or ask.creation_id != self._registry_id():
                raise NotFound(f"the registry of installation {self._installation} is another one")
            return REGISTRY_TABLE
        (row,) = await self._catalog.get(name.scope, [keys.table_key(name.stream)])
        record = None if row is None else codec.decode_table(row.value)
        if record is None or record.state is not State.ACTIVE or not 0 <= ask.partition < record.partitions:
            raise NotFound(f"table {name} does not exist")
        created, _, identity = await self._beside(name, owner_of(name))
        stored = None if created is None else codec.decode_creation(created.value)
        if creation_id(identity, owner_of(name), record.first_number, stored) != ask.creation_id:
            raise NotFound(f"table {name} was created again")
        segments: Sequence[str] = partition_segments(name.scope, name.stream, record)
        return segments[ask.partition]
