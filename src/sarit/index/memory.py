"""The index in memory: for tests, and for the simulation, where it misbehaves as the real ones do.

`MemoryIndexes` is the disk: it holds what was committed, container by container, and outlives
the `MemoryIndex` handles opened on it.  A simulated crash is `crash()`: every handle is cut
off, and what was being committed is there or not (`IndexFaults.draw`).

What the real ones do, and this one when asked through `IndexFaults`: stall; fail a commit
before it was applied, or after (the caller cannot tell); go on answering old values once
fenced, and fail the next commit.  After a failed commit the handle is dead, as SQLite's is:
open again and read what is there.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.errors import Fenced, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.index.port import WriteBatch


def _never() -> float:
    return 0.0


def _draw_lost() -> float:
    return 1.0


@dataclass(slots=True)
class IndexFaults:
    """What goes wrong, set by a test or drawn by the simulation; the default: nothing.

    `delay` is asked before each call for the seconds it takes.  The next `fail_before` commits
    fail and change nothing, then the next `fail_after` are applied and fail all the same.  While
    `unavailable`, every call fails.  Of a commit that a crash or a cancellation interrupts, `draw()`
    below one half says that it was applied.
    """

    delay: Callable[[], float] = _never
    fail_before: int = 0
    fail_after: int = 0
    unavailable: bool = False
    draw: Callable[[], float] = _draw_lost


@dataclass(slots=True)
class _Table:
    """One container's entries; `keys` are those of `values`, sorted."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    epoch: int = 0
    commits: int = 0

    def apply(self, batch: WriteBatch) -> None:
        keys, values = self.keys, self.values
        for start, end in batch.range_deletes:
            first, last = bisect_left(keys, start), bisect_left(keys, end)
            for key in keys[first:last]:
                del values[key]
            del keys[first:last]
        for key in batch.deletes:
            if key in values:
                del values[key]
                del keys[bisect_left(keys, key)]
        for key, value in batch.puts.items():
            if key not in values:
                insort(keys, key)
            values[key] = bytes(value)
        self.commits += 1


class MemoryIndex:
    """A handle on one container's index, until it is closed, fenced, failed or cut off."""

    def __init__(self, table: _Table, faults: IndexFaults) -> None:
        self._table = table
        self._faults = faults
        self._epoch = table.epoch
        self._gone = ""
        self._writing = asyncio.Lock()
        self._stale: _Table | None = None

    def __repr__(self) -> str:
        return f"<MemoryIndex epoch {self._epoch} {self._gone or 'open'}, {len(self._table.keys)} keys>"

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Index`."""
        await self._begin()
        values = self._view().values
        return [values.get(key) for key in keys]

    async def scan(self, start: bytes, end: bytes, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """See `Index`."""
        await self._begin()
        table = self._view()
        first, last = bisect_left(table.keys, start), bisect_left(table.keys, end)
        if reverse:
            found = table.keys[max(first, last - limit) : last][::-1]
        else:
            found = table.keys[first : min(last, first + limit)]
        return [(key, table.values[key]) for key in found]

    async def commit(self, batch: WriteBatch) -> None:
        """See `Index`.  Unavailable: it may or may not have been applied, and the handle is dead."""
        async with self._writing:
            self._require()
            if self._table.epoch != self._epoch:
                raise Fenced("the index was opened by another owner")
            try:
                await self._pause()
            except BaseException:
                self._interrupted(batch)
                raise
            if self._gone:
                self._interrupted(batch)
                self._require()
            if self._table.epoch != self._epoch:
                raise Fenced("the index was opened by another owner")
            if self._faults.fail_before > 0:
                self._faults.fail_before -= 1
                self._fail("the commit failed")
            self._table.apply(batch)
            if self._faults.fail_after > 0:
                self._faults.fail_after -= 1
                self._fail("the commit failed")

    async def close(self) -> None:
        """See `Index`."""
        async with self._writing:
            self._gone = self._gone or "closed"

    def cut_off(self, reason: str) -> None:
        """The process died, or the owner changed: this handle reaches the disk no more."""
        self._gone = self._gone or reason

    def fenced(self, view: _Table) -> None:
        """Another handle was opened: go on reading what there was until then."""
        if self._stale is None:
            self._stale = view

    def _view(self) -> _Table:
        return self._table if self._stale is None else self._stale

    async def _begin(self) -> None:
        self._require()
        await self._pause()
        self._require()

    async def _pause(self) -> None:
        delay = self._faults.delay()
        if delay > 0:
            await asyncio.sleep(delay)

    def _require(self) -> None:
        if self._gone:
            raise Unavailable(f"the index is {self._gone}")
        if self._faults.unavailable:
            raise Unavailable("the index is away")

    def _interrupted(self, batch: WriteBatch) -> None:
        if self._table.epoch == self._epoch and self._faults.draw() < 0.5:
            self._table.apply(batch)

    def _fail(self, reason: str) -> None:
        self._gone = "dead after a failed commit"
        raise Unavailable(reason)


class MemoryIndexes:
    """What was committed, by container: the disk under the handles."""

    def __init__(self, faults: IndexFaults | None = None) -> None:
        self.faults = faults if faults is not None else IndexFaults()
        self._tables: dict[int, _Table] = {}
        self._open: dict[int, MemoryIndex] = {}

    async def open(self, container: int) -> MemoryIndex:
        """See `IndexProvider`."""
        delay = self.faults.delay()
        if delay > 0:
            await asyncio.sleep(delay)
        if self.faults.unavailable:
            raise Unavailable("the index is away")
        table = self._tables.setdefault(container, _Table())
        before = self._open.get(container)
        if before is not None:
            before.fenced(_Table(dict(table.values), list(table.keys)))
        table.epoch += 1
        index = MemoryIndex(table, self.faults)
        self._open[container] = index
        return index

    def crash(self) -> None:
        """End the process that opened the handles; what was committed stays."""
        for index in self._open.values():
            index.cut_off("lost: its process crashed")
        self._open.clear()

    def snapshot(self, container: int) -> dict[bytes, bytes]:
        """A copy of what is committed, for checkers."""
        table = self._tables.get(container)
        return {} if table is None else {key: table.values[key] for key in table.keys}

    def commits(self, container: int) -> int:
        """How many commits were applied, for tests."""
        table = self._tables.get(container)
        return 0 if table is None else table.commits
