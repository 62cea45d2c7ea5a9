"""The index in memory: the fake for tests and for the simulation.

`MemoryIndexes` is the disk: it holds the commits of each container, and outlives the `MemoryIndex` handles.  `crash()`
simulates a crash: every handle is cut off, and a commit in progress took effect or not (`IndexFaults.draw`).

`IndexFaults` injects faults of real indexes: a stall, or a failed commit with or without effect (the caller cannot
tell which).  A fenced handle returns old values and fails its next commit.  After a failed commit the handle is dead,
as with SQLite: open the index again and read.

Records are sealed as in SQLite (`record_seals.py`), and `flip` damages one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.errors import Fenced, Unavailable
from sarit.index.limits import INDEX_CHECKSUM_BYTES
from sarit.index.record_seals import seal, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.index.port import WriteBatch


def _never() -> float:
    return 0.0


def _draw_lost() -> float:
    return 1.0


@dataclass(slots=True)
class IndexFaults:
    """The faults of an index, set by a test or drawn by the simulation; none by default.

    `delay()` returns the seconds that a call takes.  The next `fail_before` commits fail without effect, then the next
    `fail_after` take effect and report a failure.  While `unavailable`, every call fails.  A commit that a crash or a
    cancellation interrupts takes effect if `draw()` is below one half."""

    delay: Callable[[], float] = _never
    fail_before: int = 0
    fail_after: int = 0
    unavailable: bool = False
    draw: Callable[[], float] = _draw_lost


@dataclass(slots=True)
class _Table:
    """The records of one container: sealed `values` by key, and their `keys`, sorted."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    epoch: int = 0
    commits: int = 0

    def apply(self, batch: WriteBatch) -> None:
        keys, values = self.keys, self.values
        # Apply the changes in the order that `WriteBatch` defines.
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
            values[key] = seal(key, value)
        self.commits += 1


class MemoryIndex:
    """A handle of one container's index, valid until it is closed, fenced, failed or cut off."""

    def __init__(self, table: _Table, faults: IndexFaults) -> None:
        self._table = table
        self._faults = faults
        self._epoch = table.epoch
        self._dead_reason = ""
        self._writing = asyncio.Lock()
        self._stale: _Table | None = None

    def __repr__(self) -> str:
        return f"<MemoryIndex epoch {self._epoch} {self._dead_reason or 'open'}, {len(self._table.keys)} keys>"

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        await self._begin()
        values = self._view().values
        found = [(key, values.get(key)) for key in keys]
        return [None if stored is None else unseal(key, stored) for key, stored in found]

    async def scan(self, start: bytes, end: bytes, limit: int, *, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        return [(key, unseal(key, stored)) for key, stored in await self._stored(start, end, limit, reverse)]

    async def scan_sizes(
        self, start: bytes, end: bytes, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, int]]:
        found = await self._stored(start, end, limit, reverse)
        return [(key, len(stored) - INDEX_CHECKSUM_BYTES) for key, stored in found]

    async def _stored(self, start: bytes, end: bytes, limit: int, reverse: bool) -> list[tuple[bytes, bytes]]:
        await self._begin()
        table = self._view()
        first, last = bisect_left(table.keys, start), bisect_left(table.keys, end)
        if reverse:
            found = table.keys[max(first, last - limit) : last][::-1]
        else:
            found = table.keys[first : min(last, first + limit)]
        return [(key, table.values[key]) for key in found]

    async def commit(self, batch: WriteBatch) -> None:
        """Commit a batch.  After Unavailable the outcome is unknown, and the handle is dead."""
        async with self._writing:
            self._require()
            if self._table.epoch != self._epoch:
                raise Fenced("the index was opened by another owner")
            try:
                await self._pause()
            except BaseException:
                # Let a cancelled commit take effect or not, as with SQLite, whose thread goes on.
                self._interrupted(batch)
                raise
            if self._dead_reason:
                self._interrupted(batch)
                self._require()
            # Check the epoch again after the pause, since another owner may have opened the index meanwhile.
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
        async with self._writing:
            self._dead_reason = self._dead_reason or "closed"

    def cut_off(self, reason: str) -> None:
        """Fail every later call, since the process of the handle died."""
        self._dead_reason = self._dead_reason or reason

    def fenced(self, view: _Table) -> None:
        """Read only `view` from now on, the records at the moment when another handle was opened."""
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
        if self._dead_reason:
            raise Unavailable(f"the index is {self._dead_reason}")
        if self._faults.unavailable:
            raise Unavailable("the index is unavailable")

    def _interrupted(self, batch: WriteBatch) -> None:
        if self._table.epoch == self._epoch and self._faults.draw() < 0.5:
            self._table.apply(batch)

    def _fail(self, reason: str) -> None:
        self._dead_reason = "dead after a failed commit"
        raise Unavailable(reason)


class MemoryIndexes:
    """The committed records of all containers, that is, the disk of the handles."""

    def __init__(self, faults: IndexFaults | None = None) -> None:
        self.faults = faults if faults is not None else IndexFaults()
        self._tables: dict[int, _Table] = {}
        self._open: dict[int, MemoryIndex] = {}

    async def open(self, container: int) -> MemoryIndex:
        delay = self.faults.delay()
        if delay > 0:
            await asyncio.sleep(delay)
        if self.faults.unavailable:
            raise Unavailable("the index is unavailable")
        table = self._tables.setdefault(container, _Table())
        before = self._open.get(container)
        if before is not None:
            # Give the old handle a copy, which does not show the new owner's commits.
            before.fenced(_Table(dict(table.values), list(table.keys)))
        table.epoch += 1
        index = MemoryIndex(table, self.faults)
        self._open[container] = index
        return index

    def crash(self) -> None:
        """End the process that opened the handles; committed entries stay."""
        for index in self._open.values():
            index.cut_off("lost: its process crashed")
        self._open.clear()

    def snapshot(self, container: int) -> dict[bytes, bytes]:
        """Return a copy of the committed values, damaged or not, for checkers."""
        table = self._tables.get(container)
        return {} if table is None else {key: table.values[key][INDEX_CHECKSUM_BYTES:] for key in table.keys}

    def flip(self, container: int, key: bytes, bit: int) -> None:
        """Flip one bit of a stored record (checksum, then value), modulo its length."""
        table = self._tables[container]
        damaged = bytearray(table.values[key])
        bit %= 8 * len(damaged)
        damaged[bit // 8] ^= 1 << bit % 8
        table.values[key] = bytes(damaged)

    def change(self, container: int, key: bytes, change: Callable[[bytes], bytes]) -> None:
        """Replace a committed value, with the right checksum."""
        table = self._tables[container]
        table.values[key] = seal(key, change(unseal(key, table.values[key])))

    def drop(self, container: int, key: bytes) -> None:
        """Remove a record, as damage to its key does."""
        table = self._tables[container]
        del table.values[key]
        table.keys.remove(key)

    def take(self, container: int) -> object:
        """Remove and return an index, as if its disk were not mounted; `put_back` restores it."""
        return self._tables.pop(container)

    def put_back(self, container: int, taken: object) -> None:
        """Restore an index that `take` removed."""
        assert isinstance(taken, _Table)
        self._tables[container] = taken

    def commits(self, container: int) -> int:
        """Return how many commits were applied, for tests."""
        table = self._tables.get(container)
        return 0 if table is None else table.commits
