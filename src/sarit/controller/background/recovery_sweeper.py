"""Completes unfinished work of lost controllers: streams, reader groups, tables, scopes, transactions.

The sweeper reads the pending-work index.  An entry is written before its work begins and removed after the work is
complete, so it may be stale.  Another controller may still be busy with the work, so the sweeper waits: an entry must
have kept its version for RECOVERY_GRACE_SECONDS, and an open transaction must not have been renewed for its whole
lease.  Both are measured by the monotonic clock of this controller.  Leases of transactions that were open when the
controller started are not extended: they end by their stored deadlines.

Completing work may create segments, which can wait for long while a store is over its memory limit; ending transactions
frees memory.  So transactions have a sweep of their own, and other entries are processed many at a time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.limits import RECOVERY_GRACE_SECONDS, RECOVERY_SWEEP_SECONDS
from sarit.controller.model import codec
from sarit.controller.model.records import TransactionRecord, TxnState
from sarit.controller.runner import for_each_bounded
from sarit.core.errors import Conflict, NotFound, SaritError
from sarit.core.repeated_log import RepeatedLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.controller.assignment import Assignment
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
    """Two sweeps over the pending-work index: one of transactions, one of all other entries."""

    def __init__(
        self, catalog: Catalog, scopes: Scopes, groups: Groups, tables: KeyValueTables, streams: Streams,
        transactions: Transactions, env: Env, assignment: Assignment,
        finish_round: Callable[[StreamName], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        """`finish_round`: carries out the round that is decided for a mirror; None: there are no links."""
        self._finish_round = finish_round
        self._assignment = assignment
        self._catalog = catalog
        self._scopes = scopes
        self._groups = groups
        self._tables = tables
        self._streams = streams
        self._transactions = transactions
        self._env = env
        self._repeated = RepeatedLog(_log, env.clock.monotonic)
        # By entry: (the transaction's renewal, or the entry's version; the monotonic time when that was first seen).
        self._seen: dict[bytes, tuple[int, float]] = {}
        self._leases: dict[bytes, tuple[int, float]] = {}  # by entry: (renewal, monotonic time of the lease's end)
        self._found_at_start: set[bytes] | None = None  # transactions' entries not examined yet

    def __repr__(self) -> str:
        return f"<RecoverySweeper, {len(self._seen)} entries>"

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
                self._streams.statistics.rounds_postponed += 1
                self._repeated.info(str(error), f"the recovery sweep is postponed: {error}")
            await asyncio.sleep(RECOVERY_SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Process every entry once."""
        await self._sweep_transactions()
        await self._sweep_others()

    async def _sweep_transactions(self) -> None:
        entries = await self._catalog.pending_work(start=keys.PENDING_TRANSACTIONS)
        self._streams.statistics.pending_transactions = len(entries)
        if self._found_at_start is None:
            self._found_at_start = {key for key, _ in entries}
        self._forget(entries, transactions=True)
        for entry in entries:
            await self._recover(entry, self._recover_transaction)

    async def _sweep_others(self) -> None:
        entries = await self._catalog.pending_work(end=keys.PENDING_TRANSACTIONS)
        self._streams.statistics.pending_work = len(entries)
        self._streams.statistics.sweeps += 1
        self._forget(entries, transactions=False)
        await for_each_bounded(entries, lambda entry: self._recover(entry, self._recover_other))

    def _forget(self, entries: list[tuple[bytes, int]], *, transactions: bool) -> None:
        """Drop the state of entries of one kind that no longer exist."""
        alive = {key for key, _ in entries}
        for key in [key for key in self._seen if key.startswith(keys.PENDING_TRANSACTIONS) == transactions]:
            if key not in alive:
                del self._seen[key]
        if transactions:
            self._leases = {key: lease for key, lease in self._leases.items() if key in alive}

    async def _recover(self, entry: tuple[bytes, int], recover: Callable[[bytes, int], Awaitable[None]]) -> None:
        try:
            if self._assignment.is_mine(_owner_name(entry[0])):
                await recover(*entry)
        except SaritError as error:
            self._repeated.warning(str(error), f"{_text(entry[0])} cannot be completed yet: {error}")
        except Exception:  # the other entries go on
            _log.exception("%s cannot be completed yet: unexpected error", _text(entry[0]))

    async def _recover_other(self, key: bytes, version: int) -> None:
        # A new version of an entry means that another change has just begun: its grace period starts again.
        if self._age(key, version) < RECOVERY_GRACE_SECONDS:
            return
        # Complete the work, write the record again, then remove the entry.  A slow controller may have written the
        # entry, and not yet the record.  If it writes the record before the second step, its work is completed, now or
        # by the next sweep; if after, it gets Conflict, and begins again with a new entry.  Without the second step it
        # would store pending work that no entry leads to.
        if await self._complete_pending(key):
            # The entry stays if it was written again since `version` was read.
            await self._catalog.remove_pending_if_unchanged(key, version)

    async def _complete_pending(self, key: bytes) -> bool:
        """Complete the work of an entry.  Returns whether the entry may be removed."""
        if key.startswith(keys.PENDING_SCOPES):
            # The record of a scope need not be written again: a slow deletion that no entry leads to leaves only the
            # scope's record behind, and the next call for that scope removes it.
            await self._scopes.complete_pending(keys.last_part(key))
            return True
        name, _ = keys.parse_pending_key(key)
        if key.startswith(keys.PENDING_GROUPS):
            return await self._groups.recover(name.scope, name.stream)
        if key.startswith(keys.PENDING_TABLES):
            return await self._tables.recover(name.scope, name.stream)
        if self._finish_round is not None:
            found = await self._catalog.find(name)
            if found is not None and found.record.mirrored:
                await self._finish_round(name)
        return await self._streams.recover(name)

    async def _recover_transaction(self, key: bytes, version: int) -> None:
        name, txn = keys.parse_pending_key(key)
        assert txn is not None
        record = await self._find(name, txn)
        if record is None:
            # The transaction ended, or its record is about to be written.
            if self._age(key, -1) >= RECOVERY_GRACE_SECONDS:
                await self._catalog.remove_pending_if_unchanged(key, version)
            return
        # Complete a decided transaction without a grace period.  If another controller does the same, one of the two
        # gets Conflict and reads again.
        if record.state is not TxnState.OPEN:
            self._transactions.schedule_completion(name)
        elif await self._lease_left(key, name, txn, record) <= 0:
            try:
                if await self._transactions.abort_if_expired(name, txn, record.renewal):
                    _log.info("transaction %032x of %s expired after its lease of %d ms", txn, name, record.lease_ms)
            except (Conflict, NotFound):
                return

    async def _lease_left(self, key: bytes, name: StreamName, txn: int, record: TransactionRecord) -> float:
        """Return the seconds until the lease of an open transaction ends."""
        known = self._leases.get(key)
        if known is None or known[0] != record.renewal:
            # A renewal not seen before: its lease begins now, unless the transaction is older than this controller.
            left_ms = record.lease_ms
            if self._found_at_start is not None and key in self._found_at_start:
                record, left_ms = await self._transactions.adopt(name, txn)
                self._found_at_start.discard(key)
            known = self._leases[key] = (record.renewal, self._env.clock.monotonic() + left_ms / 1000)
        return known[1] - self._env.clock.monotonic()

    async def _find(self, name: StreamName, txn: int) -> TransactionRecord | None:
        try:
            (value,) = await self._catalog.get(name.scope, [keys.transaction_key(name.stream, txn)])
        except NotFound:
            return None
        return None if value is None else codec.decode_transaction(value.value)

    def _age(self, key: bytes, renewal: int) -> float:
        """Return the seconds since this controller first saw the entry with this renewal or version."""
        now = self._env.clock.monotonic()
        seen = self._seen.get(key)
        if seen is None or seen[0] != renewal:
            self._seen[key] = (renewal, now)
            return 0.0
        return now - seen[1]


def _owner_name(key: bytes) -> str:
    """Return the scope or the stream (group, table) that an entry is about.  Raises Invalid, Corrupt."""
    if key.startswith(keys.PENDING_SCOPES):
        return keys.last_part(key)
    return str(keys.parse_pending_key(key)[0])


def _text(entry: bytes) -> str:
    return entry.decode(errors="backslashreplace")  # an entry that is not text must not end the sweep
