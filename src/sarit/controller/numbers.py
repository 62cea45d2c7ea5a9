"""The highest segment numbers of deleted scopes, above which recreated scopes number their segments.

A scope's highest number is stored before its table is deleted, hence before the scope can be recreated.  So the number
does not change while a scope exists, and is cached by the name of its table.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.ports import Tables, TableUpdate
from sarit.core.limits import NOT_EXISTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_MAX_CACHED_SCOPES: Final = 1024


class ScopePlace(NamedTuple):
    """The table of one incarnation of a scope, and the first segment number for new streams and tables in it."""

    table: str
    first_number: int


class Numbers:
    """First segment numbers by scope.  `scope_table`: returns the name of a scope's table; raises NotFound."""

    def __init__(self, tables: Tables, scope_table: Callable[[str], Awaitable[str]]) -> None:
        self._tables = tables
        self._scope_table = scope_table
        self._known: OrderedDict[str, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Numbers, {len(self._known)} scopes cached>"

    async def place(self, scope: str) -> ScopePlace:
        """Return a scope's table and first number.  Creations pass the table to `Catalog.update`, since a recreated
        scope may have a higher first number.  Raises NotFound."""
        table = await self._scope_table(scope)
        first = self._known.get(table)
        if first is None:
            (value,) = await self._tables.get(keys.NUMBERS_TABLE, [scope.encode()])
            first = self._known[table] = 0 if value is None else codec.decode_number(value.value)
            if len(self._known) > _MAX_CACHED_SCOPES:
                self._known.popitem(last=False)
        return ScopePlace(table, first)

    async def raise_to(self, scope: str, number: int) -> None:
        """Raise the first number for later scopes of a name to `number`.  Raises Conflict: it was changed meanwhile."""
        (value,) = await self._tables.get(keys.NUMBERS_TABLE, [scope.encode()])
        if (0 if value is None else codec.decode_number(value.value)) < number:
            expected = NOT_EXISTS if value is None else value.version
            update = TableUpdate(scope.encode(), codec.encode_number(number), expected)
            await self._tables.update(keys.NUMBERS_TABLE, [update])
