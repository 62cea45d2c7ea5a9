"""Creates and deletes scopes.

A scope has a table of its own, named by scope and incarnation, and exists as long as that table does.  A deletion first
deletes the table, on the condition that it has not changed since it was found empty, and then the record of the scope.
So a refused deletion has removed nothing, in particular not the numbers of deleted streams, from which a recreated
stream continues.  Before the table is deleted, the highest of these is stored in another table.  Any controller that
finds a scope's record without a table completes the deletion.  A delayed write to a deleted scope fails, because its
table does not exist.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.limits import SCOPE_INCARNATION_BYTES
from sarit.controller.model import codec
from sarit.controller.model.records import ScopeRecord
from sarit.controller.ports import TableUpdate
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SYSTEM_SCOPE, StreamName, is_internal_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.catalog import Catalog
    from sarit.controller.groups import Groups
    from sarit.controller.key_value_tables import KeyValueTables
    from sarit.controller.streams import Streams
    from sarit.env.ports import Env


class Scopes:
    """Workflows on scopes."""

    def __init__(self, catalog: Catalog, streams: Streams, groups: Groups, tables: KeyValueTables, env: Env) -> None:
        self._catalog = catalog
        self._streams = streams
        self._groups = groups
        self._tables = tables
        self._env = env

    async def create(self, scope: str) -> None:
        """Create a scope: first its table, then its record.  Raises Invalid, Exists."""
        if not is_internal_name(scope):
            raise Invalid(f"{scope!r} is not a scope name")
        found = await self._catalog.scope(scope)
        if found is not None and not await self.complete_pending(scope):
            raise Exists(f"scope {scope} exists")
        record = ScopeRecord(self._env.random.bytes(SCOPE_INCARNATION_BYTES), self._env.clock.wall_ms())
        table = keys.scope_table(scope, record.incarnation)
        await self._catalog.tables.create(table)
        update = TableUpdate(scope.encode(), codec.encode_scope(record), NOT_EXISTS)
        try:
            await self._catalog.tables.update(keys.SCOPES_TABLE, [update])
        except Conflict:
            with suppress(NotFound):
                await self._catalog.tables.delete(table, must_be_empty=True)
            raise Exists(f"scope {scope} exists") from None

    async def delete(self, scope: str) -> None:
        """Delete a scope.  Raises NotFound, Exists (it is not empty), Unavailable (too many concurrent changes)."""
        found = await self._catalog.scope(scope)
        if found is None:
            raise NotFound(f"scope {scope} does not exist")
        record, version = found
        if scope == SYSTEM_SCOPE:
            raise Exists("the system's scope is never empty")
        entered: int | None = None
        # Delete the table before the record: after a crash in between, the record tells that a deletion is unfinished.
        with suppress(NotFound):  # an earlier deletion removed the table; the sweeper removes its entry
            entered = await self._delete_table(scope, keys.scope_table(scope, record.incarnation))
        await self._forget(scope, version)
        if entered is not None:
            await self._catalog.remove_pending_if_unchanged(keys.pending_scope_key(scope), entered)

    async def complete_pending(self, scope: str) -> bool:
        """Complete an unfinished deletion.  Returns whether the scope does not exist."""
        found = await self._catalog.scope(scope)
        # A scope whose table exists was not deleted, even if a deletion has begun.
        if found is None or await self._has_table(scope, found[0]):
            return found is None
        await self._forget(scope, found[1])
        return True

    async def delete_recursive(self, scope: str) -> None:
        """Seal and delete every reader group, key-value table and stream, then the scope.  Raises NotFound."""
        if not await self._catalog.scope_exists(scope):
            raise NotFound(f"scope {scope} does not exist")
        if scope == SYSTEM_SCOPE:
            raise Invalid("the system's scope cannot be deleted")

        async def stream(scope: str, stream: str) -> None:
            name = StreamName(scope, stream)
            found = await self._catalog.find(name)
            if found is None or not found.record.mirrored:
                await self._streams.seal(name)
            await self._streams.delete(name)

        await self._each(scope, keys.GROUPS, self._groups.delete)
        await self._each(scope, keys.TABLES, self._tables.delete)
        await self._each(scope, keys.STREAMS, stream)
        await self.delete(scope)

    async def _each(self, scope: str, prefix: bytes, delete: Callable[[str, str], Awaitable[None]]) -> None:
        """Delete all records with a key prefix by `delete`, including those that are partly deleted."""
        after = b""
        while rows := await self._catalog.scan(scope, prefix, after):
            after = rows[-1][0]
            for key, _ in rows:
                with suppress(NotFound):
                    await delete(scope, key[len(prefix) :].decode())

    async def _has_table(self, scope: str, record: ScopeRecord) -> bool:
        try:
            await self._catalog.tables.get(keys.scope_table(scope, record.incarnation), [])
        except NotFound:
            return False
        return True

    async def _delete_table(self, scope: str, table: str) -> int:
        """Delete the table of an empty scope.  Returns the version of its pending-work entry.

        Raises NotFound, Exists (it is not empty), Unavailable."""
        for _ in range(MAX_ATTEMPTS):
            # Get the position before the check: the deletion below fails if anything was written after it.
            position = await self._catalog.tables.position(table)
            await self._require_empty(scope)
            await self._keep_numbers(scope)
            entered = await self._catalog.index_pending(keys.pending_scope_key(scope))
            with suppress(Conflict):  # a deletion was completed, or something was created: check again
                await self._catalog.tables.delete(table, unchanged_since=position)
                return entered
        raise _contended(scope)

    async def _require_empty(self, scope: str) -> None:
        """Complete the unfinished deletions in a scope.  Raises Exists if it has any stream, group or table then."""

        async def finish_stream(scope: str, stream: str) -> None:
            await self._streams.delete(StreamName(scope, stream))

        kinds = (
            (keys.GROUPS, self._groups.delete),
            (keys.TABLES, self._tables.delete),
            (keys.STREAMS, finish_stream),
        )
        for prefix, finish in kinds:
            while rows := await self._catalog.scan(scope, prefix, limit=1):
                key, value = rows[0]
                if not codec.is_deleting(value.value):
                    raise Exists(f"scope {scope} is not empty")
                with suppress(NotFound):
                    await finish(scope, key[len(prefix) :].decode())

    async def _keep_numbers(self, scope: str) -> None:
        """Store the highest segment number of a scope's deleted streams and tables, for a recreated scope.  Raises
        Unavailable."""
        highest, after = 0, b""
        while rows := await self._catalog.scan(scope, keys.NUMBERS, after):
            after = rows[-1][0]
            highest = max(highest, *(codec.decode_number(value.value) for _, value in rows))
        for _ in range(MAX_ATTEMPTS):
            with suppress(Conflict):
                await self._catalog.numbers.raise_to(scope, highest)
                return
        raise _contended(scope)

    async def _forget(self, scope: str, version: int) -> None:
        with suppress(Conflict):  # another controller removed the record
            await self._catalog.tables.update(keys.SCOPES_TABLE, [TableUpdate(scope.encode(), None, version)])


def _contended(scope: str) -> Unavailable:
    return Unavailable(f"scope {scope} is changed by too many others at once; try again")
