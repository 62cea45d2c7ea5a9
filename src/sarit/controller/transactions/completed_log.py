"""Stores the outcomes of completed transactions, and the event times that came with commits.

The latest outcomes can be listed; old ones are removed.

A time given with a commit is a note of its writer (`writers.py`): the writer's position in the stream at that time.
The note is stored in the batch that ends the transaction, so that it is stored exactly once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from sarit.controller import keys
from sarit.controller.limits import (
    COMPLETED_TRANSACTION_MS,
    FIRST_COMPLETED_SPAN_MS,
    MAX_LISTED_TRANSACTIONS,
    MAX_STREAMS_COUNTED_FOR_PRUNING,
    MAX_WRITER_ID_BYTES,
)
from sarit.controller.model import codec
from sarit.controller.model.records import CompletedRecord, TransactionRecord, TxnState, WriterRecord
from sarit.controller.ports import TableUpdate
from sarit.core.limits import NOT_EXISTS
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.runner import Lengths
    from sarit.core.names import StreamName
    from sarit.env.ports import Env

_PRUNE_AFTER: Final = 200
_SPAN_FACTOR: Final = 4


class CompletedTransactionLog:
    """Outcomes of transactions, by stream."""

    def __init__(self, catalog: Catalog, env: Env) -> None:
        self._catalog = catalog
        self._env = env
        self._since_prune: OrderedDict[StreamName, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<CompletedTransactionLog, {len(self._since_prune)} streams counted>"

    async def latest(self, name: StreamName) -> list[tuple[int, TxnState]]:
        """Return the latest completed transactions, at most MAX_LISTED_TRANSACTIONS.  Raises NotFound."""
        await self._catalog.require(name)
        # Keys are in order of time, and there may be 100,000: search back in growing spans until there are enough.
        now, span = self._env.clock.wall_ms(), FIRST_COMPLETED_SPAN_MS
        last = await self._since(name, max(0, now - span))
        while len(last) < MAX_LISTED_TRANSACTIONS and span < now:
            span *= _SPAN_FACTOR
            last = await self._since(name, max(0, now - span))
        txns = [keys.transaction_of(key) for key in last]
        values = await self._catalog.get(name.scope, [keys.completed_key(name.stream, txn) for txn in txns])
        ends = {txn: value for txn, value in zip(txns, values, strict=True) if value is not None}
        return [(txn, codec.decode_completed(value.value).state) for txn, value in ends.items()]

    async def _since(self, name: StreamName, time_ms: int) -> list[bytes]:
        prefix, last = keys.of_stream(name.stream, keys.COMPLETED_BY_TIME), list[bytes]()
        after = keys.completed_by_time_key(name.stream, time_ms, 0)
        while rows := await self._catalog.scan_once(name.scope, prefix, after):
            after = rows[-1][0]
            last = [*last, *(key for key, _ in rows)][-MAX_LISTED_TRANSACTIONS:]
        return last

    async def prune(self, name: StreamName, count: int) -> None:
        """Count `count` completed transactions of a stream, and remove its old outcomes after each _PRUNE_AFTER."""
        since = self._since_prune.pop(name, 0) + count
        if since < _PRUNE_AFTER:
            self._since_prune[name] = since
            if len(self._since_prune) > MAX_STREAMS_COUNTED_FOR_PRUNING:
                # Drop the count of the stream counted longest ago: its old outcomes stay a little longer.
                self._since_prune.popitem(last=False)
            return
        prefix, limit = keys.of_stream(name.stream, keys.COMPLETED_BY_TIME), 10 * _PRUNE_AFTER
        # Scan from the oldest on, ten times as many as complete between two prunes, so that a backlog shrinks.
        rows = await self._catalog.scan(name.scope, prefix, limit=limit)
        latest = keys.completed_by_time_key(
            name.stream, max(0, self._env.clock.wall_ms() - COMPLETED_TRANSACTION_MS), 0
        )
        # Keep the newest ones whatever their age, since `latest` lists them.
        old = [key for key, _ in rows[:-MAX_LISTED_TRANSACTIONS] if key < latest]
        updates = [TableUpdate(key, None, NO_VERSION) for key in old]
        updates += (TableUpdate(keys.completed_key(name.stream, keys.transaction_of(k)), None, NO_VERSION) for k in old)
        if updates:
            await self._catalog.update(name.scope, updates)


def completion_updates(
    name: StreamName, transaction: int, state: TxnState, now_ms: int, version: int = NO_VERSION
) -> list[TableUpdate]:
    """Return the updates that store the end of a transaction.

    `version`: the version that the transaction's record must still have, so that only one controller ends it.  The keys
    of the outcome are new then.  NO_VERSION: the record may have any version."""
    completed = codec.encode_completed(CompletedRecord(state, now_ms))
    first = version != NO_VERSION
    return [
        TableUpdate(keys.transaction_key(name.stream, transaction), None, version),
        TableUpdate(keys.completed_key(name.stream, transaction), completed, NO_VERSION, fresh=first),
        TableUpdate(keys.completed_by_time_key(name.stream, now_ms, transaction), b"", NO_VERSION, fresh=first),
    ]


async def roll_updates(
    catalog: Catalog, name: StreamName, transactions: Sequence[int], lengths: Lengths, now_ms: int
) -> list[TableUpdate]:
    """Return the updates that store the end of transactions that a roll has merged.  Raises NotFound (scope)."""
    updates = [update for txn in transactions for update in completion_updates(name, txn, TxnState.COMMITTED, now_ms)]
    values = await catalog.get(name.scope, [keys.transaction_key(name.stream, txn) for txn in transactions])
    # A missing record means that another controller has completed this step: the batch of these updates will conflict.
    records = [None if value is None else codec.decode_transaction(value.value) for value in values]
    return updates + await commit_time_updates(catalog, name, records, lengths)


async def commit_time_updates(
    catalog: Catalog, name: StreamName, committed: Sequence[TransactionRecord | None], lengths: Lengths
) -> list[TableUpdate]:
    """Return the updates that store the times given with commits, unless a writer noted a later one.  `committed`: in
    the order of the merges.

    Enters the stream in the maintenance index if there are any.  Raises NotFound (scope)."""
    notes: dict[str, WriterRecord] = {}
    for at, record in enumerate(committed):
        if record is None or record.timestamp is None or not record.writer:
            continue
        if len(record.writer.encode()) > MAX_WRITER_ID_BYTES:
            continue  # accepted by an earlier release, but too long for a key: it must not block later commits
        before = notes.get(record.writer)
        # At equal times take the later merge, which has the later position.
        if before is None or before.time <= record.timestamp:
            # The position is the length of each target after this transaction was merged.
            position = {segment: behind[at] for segment, behind in lengths.items()}
            notes[record.writer] = WriterRecord(record.timestamp, position)
    if not notes:
        return []
    # Enter the stream before the notes are stored: without an entry no watermark would be made from them.
    await catalog.index_for_maintenance(keys.WATERMARK_INDEX, name)
    wanted = [keys.writer_key(name.stream, writer) for writer in notes]
    known = await catalog.get(name.scope, wanted)
    return [
        TableUpdate(key, codec.encode_writer(note), NOT_EXISTS if value is None else value.version)
        for key, note, value in zip(wanted, notes.values(), known, strict=True)
        if value is None or codec.decode_writer(value.value).time <= note.time
    ]
