"""Lists of names, searched and cut into pages on this side: a browser gets one page of 10,000 streams.

All names of one kind are fetched once, and used for some seconds by every page that is open.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.admin.console.limits import CONSOLE_MAX_NAMES, CONSOLE_NAMES_SECONDS
from sarit.core.errors import Forbidden, NotFound
from sarit.core.names import SYSTEM_SCOPE, StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.client.aio import Client
    from sarit.env.ports import Clock


@dataclass(frozen=True, slots=True)
class Names:
    """All names of a kind, sorted; `complete`: whether there are no more than CONSOLE_MAX_NAMES of them."""

    at: float
    names: Sequence[str]
    complete: bool


@dataclass(frozen=True, slots=True)
class NamesPage:
    """One page of those that were searched for; `total`: of all pages."""

    names: Sequence[str]
    total: int
    complete: bool


def searched(names: Names, scope: str, text: str, offset: int, limit: int) -> NamesPage:
    """The names of a scope ("": of all) that contain a text, in any case: `limit` of them after `offset` others."""
    prefix, wanted = f"{scope}/" if scope else "", text.strip().lower()
    found = [name for name in names.names if name.startswith(prefix) and wanted in name.lower()]
    return NamesPage(found[offset : offset + limit], len(found), names.complete)


class NameLists:
    """The lists of one node."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lists: dict[str, Names] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<NameLists of {', '.join(self._lists) or 'nothing'}>"

    def changed(self) -> None:
        """Something was created or deleted: fetch them again."""
        self._lists.clear()

    async def scopes(self) -> Names:
        """The scopes of users."""
        return await self._list("scopes", self._scopes)

    async def streams(self) -> Names:
        """The streams of users, as "scope/stream"."""
        return await self._list("streams", lambda: self._in_scopes(self._streams))

    async def groups(self) -> Names:
        """The reader groups, as "scope/group"."""
        return await self._list("groups", lambda: self._in_scopes(self._client.reader_groups.list))

    async def tables(self) -> Names:
        """The key-value tables, as "scope/table"."""
        return await self._list("tables", lambda: self._in_scopes(self._tables))

    async def _list(self, kind: str, fetch: Callable[[], AsyncIterator[str]]) -> Names:
        # Pages that ask at the same time wait for the one that fetches.
        async with self._locks.setdefault(kind, asyncio.Lock()):
            found, now = self._lists.get(kind), self._clock.monotonic()
            if found is not None and now - found.at < CONSOLE_NAMES_SECONDS:
                return found
            names: list[str] = []
            complete = True
            async for name in fetch():
                if len(names) == CONSOLE_MAX_NAMES:
                    complete = False
                    break
                names.append(name)
            made = self._lists[kind] = Names(now, sorted(names), complete)
            return made

    async def _scopes(self) -> AsyncIterator[str]:
        async for scope in self._client.list_scopes():
            if scope != SYSTEM_SCOPE:
                yield scope

    async def _in_scopes(self, fetch: Callable[[str], AsyncIterator[str]]) -> AsyncIterator[str]:
        for scope in (await self.scopes()).names:
            try:
                async for name in fetch(scope):
                    yield name
            except (NotFound, Forbidden):  # the scope was deleted meanwhile, or the right was taken
                continue

    async def _streams(self, scope: str) -> AsyncIterator[str]:
        async for name in self._client.list_streams(scope):
            yield str(name)

    async def _tables(self, scope: str) -> AsyncIterator[str]:
        async for name in self._client.tables.list(scope):
            yield str(StreamName(name.scope, name.stream))
