"""Transactions of the Python client on the stream: committed, aborted, or abandoned until their lease expires.

Each has its own sequences in the history of the stream.  Its events count as sent when its commit is requested, and as
acknowledged when the commit is known to be decided.  After a Conflict they count as refused: no reader may see them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from checkers.log import ANY_SEGMENT
from sarit.client.transactions.transaction import TransactionalWriter
from sarit.core.errors import Conflict, NotFound, Unavailable
from simulation.events import body
from simulation.world import now

if TYPE_CHECKING:
    from checkers.log import LogHistory
    from sarit.client.aio import Client
    from sarit.core.names import StreamName
    from simulation.cluster import Cluster

FRAME_BYTES: Final = 8
_KEYS: Final = 3
_LEASE_SECONDS: Final = 20.0


class StreamActors(Protocol):
    """What the transactions share with the other actors on the stream."""

    cluster: Cluster
    log: LogHistory
    name: StreamName
    commit_requests: list[dict[int, int]]
    acked_events: int

    async def client(self) -> Client:
        """A new client; the stream exists."""

    def new_sequence(self) -> int:
        """A new sequence number."""


class StreamCommitter:
    """One transaction after the other."""

    def __init__(self, streams: StreamActors, number: int) -> None:
        self._streams = streams
        self._cluster = streams.cluster
        self._rng = streams.cluster.rng(f"stream transactions {number}")

    async def run(self) -> None:
        """A drawn number of transactions."""
        options = self._cluster.options
        client = await self._streams.client()
        writer = TransactionalWriter(client.session, self._streams.name, lease_seconds=_LEASE_SECONDS)
        for _ in range(options.transactions):
            await asyncio.sleep(self._rng.random() * 4 * options.think_seconds)
            try:
                await self._one(writer)
            except Unavailable as error:
                self._cluster.trace.note("transaction", repr(error))
        await writer.close()
        await client.close()

    async def _one(self, writer: Any) -> None:
        rng, streams = self._rng, self._streams
        transaction = await writer.begin()
        keys = _KEYS if rng.random() < 0.5 else 1
        sequences = {f"key-{number}": [streams.new_sequence(), 0] for number in range(keys)}
        events: list[tuple[int, int, bytes]] = []
        for _ in range(rng.randint(1, 2 * self._cluster.options.block_events)):
            key = rng.choice(list(sequences))
            sequences[key][1] += 1
            sequence, number = sequences[key]
            event = body(sequence, number, rng.randrange(self._cluster.options.event_bytes))
            events.append((sequence, number, event))
            transaction.write(event, key)
        chance = rng.random()
        try:
            if chance < 0.1:
                transaction.release()
                self._cluster.trace.probe("stream_transaction_abandoned")
                return
            if chance < 0.25:
                await transaction.abort()
                self._cluster.trace.probe("stream_transaction_aborted")
                return
            await transaction.flush()
        except (Conflict, NotFound):
            self._cluster.trace.probe("stream_transaction_lease_expired")
            return
        for sequence, number, event in events:
            streams.log.sent(sequence, number, ANY_SEGMENT, FRAME_BYTES + len(event), now())
        request = {sequence: number for sequence, number in sequences.values() if number}
        streams.commit_requests.append(request)
        await self._commit(writer, transaction, request)

    async def _commit(self, writer: Any, transaction: Any, sizes: dict[int, int]) -> None:
        log = self._streams.log
        while True:
            try:
                await writer.commit(transaction.id)
            except Conflict:
                self._cluster.trace.probe("stream_transaction_refused")
                for sequence, last in sizes.items():
                    for number in range(1, last + 1):
                        log.refused(sequence, number)
                break
            except NotFound:  # it ended long ago, committed or aborted
                break
            except Unavailable:
                await asyncio.sleep(0.1 + self._rng.random())
                continue
            self._cluster.trace.probe("stream_transaction_committed")
            for sequence, last in sizes.items():
                log.acked(sequence, last, ANY_SEGMENT, -1, now())
                self._streams.acked_events += last
            break
        transaction.release()
