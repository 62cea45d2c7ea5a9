"""Transactions on a real node: all or nothing, invisible before the commit, also under faults."""

import asyncio
import uuid

import pytest

import sarit
from sarit.client import aio
from sarit.client.core.values import TransactionStatus
from sarit.client.transactions.transaction import transaction_number
from sarit.core.errors import Conflict, Invalid, NotFound, Unavailable
from sarit.rpc.generated import controller_pb2 as pb
from tests.nodes import RunningNode
from tests.unit.client.nodes import create_shrinkable, in_keys, on_node


@on_node
async def test_committed_events_become_visible_together(made) -> None:
    await made.client.create_stream("s/t", segments=3)
    writer = made.client.transactional_writer("s/t")
    async with await writer.begin() as transaction:
        for number in range(3000):
            transaction.write(f"{number % 7}:{number}", key=str(number % 7))
        await transaction.flush()
        assert await made.read("s/t") == []
        assert await transaction.status() is TransactionStatus.OPEN
    assert await transaction.status() is TransactionStatus.COMMITTED
    assert in_keys(await made.read("s/t")) == {b"%d" % k: list(range(k, 3000, 7)) for k in range(7)}
    assert [found async for found in writer.completed()] == [(transaction.id, TransactionStatus.COMMITTED)]


@on_node
async def test_error_in_a_block_aborts(made) -> None:
    await made.client.create_stream("s/t")
    writer = made.client.transactional_writer("s/t")
    with pytest.raises(KeyError):
        async with await writer.begin() as transaction:
            transaction.write("gone", key="k")
            await transaction.flush()
            raise KeyError
    with pytest.raises(Conflict):
        await transaction.commit()
    await transaction.abort()
    with pytest.raises(Invalid, match="closed"):
        transaction.write("late")
        await transaction.flush()
    async with await writer.begin() as other:
        other.write("kept")
    with pytest.raises(Conflict, match="was committed"):
        await other.abort()
    assert await made.read("s/t") == [b"kept"]
    assert [status.name async for _, status in writer.completed()] == ["ABORTED", "COMMITTED"]


@on_node
async def test_concurrent_transactions_stay_whole_in_commit_order(made) -> None:
    await made.client.create_stream("s/t")
    writer = made.client.transactional_writer("s/t")
    transactions = [await writer.begin() for _ in range(20)]
    plain = made.client.writer("s/t")
    for number in range(50):
        plain.write(f"p:{number}", key="p")
        for name, transaction in enumerate(transactions):
            transaction.write(f"{name}:{number}", key="k")
    await plain.flush()
    order = [7, 3, 19, 0, *(n for n in range(20) if n not in (7, 3, 19, 0, 11))]
    for name in order:
        await transactions[name].commit(wait=False)
    await transactions[11].abort()
    await transactions[order[-1]].commit()
    events = await made.read("s/t")
    assert in_keys(events).pop(b"p") == list(range(50))
    committed = [event for event in events if not event.startswith(b"p")]
    assert committed == [b"%d:%d" % (name, number) for name in order for number in range(50)]
    runs = [events.index(b"%d:0" % name) for name in order]
    assert all(
        events[at : at + 50] == [b"%d:%d" % (n, i) for i in range(50)] for n, at in zip(order, runs, strict=True)
    )


@on_node
async def test_scale_between_begin_and_commit_keeps_order_per_key(made) -> None:
    """Plain events before the commit stay before it, those after stay after it, key by key."""
    await create_shrinkable(made.client, "s/t", 2)
    stream = made.client.stream("s/t")
    writer = made.client.transactional_writer("s/t")
    plain = made.client.writer("s/t")
    keys = [str(key) for key in range(12)]
    number = iter(range(1_000_000))

    async def write(to, times: int) -> None:
        for _ in range(times):
            at = next(number)
            for key in keys:
                to.write(f"{key}:{at}", key=key)
        await to.flush()

    older, younger = await writer.begin(), await writer.begin()
    await write(plain, 20)
    await write(older, 20)
    for segments in (5, 1, 3):
        await stream.scale(segments)
        await write(younger, 10)
        await write(plain, 10)
    await older.commit()
    await write(plain, 10)
    last = await writer.begin()
    await write(last, 10)
    await younger.commit()
    await last.commit()
    await write(plain, 10)
    found = in_keys(await made.read("s/t"))
    pieces = [(0, 20), (50, 60), (70, 80), (90, 100), (20, 40), (100, 110)]
    pieces += [(40, 50), (60, 70), (80, 90), (110, 120), (120, 130)]
    expected = [at for start, end in pieces for at in range(start, end)]
    assert {key: found[key.encode()] for key in keys} == dict.fromkeys(keys, expected)
    assert len(await stream.segments()) == 3


