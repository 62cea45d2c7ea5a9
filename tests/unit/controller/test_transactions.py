"""Transactions on fakes: order, epochs that have passed, leases, which completed ones are retained and for how long."""

from __future__ import annotations

import asyncio

import pytest

from sarit.controller import keys
from sarit.controller.model import transactions
from sarit.controller.model.records import TransactionRecord, TxnState
from sarit.controller.transactions import transactions as calls_of_transactions
from sarit.controller.transactions.completed_log import MAX_LISTED_TRANSACTIONS, completion_updates
from sarit.core.errors import Conflict, Invalid, NotFound, Sealed
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId, transaction_segment
from tests.unit.controller.world import STREAM, World, config, halves, quiet, run, segment, stream_with

LEASE = 30_000


async def begin(world, c, label):
    txn, segments = await c.transactions.create(STREAM, LEASE)
    for s in segments:
        name = STREAM.segment(SegmentId.unpack(s.segment))
        world.segments.append(transaction_segment(name, txn), label)
    return txn


def parts(world, name):
    return [what for what, _ in world.segments.segments[name].parts]


async def prepared(count=2):
    world = World()
    c = await world.controller()
    await stream_with(c, count)
    return world, c


def test_commits_are_merged_in_the_order_they_were_decided():
    async def main():
        world, c = await prepared()
        txns = [await begin(world, c, label) for label in "abcdef"]
        later = c.transactions.schedule_completion
        c.transactions.schedule_completion = lambda name: None
        for at in (4, 0, 5, 2, 1):
            await c.transactions.commit(STREAM, txns[at], "", 1)
        await c.transactions.abort(STREAM, txns[3])
        later(STREAM)
        await quiet(c)
        assert parts(world, segment(0)) == parts(world, segment(1)) == list("eafcb")
        assert await c.transactions.completed_log.latest(STREAM) != []
        world.check()

    run(main())


def test_commit_order_holds_for_decisions_during_a_scan():
    """Between two reads of the table, one is decided that was read as open, and then a later one that was not read
    yet."""

    async def main():
        world, c = await prepared(1)
        first = await begin(world, c, "first")
        right, reads = c.catalog.tables.scan, []

        async def scan(table, start, end, limit):
            rows = await right(table, start, end, limit)
            if start == keys.of_stream(STREAM.stream, keys.LIVE) and rows and not reads:
                reads.append(start)
                await c.transactions.commit(STREAM, first, "", 1)
                while (second := await begin(world, c, "second")) < first:
                    await c.transactions.abort(STREAM, second)
                await c.transactions.commit(STREAM, second, "", 1)
            return rows

        c.catalog.tables.scan = scan
        c.transactions.schedule_completion(STREAM)
        await quiet(c)
        assert reads
        assert parts(world, segment(0)) == ["first", "second"]
        world.check()

    run(main())


def test_transactions_of_a_past_epoch_are_rolled_in_between():
    async def main():
        world, c = await prepared()
        old = [await begin(world, c, label) for label in "ab"]
        world.segments.append(segment(1), "before")
        await c.streams.scale(STREAM, [1], halves(0.5, 1.0))
        world.segments.append(segment(2, 1), "between")
        new = [await begin(world, c, label) for label in "cd"]
        later = c.transactions.schedule_completion
        c.transactions.schedule_completion = lambda name: None
        for txn in (*old, *new):
            await c.transactions.commit(STREAM, txn, "", 1)
        later(STREAM)
        await quiet(c)
        # Segment 0 is still active: its parts were merged into it.  A copy of epoch 2 took the parts of segment 1.
        assert parts(world, segment(0)) == ["a", "b", "c", "d"]
        assert parts(world, segment(1)) == ["before"]
        assert parts(world, segment(1, 2)) == ["a", "b"]
        assert world.segments.segments[segment(1, 2)].sealed
        record = (await c.catalog.require(STREAM)).record
        active = [SegmentId.unpack(s.segment) for s in record.current.segments]
        # "c" and "d" are of epoch 1, which has copies: these take their parts, without another roll.
        assert active == [SegmentId(0, 0), SegmentId(3, 2), SegmentId(3, 3)]
        assert parts(world, segment(2, 1)) == ["between"]
        assert parts(world, segment(2, 3)) == parts(world, segment(3, 3)) == ["c", "d"]
        # A reader of the upper half gets them in this order.
        chain, at = [], SegmentId(0, 1).packed
        while True:
            chain.append(str(SegmentId.unpack(at)))
            followers = await c.streams.successors_of(STREAM, at)
            if not followers:
                break
            at = followers[0][0].segment
        numbers = [SegmentId(0, 1), SegmentId(1, 2), SegmentId(2, 1), SegmentId(3, 2)]
        assert chain == [str(number) for number in numbers]
        world.check()

    run(main())


