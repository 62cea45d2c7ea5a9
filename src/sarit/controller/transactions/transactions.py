"""Transactions, carried out: begin, ping, commit, abort; commits in order; leases; what was left unfinished.

A commit or an abort is decided by the reply of one compare-and-set, and carried out in the background, by one task a
stream; the sweeper starts that task for what a lost controller left, aborts what outlived its lease, and finishes
streams that stopped half way.  It finds all of these by the entries in the work table.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from sarit.controller import keys
from sarit.controller.catalog import Found
from sarit.controller.model import codec, streams, transactions
from sarit.controller.model.effects import CreateSegment, DeleteSegment
from sarit.controller.model.epochs import stand_ins
from sarit.controller.model.records import State, StreamRecord, TransactionRecord, TxnState
from sarit.controller.ports import TableUpdate
from sarit.controller.runner import gather_all
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.controller.transactions.commit_worker import CommitWorker
from sarit.controller.transactions.completed_log import CompletedTransactionLog, commit_time_updates, completion_updates
from sarit.core.errors import Conflict, NotFound, SaritError, Sealed, Unavailable
from sarit.core.limits import (
    COMMIT_RETRY_SECONDS,
    MAX_CALLS_PER_NAME,
    NO_VERSION,
    NOT_EXISTS,
    TRANSACTION_STATE_WAIT_SECONDS,
)
from sarit.core.names import SegmentId, StreamName, transaction_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.epochs import Epoch, SegmentRange
    from sarit.controller.runner import EffectRunner
    from sarit.controller.streams import Streams
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.controller")

COMMITS_AT_ONCE: Final = 100
_IN_PROGRESS: Final = (TxnState.COMMITTING, TxnState.ABORTING)

Live = tuple[int, TransactionRecord, int]


class LiveTransactions(NamedTuple):
    """The transactions of a stream that have not ended; `due`: those of which no earlier one is missing."""

    live: list[Live]
    due: list[Live]


class Transactions:
    """Workflows on transactions."""

    def __init__(self, catalog: Catalog, streams: Streams, runner: EffectRunner, env: Env) -> None:
        self._catalog = catalog
        self._streams = streams
        self._runner = runner
        self._env = env
        self._workers: dict[StreamName, CommitWorker] = {}
        self.completed_log = CompletedTransactionLog(catalog, env)
        streams.drain = self.drain

    def __repr__(self) -> str:
        return f"<Transactions, {len(self._workers)} streams have some to end>"

    # -- calls ------------------------------------------------------------------------------------

    async def create(self, name: StreamName, lease_ms: int) -> tuple[int, tuple[SegmentRange, ...]]:
        """Begin; the id, and the segments it has a part for.  Raises NotFound, Sealed, Invalid (lease)."""
        stream = await self._streams.ready(name)
        if stream.state is not State.ACTIVE:
            raise Sealed(f"stream {name} is sealed")
        epoch = stream.current
        record = transactions.begin(epoch.number, lease_ms, self._env.clock.wall_ms())
        txn = transactions.transaction_id(epoch.number, self._env.random.bytes(12))
        await self._catalog.index_pending(keys.pending_transaction_key(name, txn), fresh=True)
        key = keys.transaction_key(name.stream, txn)
        began = TableUpdate(key, codec.encode_transaction(record), NOT_EXISTS, fresh=True)
        await self._catalog.update(name.scope, [began])
        # The id was drawn just now: nothing can have its parts, and they need not be looked for.
        await self._runner.run([CreateSegment(part, fresh=True) for part in _parts(name, epoch.segments, txn)])
        # Whoever seals the stream first says so, then looks for transactions: one of us sees the other.
        found = await self._catalog.find(name)
        same = found is not None and found.record.first_number == stream.first_number
        if found is None or not same or found.record.state is not State.ACTIVE:
            with suppress(SaritError):
                await self._runner.run([DeleteSegment(part) for part in _parts(name, epoch.segments, txn)])
                await self.abort(name, txn)
            raise Sealed(f"stream {name} was sealed meanwhile")
        return txn, epoch.segments

    async def ping(self, name: StreamName, txn: int, lease_ms: int) -> TxnState:
        """Renew the lease; the state the transaction is in.  Raises LeaseTooLarge, TooOld."""
        now = self._env.clock.wall_ms()
        try:
            await self._change(name, txn, lambda record: transactions.ping(record, lease_ms, now))
        except (Conflict, NotFound):
            return await self.state(name, txn)
        return TxnState.OPEN

    async def commit(self, name: StreamName, txn: int, writer: str, timestamp: int) -> None:
        """Decide for a transaction; it is merged soon.

        Raises NotFound (stream, transaction), Conflict (it was decided against)."""
        await self._decide(name, txn, TxnState.COMMITTED, lambda r: transactions.commit(r, writer, timestamp))

    async def abort(self, name: StreamName, txn: int) -> None:
        """Decide against a transaction.  Raises NotFound (transaction), Conflict (it was decided for)."""
        await self._decide(name, txn, TxnState.ABORTED, transactions.abort)

    async def abort_if_expired(self, name: StreamName, txn: int, renewal: int) -> bool:
        """Abort, unless it was renewed since `renewal`; whether it was aborted.  Raises NotFound, Conflict."""
        changed = await self._change(name, txn, lambda r: transactions.abort(r) if r.renewal == renewal else r)
        if aborting := changed.state is TxnState.ABORTING:
            self.schedule_completion(name)
        return aborting

    async def state(self, name: StreamName, txn: int) -> TxnState:
        """Where a transaction is; UNKNOWN when it never was, or ended long ago.  Raises NotFound (scope)."""
        # One after the other: of one that lives there is no end, and the store would look for it on disk.
        (live,) = await self._catalog.get(name.scope, [keys.transaction_key(name.stream, txn)])
        if live is not None:
            return codec.decode_transaction(live.value).state
        (ended,) = await self._catalog.get(name.scope, [keys.completed_key(name.stream, txn)])
        return TxnState.UNKNOWN if ended is None else codec.decode_completed(ended.value).state

    async def state_after_completion(self, name: StreamName, txn: int) -> TxnState:
        """As `state`, but what is being carried out here is waited for, for a moment: who asks would ask again."""
        state = await self.state(name, txn)
        return await self.outcome(name, txn, TRANSACTION_STATE_WAIT_SECONDS) if state in _IN_PROGRESS else state

    async def outcome(self, name: StreamName, txn: int, seconds: float) -> TxnState:
        """How one that was decided ends; where it is after so long, or when nobody here carries it out.

        Where too many wait already, for a stream that may never go on, it is told at once: who asks will ask again."""
        deadline = self._env.clock.monotonic() + seconds
        first = True  # the batch under way may have been read before the decision: the next one has it
        while True:
            worker, left = self._workers.get(name), deadline - self._env.clock.monotonic()
            if worker is not None and worker.waiting >= MAX_CALLS_PER_NAME:
                return await self.state(name, txn)
            if worker is not None and left > 0:
                over = await worker.wait_for_batch(left)
                if txn in over:
                    return over[txn]
                if first:
                    first = False
                    continue
            state = await self.state(name, txn)  # somebody else may have ended it
            if state not in _IN_PROGRESS or worker is None or left <= 0:
                return state

    async def _decide(
        self, name: StreamName, txn: int, end: TxnState, decide: Callable[[TransactionRecord], TransactionRecord]
    ) -> None:
        try:
            await self._change(name, txn, decide)
        except NotFound:
            state = await self.state(name, txn)
            if state is TxnState.UNKNOWN:
                raise
            if state is not end:
                raise Conflict(f"transaction {txn:032x} ended otherwise", actual=state) from None
        else:
            self.schedule_completion(name)

    async def _change(
        self, name: StreamName, txn: int, decide: Callable[[TransactionRecord], TransactionRecord]
    ) -> TransactionRecord:
        key = keys.transaction_key(name.stream, txn)
        for _ in range(MAX_ATTEMPTS):
            (value,) = await self._catalog.get(name.scope, [key])
            if value is None:
                raise NotFound(f"stream {name} has no transaction {txn:032x}")
            record = codec.decode_transaction(value.value)
            changed = decide(record)
            if changed == record:
                return record
            try:
                update = TableUpdate(key, codec.encode_transaction(changed), value.version)
                await self._catalog.update(name.scope, [update])
            except Conflict:
                continue
            return changed
        raise Unavailable(f"transaction {txn:032x} is changed by too many others at once; try again")

    # -- ending them ------------------------------------------------------------------------------

    def schedule_completion(self, name: StreamName) -> None:
        """Carry out, in the background, what was decided on a stream's transactions."""
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
                worker.rerun = False
                # Nobody waits for a hint to go: that runs beside the next batch, and the sweeper finds what is left.
                entries, worker.ended_entries = worker.ended_entries, []
                try:
                    more, _ = await gather_all([self._run_batch(name, worker), self._remove_pending(entries)])
                    conflicts = 0
                except (Conflict, Sealed):  # somebody else was there first: look again
                    more = True
                    conflicts += 1
                    if conflicts >= MAX_ATTEMPTS:  # or a segment is gone, and this would go on without end
                        await asyncio.sleep(COMMIT_RETRY_SECONDS)
                except SaritError as error:
                    _log.warning("transactions of %s are not ended yet: %s", name, error)
                    await asyncio.sleep(COMMIT_RETRY_SECONDS)
                    more = True
                if not (more or worker.rerun or worker.ended_entries):
                    return
        finally:
            del self._workers[name]
            worker.batch_ended()

    async def _run_batch(self, name: StreamName, worker: CommitWorker) -> bool:
        try:
            return await self._complete_batch(name, worker)
        finally:
            worker.batch_ended()

    async def _remove_pending(self, entries: Sequence[bytes]) -> bool:
        await self._catalog.remove_pending(entries)
        return False

    async def _complete_batch(self, name: StreamName, worker: CommitWorker) -> bool:
        """End what is decided, as far as one batch goes; whether there may be more."""
        # In this order: a transaction is of the stream there is now, or it has ended and its parts are gone.
        live, due = await self.live(name)
        found = await self._catalog.find(name)
        if found is None:
            await self._remove_orphans(name)
            return False
        if found.record.pending:  # what is pending may end some of them, or all
            await self._streams.complete_pending(name)
            return True
        aborts = [entry for entry in live if entry[1].state is TxnState.ABORTING]
        found = await self._complete_aborts(name, found, aborts)
        worker.ended.update((txn, TxnState.ABORTED) for txn, _, _ in aborts)
        batch = transactions.next_batch(due, COMMITS_AT_ONCE)
        if not batch:
            return False
        ids = [txn for txn, _, _ in batch]
        if await self._merge(name, found, batch) is not None:
            worker.ended.update((txn, TxnState.COMMITTED) for txn in ids)
        else:
            seen, past = found.record, await self._epoch_of(name, found.record, batch)
            now = self._env.clock.wall_ms()

            def roll(record: StreamRecord, _: object) -> StreamRecord:
                if record != seen:
                    raise Conflict(f"stream {name} changed meanwhile; they may have been taken in by somebody else")
                return streams.roll(record, past, ids, now)

            await self._streams.change(name, roll)
        worker.ended_entries += (keys.pending_transaction_key(name, txn) for txn in ids)
        return True

    async def _epoch_of(self, name: StreamName, record: StreamRecord, batch: Sequence[Live]) -> Epoch:
        """The epoch in which the transactions of a batch were begun."""
        epochs = await self._catalog.epochs(name, record, batch[0][1].epoch)
        if not epochs:
            raise Conflict(f"stream {name} was made anew meanwhile")
        return epochs[0]

    async def _remove_orphans(self, name: StreamName) -> None:
        """A stream went while a transaction began: nobody was told of it."""
        try:
            live, _ = await self.live(name)
            gone = [TableUpdate(keys.transaction_key(name.stream, txn), None, NO_VERSION) for txn, _, _ in live]
            still = TableUpdate(keys.stream_key(name.stream), None, NOT_EXISTS)
            await self._catalog.update(name.scope, [still, *gone])
        except NotFound:  # the scope, too
            return
        await self._catalog.remove_pending([keys.pending_transaction_key(name, txn) for txn, _, _ in live])

    async def drain(self, name: StreamName, found: Found) -> Found:
        """End all transactions of a stream that is being sealed; its record and version then.

        It has work to do first if some must be rolled in.  Every change names the record's version: the stream we were
        told to drain must not be another by now.  Raises Conflict."""
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
                continue
            merged = await self._merge(name, found, batch)
            if merged is None:
                past = await self._epoch_of(name, found.record, batch)
                rolled = streams.roll(found.record, past, [txn for txn, _, _ in batch], self._env.clock.wall_ms())
                return await self._update(name, Found(rolled, found.version), [])
            await self._catalog.remove_pending([keys.pending_transaction_key(name, txn) for txn, _, _ in batch])
            found = merged

    async def _update(self, name: StreamName, found: Found, updates: Sequence[TableUpdate]) -> Found:
        """Change records of a stream while its own is at a version.  Raises Conflict."""
        guard = TableUpdate(keys.stream_key(name.stream), codec.encode_stream(found.record), found.version)
        versions = await self._catalog.update(name.scope, [guard, *updates])
        return Found(found.record, versions[0])

    async def live(self, name: StreamName) -> LiveTransactions:
        """All transactions that have not ended, and which of them have their turn.

        The order of commits is only known of a set that was there at one moment.  If it takes several looks, all that
        was decided before the youngest decided one of a first reading is in a second one: versions rise."""
        youngest: int | None = None
        while True:
            prefix, after, out, looks = keys.of_stream(name.stream, keys.LIVE), b"", list[Live](), 0
            while rows := await self._catalog.scan_once(name.scope, prefix, after):
                after, looks = rows[-1][0], looks + 1
                out += (
                    (keys.transaction_of(key), codec.decode_transaction(value.value), value.version)
                    for key, value in rows
                )
            if looks <= 1:
                return LiveTransactions(out, out)
            if youngest is not None:
                return LiveTransactions(out, [entry for entry in out if entry[2] <= youngest])
            youngest = max((v for _, record, v in out if record.state is TxnState.COMMITTING), default=NO_VERSION)

    async def _merge(self, name: StreamName, found: Found, batch: Sequence[Live]) -> Found | None:
        """Merge transactions into the active segments and say so; None when their epoch has passed."""
        past = await self._epoch_of(name, found.record, batch)
        targets = stand_ins(found.record.current, past)
        if len(targets) < len(past.segments):
            return None
        ids = [txn for txn, _, _ in batch]
        merges = [streams.merge(name, part, ids, target) for part, target in targets.items()]
        try:
            lengths = await self._runner.merge(merges)
        except (Sealed, NotFound):
            raise Conflict(f"stream {name} was scaled or sealed meanwhile") from None
        now = self._env.clock.wall_ms()
        updates: list[TableUpdate] = []
        for txn, _, version in batch:
            updates += completion_updates(name, txn, TxnState.COMMITTED, now, version)
        updates += await commit_time_updates(self._catalog, name, [record for _, record, _ in batch], lengths)
        found = await self._update(name, found, updates)
        await self.completed_log.prune(name, len(ids))
        return found

    async def _complete_aborts(self, name: StreamName, found: Found, aborting: Sequence[Live]) -> Found:
        if not aborting:
            return found
        updates: list[TableUpdate] = []
        for txn, record, version in aborting:
            epochs = await self._catalog.epochs(name, found.record, record.epoch)
            if epochs:
                await self._runner.run([DeleteSegment(part) for part in _parts(name, epochs[0].segments, txn)])
            updates += completion_updates(name, txn, TxnState.ABORTED, self._env.clock.wall_ms(), version)
        found = await self._update(name, found, updates)
        await self._catalog.remove_pending([keys.pending_transaction_key(name, txn) for txn, _, _ in aborting])
        await self.completed_log.prune(name, len(aborting))
        return found

    async def stop(self) -> None:
        """End the background tasks; what they leave is finished by the next start."""
        tasks = [worker.task for worker in self._workers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _parts(name: StreamName, segments: Sequence[SegmentRange], txn: int) -> list[str]:
    return [transaction_segment(name.segment(SegmentId.unpack(s.segment)), txn) for s in segments]