@on_node
async def test_lease_expires_unless_renewed(made) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sarit.controller.model.transactions.MIN_TRANSACTION_LEASE_MS", 100)
        patch.setattr("sarit.controller.background.recovery_sweeper.RECOVERY_SWEEP_SECONDS", 0.05)
        await made.client.create_stream("s/t")
        kept = await made.client.transactional_writer("s/t", lease_seconds=0.6).begin()
        left = await made.client.transactional_writer("s/t", lease_seconds=0.6, keep_alive=False).begin()
        for transaction in (kept, left):
            transaction.write("one", key="k")
            await transaction.flush()
        while await left.status() is TransactionStatus.OPEN:
            await asyncio.sleep(0.05)
        with pytest.raises(Conflict, match="not open any more|lease"):
            left.write("two", key="k")
            await left.flush()
        with pytest.raises(Conflict):
            await left.commit()
        await left.abort()
        await asyncio.sleep(0.7)
        kept.write("two", key="k")
        await kept.commit()
        assert await made.read("s/t") == [b"one", b"two"]


@on_node
async def test_renew_by_id_keeps_a_released_transaction(made) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sarit.controller.model.transactions.MIN_TRANSACTION_LEASE_MS", 100)
        patch.setattr("sarit.controller.background.recovery_sweeper.RECOVERY_SWEEP_SECONDS", 0.05)
        await made.client.create_stream("s/t")
        short = made.client.transactional_writer("s/t", lease_seconds=0.5, keep_alive=False)
        kept, left = await short.begin(), await short.begin()
        kept.write("one", key="k")
        await kept.flush()
        await made.client.transactional_writer("s/t", lease_seconds=500).renew(kept.id)
        kept.release()
        while await left.status() is not TransactionStatus.ABORTED:
            await asyncio.sleep(0.05)
        with pytest.raises(Conflict, match="aborted"):
            await short.renew(left.id)
        assert await short.status(kept.id) is TransactionStatus.OPEN
        await short.commit(kept.id)
        with pytest.raises(Conflict, match="committed"):
            await short.renew(str(kept.id))
        with pytest.raises(NotFound, match="has no transaction"):
            await short.renew("0" * 32)
        assert await made.read("s/t") == [b"one"]


@on_node
async def test_renewal_detects_a_transaction_ended_elsewhere(made) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sarit.controller.model.transactions.MIN_TRANSACTION_LEASE_MS", 100)
        await made.client.create_stream("s/t")
        writer = made.client.transactional_writer("s/t", lease_seconds=0.6)
        transaction = await writer.begin()
        await writer.abort(transaction.id)
        while transaction.events.failure is None:
            await asyncio.sleep(0.01)
        with pytest.raises(Conflict, match="has ended: abort"):
            transaction.write("late")


