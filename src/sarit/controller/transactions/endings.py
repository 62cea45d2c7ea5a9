"""What is stored when transactions have ended: how they did, and the times that were given with their commits.

A time given with a commit is a note of its writer (`writers.py`): it was that far in the stream then.  It is stored
in the batch that ends the transaction, so that whoever carries a commit out notes it, and notes it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.records import CompletedRecord, TransactionRecord, TxnState, WriterRecord
from sarit.controller.ports import TableUpdate
from sarit.core.limits import MAX_WRITER_ID_BYTES, NO_VERSION, NOT_EXISTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.runner import Lengths
    from sarit.core.names import StreamName


def ended(
    name: StreamName, transaction: int, state: TxnState, now_ms: int, version: int = NO_VERSION
) -> list[TableUpdate]:
    """What is stored when a transaction has ended.

    `version` is that of its record: then one alone ends it, and nothing was stored of its end before."""
    completed = codec.encode_completed(CompletedRecord(state, now_ms))
    first = version != NO_VERSION
    return [
        TableUpdate(keys.transaction_key(name.stream, transaction), None, version),
        TableUpdate(keys.completed_key(name.stream, transaction), completed, NO_VERSION, fresh=first),
        TableUpdate(keys.ending_key(name.stream, now_ms, transaction), b"", NO_VERSION, fresh=first),
    ]


async def rolled(
    catalog: Catalog, name: StreamName, transactions: Sequence[int], lengths: Lengths, now_ms: int
) -> list[TableUpdate]:
    """What is stored when a roll has taken transactions in.  Raises NotFound (scope)."""
    if not transactions:
        return []
    updates = [update for txn in transactions for update in ended(name, txn, TxnState.COMMITTED, now_ms)]
    held = await catalog.get(name.scope, [keys.transaction_key(name.stream, txn) for txn in transactions])
    # One that is not there was ended by somebody else, who has taken this step: ours will be refused.
    records = [None if value is None else codec.decode_transaction(value.value) for value in held]
    return updates + await times_noted(catalog, name, records, lengths)


async def times_noted(
    catalog: Catalog, name: StreamName, committed: Sequence[TransactionRecord | None], lengths: Lengths
) -> list[TableUpdate]:
    """What stores the times given with commits, in the order they were merged in, unless a writer noted a later one.

    The stream is watched from now on if there are any.  Raises NotFound (scope)."""
    notes: dict[str, WriterRecord] = {}
    for at, record in enumerate(committed):
        if record is None or record.timestamp is None or not record.writer:
            continue
        if len(record.writer.encode()) > MAX_WRITER_ID_BYTES:
            continue  # decided by a release that let it pass: no key can hold it, and others wait behind this commit
        before = notes.get(record.writer)
        if before is None or before.time <= record.timestamp:
            position = {segment: behind[at] for segment, behind in lengths.items()}
            notes[record.writer] = WriterRecord(record.timestamp, position)
    if not notes:
        return []
    await catalog.watch(keys.WATCHED_FOR_TIME, name)
    wanted = [keys.writer_key(name.stream, writer) for writer in notes]
    known = await catalog.get(name.scope, wanted)
    return [
        TableUpdate(key, codec.encode_writer(note), NOT_EXISTS if value is None else value.version)
        for key, note, value in zip(wanted, notes.values(), known, strict=True)
        if value is None or codec.decode_writer(value.value).time <= note.time
    ]
