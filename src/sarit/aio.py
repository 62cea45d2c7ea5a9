"""The asyncio client.

    async with sarit.aio.connect() as client:
        await client.create_scope("demo")
        await client.create_stream("demo/numbers")
        async with client.writer("demo/numbers") as writer:
            writer.write("one", key="a")
        async for event in client.reader("demo/numbers", end="tail"):
            ...

A client belongs to the event loop that it was made on.  Values, policies and errors are those of `sarit`, of which this
module is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.aio import Client, Connecting, connect
from sarit.client.groups.group import ReaderGroup, ReaderGroups
from sarit.client.groups.reader import GroupReader
from sarit.client.reader.batch import BatchReader
from sarit.client.reader.reader import EventReader
from sarit.client.streams.byte_streams import ByteReader, ByteWriter
from sarit.client.streams.event_time import TimeWindows
from sarit.client.streams.links import Links
from sarit.client.streams.stream import Stream
from sarit.client.sync.configuration import SharedConfiguration
from sarit.client.sync.coordination import Coordination
from sarit.client.sync.membership import LeaderElection, Membership
from sarit.client.sync.revisioned_stream import RevisionedStream
from sarit.client.sync.synchronizer import StateSynchronizer
from sarit.client.tables.table import Table, Tables
from sarit.client.transactions.transaction import Transaction, TransactionalWriter
from sarit.client.writer.writer import EventWriter

if TYPE_CHECKING:
    from typing import Any

    from sarit.client.search.continuous import ContinuousQueries
    from sarit.client.search.index_search import Searches
    from sarit.client.structures.counter import SharedCounter
    from sarit.client.structures.shared_list import SharedList
    from sarit.client.structures.shared_map import SharedMap
    from sarit.client.structures.shared_queue import SharedQueue
    from sarit.client.structures.shared_set import SharedSet
    from sarit.client.structures.structures import Structures

# Imported when they are first used: few programs use them.
_LAZY = {
    "ContinuousQueries": "search.continuous",
    "Searches": "search.index_search",
    "SharedCounter": "structures.counter",
    "SharedList": "structures.shared_list",
    "SharedMap": "structures.shared_map",
    "SharedQueue": "structures.shared_queue",
    "SharedSet": "structures.shared_set",
    "Structures": "structures.structures",
}

__all__ = [
    "BatchReader",
    "ByteReader",
    "ByteWriter",
    "Client",
    "Connecting",
    "ContinuousQueries",
    "Coordination",
    "EventReader",
    "EventWriter",
    "GroupReader",
    "LeaderElection",
    "Links",
    "Membership",
    "ReaderGroup",
    "ReaderGroups",
    "RevisionedStream",
    "Searches",
    "SharedConfiguration",
    "SharedCounter",
    "SharedList",
    "SharedMap",
    "SharedQueue",
    "SharedSet",
    "StateSynchronizer",
    "Stream",
    "Structures",
    "Table",
    "Tables",
    "TimeWindows",
    "Transaction",
    "TransactionalWriter",
    "connect",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _LAZY:
        raise AttributeError(f"module 'sarit.aio' has no attribute {name!r}")
    found = getattr(import_module(f"sarit.client.{_LAZY[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