def test_a_stream_is_sealed_when_its_transactions_have_ended():
    async def main():
        world, c = await prepared()
        old = await begin(world, c, "old")
        await c.streams.scale(STREAM, [0, 1], [KeyRange(0.0, 0.3), KeyRange(0.3, 1.0)])
        new, opened = await begin(world, c, "new"), await begin(world, c, "open")
        c.transactions.schedule_completion = lambda name: None
        await c.transactions.commit(STREAM, old, "", 1)
        await c.transactions.commit(STREAM, new, "", 1)
        await c.streams.seal(STREAM)
        assert sorted(world.segments.moved) == ["new", "new", "old", "old"]
        states = [await c.transactions.state(STREAM, txn) for txn in (old, new, opened)]
        assert states == [TxnState.COMMITTED, TxnState.COMMITTED, TxnState.ABORTED]
        assert all(s.sealed for name, s in world.segments.segments.items() if "_MARK" not in name)
        world.check()

    run(main())


def test_transaction_outcome_is_stored_for_a_while(monkeypatch):
    async def main():
        monkeypatch.setattr("sarit.controller.transactions.completed_log._PRUNE_AFTER", 5)
        monkeypatch.setattr("sarit.controller.transactions.completed_log.MAX_LISTED_TRANSACTIONS", 3)
        world, c = await prepared(1)
        txns = []
        for _ in range(20):
            world.pass_time(100)
            txns.append(await begin(world, c, "x"))
            await c.transactions.commit(STREAM, txns[-1], "", 1)
            await quiet(c)
        assert [txn for txn, _ in await c.transactions.completed_log.latest(STREAM)] == txns[-3:]
        known = [await c.transactions.state(STREAM, txn) for txn in txns]
        assert known[0] is TxnState.UNKNOWN
        assert known[-6:] == [TxnState.COMMITTED] * 6  # ten minutes and more
        assert len(world.segments.moved) == 20

    run(main())


def test_latest_outcomes_are_found_without_reading_all():
    """Those of ten minutes are retained: perhaps 100,000."""

    async def main():
        world, c = await prepared(1)
        now, count = world.env.clock.wall_ms(), 5000
        updates = [
            update
            for number in range(count)
            for update in completion_updates(STREAM, number, TxnState.COMMITTED, now - 100 * (count - number))
        ]
        await c.catalog.update("s", updates)
        read, scan = [], world.tables.scan

        async def counting(*arguments):
            rows = await scan(*arguments)
            read.extend(rows)
            return rows

        world.tables.scan = counting
        listed = [txn for txn, _ in await c.transactions.completed_log.latest(STREAM)]
        assert listed == list(range(count - MAX_LISTED_TRANSACTIONS, count))
        assert len(read) < 4 * MAX_LISTED_TRANSACTIONS

    run(main())


def test_a_committed_time_is_noted_for_its_writer():
    async def main():
        world, c = await prepared(1)
        txn = await begin(world, c, "x")
        await c.transactions.commit(STREAM, txn, "writer", 42)
        await quiet(c)
        with pytest.raises(Invalid):
            await c.writers.note(STREAM, "writer", 41, {0: 100})
        await c.writers.note(STREAM, "writer", 42, {0: 10})
        with pytest.raises(Invalid):
            await c.writers.note(STREAM, "writer", 42, {0: 9})

    run(main())


def test_ids_carry_the_epoch_and_a_lower_half_that_is_not_negative():
    for epoch in (0, 1, (1 << 31) - 1):
        txn = transactions.transaction_id(epoch, b"\xff" * 12)
        assert txn >> 96 == epoch
        assert not txn & 1 << 63
        assert txn < 1 << 127


