"""Completes decided transactions: one background worker per stream with transactions to complete.

A decision (`transactions.py`) is durable before a worker starts.  The worker reads all transactions of its stream that
have not ended, deletes the segments of aborted ones, and merges committed ones in the order of their decisions, up to
COMMITS_AT_ONCE in a batch.  Transactions of a past epoch are rolled in by a scale (`model.streams.roll`).

Several controllers may work on one stream.  Every update expects the versions that were read; the slower worker gets
Conflict and reads again.  All steps can be repeated, so after a crash the recovery sweeper just starts a worker.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from sarit.controller import keys
from sarit.controller.catalog import Found
from sarit.controller.limits import COMMIT_RETRY_SECONDS
from sarit.controller.model import codec, streams, transactions
from sarit.controller.model.effects import DeleteSegment
from sarit.controller.model.epochs import stand_ins
from sarit.controller.model.records import StreamRecord, TransactionRecord, TxnState
from sarit.controller.model.transactions import Event
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import gather_all
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.controller.transactions.completed_log import CompletedTransactionLog, commit_time_updates, completion_updates
from sarit.core.errors import Conflict, NotFound, SaritError, Sealed
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import SegmentId, StreamName, transaction_segment
from sarit.core.repeated_log import RepeatedLog
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.epochs import Epoch, SegmentRange
    from sarit.controller.runner import EffectRunner
    from sarit.controller.streams import Streams
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")

COMMITS_AT_ONCE: Final = 100

Live = tuple[int, TransactionRecord, int]  # id, record, version
Outcomes = dict[int, TxnState]


class LiveTransactions(NamedTuple):
    """The transactions of a stream that have not ended.

    `due`: those whose place in the order of commits is final, because every earlier decision is known."""

    live: list[Live]
    due: list[Live]


@dataclass(slots=True)
class CommitWorker:
    """The state of one worker.

    `rerun`: a decision came while a batch ran.  `ended_entries`: pending-work entries of completed transactions, to be
    removed.  `outcomes`: those of the batch in progress.  `batch`: gets `outcomes` as its result when the batch ends.
    `waiting`: how many calls wait for an outcome."""

    task: asyncio.Task[None]
    rerun: bool = False
    ended_entries: list[bytes] = field(default_factory=list)
    outcomes: Outcomes = field(default_factory=dict)
    waiting: int = 0
    batch: asyncio.Future[Outcomes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def wait_for_batch(self, seconds: float) -> Outcomes:
        """Return the outcomes of the batch in progress; empty if it does not end within `seconds`."""
        # Keep the future of this batch: `end_batch` replaces `self.batch` by a new one.
        batch = self.batch
        self.waiting += 1
        try:
            # Use asyncio.wait, which does not cancel the future at the timeout: other calls wait for it, too.
            await asyncio.wait([batch], timeout=seconds)
        finally:
            self.waiting -= 1
        return batch.result() if batch.done() else {}

    def end_batch(self) -> None:
        """Wake the calls that wait for this batch."""
        # Replace the future before it is resolved, so that calls from now on wait for the next batch.
        done, self.batch = self.batch, asyncio.get_running_loop().create_future()
        outcomes, self.outcomes = self.outcomes, {}
        done.set_result(outcomes)


class CommitWorkers:
    """The workers of a controller, by stream."""

    def __init__(
        self, catalog: Catalog, streams: Streams, runner: EffectRunner, completed_log: CompletedTransactionLog, env: Env
    ) -> None:
        self._catalog = catalog
        self._streams = streams
        self._runner = runner
        self._completed_log = completed_log
        self._env = env
        self._repeated = RepeatedLog(_log, env.clock.monotonic)
        self._workers: dict[StreamName, CommitWorker] = {}

    def __repr__(self) -> str:
        return f"<CommitWorkers, {len(self._workers)} streams>"

    def get(self, name: StreamName) -> CommitWorker | None:
        """Return the worker of a stream; None: no transaction is being completed."""
        return self._workers.get(name)

    def schedule(self, name: StreamName) -> None:
        """Complete the decided transactions of a stream in the background."""
        worker = self._workers.get(name)
        if worker is not None:
            worker.rerun = True
            return
        task = asyncio.ensure_future(self._run_worker(name))
        self._workers[name] = CommitWorker(task)

    async def _run_worker(self, name: StreamName) -> None:
        worker = self._workers[name]
        conflicts = 0  # in a row
        try:
            while True:
                # Clear the flag before the batch reads, so that a decision that comes while it runs sets it again.
                worker.rerun = False
                # Remove the entries of the last batch during this one, since no call waits for that.  After a crash the
                # sweeper removes them.
                entries, worker.ended_entries = worker.ended_entries, []
                try:
                    more, _ = await gather_all([self._run_batch(name, worker), self._remove_ended(entries)])
                    conflicts = 0
                except (Conflict, Sealed):  # another controller was first: read again
                    more = True
                    conflicts += 1
                    if conflicts >= MAX_ATTEMPTS:  # a segment may be missing: do not loop without a pause
                        await asyncio.sleep(COMMIT_RETRY_SECONDS)
                except SaritError as error:
                    self._repeated.warning(str(error), f"transactions of {name} cannot be completed yet: {error}")
                    await asyncio.sleep(COMMIT_RETRY_SECONDS)
                    more = True
                # There is no await between this test and the `del` below, so a decision either sets `rerun` before it
                # or starts a new worker after it.
                if not (more or worker.rerun or worker.ended_entries):
                    return
        finally:
            # Wake the waiting calls, which find no worker then, and read the state themselves.
            del self._workers[name]
            worker.end_batch()

    async def _run_batch(self, name: StreamName, worker: CommitWorker) -> bool:
        try:
            return await self._complete_batch(name, worker)
        finally:
            worker.end_batch()

    async def _remove_ended(self, entries: Sequence[bytes]) -> bool:
        await self._catalog.remove_ended(entries)
        return False

    async def _complete_batch(self, name: StreamName, worker: CommitWorker) -> bool:
        """Complete one batch of decided transactions.  Returns whether there may be more."""
        # Read the transactions before the stream: each then belongs to that stream, or has ended meanwhile.
        live, due = await self.live(name)
        found = await self._catalog.find(name)
        if found is None:
            await self._remove_orphans(name)
            return False
        if found.record.pending:  # the pending work may complete some of them
            await self._streams.complete_pending(name)
            return True
        aborts = [entry for entry in live if entry[1].state is TxnState.ABORTING]
        # Each change gives the stream's record a new version, which the next change has to expect.
        found = await self._complete_aborts(name, found, aborts)
        # These outcomes are final, since they are stored now.
        worker.outcomes.update((txn, TxnState.ABORTED) for txn, _, _ in aborts)
        batch = transactions.next_batch(due, COMMITS_AT_ONCE)
        if not batch:
            return False
        ids = [txn for txn, _, _ in batch]
        if await self._merge(name, found, batch) is not None:
            worker.outcomes.update((txn, TxnState.COMMITTED) for txn in ids)
        else:
            seen, past = found.record, await self._epoch_of(name, found.record, batch)
            now = self._env.clock.wall_ms()

            def roll(record: StreamRecord, _: object) -> StreamRecord:
                if record != seen:
                    raise Conflict(f"stream {name} changed: another controller may have completed these transactions")
                return streams.roll(record, past, ids, now)

            await self._streams.change(name, roll)
            self._streams.statistics.transactions_committed += len(ids)
        # Remove the entries only after the transactions have ended: after a crash the sweeper removes stale entries.
        worker.ended_entries += (keys.pending_transaction_key(name, txn) for txn in ids)
        return True

    async def _epoch_of(self, name: StreamName, record: StreamRecord, batch: Sequence[Live]) -> Epoch:
        """Return the epoch in which the transactions of a batch began."""
        epochs = await self._catalog.epochs(name, record, batch[0][1].epoch)
        if not epochs:
            raise Conflict(f"stream {name} was deleted and created again")
        return epochs[0]

    async def _remove_orphans(self, name: StreamName) -> None:
        """Remove transactions of a deleted stream, which was deleted while they began: no client knows their ids."""
        try:
            live, _ = await self.live(name)
            gone = [TableUpdate(keys.transaction_key(name.stream, txn), None, NO_VERSION) for txn, _, _ in live]
            # Conflict if a stream of this name was created meanwhile: its transactions must stay.
            no_stream = TableUpdate(keys.stream_key(name.stream), None, NOT_EXISTS)
            await self._catalog.update(name.scope, [no_stream, *gone])
        except NotFound:  # the scope was deleted, too
            return
        await self._catalog.remove_ended([keys.pending_transaction_key(name, txn) for txn, _, _ in live])

    async def drain(self, name: StreamName, found: Found) -> Found:
        """End all transactions of a stream that is being sealed.  Returns its record and version then.

        If some must be rolled in, the returned record has that work pending.  Every change expects the version of the
        record, so that a later stream of the same name is never drained.  Raises Conflict."""
        while True:
            live, due = await self.live(name)
            if not live:
                return found
            opened = [entry for entry in live if entry[1].state is TxnState.OPEN]
            if opened:
                updates = [
                    TableUpdate(
                        keys.transaction_key(name.stream, txn),
                        codec.encode_transaction(transactions.abort(record)),
                        version,
                    )
                    for txn, record, version in opened
                ]
                found = await self._update(name, found, updates)
                continue
            found = await self._complete_aborts(name, found, [e for e in live if e[1].state is TxnState.ABORTING])
            batch = transactions.next_batch(due, COMMITS_AT_ONCE)
            if not batch:
                # Read again: only aborts were complete, or the order of the commits was not final yet.
                continue
            merged = await self._merge(name, found, batch)
            if merged is None:
                past = await self._epoch_of(name, found.record, batch)
                # The caller executes the roll as pending work, and then drains the stream again.
                rolled = streams.roll(found.record, past, [txn for txn, _, _ in batch], self._env.clock.wall_ms())
                return await self._update(name, Found(rolled, found.version), [])
            await self._catalog.remove_ended([keys.pending_transaction_key(name, txn) for txn, _, _ in batch])
            found = merged

    async def _update(self, name: StreamName, found: Found, updates: Sequence[TableUpdate]) -> Found:
        """Store updates if the stream's record has the version of `found`.  Raises Conflict."""
        guard = TableUpdate(keys.stream_key(name.stream), codec.encode_stream(found.record), found.version)
        versions = await self._catalog.update(name.scope, [guard, *updates])
        return Found(found.record, versions[0])

    async def live(self, name: StreamName) -> LiveTransactions:
        """Return all transactions that have not ended, and those whose commit order is final.

        The order of commits is known only from a consistent snapshot, which is one read of the table.  If several reads
        are needed, the transactions are read twice: the second pass contains every decision that is older than the
        newest one of the first pass, because versions rise with each update."""
        newest: int | None = None
        while True:
            prefix, after, out, reads = keys.of_stream(name.stream, keys.LIVE), b"", list[Live](), 0
            while rows := await self._catalog.scan_once(name.scope, prefix, after):
                after, reads = rows[-1][0], reads + 1
                out += (
                    (keys.transaction_of(key), codec.decode_transaction(value.value), value.version)
                    for key, value in rows
                )
            # A single read is a snapshot, so the order is final.
            if reads <= 1:
                return LiveTransactions(out, out)
            if newest is not None:
                return LiveTransactions(out, [entry for entry in out if entry[2] <= newest])
            newest = max((v for _, record, v in out if record.state is TxnState.COMMITTING), default=NO_VERSION)

    async def _merge(self, name: StreamName, found: Found, batch: Sequence[Live]) -> Found | None:
        """Merge transactions into the active segments, and store that they ended.  Returns None if a segment of their
        epoch is neither active nor has an active copy, so that they must be rolled in."""
        past = await self._epoch_of(name, found.record, batch)
        # A transaction has a segment for each segment of its epoch; each needs an active target.
        targets = stand_ins(found.record.current, past)
        if len(targets) < len(past.segments):
            return None
        ids = [txn for txn, _, _ in batch]
        merges = [streams.merge(name, part, ids, target) for part, target in targets.items()]
        try:
            # Merge before the ends are stored.  After a crash in between merges are repeated, and skip missing sources,
            # which were merged before.
            lengths = await self._runner.merge(merges)
        except (Sealed, NotFound):
            raise Conflict(f"stream {name} was scaled or sealed in between") from None
        now = self._env.clock.wall_ms()
        updates: list[TableUpdate] = []
        for txn, record, version in batch:
            state = transactions.next_state(record.state, Event.COMPLETE)
            updates += completion_updates(name, txn, state, now, version)
        updates += await commit_time_updates(self._catalog, name, [record for _, record, _ in batch], lengths)
        found = await self._update(name, found, updates)
        self._streams.statistics.transactions_committed += len(ids)
        await self._completed_log.prune(name, len(ids))
        return found

    async def _complete_aborts(self, name: StreamName, found: Found, aborting: Sequence[Live]) -> Found:
        if not aborting:
            return found
        updates: list[TableUpdate] = []
        for txn, record, version in aborting:
            epochs = await self._catalog.epochs(name, found.record, record.epoch)
            if epochs:
                # Delete the segments before the transaction's record, without which they could not be found.
                await self._runner.run([DeleteSegment(part) for part in parts_of(name, epochs[0].segments, txn)])
            state = transactions.next_state(record.state, Event.COMPLETE)
            updates += completion_updates(name, txn, state, self._env.clock.wall_ms(), version)
        found = await self._update(name, found, updates)
        self._streams.statistics.transactions_aborted += len(aborting)
        await self._catalog.remove_ended([keys.pending_transaction_key(name, txn) for txn, _, _ in aborting])
        await self._completed_log.prune(name, len(aborting))
        return found

    async def stop(self) -> None:
        """Cancel all workers.  Whichever controller runs next completes their transactions."""
        tasks = [worker.task for worker in self._workers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def parts_of(name: StreamName, segments: Sequence[SegmentRange], txn: int) -> list[str]:
    """Return the segments of a transaction: one for each of `segments`."""
    return [transaction_segment(name.segment(SegmentId.unpack(s.segment)), txn) for s in segments]
