"""Follows the hints: finishes streams, reader groups, tables and scopes that stopped half way, ends transactions that
were decided or have expired.

A hint is written before the thing it points at and removed after; it may point at nothing.  What another controller
is busy with is left alone for a while: a hint must have been seen for `patience` seconds, a transaction
must not have been renewed for its whole lease, both by this controller's monotonic clock.

What is finished may create segments, which waits for long while a store has no room; the end of a transaction makes
room.  So transactions are looked at by themselves, and of the others many at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.records import TransactionRecord, TxnState
from sarit.controller.runner import each
from sarit.core.errors import Conflict, NotFound, SaritError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.catalog import Catalog
    from sarit.controller.groups import Groups
    from sarit.controller.key_value_tables import KeyValueTables
    from sarit.controller.scopes import Scopes
    from sarit.controller.streams import Streams
    from sarit.controller.transactions.transactions import Transactions
    from sarit.core.names import StreamName
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")

INTERVAL_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 5.0


class RecoverySweeper:
    """One sweep a second over what the hints name, of transactions and of all else."""

    def __init__(
        self, catalog: Catalog, scopes: Scopes, groups: Groups, tables: KeyValueTables, streams: Streams,
        transactions: Transactions, env: Env,
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._scopes = scopes
        self._groups = groups
        self._tables = tables
        self._streams = streams
        self._transactions = transactions
        self._env = env
        self._seen: dict[bytes, tuple[int, float]] = {}  # hint → (renewal, when it was first seen)

    def __repr__(self) -> str:
        return f"<Sweeper, {len(self._seen)} hints>"

    async def run(self) -> None:
        """Sweep for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self._sweep_transactions))
            tasks.create_task(self._repeat(self._sweep_others))

    async def _repeat(self, sweep: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await sweep()
            except SaritError as error:
                _log.info("the sweep is put off: %s", error)
            await asyncio.sleep(INTERVAL_SECONDS)

    async def sweep(self) -> None:
        """Look at every hint once."""
        await self._sweep_transactions()
        await self._sweep_others()

    async def _sweep_transactions(self) -> None:
        hints = await self._catalog.hints(start=keys.TRANSACTION_HINTS)
        self._forget(hints, transactions=True)
        for hint in hints:
            await self._look_at(hint, self._look_at_transaction)

    async def _sweep_others(self) -> None:
        hints = await self._catalog.hints(end=keys.TRANSACTION_HINTS)
        self._forget(hints, transactions=False)
        await each(hints, lambda hint: self._look_at(hint, self._look_at_other))

    def _forget(self, hints: list[tuple[bytes, int]], *, transactions: bool) -> None:
        """Hints of one sort that are no more."""
        alive = {key for key, _ in hints}
        for key in [key for key in self._seen if key.startswith(keys.TRANSACTION_HINTS) == transactions]:
            if key not in alive:
                del self._seen[key]

    async def _look_at(self, hint: tuple[bytes, int], look: Callable[[bytes, int], Awaitable[None]]) -> None:
        try:
            await look(*hint)
        except SaritError as error:
            _log.warning("%s cannot be finished yet: %s", _text(hint[0]), error)
        except Exception:  # the other hints are followed all the same
            _log.exception("%s cannot be finished yet: the sweep met a bug of ours", _text(hint[0]))

    async def _look_at_other(self, key: bytes, version: int) -> None:
        if self._age(key, 0) >= PATIENCE_SECONDS:
            await self._settle(key)
            await self._catalog.strike(key, version)

    async def _settle(self, key: bytes) -> None:
        """Finish what a hint names."""
        if key.startswith(keys.SCOPE_HINTS):
            await self._scopes.settle(keys.last_part(key))
            return
        name, _ = keys.parse_hint(key)
        if key.startswith(keys.GROUP_HINTS):
            await self._groups.settle(name.scope, name.stream)
        elif key.startswith(keys.TABLE_HINTS):
            await self._tables.settle(name.scope, name.stream)
        else:
            await self._streams.settle(name)

    async def _look_at_transaction(self, key: bytes, version: int) -> None:
        name, txn = keys.parse_hint(key)
        assert txn is not None
        record = await self._find(name, txn)
        if record is None:
            # It ended, or is about to be written.
            if self._age(key, -1) >= PATIENCE_SECONDS:
                await self._catalog.strike(key, version)
            return
        age = self._age(key, record.renewal)
        if record.state is not TxnState.OPEN:
            self._transactions.finish_soon(name)
        elif age * 1000 >= record.lease_ms:
            try:
                if await self._transactions.expire(name, txn, record.renewal):
                    _log.info("transaction %032x of %s outlived its lease of %d ms", txn, name, record.lease_ms)
            except (Conflict, NotFound):
                return

    async def _find(self, name: StreamName, txn: int) -> TransactionRecord | None:
        try:
            (value,) = await self._catalog.get(name.scope, [keys.transaction_key(name.stream, txn)])
        except NotFound:
            return None
        return None if value is None else codec.decode_transaction(value.value)

    def _age(self, key: bytes, renewal: int) -> float:
        """Seconds since this controller saw the hint at this renewal first."""
        now = self._env.clock.monotonic()
        seen = self._seen.get(key)
        if seen is None or seen[0] != renewal:
            self._seen[key] = (renewal, now)
            return 0.0
        return now - seen[1]


def _text(hint: bytes) -> str:
    return hint.decode(errors="backslashreplace")  # what is told of one that is no text must not end the sweep
