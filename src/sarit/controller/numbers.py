"""The segment numbers of deleted scopes, from which later scopes of their names go on.

A scope stores the highest of its numbers here before its table is deleted, hence before there is a later scope of its
name.  So what is read once a scope exists holds for as long as it does, and is cached by the name of its table.
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
    """The table of one incarnation of a scope, and the first segment number of what is new in it."""

    table: str
    first_number: int


class Numbers:
    """First segment numbers by scope.  `scope_table`: the name of a scope's table as known; raises NotFound."""

    def __init__(self, tables: Tables, scope_table: Callable[[str], Awaitable[str]]) -> None:
        self._tables = tables
        self._scope_table = scope_table
        self._known: OrderedDict[str, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Numbers, {len(self._known)} scopes cached>"

    async def place(self, scope: str) -> ScopePlace:
        """Return where something new is made in a scope, for `Catalog.update`: a later scope may begin higher.

        Raises NotFound."""
        table = await self._scope_table(scope)
        first = self._known.get(table)
        if first is None:
            (value,) = await self._tables.get(keys.NUMBERS_TABLE, [scope.encode()])
            first = self._known[table] = 0 if value is None else codec.decode_number(value.value)
            if len(self._known) > _MAX_CACHED_SCOPES:
                self._known.popitem(last=False)
        return ScopePlace(table, first)

    async def raise_to(self, scope: str, number: int) -> None:
        """Have later scopes of a name begin at `number`, or above.  Raises Conflict (another controller did)."""
        (value,) = await self._tables.get(keys.NUMBERS_TABLE, [scope.encode()])
        if (0 if value is None else codec.decode_number(value.value)) < number:
            expected = NOT_EXISTS if value is None else value.version
            update = TableUpdate(scope.encode(), codec.encode_number(number), expected)
            await self._tables.update(keys.NUMBERS_TABLE, [update])
