"""The tables that a client's query can name: streams, as `scope.stream`, and key-value tables, as `scope.table`.

Of a stream and a table of one name, the stream is found."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, TypeVar

from sarit.client.core import pages
from sarit.client.core.segments import resolve_cut
from sarit.client.limits import QUERY_NEAR_NAMES
from sarit.client.queries.stream_relation import plan_stream, relation_of
from sarit.client.queries.union_view import table_of, union_of
from sarit.client.queries.values import ValueOptions, Values
from sarit.client.search.time_range import cut_behind
from sarit.client.tables.table import Table
from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid, NotFound, SaritError
from sarit.core.names import StreamName, is_user_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from sarit.client.core.values import Cut
    from sarit.client.queries.access import QueryAccess
    from sarit.client.queries.stream_relation import StreamPlan
    from sarit.sql.ports import Relation

T = TypeVar("T")

# Near names are a help: a scope of many streams is not listed to its end for it.
_LISTED: Final = 1000


class ClientTables:
    """Streams by name, with the rights of a client.  Its methods block, on a thread other than the loop's."""

    def __init__(
        self,
        access: QueryAccess,
        start: Cut | int = "head",
        end: Cut | int = "tail",
        values: Values | None = None,
        catalogs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Take how streams are read.  `catalogs`: of Iceberg, by their names on the node; a stream whose table is in
        one of them is the union of the table and of the stream's tail."""
        self._access = access
        self._session = access.session
        self._bridge = access.bridge
        self._start = start
        self._end = end
        self._values: Values = values or ValueOptions()
        self._catalogs = catalogs or {}

    def find(self, path: Sequence[str]) -> Relation | None:
        """Return the relation of a stream; None: there is none.  Raises Forbidden, Invalid, Unavailable."""
        if len(path) != 2 or not all(map(is_user_name, path)):
            return None
        name = StreamName(*path)
        # Between positions of the stream the table has nothing to say, and does not know where they are in it.
        if self._catalogs and (self._start, self._end) == ("head", "tail"):
            committed = self._bridge.run(table_of(self._session, name, self._catalogs))
            if committed is not None:
                union = union_of(self._access, self._catalogs, committed, self._values)
                if union is not None:
                    return union
        plan = self._bridge.run(self._plan(name))
        if plan is not None:
            return relation_of(self._access, plan, self._values)
        return self._bridge.run(self._table(name))

    def near(self, path: Sequence[str]) -> Sequence[str]:
        """Return names of streams that are like one that was not found, as SQL has them."""
        if len(path) != 2:
            return ()
        return self._bridge.run(self._near(*path))

    async def _table(self, name: StreamName) -> Relation | None:
        from sarit.client.queries.table_relation import TableRelation

        table = Table(self._session, name)
        try:
            return TableRelation(self._access, table, await table.config())
        except NotFound:
            return None

    async def _plan(self, name: StreamName) -> StreamPlan | None:
        try:
            start, end = await self._cut_before(name), await self._cut_behind(name)
        except NotFound:
            return None
        if start is None or end is None:
            raise Invalid(f"the query of {name} has no bounds: give cuts to begin and to end at")
        return await plan_stream(self._access, start, end)

    async def _cut_before(self, name: StreamName) -> StreamCut | None:
        """Return the cut at which the query begins in a stream."""
        session, start = self._session, self._start
        if not isinstance(start, int):
            return await resolve_cut(session, name, start)
        return StreamCut(name, await session.with_retry(lambda: session.controller.cut_at(name, start)))

    async def _cut_behind(self, name: StreamName) -> StreamCut | None:
        """Return the cut at which the query ends in a stream."""
        if not isinstance(self._end, int):
            return await resolve_cut(self._session, name, self._end)
        return await cut_behind(self._session, name, self._end, self._session.env.clock.wall_ms())

    async def _near(self, scope: str, stream: str) -> list[str]:
        try:
            scopes = [name async for name in _first(pages.scopes(self._session))]
            found = get_close_matches(scope, scopes, n=1, cutoff=0.7)
            if not found:
                return []
            names = [one.stream async for one in _first(pages.streams(self._session, found[0], None))]
        except SaritError:  # who may not list them gets no help
            return []
        users = [name for name in names if is_user_name(name)]
        return [f"{shown(found[0])}.{shown(name)}" for name in get_close_matches(stream, users, n=QUERY_NEAR_NAMES)]


async def _first(found: AsyncIterator[list[T]]) -> AsyncIterator[T]:
    """Yield the items of pages, up to the page with which they are _LISTED."""
    count = 0
    async for page in found:
        for one in page:
            yield one
        count += len(page)
        if count > _LISTED:
            return


def shown(name: str) -> str:
    """Return a name as SQL needs it: quoted, unless it is plain."""
    plain = name.isidentifier() and name.isascii()
    return name if plain else f'"{name}"'
