"""Scopes: create, delete, delete with everything in it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller.ports import TableUpdate
from sarit.controller.records import SCOPES_TABLE, scope_table
from sarit.core.errors import Conflict, Exists, Invalid, NotFound
from sarit.core.limits import NO_VERSION, NOT_EXISTS
from sarit.core.names import StreamName, is_internal_name

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.groups import Groups
    from sarit.controller.key_value_tables import KeyValueTables
    from sarit.controller.streams import Streams


class Scopes:
    """Workflows on scopes."""

    def __init__(self, catalog: Catalog, streams: Streams, groups: Groups, tables: KeyValueTables) -> None:
        self._catalog = catalog
        self._streams = streams
        self._groups = groups
        self._tables = tables

    async def create(self, scope: str) -> None:
        """Raises Invalid, Exists.  The scope's table exists before the scope does."""
        if not is_internal_name(scope):
            raise Invalid(f"{scope!r} is not a scope name")
        with suppress(Exists):
            await self._catalog.tables.create(scope_table(scope))
        try:
            await self._catalog.tables.update(SCOPES_TABLE, [TableUpdate(scope.encode(), b"\x01", NOT_EXISTS)])
        except Conflict:
            raise Exists(f"scope {scope} exists") from None

    async def delete(self, scope: str) -> None:
        """Raises NotFound, Exists (not empty)."""
        if not await self._catalog.scope_exists(scope):
            raise NotFound(f"scope {scope} does not exist")
        with suppress(NotFound):  # an earlier deletion came so far
            await self._catalog.tables.delete(scope_table(scope), must_be_empty=True)
        await self._catalog.tables.update(SCOPES_TABLE, [TableUpdate(scope.encode(), None, NO_VERSION)])

    async def delete_recursive(self, scope: str) -> None:
        """Seal and delete every stream, reader group and key-value table, then the scope.  Raises NotFound."""
        if not await self._catalog.scope_exists(scope):
            raise NotFound(f"scope {scope} does not exist")
        while groups := await self._names(scope, b"g/"):
            for group in groups:
                with suppress(NotFound):
                    await self._groups.delete(scope, group)
        while tables := await self._names(scope, b"k/"):
            for table in tables:
                with suppress(NotFound):
                    await self._tables.delete(scope, table)
        while streams := await self._names(scope, b"s/"):
            for stream in streams:
                with suppress(NotFound):
                    await self._streams.seal(StreamName(scope, stream))
                    await self._streams.delete(StreamName(scope, stream))
        await self.delete(scope)

    async def _names(self, scope: str, prefix: bytes) -> list[str]:
        try:
            return await self._catalog.list_names(scope, prefix, "")
        except NotFound:
            return []