@on_node
async def test_transaction_is_resumed_by_another_client(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    transaction = await made.client.transactional_writer("s/t").begin()
    transaction.write("mine", key="a")
    await transaction.flush()
    async with await aio.connect(made.address) as other:
        writer = other.transactional_writer("s/t")
        taken = await writer.take_up(str(transaction.id))
        taken.write("theirs", key="a")
        await taken.commit()
        with pytest.raises(Conflict, match="is not open: it is committed"):
            await writer.take_up(transaction.id)
        with pytest.raises(NotFound):
            await writer.take_up(uuid.UUID(int=5))
        with pytest.raises(NotFound):
            await writer.commit(uuid.UUID(int=5))
        with pytest.raises(Invalid, match="no id of a transaction"):
            await writer.status("nonsense")
        await writer.commit(transaction.id)
        with pytest.raises(Conflict):
            await writer.abort(transaction.id)
    with pytest.raises(Conflict, match="not open any more"):
        transaction.write("late", key="a")
        await transaction.flush()
    assert await made.read("s/t") == [b"mine", b"theirs"]


@on_node
async def test_broken_connections_and_lost_replies_keep_transactions_exact(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    writer = made.client.transactional_writer("s/t")
    calls = writer._calls
    decide, lost = calls.commit, [3]

    async def unsure(*arguments, wait: bool) -> TransactionStatus:
        status = await decide(*arguments, wait=wait)
        if lost[0]:
            lost[0] -= 1
            raise Unavailable("the answer is lost")
        return status

    calls.commit = unsure
    transaction = await writer.begin()
    for number in range(4000):
        transaction.write(f"{number % 5}:{number}", key=str(number % 5))
        if number % 400 == 200:
            await asyncio.sleep(0.002)
            made.cut_connections()
    await transaction.commit()
    assert lost == [0]
    assert in_keys(await made.read("s/t")) == {b"%d" % k: list(range(k, 4000, 5)) for k in range(5)}


@on_node
async def test_large_events_and_batches_commit(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    async with await made.client.transactional_writer("s/t").begin() as transaction:
        transaction.write(b"before", key="k")
        transaction.write(b"L" * (9 << 20), key="k")
        transaction.write_many(["after", "later"], keys=["k", "k"])
    assert [len(event) for event in await made.read("s/t")] == [6, 9 << 20, 5, 5]


@on_node
async def test_begin_raises_for_missing_sealed_or_invalid(made) -> None:
    await made.client.create_stream("s/t")
    with pytest.raises(NotFound, match="s/none does not exist"):
        await made.client.transactional_writer("s/none").begin()
    for lease_seconds in (1, 601):
        with pytest.raises(Invalid, match="lease"):
            await made.client.transactional_writer("s/t", lease_seconds=lease_seconds).begin()
    with pytest.raises(Invalid, match="no name for a writer"):
        made.client.transactional_writer("s/t", name="no good")
    open_one = await made.client.transactional_writer("s/t").begin()
    open_one.write("x")
    await open_one.flush()
    await made.client.seal_stream("s/t")
    with pytest.raises(Invalid, match="sealed"):
        await made.client.transactional_writer("s/t").begin()
    with pytest.raises(Conflict):
        await open_one.commit()
    assert await made.read("s/t") == []


@on_node
async def test_released_transaction_commits_by_id(made) -> None:
    await made.client.create_stream("s/t")
    async with made.client.transactional_writer("s/t") as writer:
        transaction = await writer.begin()
        transaction.write("x")
        await transaction.flush()
    with pytest.raises(Conflict, match="was released"):
        await transaction.commit()
    await made.client.transactional_writer("s/t").commit(transaction.id)
    assert await made.read("s/t") == [b"x"]


def test_blocking_transactions_commit_and_abort(tmp_path) -> None:
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        client.create_scope("s")
        client.create_stream("s/t", segments=2)
        with client.transactional_writer("s/t") as writer:
            with writer.begin() as transaction:
                for number in range(50_000):
                    transaction.write(f"k:{number}", key="k")
                transaction.flush()
                assert list(client.reader("s/t", end="tail")) == []
            assert transaction.status() is sarit.TransactionStatus.COMMITTED
            with pytest.raises(KeyError), writer.begin() as failed:
                failed.write("gone")
                raise KeyError
            third = writer.begin()
            third.write_many(["k:50000"], keys=["k"])
            third.flush()
            writer.take_up(third.id).commit()
            assert [status.name for _, status in writer.completed()] == ["COMMITTED", "ABORTED", "COMMITTED"]
        assert in_keys(list(client.reader("s/t", end="tail"))) == {b"k": list(range(50_001))}


def test_transaction_id_is_a_128_bit_number() -> None:
    assert transaction_number("0" * 31 + "f") == 15
    assert transaction_number(uuid.UUID(int=7)) == 7
    with pytest.raises(Invalid):
        transaction_number("")


@on_node
async def test_waiting_commit_takes_one_call(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    writer = made.client.transactional_writer("s/t")

    async def asked(number) -> TransactionStatus:
        raise AssertionError("nobody needs to ask how it ended")

    writer._calls.status = asked
    for end in ("commit", "abort"):
        transaction = await writer.begin()
        transaction.write(end)
        await getattr(transaction, end)()
    assert await made.read("s/t") == [b"commit"]


@on_node
async def test_outcome_is_polled_when_the_server_reports_none(made) -> None:
    await made.client.create_stream("s/t", segments=2)
    writer = made.client.transactional_writer("s/t")
    decide, without = writer._calls._controller.named, []

    async def as_others_do(stream, method, request):
        without.append(getattr(request, "outcomeWithinMillis", 0))
        if isinstance(request, pb.TxnRequest):
            request.outcomeWithinMillis = 0
        return await decide(stream, method, request)

    writer._calls._controller.named = as_others_do
    for end in ("commit", "abort"):
        transaction = await writer.begin()
        transaction.write(end)
        await getattr(transaction, end)()
    assert max(without) > 0
    assert await made.read("s/t") == [b"commit"]


@on_node
async def test_overlong_writer_id_blocks_no_other_commit(made) -> None:
    """As one that an earlier release took: the commit worker failed on it for ever, as did the seal of the stream."""
    await made.client.create_stream("s/t", segments=2)
    writer = made.client.transactional_writer("s/t")
    transaction = await writer.begin()
    transaction.write("of the long name")
    await transaction.flush()
    controller = made.node.controller.transactions
    await controller.commit(writer.stream, transaction.id.int, "w" * 9000, 5)
    async with await writer.begin() as other:
        other.write("behind it")
    await made.client.seal_stream("s/t")
    assert sorted(await made.read("s/t")) == [b"behind it", b"of the long name"]
