"""Lists of names, searched and cut into pages on this side: a browser gets one page of 10,000 streams.

Names are read from the controller in its order, by scope and then by name, and only as far as a page needs them: the
first page does not wait for the last name.  What was read is used for some seconds by every page that is open.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.admin.console.limits import (
    CONSOLE_COUNT_SECONDS,
    CONSOLE_MAX_NAMES,
    CONSOLE_NAMES_AT_ONCE,
    CONSOLE_NAMES_SECONDS,
)
from sarit.core.errors import Forbidden, NotFound
from sarit.core.names import SYSTEM_SCOPE, StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.client.aio import Client
    from sarit.env.ports import Clock

SCOPES: Final = "scopes"
STREAMS: Final = "streams"
GROUPS: Final = "groups"
TABLES: Final = "tables"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for a page: names of a scope ("": all scopes) that contain a text, in any case, after `offset` others.

    `counted`: whether to count all such names, even if that takes long."""

    scope: str = ""
    text: str = ""
    offset: int = 0
    limit: int = CONSOLE_MAX_NAMES
    counted: bool = False


@dataclass(frozen=True, slots=True)
class NamesPage:
    """One page of the names that were found.

    `total`: the number of names on all pages, as far as they were counted; `counted`: whether that is all of them.
    `complete`: whether no more than CONSOLE_MAX_NAMES names exist to be searched."""

    names: Sequence[str]
    total: int
    counted: bool
    complete: bool


class NameList:
    """The names of one kind, read as far as somebody needed them."""

    def __init__(self, source: AsyncIterator[str], began: float) -> None:
        self.names: list[str] = []
        self.began = began
        self.ended = False
        self.complete = True
        # After an error the iterator only ends, which would look like the end of the list.
        self.broken = False
        self._source = source
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<NameList, {len(self.names)} names{'' if self.ended else ' so far'}>"

    async def read_on(self, known: int) -> None:
        """Read some more names than the first `known`, unless these are all.  Raises what the source raises."""
        async with self._lock:
            if self.ended or self.broken or len(self.names) > known:
                return  # who had the lock has read them
            try:
                for _ in range(CONSOLE_NAMES_AT_ONCE):
                    name = await anext(self._source, None)
                    if name is None or len(self.names) == CONSOLE_MAX_NAMES:
                        self.ended, self.complete = True, name is None
                        return
                    self.names.append(name)
            except BaseException:
                self.broken = True
                raise


class NameLists:
    """The lists of one node."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lists: dict[tuple[str, str], NameList] = {}

    def __repr__(self) -> str:
        return f"<NameLists of {', '.join(kind for kind, _ in self._lists) or 'nothing'}>"

    def changed(self) -> None:
        """Forget the lists, because something was created or deleted."""
        self._lists.clear()

    async def page(self, kind: str, wanted: Wanted) -> NamesPage:
        """Return a page of the names of a kind (SCOPES, STREAMS, GROUPS, TABLES), all but scopes as "scope/name"."""
        while True:
            found = self._list(kind, wanted.scope)
            page = await self._searched(found, wanted)
            if page is not None:
                return page

    async def _searched(self, found: NameList, wanted: Wanted) -> NamesPage | None:
        """Return a page of a list, or None if reading the list failed: then a new list is needed."""
        text, needed = wanted.text.strip().lower(), wanted.offset + wanted.limit
        hits: list[str] = []
        seen, until = 0, None
        while True:
            hits += [name for name in found.names[seen:] if text in name.lower()]
            seen = len(found.names)
            if found.broken:
                return None
            if found.ended:
                break
            # One more than the page tells that there is a next one; what is quick to count is counted at once.
            if len(hits) > needed and not wanted.counted:
                now = self._clock.monotonic()
                until = now + CONSOLE_COUNT_SECONDS if until is None else until
                if now >= until:
                    break
            await found.read_on(seen)
        return NamesPage(hits[wanted.offset : needed], len(hits), found.ended, found.complete)

    def _list(self, kind: str, scope: str) -> NameList:
        key, now = (kind, scope), self._clock.monotonic()
        found = self._lists.get(key)
        if found is None or found.broken or now - found.began >= CONSOLE_NAMES_SECONDS:
            for old in [old for old, each in self._lists.items() if now - each.began >= CONSOLE_NAMES_SECONDS]:
                del self._lists[old]
            found = self._lists[key] = NameList(self._names(kind, scope), now)
        return found

    def _names(self, kind: str, scope: str) -> AsyncIterator[str]:
        if kind == SCOPES:
            return self._scopes()
        fetch = {STREAMS: self._streams, GROUPS: self._client.reader_groups.list, TABLES: self._tables}[kind]
        return self._in_scopes(fetch, scope)

    async def _scopes(self) -> AsyncIterator[str]:
        async for scope in self._client.list_scopes():
            if scope != SYSTEM_SCOPE:
                yield scope

    async def _in_scopes(self, fetch: Callable[[str], AsyncIterator[str]], only: str) -> AsyncIterator[str]:
        async for scope in _one(only) if only else self._scopes():
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


async def _one(scope: str) -> AsyncIterator[str]:
    if scope != SYSTEM_SCOPE:
        yield scope
