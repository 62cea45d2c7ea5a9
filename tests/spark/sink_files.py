"""What the tests of the sink share: its table, its open transactions, and reading a stream back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.client.core.values import TransactionStatus
from sarit.spark.sink import records

if TYPE_CHECKING:
    from sarit.client.blocking.client import Client


def read(client: Client, stream: str) -> list[str]:
    """All events of a stream, as text."""
    return [event.decode() for event in client.reader(stream, end="tail")]


def numbers(client: Client, stream: str) -> list[int]:
    """The numbers that the events of a stream end with, sorted."""
    return sorted(int(event.rpartition(":")[2]) for event in read(client, stream))


def registered(client: Client, table: str) -> list[records.Registration]:
    """What is registered in the sink's table."""
    found = client.table(table).scan()
    kind = records.REGISTRATION
    return [records.decode_registration(e.secondary, e.value) for e in found if e.secondary[:1] == kind]


def record_states(client: Client, table: str) -> list[str]:
    """The states of all recorded batches, in the order of queries and batches."""
    found = client.table(table).scan()
    return [records.decode_record(e.value).state for e in found if e.secondary[:1] == records.RECORD]


def open_registered(client: Client, table: str) -> list[Any]:
    """The registered transactions that are open."""
    return [
        one
        for one in registered(client, table)
        if client.transactional_writer(one.transaction.stream).status(one.transaction.id) is TransactionStatus.OPEN
    ]
