"""Installations of one process each, whose tables and segments are in a real store in memory."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sarit.controller.assembly import Controller
from sarit.controller.key_value_tables import partition_segments
from sarit.controller.model.records import State, TableRecord
from sarit.core.errors import Exists
from sarit.env.ports import Env
from sarit.mirror.attached import LocalAttachedSource, LocalAttachedTarget
from sarit.mirror.link_table import LinkTable
from sarit.mirror.values import LinkIdentity
from sarit.process.store_calls.in_process import InProcessSegments, InProcessTables
from sarit.store.container.container import require_writable
from sarit.wire.limits import NO_VERSION
from tests.unit.controller.fakes import ManualClock, SeededRandom
from tests.unit.store.harness import World

if TYPE_CHECKING:
    from sarit.store.store import SegmentStore

LINK = LinkIdentity(b"l" * 16, "to-core", "edge")
OTHER_LINK = LinkIdentity(b"o" * 16, "another", "edge")


@dataclass
class Installation:
    """One installation.  `attached_source`, `attached_target`: what goes with its streams, as both sides."""

    name: str
    store: SegmentStore
    controller: Controller
    attached_source: LocalAttachedSource
    attached_target: LocalAttachedTarget
    links: LinkTable

    @property
    def attached(self) -> Any:
        """The target's side; `Side` has the source's."""
        return self.attached_target

    async def make_table(self, scope: str, table: str, partitions: int = 1, key_length: int = 2) -> None:
        with suppress(Exists):
            await self.controller.scopes.create(scope)
        await self.controller.tables.create(
            scope, table, TableRecord(State.CREATING, 0, partitions, key_length, 0, 0, 0)
        )

    async def segments(self, scope: str, table: str) -> list[str]:
        return partition_segments(scope, table, await self.controller.tables.find(scope, table))

    async def change(self, segment: str, **changes: str | None) -> list[int]:
        """Change a table as a client does: in one batch; None removes."""
        made = [(key.encode(), None if value is None else value.encode(), NO_VERSION) for key, value in changes.items()]
        tables = self.store.tables(segment)
        require_writable(await tables.info(segment))
        return await tables.update(segment, made)

    async def rows(self, segment: str) -> dict[bytes, bytes]:
        found = await self.store.tables(segment).scan(segment, b"", None, 1 << 20)
        return {entry.key: entry.value or b"" for entry in found}

    async def stop(self) -> None:
        await self.controller.stop()
        await self.store.stop()


class Interleaved:
    """The tables of a store, whose calls take some turns of the event loop, so that concurrent callers interleave."""

    def __init__(self, tables: InProcessTables, seed: int) -> None:
        self._tables = tables
        self._chance = random.Random(seed)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._tables, name)

        async def slow(*arguments: Any, **named: Any) -> Any:
            for _ in range(self._chance.choice((0, 0, 1, 2, 30))):
                await asyncio.sleep(0)
            result = await call(*arguments, **named)
            await asyncio.sleep(0)
            return result

        return slow


@dataclass
class Side:
    """A side of a link, of which only what goes with streams is asked."""

    attached: Any


async def installation(name: str, seed: int = 1) -> Installation:
    """Start an installation, without the background work of its controller."""
    store = await World().start()
    nothing: Any = None
    env = Env(ManualClock(), SeededRandom(seed), nothing, nothing, nothing)
    tables: Any = Interleaved(InProcessTables(store), seed)
    segments = InProcessSegments(store, lambda: ("127.0.0.1", 1))
    controller = Controller(tables, segments, env, ("127.0.0.1", 2))
    await controller.catalog.start()
    with suppress(Exists):
        await controller.scopes.create("_system")
    links = LinkTable(tables, name)
    return Installation(
        name,
        store,
        controller,
        LocalAttachedSource(controller.catalog, name, segments),
        LocalAttachedTarget(
            controller.catalog, controller.scopes, controller.tables, controller.groups, segments, name, links
        ),
        links,
    )
