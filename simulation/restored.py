"""Restores a backup that was taken under faults, and checks that what a node serves of it is of one moment.

The order is that of `ops/backup/restore.py`: the claim of directory and storage, chunks, indexes, logs that continue
after the checkpoints, the description.  The restored node takes the place of the node at its address, on an empty disk.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from checkers import log as log_checker
from checkers import table as table_checker
from checkers import txn as txn_checker
from checkers.snapshot import Moment, log_as_of, places_of_all, table_as_of
from checkers.stream import StreamHistory
from sarit.index.port import WriteBatch
from sarit.process.ownership.claims import write_description
from sarit.store.container.recovery import read_checkpoint, record_log
from simulation.actors.readers import scan
from simulation.actors.tables import read_everything
from simulation.cluster import Cluster
from simulation.disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from checkers.log import LogHistory, Violation
    from simulation.actors.backups import Backups, Taken
    from simulation.actors.streams import Streams
    from simulation.actors.transactions import Transactions
    from simulation.events import History
    from simulation.world import Process

# Commits and scales that were under way are completed by the restored node.
_COMPLETION_SECONDS: Final = 30.0
_NAME: Final = "as restored"


class Restored:
    """Checks one of the backups of a run, after all else."""

    def __init__(
        self, cluster: Cluster, backups: Backups, history: History, transactions: Transactions, streams: Streams
    ) -> None:
        self._cluster = cluster
        self._backups = backups
        self._history = history
        self._transactions = transactions
        self._streams = streams
        self._moment = Moment()
        self._node = cluster

    def __repr__(self) -> str:
        return f"<Restored of {self._backups!r}>"

    async def check(self, segments: Sequence[str], tables: Sequence[str]) -> None:
        """Restore a drawn backup, if there is one, and add what is wrong to the failures."""
        cluster, taken = self._cluster, self._backups.taken
        if not taken:
            return
        one = cluster.rng("restore").choice(taken)
        cluster.trace.note("phase", f"restore the backup of {one.begun:.6f} to {one.ended:.6f}")
        cluster.trace.probe("backup_restored")
        self._node = node = await restore(cluster, one)
        if not await node.start():
            cluster.failures.append("backup: the restored node does not start")
            return
        await asyncio.sleep(_COMPLETION_SECONDS)
        found = [
            *await self._segments(one, segments), *await self._stream(one), *await self._tables(one, tables),
            *self._moment.check(),
        ]  # fmt: skip
        cluster.failures.extend(f"backup: {violation}" for violation in found)

    async def _segments(self, taken: Taken, segments: Sequence[str]) -> list[Violation]:
        history, whole = self._history, self._history.log
        history.log = shown = log_as_of(whole, taken.begun, taken.ended)
        try:
            await scan(self._node, history, list(segments), _NAME)
        finally:
            history.log = whole
        self._moment.log(whole, shown, "segments")
        return [*_of_log(whole, shown), *txn_checker.check(shown, self._transactions.sizes)]

    async def _stream(self, taken: Taken) -> list[Violation]:
        streams, whole, order = self._streams, self._streams.log, self._streams.stream
        if not self._cluster.options.stream_writers:
            return []
        streams.log = shown = log_as_of(whole, taken.begun, taken.ended)
        streams.stream, streams.cluster = restored, _ = StreamHistory(), self._node
        try:
            await streams.scan(_NAME, only_found=True)
        finally:
            streams.log, streams.stream, streams.cluster = whole, order, self._cluster
        self._moment.log(whole, shown, "the stream")
        return [
            *_of_log(whole, shown, streams.may_commit), *txn_checker.check(shown, streams.sizes),
            *restored.check(),
        ]  # fmt: skip

    async def _tables(self, taken: Taken, tables: Sequence[str]) -> list[Violation]:
        history, whole = self._history, self._history.table
        history.table = shown = table_as_of(whole, taken.begun, taken.ended)
        before = len(shown.reads)
        try:
            await read_everything(self._node, history, list(tables), _NAME)
        finally:
            history.table = whole
        self._moment.table(whole, {read.key: (read.version, read.value) for read in shown.reads[before:]})
        return table_checker.check(shown)


def _of_log(whole: LogHistory, shown: LogHistory, transactions: Collection[int] = ()) -> Iterator[Violation]:
    """`transactions`: those that the restored node may complete."""
    yield from log_checker.check(shown)
    yield from log_checker.check(places_of_all(whole, shown, transactions))


async def restore(cluster: Cluster, taken: Taken) -> Cluster:
    """End the cluster; a node restored from a backup, at the node's address, which does not run yet."""
    cluster.end(power=False)
    options = replace(cluster.options, stores=0, bookies=0, missing_pieces=False, covered_rot=False)
    fresh = Cluster(cluster.world, options)
    fresh.quiet, fresh.failures = True, cluster.failures
    fresh.net.faults.lost_at_connect = 0.0
    fresh.use_disk(SimulatedDisk(cluster.rng("disk of the restored node")))
    process = fresh.machine.start()
    await process.spawn(_fill(fresh, process, taken), "restore")
    fresh.end(power=False)
    return fresh


async def _fill(cluster: Cluster, process: Process, taken: Taken) -> None:
    claim, storage, logs = await cluster.claim(process)
    for name, data in taken.chunks.items():
        await storage.write(name, [data])
    for number, rows in taken.rows.items():
        index = await cluster.indexes.open(number)
        await index.commit(WriteBatch(puts=dict(rows)))
        log = await logs.create_after(number, (await read_checkpoint(index)).history)
        await record_log(index, log)
        await log.close()
        await index.close()
    write_description(cluster.config(), process.env, claim.node, claim.index, complete=True)
    claim.lock.close()
