"""Other ends of a transaction's block than its commit: none leaves a transaction open and renewed."""

import asyncio

import pytest

from sarit.client.core.values import TransactionStatus
from sarit.client.writer.writer import EventWriter
from sarit.core.errors import Conflict
from tests.unit.client.nodes import on_node
from tests.unit.client.world import until


@on_node
async def test_block_cancelled_during_commit_stops_lease_renewal(made) -> None:
    """It stayed open, and was renewed for up to a day: retention waits for it, and no client can end it."""
    await made.client.create_stream("s/t")
    writer = made.client.transactional_writer("s/t")
    transaction = await writer.begin()
    pinger, flushing = transaction.pinger, asyncio.Event()

    async def never(events) -> None:
        flushing.set()
        await asyncio.Event().wait()

    async def block() -> None:
        async with transaction:
            transaction.write("x")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventWriter, "flush", never)
        running = asyncio.create_task(block())
        await flushing.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    await until(pinger.done)
    assert "released" in repr(transaction)
    assert "0 transactions" in repr(writer)
    assert await transaction.status() is TransactionStatus.OPEN  # for as long as its lease, and to be taken up
    await (await writer.take_up(transaction.id)).abort()


@on_node
async def test_block_whose_flush_fails_aborts(made) -> None:
    await made.client.create_stream("s/t")
    transaction = await made.client.transactional_writer("s/t").begin()

    async def fails(events) -> None:
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventWriter, "flush", fails)
        with pytest.raises(ZeroDivisionError):
            async with transaction:
                transaction.write("x")
    assert await transaction.status() is TransactionStatus.ABORTED


@on_node
async def test_block_of_a_closed_writer_raises_conflict(made) -> None:
    await made.client.create_stream("s/t")
    writer = made.client.transactional_writer("s/t")
    with pytest.raises(Conflict, match="is not committed: its writer was closed"):
        async with await writer.begin() as transaction:
            transaction.write("x")
            await writer.close()
    with pytest.raises(KeyError):  # an error of the block is not hidden
        async with await writer.begin() as transaction:
            await writer.close()
            raise KeyError
    assert await made.read("s/t") == []
