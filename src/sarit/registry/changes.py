"""Changes of the registry's table, one after another: the counters' row is the condition of every one of them.

The changes of one process wait for each other, so that only those of other controllers conflict.  A change that
conflicts is decided again, on the rows that it finds then.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sarit.controller.ports import TableUpdate
from sarit.core.errors import Conflict, Exists, NotFound, Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.registry import keys, records
from sarit.registry.errors import ReadOnly
from sarit.registry.keys import REGISTRY_TABLE
from sarit.registry.limits import CHANGE_PAUSE_SECONDS, MAX_CHANGE_ATTEMPTS
from sarit.registry.records import Counters
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.ports import Tables
    from sarit.env.ports import Env
    from sarit.registry.decisions import Change
    from sarit.registry.rows import Rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many schemas and groups there are, those deleted softly included."""

    schemas: int
    groups: int


class Changes:
    """The changes of the registry by this process.  `installation`: as in `Registry`."""

    def __init__(self, tables: Tables, rows: Rows, env: Env, installation: str) -> None:
        self._tables = tables
        self._rows = rows
        self._random = env.random
        self._installation = installation
        self._lock = asyncio.Lock()
        self.counts: Counts | None = None

    def __repr__(self) -> str:
        return f"<Changes of {self._installation or 'no installation'}>"

    async def make(self, decide: Callable[[Counters], Awaitable[Change[T]]]) -> T:
        """Make the change that `decide` returns for the counters and the rows that it reads; return its answer.

        Raises what `decide` raises; Unavailable, after which the change may have been made."""
        async with self._lock:
            for attempt in range(MAX_CHANGE_ATTEMPTS):
                # Read the counters before `decide` reads other rows: had one of them changed since, the counters did.
                found, mirror = await self._rows.get([keys.COUNTERS, keys.MIRROR])
                if mirror is not None:
                    raise ReadOnly(
                        "the registry is a mirror, which only its link changes: `sarit link promote` makes it writable"
                    )
                stored = Counters() if found is None else records.decode_counters(found.value)
                counters = stored.of(self._installation)
                change = await decide(counters)
                self.counts = Counts(change.counters.schemas, change.counters.groups)
                if not change.rows and change.counters == counters:
                    return change.answer
                if await self._write(change, NOT_EXISTS if found is None else found.version):
                    for id in change.removed:
                        self._rows.forget(id)
                    return change.answer
                await asyncio.sleep(self._random.random() * CHANGE_PAUSE_SECONDS * min(attempt, 10) / 10)
        raise Unavailable("the registry is changed by too many others at once; try again")

    async def _write(self, change: Change[T], version: int) -> bool:
        """Write the rows of a change.  Returns False if another one came before it."""
        updates = [TableUpdate(keys.COUNTERS, records.encode_counters(change.counters), version)]
        # This fails when the registry became a mirror since the counters were read.
        updates.append(TableUpdate(keys.MIRROR, None, NOT_EXISTS))
        updates += (TableUpdate(key, value, NO_VERSION) for key, value in change.rows.items())
        try:
            await self._tables.update(REGISTRY_TABLE, updates)
        except Conflict:
            return False
        except NotFound:
            with suppress(Exists):
                await self._tables.create(REGISTRY_TABLE)
            return False
        return True
