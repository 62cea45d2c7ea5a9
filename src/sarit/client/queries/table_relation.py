"""A key-value table as a relation: its keys, secondary keys if it has some, values and versions.

Not a snapshot: an entry that is changed during the query is seen before or after its change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sarit.client.limits import QUERY_PAGE_ENTRIES
from sarit.sql.ports import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.client.queries.access import QueryAccess
    from sarit.client.tables.layout import TableConfig
    from sarit.client.tables.table import Table


class TableRelation:
    """The entries of a table, in one part."""

    def __init__(self, access: QueryAccess, table: Table, config: TableConfig) -> None:
        self._access = access
        self._table = table
        names = ["key", *(["secondary_key"] if config.secondary_key_bytes else []), "value"]
        self._schema = pa.schema([*((name, pa.binary()) for name in names), ("version", pa.int64())])

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self._schema

    @property
    def parts(self) -> Sequence[Part]:
        """The whole table, of which nobody knows the size."""
        return (Part(0, 0),)

    def read(self, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the entries.  Raises NotFound, Unavailable, Forbidden."""
        access = self._access
        schema = pa.schema([self._schema.field(name) for name in columns])
        for entries in access.bridge.iterate(self._table.scan_pages(page_entries=QUERY_PAGE_ENTRIES)):
            access.meter.read(sum(len(one.primary) + len(one.secondary) + len(one.value) for one in entries))
            found = {
                "key": [one.primary for one in entries],
                "secondary_key": [one.secondary for one in entries],
                "value": [one.value for one in entries],
                "version": [one.version for one in entries],
            }
            yield pa.RecordBatch.from_pydict({name: found[name] for name in columns}, schema=schema)