def test_the_states_of_a_transaction():
    opened = transactions.begin(3, LEASE, 1000)
    committing, aborting = transactions.commit(opened, "w", 5), transactions.abort(opened)
    assert transactions.commit(committing, "x", 6) == committing
    assert transactions.abort(aborting) == aborting
    assert committing.timestamp == 5
    assert transactions.commit(opened, "w", transactions.NO_TIMESTAMP).timestamp is None
    for decide in (
        lambda: transactions.abort(committing),
        lambda: transactions.commit(aborting, "", 1),
        lambda: transactions.ping(committing, LEASE, 0),
        lambda: transactions.ping(aborting, LEASE, 0),
    ):
        with pytest.raises(Conflict):
            decide()
    renewed = transactions.ping(opened, LEASE, 2000)
    assert renewed == TransactionRecord(TxnState.OPEN, 3, LEASE, 1, 1000, 2000 + LEASE)
    with pytest.raises(transactions.LeaseTooLarge):
        transactions.ping(opened, 600_001, 0)
    with pytest.raises(transactions.TooOld):
        transactions.ping(opened, LEASE, 1000 + 1000 * LEASE)


def test_a_batch_is_of_one_epoch_and_in_order():
    def entry(version, epoch, state=TxnState.COMMITTING):
        return version, TransactionRecord(state, epoch, LEASE, 0, 0, LEASE), version

    live = [entry(5, 1), entry(2, 0), entry(9, 0), entry(3, 0), entry(1, 0, TxnState.OPEN)]
    assert [txn for txn, _, _ in transactions.next_batch(live, 10)] == [2, 3]
    assert [txn for txn, _, _ in transactions.next_batch(live, 1)] == [2]
    assert transactions.next_batch([], 10) == []


def test_state_waits_for_completion_under_way():
    async def main():
        world, c = await prepared()
        ways = (lambda txn: c.transactions.commit(STREAM, txn, "", 1), lambda txn: c.transactions.abort(STREAM, txn))
        for decide in ways:
            txn = await begin(world, c, "a")
            await decide(txn)
            assert await c.transactions.state(STREAM, txn) in (TxnState.COMMITTING, TxnState.ABORTING)
            assert await c.transactions.state_after_completion(STREAM, txn) in (TxnState.COMMITTED, TxnState.ABORTED)
            await quiet(c)

    run(main())


def test_outcome_without_worker_returns_at_once():
    async def main():
        world, c = await prepared()
        c.transactions.schedule_completion = lambda name: None
        txn = await begin(world, c, "a")
        await c.transactions.commit(STREAM, txn, "", 1)
        assert await c.transactions.state_after_completion(STREAM, txn) is TxnState.COMMITTING

    run(main())


def test_commit_into_missing_segment_is_retried_with_pauses():
    """It was deleted by the wire protocol: the node retried at once, without end, and did little else."""

    async def main():
        world, c = await prepared(1)
        txn = await begin(world, c, "a")
        gone = world.segments.segments.pop(segment(0))
        calls = world.segments.faults.calls
        await c.transactions.commit(STREAM, txn, "", 1)
        for _ in range(20_000):
            await asyncio.sleep(0)
        assert 0 < sum("segments.merge" in call for call in calls) <= 60
        assert await c.transactions.state(STREAM, txn) is TxnState.COMMITTING
        world.segments.segments[segment(0)] = gone
        await quiet(c)
        assert parts(world, segment(0)) == ["a"]
        world.check()

    run(main())


def test_a_transaction_asks_the_stores_for_little():
    async def main():
        world, c = await prepared(1)
        await begin(world, c, "first")
        calls = world.tables.faults.calls = world.segments.faults.calls = []
        txn = await begin(world, c, "second")
        made = [call.split()[0] for call in calls]
        # Pending-work entry, record, part; then the stream, in case it was sealed meanwhile.
        assert made == ["tables.update", "tables.update", "segments.create", "tables.get"]
        calls.clear()
        await c.transactions.commit(STREAM, txn, "", 1)
        assert [call.split()[0] for call in calls] == ["tables.update"]
        await quiet(c)
        made = [call.split()[0] for call in calls[1:]]
        # Transactions (one page, and its end), stream, merge, the end of the transaction.
        assert made[:5] == ["tables.scan", "tables.scan", "tables.get", "segments.merge", "tables.update"]
        # The entry goes, beside the next batch, which finds nothing.
        assert sorted(made[5:]) == ["tables.get", "tables.scan", "tables.scan", "tables.update"]
        assert parts(world, segment(0)) == ["second"]

    run(main())


