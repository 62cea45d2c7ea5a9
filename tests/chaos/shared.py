"""A key-value table and a synchronizer, used by several clients at once during the faults.

The table: changes on condition of the version read before, checked by `checkers/table.py`.  The shared state is the
list of all updates, so that every copy has the whole history: no update twice, no acknowledged one lost, no refused one
included, and all copies equal.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

from checkers import table as table_checker
from checkers.log import Violation
from checkers.table import ABSENT, Read, TableHistory, Update
from sarit.client.aio import connect
from sarit.core.errors import Conflict, Unavailable
from tests.chaos.events import SCOPE
from tests.chaos.parts import Pulse, now

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine
    from typing import Any

    from sarit.client.aio import Client
    from sarit.client.sync.revisioned_stream import Revision
    from sarit.client.sync.synchronizer import StateSynchronizer

TABLE: Final = f"{SCOPE}/pairs"
STATE: Final = f"{SCOPE}/state"
_USERS: Final = 3
_KEYS: Final = 12
_SHARERS: Final = 3
_COMPACT_BYTES: Final = 4000


class TableUsers:
    """Several clients of one table."""

    def __init__(self, address: str, rng: random.Random) -> None:
        self.pulse = Pulse()
        self.history = TableHistory()
        self._address = address
        self._rng = rng
        self._values = 0

    async def create(self, client: Client) -> None:
        """Make the table."""
        await client.tables.create(TABLE, primary_key_bytes=4, partitions=3)

    def work(self, client: Client) -> dict[str, Coroutine[Any, Any, None]]:
        """See `Part`."""
        return {f"table user {number}": self._use(number) for number in range(_USERS)}

    def check(self) -> list[Violation]:
        """See `Part`."""
        return table_checker.check(self.history)

    async def scan(self, client: Client) -> None:
        """The whole table."""
        begun = now()
        entries = {entry.primary: entry async for entry in client.table(TABLE).scan()}
        for key in map(_key, range(_KEYS)):
            found = entries.get(key)
            self._read(key, None if found is None else (found.value, found.version), begun)

    def _read(self, key: bytes, found: tuple[bytes, int] | None, begun: float) -> int:
        value, version = found or (b"", ABSENT)
        self.history.reads.append(Read(key, value, version, begun, now()))
        return version

    async def _use(self, number: int) -> None:
        async with await connect(self._address) as client:
            table = client.table(TABLE)
            while not self.pulse.stopping.is_set():
                await asyncio.sleep(self._rng.random() * 0.05)
                key = _key(self._rng.randrange(_KEYS))
                begun = now()
                try:
                    found = await table.get(key)
                except Unavailable:
                    continue
                version = self._read(key, None if found is None else (found.value, found.version), begun)
                self._values += 1
                value = b"%d.%d" % (number, self._values)
                begun = now()
                try:
                    if version == ABSENT:
                        made = await table.insert(key, value)
                    else:
                        made = await table.replace(key, value, version)
                except Unavailable:
                    self.history.updates.append(Update(key, value, version, None, begun, inf))
                except Conflict:
                    self.history.updates.append(Update(key, value, version, None, begun, now(), refused=True))
                else:
                    self.history.updates.append(Update(key, value, version, made, begun, now()))
                self.pulse.steps[f"table user {number}"] += 1


def _key(number: int) -> bytes:
    return b"k%03d" % number


class SynchronizerUsers:
    """Several copies of one state."""

    def __init__(self, address: str, rng: random.Random) -> None:
        self.pulse = Pulse()
        self._address = address
        self._rng = rng
        self._begun: Counter[bytes] = Counter()
        self._acked: list[bytes] = []
        self._violations: list[Violation] = []
        self._last: list[bytes] = []

    async def create(self, client: Client) -> None:
        """Make the state."""
        copy = await _copy(client)
        await copy.initialize(b"")

    def work(self, client: Client) -> dict[str, Coroutine[Any, Any, None]]:
        """See `Part`."""
        return {f"sharer {number}": self._share(number) for number in range(_SHARERS)}

    def check(self) -> list[Violation]:
        """See `Part`."""
        return self._violations

    async def scan(self, client: Client) -> None:
        """A new copy."""
        acked = list(self._acked)
        self._judge((await _copy(client)).state, acked, "a new copy")

    def _judge(self, state: tuple[bytes, ...], acked: list[bytes], who: str) -> None:
        """A copy fetched after `acked` were acknowledged."""
        counts = Counter(state)
        for kind, wrong in (
            ("state-duplicate", [update for update, count in counts.items() if count > 1]),
            ("state-lost", [update for update in acked if update not in counts]),
            ("state-phantom", [update for update in state if update not in self._begun]),
        ):
            if wrong:
                self._violations.append(Violation(kind, f"{who}: {wrong[:3]} of {len(state)} updates"))
        common = min(len(state), len(self._last))
        if list(state[:common]) != self._last[:common]:
            self._violations.append(Violation("state-order", f"{who} has another order than a copy before"))
        if len(state) > len(self._last):
            self._last = list(state)

    async def _share(self, number: int) -> None:
        count = 0
        async with await connect(self._address) as client:
            copy: StateSynchronizer[tuple[bytes, ...]] | None = None
            while not self.pulse.stopping.is_set():
                await asyncio.sleep(self._rng.random() * 0.2)
                acked = list(self._acked)
                count += 1
                update = b"%d.%d" % (number, count)
                try:
                    if copy is None:
                        copy = await _copy(client)
                    if self._rng.random() < 0.3:
                        await copy.fetch()
                        self._judge(copy.state, acked, f"copy {number}")
                    self._begun[update] += 1
                    await copy.update(lambda _, update=update: [update])  # type: ignore[misc]
                except Unavailable:
                    copy = None  # it may have been done
                    continue
                self._acked.append(update)
                self.pulse.steps[f"sharer {number}"] += 1


async def _copy(client: Client) -> StateSynchronizer[tuple[bytes, ...]]:
    return await client.coordination.synchronizer(
        STATE, _initial, _apply, snapshot=b"\n".join, compact_after_bytes=_COMPACT_BYTES
    )


def _initial(data: bytes) -> tuple[bytes, ...]:
    return tuple(data.split(b"\n")) if data else ()


def _apply(state: tuple[bytes, ...], update: bytes, _: Revision) -> tuple[bytes, ...]:
    return (*state, update)
