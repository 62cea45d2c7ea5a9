"""The bytes and tables of a scope, counted over its segments in memory and in the index, which are found by name.

The name of a segment, transaction or table begins with its scope, whoever created it.  Memory is newer than the index,
except that the bytes of a table's entries are those of the last checkpoint.  A count takes time in proportion to the
number of the scope's segments, but yields to the event loop after each page, and loads no segment into memory.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sarit.index import keys
from sarit.index.scans import scan_page
from sarit.store.container.operations import KIND_TABLE_HASH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.store.container.container import Container
    from sarit.store.container.segment import Segment

_NAMES_PER_PAGE: Final = 256
_SEGMENTS_PER_TURN: Final = 2000


class Serving(Protocol):
    """The segment store, as this module needs it."""

    def serving(self) -> list[Container]:
        """Return the containers that serve now."""

    def container(self, segment: str) -> Container:
        """Return the container of a segment.  Raises Unavailable while it recovers."""


@dataclass(slots=True)
class ScopeUse:
    """The use of a scope.  `bytes`: the bytes of all segments above their start offsets.

    `tables`: the number of tables that clients created.  `containers`: how many containers were counted; a container
    that moves between stores is counted in none."""

    bytes: int = 0
    tables: int = 0
    containers: int = 0

    def add(self, segments: Iterable[Segment]) -> None:
        """Add segments of the scope."""
        for segment in segments:
            if not segment.deleted:
                self.bytes += segment.entry_bytes if segment.is_table else segment.length - segment.start
                self.tables += segment.kind == KIND_TABLE_HASH


async def scope_use(store: Serving, scope: str) -> ScopeUse:
    """Return the use of a scope in the containers that serve now.  Raises Corrupt, Unavailable (an index)."""
    use = ScopeUse()
    for container in store.serving():
        await _add(container, scope, use)
        use.containers += 1
    return use


class TablesOfClients:
    """The tables that clients made in the containers of a store."""

    def __init__(self, store: Serving) -> None:
        self._store = store

    def held(self) -> frozenset[tuple[int, int]]:
        """Return the containers that serve now, each with the epoch of its opening."""
        return frozenset((container.number, container.log.epoch) for container in self._store.serving())

    async def count(self, scope: str) -> int:
        """Return how many tables of a scope the containers hold.  Raises Corrupt, Unavailable."""
        return (await scope_use(self._store, scope)).tables


async def _add(container: Container, scope: str, use: ScopeUse) -> None:
    state, prefix, fresh = container.state, f"{scope}/", set()
    # Count segments that no checkpoint has committed before the scan of the index, which would miss a segment that is
    # committed at a key already passed.
    for count, segment in enumerate(list(state.segments.values()), 1):
        if not segment.committed and segment.name.startswith(prefix):
            fresh.add(segment.id)
            use.add((segment,))
        if count % _SEGMENTS_PER_TURN == 0:
            await asyncio.sleep(0)
    at, end = keys.names_range(scope)
    while True:
        rows, damaged = await scan_page(container.index, at, end, _NAMES_PER_PAGE)
        found = [number for number in (keys.parse_id_value(value) for _, value in rows) if number not in fresh]
        stored = await container.metadata.stored([number for number in found if number not in state.segments])
        use.add(state.segments.get(segment.id, segment) for segment in stored)
        known = {segment.id for segment in stored}
        use.add(state.segments[number] for number in found if number in state.segments and number not in known)
        if damaged is not None:
            at = damaged.resume
        elif len(rows) < _NAMES_PER_PAGE:
            return
        else:
            at = keys.after(rows[-1][0])
