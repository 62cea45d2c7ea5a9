"""Key-value tables: their partitions are table segments of fixed key length."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller.model import even_ranges
from sarit.controller.records import TableRecord, table_key
from sarit.core.errors import Conflict, Exists, Invalid, NotFound
from sarit.core.limits import MAX_TABLE_KEY_BYTES, NO_VERSION
from sarit.core.names import TABLE_SUFFIX, SegmentId, is_user_name, segment_name
from sarit.core.policies import MAX_SEGMENTS_PER_STREAM

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.ports import Segments


class KeyValueTables:
    """Workflows on key-value tables."""

    def __init__(self, catalog: Catalog, segments: Segments) -> None:
        self._catalog = catalog
        self._segments = segments

    async def create(self, scope: str, table: str, record: TableRecord) -> None:
        """Raises Invalid, NotFound (scope), Exists."""
        key_length = record.primary_key_length + record.secondary_key_length
        if not is_user_name(table):
            raise Invalid(f"{table!r} is not a table name")
        if not 1 <= record.partitions <= MAX_SEGMENTS_PER_STREAM:
            raise Invalid(f"a table has 1 to {MAX_SEGMENTS_PER_STREAM} partitions, not {record.partitions}")
        if record.primary_key_length <= 0 or record.secondary_key_length < 0 or key_length > MAX_TABLE_KEY_BYTES:
            raise Invalid(f"a table's primary key has 1 byte or more, both keys at most {MAX_TABLE_KEY_BYTES}")
        if not await self._catalog.scope_exists(scope):
            raise NotFound(f"scope {scope} does not exist")
        if await self._catalog.get(scope, table_key(table)) is not None:
            raise Exists(f"table {scope}/{table} exists")

        async def partition(number: int) -> None:
            with suppress(Exists):
                await self._segments.create_table(_segment(scope, table, number), key_length=key_length)

        await asyncio.gather(*(partition(number) for number in range(record.partitions)))
        try:
            await self._catalog.insert(scope, [(table_key(table), record.encode())])
        except Conflict:
            raise Exists(f"table {scope}/{table} exists") from None

    async def find(self, scope: str, table: str) -> TableRecord:
        """Raises NotFound."""
        found = await self._catalog.get(scope, table_key(table))
        if found is None:
            raise NotFound(f"table {scope}/{table} does not exist")
        return TableRecord.decode(found[0])

    async def partitions(self, scope: str, table: str) -> list[tuple[int, float, float]]:
        """(packed id, low, high) of each partition.  Raises NotFound."""
        record = await self.find(scope, table)
        return [(SegmentId(0, i).packed, low, high) for i, (low, high) in enumerate(even_ranges(record.partitions))]

    async def delete(self, scope: str, table: str) -> None:
        """Raises NotFound."""
        record = await self.find(scope, table)
        for number in range(record.partitions):
            with suppress(NotFound):
                await self._segments.delete(_segment(scope, table, number))
        await self._catalog.put(scope, table_key(table), None, NO_VERSION)


def _segment(scope: str, table: str, number: int) -> str:
    return segment_name(scope, table + TABLE_SUFFIX, SegmentId(0, number))
