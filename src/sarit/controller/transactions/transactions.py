"""Begins, pings, commits and aborts transactions, and returns their states.

A successful compare-and-set decides a commit or an abort.  A commit worker (`commit_worker.py`), one per stream, then
completes it in the background.  The recovery sweeper starts the worker for decisions of a controller that was lost, and
aborts transactions whose lease has expired.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.controller import keys
from sarit.controller.limits import MAX_CALLS_PER_NAME, TRANSACTION_STATE_WAIT_SECONDS
from sarit.controller.model import codec, transactions
from sarit.controller.model.effects import DeleteSegment
from sarit.controller.model.records import State, StreamRecord, TransactionRecord, TxnState
from sarit.controller.model.streams import require_writable
from sarit.controller.ports import TableUpdate
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.controller.transactions.commit_worker import CommitWorkers, parts_of
from sarit.controller.transactions.completed_log import CompletedTransactionLog
from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import Conflict, NotFound, SaritError, Sealed, Unavailable
from sarit.core.limits import NOT_EXISTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.controller.catalog import Catalog
    from sarit.controller.model.epochs import SegmentRange
    from sarit.controller.runner import EffectRunner
    from sarit.controller.steady_clock import SteadyClock
    from sarit.controller.streams import Streams
    from sarit.core.names import StreamName
    from sarit.env.ports import Env

_MAX_CACHED: Final = 4096
_IN_PROGRESS: Final = (TxnState.COMMITTING, TxnState.ABORTING)


class Transactions:
    """Workflows on transactions."""

    def __init__(
        self, catalog: Catalog, streams: Streams, runner: EffectRunner, env: Env, clock: SteadyClock
    ) -> None:  # fmt: skip
        """`clock`: measures leases, so that setting the wall clock expires none."""
        self._catalog = catalog
        self._streams = streams
        self._runner = runner
        self._env = env
        self._clock = clock
        self.completed_log = CompletedTransactionLog(catalog, env)
        self.workers = CommitWorkers(catalog, streams, runner, self.completed_log, env)
        # Open transactions' records and versions as this controller wrote them last, which saves a read.
        self._opened: OrderedDict[tuple[StreamName, int], tuple[TransactionRecord, int]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Transactions, {self.workers}>"

    # -- calls ------------------------------------------------------------------------------------

    async def create(self, name: StreamName, lease_ms: int) -> tuple[int, tuple[SegmentRange, ...]]:
        """Begin a transaction.  Returns its id, and the segments that it may write to.

        Raises NotFound, Sealed, Invalid (lease), Forbidden (a mirror)."""
        # Begin on the stream's cached record, which has usually not changed; `_begin` checks that at its end.
        seen = self._catalog.seen.last(name)
        if seen is not None and seen.state is State.ACTIVE and not seen.mirrored:
            with suppress(NotFound):  # the scope was deleted, and may have been recreated
                begun = await self._begin(name, seen, lease_ms, still_current=True)
                if begun is not None:
                    return begun
            coverage_probe("transaction_begun_on_outdated_record")
        stream = await self._streams.ready(name)
        require_writable(stream)
        if stream.state is not State.ACTIVE:
            raise Sealed(f"stream {name} is sealed")
        begun = await self._begin(name, stream, lease_ms, still_current=False)
        if begun is None:
            raise Sealed(f"stream {name} was sealed in between")
        return begun

    async def _begin(
        self, name: StreamName, stream: StreamRecord, lease_ms: int, *, still_current: bool
    ) -> tuple[int, tuple[SegmentRange, ...]] | None:
        """Begin a transaction in the current epoch of `stream`.  Returns None if the stream was sealed or deleted
        meanwhile.  `still_current`: also if it has another epoch now.  Raises NotFound, Invalid."""
        epoch = stream.current
        record = transactions.begin(epoch.number, lease_ms, self._clock.now_ms())
        txn = transactions.transaction_id(epoch.number, self._env.random.bytes(12))
        # Write the pending-work entry, then the record, then create the segments: so the sweeper finds whatever exists
        # after a crash in between.
        await self._catalog.index_pending(keys.pending_transaction_key(name, txn), fresh=True)
        key = keys.transaction_key(name.stream, txn)
        began = TableUpdate(key, codec.encode_transaction(record), NOT_EXISTS, fresh=True)
        (version,) = await self._catalog.update(name.scope, [began])
        # The id is new and random: no store can have these segments, so none needs to look them up.
        await self._runner.create_fresh(parts_of(name, epoch.segments, txn))
        # Read the stream's record after the transaction was written.  A seal changes the record and then reads the
        # transactions, so one of the two sees the other.
        found = await self._catalog.find(name)
        # Compare first numbers, too: the stream may have been deleted and recreated.
        same = found is not None and found.record.first_number == stream.first_number and not found.record.mirrored
        current = found.record.current if found is not None and same and found.record.state is State.ACTIVE else None
        if current is None or (still_current and current != epoch):
            # Abort, if possible: otherwise the sweeper aborts the transaction at the end of its lease.
            with suppress(SaritError):
                await self._runner.run([DeleteSegment(part) for part in parts_of(name, epoch.segments, txn)])
                await self.abort(name, txn)
            return None
        self._cache(name, txn, record, version)
        self._streams.statistics.transactions_begun += 1
        return txn, epoch.segments

    async def ping(self, name: StreamName, txn: int, lease_ms: int) -> TxnState:
        """Renew the lease of a transaction.  Returns its state.  Raises LeaseTooLarge, TooOld."""
        now = self._clock.now_ms()
        try:
            await self._change(name, txn, lambda record: transactions.ping(record, lease_ms, now))
        except (Conflict, NotFound):
            return await self.state(name, txn)
        return TxnState.OPEN

    async def commit(self, name: StreamName, txn: int, writer: str, timestamp: int) -> None:
        """Decide to commit; a worker merges the transaction in the background.

        Raises NotFound (stream, transaction), Conflict (the abort was decided)."""
        await self._decide(name, txn, TxnState.COMMITTED, lambda r: transactions.commit(r, writer, timestamp))

    async def abort(self, name: StreamName, txn: int) -> None:
        """Decide to abort.  Raises NotFound (transaction), Conflict (the commit was decided)."""
        await self._decide(name, txn, TxnState.ABORTED, transactions.abort)

    async def abort_if_expired(self, name: StreamName, txn: int, renewal: int) -> bool:
        """Abort a transaction, unless it was renewed since `renewal`.  Returns whether it is being aborted.  Raises
        NotFound, Conflict."""
        changed = await self._change(name, txn, lambda r: transactions.abort(r) if r.renewal == renewal else r)
        if aborting := changed.state is TxnState.ABORTING:
            self._streams.statistics.transactions_expired += 1
            self.schedule_completion(name)
        return aborting

    async def adopt(self, name: StreamName, txn: int) -> tuple[TransactionRecord, int]:
        """Extend the lease of a transaction that was open when this controller started, if `left_over` says so.
        Returns its record, and the ms left of its lease.

        The new deadline is stored for the next start of a controller.  Raises NotFound."""
        now = self._clock.now_ms()

        def keep(record: TransactionRecord) -> TransactionRecord:
            return transactions.left_over(record, now) if record.state is TxnState.OPEN else record

        record = await self._change(name, txn, keep)
        return record, record.deadline_ms - now

    async def state(self, name: StreamName, txn: int) -> TxnState:
        """Return the state of a transaction; UNKNOWN when it never existed or ended long ago.  Raises NotFound
        (scope)."""
        # Read the completed record only if there is no live one: its lookup goes to disk.
        (live,) = await self._catalog.get(name.scope, [keys.transaction_key(name.stream, txn)])
        if live is not None:
            return codec.decode_transaction(live.value).state
        (ended,) = await self._catalog.get(name.scope, [keys.completed_key(name.stream, txn)])
        return TxnState.UNKNOWN if ended is None else codec.decode_completed(ended.value).state

    async def live(self, name: StreamName, most: int) -> list[tuple[int, TransactionRecord]]:
        """Return up to `most` transactions of a stream that have not ended, with their ids.  Raises NotFound."""
        rows = await self._catalog.scan(name.scope, keys.of_stream(name.stream, keys.LIVE), limit=most)
        return [(keys.transaction_of(key), codec.decode_transaction(value.value)) for key, value in rows]

    async def state_after_completion(self, name: StreamName, txn: int) -> TxnState:
        """Return the state of a transaction as `state` does, but wait briefly for a completion that is in progress
        here, which saves the client another call."""
        state = await self.state(name, txn)
        return await self.outcome(name, txn, TRANSACTION_STATE_WAIT_SECONDS) if state in _IN_PROGRESS else state

    async def outcome(self, name: StreamName, txn: int, seconds: float) -> TxnState:
        """Wait up to `seconds` for the final state of a decided transaction.  Returns its present state after that
        time, or if no worker runs here.

        Does not wait if MAX_CALLS_PER_NAME calls wait for the stream already: it may not make progress, and the client
        asks again."""
        deadline = self._env.clock.monotonic() + seconds
        first = True  # the batch under way may have been read before the decision; the next one includes it
        while True:
            worker, left = self.workers.get(name), deadline - self._env.clock.monotonic()
            if worker is not None and worker.waiting >= MAX_CALLS_PER_NAME:
                return await self.state(name, txn)
            if worker is not None and left > 0:
                outcomes = await worker.wait_for_batch(left)
                if txn in outcomes:
                    return outcomes[txn]
                if first:
                    first = False
                    continue
            state = await self.state(name, txn)  # another controller may have completed it
            if state not in _IN_PROGRESS or worker is None or left <= 0:
                return state

    async def _decide(
        self, name: StreamName, txn: int, end: TxnState, decide: Callable[[TransactionRecord], TransactionRecord]
    ) -> None:
        try:
            await self._change(name, txn, decide)
        except NotFound:
            # The transaction ended or never began.  A decision that a client repeats after a lost reply must succeed.
            state = await self.state(name, txn)
            if state is TxnState.UNKNOWN:
                raise
            if state is not end:
                raise Conflict(f"transaction {txn:032x} already ended in another state", actual=state) from None
        else:
            self.schedule_completion(name)

    async def _change(
        self, name: StreamName, txn: int, decide: Callable[[TransactionRecord], TransactionRecord]
    ) -> TransactionRecord:
        key = keys.transaction_key(name.stream, txn)
        # Decide on the cached record first.  If another controller has changed the record, the update conflicts, and
        # the record is read.
        known = self._opened.pop((name, txn), None)
        for _ in range(MAX_ATTEMPTS):
            record, version = known or await self._read(name, txn)
            changed = decide(record)
            # There is nothing to write if the decision is repeated, or a ping has renewed the lease.
            if changed == record and known is None:
                return record
            known = None
            if changed == record:
                continue  # decided on the cached record: read it
            try:
                update = TableUpdate(key, codec.encode_transaction(changed), version)
                (version,) = await self._catalog.update(name.scope, [update])
            except Conflict:
                continue
            self._cache(name, txn, changed, version)
            return changed
        raise Unavailable(f"transaction {txn:032x} is changed by too many others at once; try again")

    async def _read(self, name: StreamName, txn: int) -> tuple[TransactionRecord, int]:
        (value,) = await self._catalog.get(name.scope, [keys.transaction_key(name.stream, txn)])
        if value is None:
            raise NotFound(f"stream {name} has no transaction {txn:032x}")
        return codec.decode_transaction(value.value), value.version

    def _cache(self, name: StreamName, txn: int, record: TransactionRecord, version: int) -> None:
        """Keep the record of an open transaction for its next change, which saves a read."""
        if record.state is TxnState.OPEN:
            self._opened[name, txn] = record, version
            if len(self._opened) > _MAX_CACHED:
                self._opened.popitem(last=False)

    def schedule_completion(self, name: StreamName) -> None:
        """Complete the decided transactions of a stream in the background."""
        self.workers.schedule(name)

    async def stop(self) -> None:
        """Stop the background work.  Whichever controller runs next completes the decided transactions."""
        await self.workers.stop()
