"""Follows the entries: finishes streams, reader groups, tables and scopes that stopped half way, ends transactions that
were decided or have expired.

A entry is written before the thing it points at and removed after; it may point at nothing.  What another controller
is busy with is left alone for a while: a hint must have been seen for `patience` seconds, a transaction
must not have been renewed for its whole lease, both by this controller's monotonic clock.

What is finished may create segments, which waits for long while a store has no room; the end of a transaction makes
room.  So transactions are looked at by themselves, and of the others many at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.records import TransactionRecord, TxnState
from sarit.controller.runner import for_each_bounded
from sarit.core.errors import Conflict, NotFound, SaritError
from sarit.core.limits import RECOVERY_GRACE_SECONDS, RECOVERY_SWEEP_SECONDS

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
            await asyncio.sleep(RECOVERY_SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Look at every hint once."""
        await self._sweep_transactions()
        await self._sweep_others()

    async def _sweep_transactions(self) -> None:
        entries = await self._catalog.pending_work(start=keys.PENDING_TRANSACTIONS)
        self._forget(entries, transactions=True)
        for entry in entries:
            await self._recover(entry, self._recover_transaction)

    async def _sweep_others(self) -> None:
        entries = await self._catalog.pending_work(end=keys.PENDING_TRANSACTIONS)
        self._forget(entries, transactions=False)
        await for_each_bounded(entries, lambda entry: self._recover(entry, self._recover_other))

    def _forget(self, entries: list[tuple[bytes, int]], *, transactions: bool) -> None:
        """Hints of one sort that are no more."""
        alive = {key for key, _ in entries}
        for key in [key for key in self._seen if key.startswith(keys.PENDING_TRANSACTIONS) == transactions]:
            if key not in alive:
                del self._seen[key]

    async def _recover(self, entry: tuple[bytes, int], look: Callable[[bytes, int], Awaitable[None]]) -> None:
        try:
            await look(*entry)
        except SaritError as error:
            _log.warning("%s cannot be finished yet: %s", _text(entry[0]), error)
        except Exception:  # the other hints are followed all the same
            _log.exception("%s cannot be finished yet: the sweep met a bug of ours", _text(entry[0]))

    async def _recover_other(self, key: bytes, version: int) -> None:
        if self._age(key, 0) >= RECOVERY_GRACE_SECONDS:
            await self._complete_pending(key)
            await self._catalog.remove_pending_if_unchanged(key, version)

    async def _complete_pending(self, key: bytes) -> None:
        """Finish what a hint names."""
        if key.startswith(keys.PENDING_SCOPES):
            await self._scopes.complete_pending(keys.last_part(key))
            return
        name, _ = keys.parse_pending_key(key)
        if key.startswith(keys.PENDING_GROUPS):
            await self._groups.complete_pending(name.scope, name.stream)
        elif key.startswith(keys.PENDING_TABLES):
            await self._tables.complete_pending(name.scope, name.stream)
        else:
            await self._streams.complete_pending(name)

    async def _recover_transaction(self, key: bytes, version: int) -> None:
        name, txn = keys.parse_pending_key(key)
        assert txn is not None
        record = await self._find(name, txn)
        if record is None:
            # It ended, or is about to be written.
            if self._age(key, -1) >= RECOVERY_GRACE_SECONDS:
                await self._catalog.remove_pending_if_unchanged(key, version)
            return
        age = self._age(key, record.renewal)
        if record.state is not TxnState.OPEN:
            self._transactions.schedule_completion(name)
        elif age * 1000 >= record.lease_ms:
            try:
                if await self._transactions.abort_if_expired(name, txn, record.renewal):
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


def _text(entry: bytes) -> str:
    return entry.decode(errors="backslashreplace")  # what is told of one that is no text must not end the sweep