@pytest.mark.parametrize("change", ["scale", "seal", "recreate", "delete scope"])
def test_begin_notices_what_another_controller_did_to_the_stream(change):
    async def main():
        world, c = await prepared()
        other = await world.controller()
        await c.transactions.commit(STREAM, await begin(world, c, "before"), "", 1)
        await quiet(c)
        if change == "scale":
            await other.streams.scale(STREAM, [1], halves(0.5, 1.0))
        else:
            await other.streams.seal(STREAM)
        if change in ("recreate", "delete scope"):
            await other.streams.delete(STREAM)
        if change == "delete scope":
            await other.scopes.delete("s")
        if change == "recreate":
            await other.streams.create(STREAM, config(3))
        if change in ("scale", "recreate"):
            txn, segments = await c.transactions.create(STREAM, LEASE)
            assert segments == await other.streams.active(STREAM)
            await c.transactions.abort(STREAM, txn)
        else:
            for _ in range(2):
                with pytest.raises(Sealed if change == "seal" else NotFound):
                    await c.transactions.create(STREAM, LEASE)
            # The first call found out: the second one entered nothing.
            assert len(await c.catalog.pending_work(start=keys.PENDING_TRANSACTIONS)) <= 1
        await quiet(c)
        await world.sweep(c)
        await world.sweep(c)
        assert await c.catalog.pending_work(start=keys.PENDING_TRANSACTIONS) == []
        world.check(orphans=True)

    run(main())


def test_begin_after_a_scale_of_this_controller_wastes_no_parts():
    async def main():
        world, c = await prepared()
        await begin(world, c, "before")
        await c.streams.scale(STREAM, [1], halves(0.5, 1.0))
        world.segments.created.clear()
        txn, segments = await c.transactions.create(STREAM, LEASE)
        assert segments == await c.streams.active(STREAM)
        names = [transaction_segment(STREAM.segment(SegmentId.unpack(s.segment)), txn) for s in segments]
        assert world.segments.created == names

    run(main())


def test_change_by_another_controller_is_noticed_by_its_version():
    async def main():
        world, c = await prepared()
        other = await world.controller()
        # What a controller remembers of a transaction is out of date in each of these.
        pinged, aborted, committed, expired = [await begin(world, c, label) for label in "abcd"]
        await other.transactions.ping(STREAM, pinged, LEASE)
        await c.transactions.commit(STREAM, pinged, "", 1)
        await other.transactions.abort(STREAM, aborted)
        with pytest.raises(Conflict):
            await c.transactions.commit(STREAM, aborted, "", 1)
        await other.transactions.commit(STREAM, committed, "", 1)
        assert await c.transactions.ping(STREAM, committed, LEASE) is not TxnState.OPEN
        await other.transactions.ping(STREAM, expired, LEASE)
        # The renewal that a sweep of this controller has read is newer than what it remembers.
        assert not await c.transactions.abort_if_expired(STREAM, expired, 0)
        assert await c.transactions.abort_if_expired(STREAM, expired, 1)
        for each in (c, other):
            await quiet(each)
        assert sorted(parts(world, segment(0))) == ["a", "c"]
        world.check(orphans=True)

    run(main())


def test_abort_by_a_renewal_that_another_controller_made():
    async def main():
        world, c = await prepared()
        txn = await begin(world, c, "a")
        other = await world.controller()
        await other.transactions.ping(STREAM, txn, LEASE)
        assert await c.transactions.abort_if_expired(STREAM, txn, 1)
        await quiet(c)
        assert await c.transactions.state(STREAM, txn) is TxnState.ABORTED

    run(main())


def test_cached_records_of_open_transactions_are_bounded(monkeypatch):
    monkeypatch.setattr(calls_of_transactions, "_MAX_CACHED", 2)

    async def main():
        world, c = await prepared(1)
        txns = [await begin(world, c, label) for label in "abc"]
        assert len(c.transactions._opened) == 2
        for txn in txns:
            await c.transactions.commit(STREAM, txn, "", 1)
        await quiet(c)
        assert not c.transactions._opened
        assert parts(world, segment(0)) == ["a", "b", "c"]

    run(main())
