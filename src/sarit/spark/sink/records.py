"""The entries of the sink's table: keys and values as bytes.  docs/formats/spark-sink.md describes them.

The primary key is the id of the query or job, so that its entries share a partition.  The secondary key is a kind, a
batch and a transaction; keys of one kind are in the order of their batches.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Corrupt, Invalid
from sarit.core.limits import MAX_TABLE_VALUE_BYTES, TRANSACTION_ID_BYTES
from sarit.spark.limits import SPARK_QUERY_ID_BYTES
from sarit.spark.sink.protocol import DECIDED, DONE, VOID, Record, Registration, Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
PRIMARY_KEY_BYTES: Final = SPARK_QUERY_ID_BYTES
NO_ID: Final = bytes(TRANSACTION_ID_BYTES)
SECONDARY_KEY_BYTES: Final = 1 + 8 + TRANSACTION_ID_BYTES

OLDEST: Final = b"\x00"  # the oldest batch whose record is retained
RECORD: Final = b"\x01"
REGISTRATION: Final = b"\x02"

OLDEST_KEY: Final = OLDEST + bytes(8) + NO_ID


def record_key(batch: int) -> bytes:
    """Return the secondary key of a batch's record."""
    return RECORD + batch.to_bytes(8, "big") + NO_ID


def registration_key(batch: int, transaction: Transaction) -> bytes:
    """Return the secondary key of a registration."""
    return REGISTRATION + batch.to_bytes(8, "big") + bytes.fromhex(transaction.id)


def registrations_until(batch: int) -> tuple[bytes, bytes]:
    """Return the first and the last key of the registrations of all batches up to and including `batch`."""
    return REGISTRATION, REGISTRATION + batch.to_bytes(8, "big") + b"\xff" * TRANSACTION_ID_BYTES


def records_before(batch: int) -> tuple[bytes, bytes]:
    """Return the first and the last key of the records of all batches before `batch`, which is at least 1."""
    return RECORD, RECORD + (batch - 1).to_bytes(8, "big") + NO_ID


def encode_oldest(batch: int) -> bytes:
    """Encode the oldest batch whose record is retained."""
    return _dump({"oldest": batch})


def decode_oldest(value: bytes) -> int:
    """Decode the oldest batch whose record is retained.  Raises Corrupt, Invalid (a later version)."""
    found = _load(value).get("oldest")
    if not isinstance(found, int):
        raise _wrong(value)
    return found


def encode_record(record: Record) -> bytes:
    """Encode a batch's record.  Raises Invalid: it has too many transactions."""
    winners: dict[str, list[str]] = {}
    for winner in record.winners:
        winners.setdefault(winner.stream, []).append(winner.id)
    created = {"created": dict(record.created)} if record.created else {}
    value = _dump({"state": record.state, "winners": winners, **created})
    if len(value) > MAX_TABLE_VALUE_BYTES:
        raise Invalid(
            f"a batch of {len(record.winners)} transactions is too large to be recorded ({len(value)} of "
            f"{MAX_TABLE_VALUE_BYTES} bytes): write it from fewer partitions (coalesce), or to fewer streams at once"
        )
    return value


def decode_record(value: bytes) -> Record:
    """Decode a batch's record.  Raises Corrupt, Invalid (a later version)."""
    found = _load(value)
    state, winners = found.get("state"), found.get("winners")
    created = found.get("created", {})
    if state not in (VOID, DECIDED, DONE) or not isinstance(winners, dict) or not isinstance(created, dict):
        raise _wrong(value)
    transactions = tuple(sorted(Transaction(stream, one) for stream, ids in winners.items() for one in ids))
    return Record(state, transactions, tuple(sorted(created.items())))


def encode_registration(transaction: Transaction, partition: int, attempt: int) -> bytes:
    """Encode a registration.  Partition and attempt are only for people who look at the table."""
    return _dump({"stream": transaction.stream, "partition": partition, "attempt": attempt})


def decode_registration(secondary: bytes, value: bytes) -> Registration:
    """Decode a registration from its secondary key and its value.  Raises Corrupt, Invalid (a later version)."""
    stream = _load(value).get("stream")
    if not isinstance(stream, str):
        raise _wrong(value)
    return Registration(int.from_bytes(secondary[1:9], "big"), Transaction(stream, secondary[9:].hex()))


def _dump(fields: Mapping[str, object]) -> bytes:
    return json.dumps({"version": VERSION, **fields}, separators=(",", ":")).encode()


def _load(value: bytes) -> dict[str, object]:
    try:
        found = parse_json(value)
    except ValueError:
        raise _wrong(value) from None
    if not isinstance(found, dict) or not isinstance(found.get("version"), int):
        raise _wrong(value)
    if found["version"] > VERSION:
        raise Invalid(f"the sink's table was written by a later release (version {found['version']}): use that one")
    return found


def _wrong(value: bytes) -> Corrupt:
    return Corrupt(f"an entry of the sink's table is not the sink's: {value[:60]!r}. Is stateTable another table?")
