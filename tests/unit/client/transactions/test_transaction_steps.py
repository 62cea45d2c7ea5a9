"""What may follow what in a transaction: a table, and calls at the same time as the flush of a commit."""

import asyncio
from itertools import product

import pytest

from sarit.client.core.values import TransactionStatus
from sarit.client.transactions.transaction import ABORTED, COMMITTED, COMMITTING, OPEN, RELEASED, STEPS
from sarit.client.writer.writer import EventWriter
from sarit.core.errors import Conflict
from tests.unit.client.nodes import on_node

STATES = (OPEN, COMMITTING, COMMITTED, ABORTED, RELEASED)
EVENTS = ("commit", "flushed", "not flushed", "refused", "abort", "release")


class Flush:
    """`EventWriter.flush`, held until `go`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        flush = EventWriter.flush

        async def held(events) -> None:
            self.begun.set()
            await self.go.wait()
            await flush(events)

        patch.setattr(EventWriter, "flush", held)


def test_decided_states_are_left_for_no_other_outcome():
    assert set(STEPS) <= set(product(STATES, EVENTS))
    assert {after for (state, _), after in STEPS.items() if state == ABORTED} == {ABORTED}
    # After the request only the controller's refusal ends it otherwise.
    assert {event for (state, event), after in STEPS.items() if state == COMMITTED and after != COMMITTED} == {
        "refused"
    }
    # Committed only by a commit that was flushed.
    assert {state for (state, _), after in STEPS.items() if after == COMMITTED} == {COMMITTING, COMMITTED}


@pytest.mark.parametrize("flushed_first", [True, False], ids=["flushed", "not flushed"])
def test_abort_during_the_flush_of_a_commit_wins(flushed_first, tmp_path):
    """The commit went on, and said that the transaction was committed."""

    @on_node
    async def test(made) -> None:
        await made.client.create_stream("s/t")
        transaction = await made.client.transactional_writer("s/t").begin()
        transaction.write("x")
        if flushed_first:
            await transaction.flush()
        with pytest.MonkeyPatch.context() as patch:
            flush = Flush(patch)
            committing = asyncio.create_task(transaction.commit())
            await flush.begun.wait()
            aborting = asyncio.create_task(transaction.abort())
            flush.go.set()
            with pytest.raises(Conflict, match="aborted"):
                await committing
            await aborting
        assert await transaction.status() is TransactionStatus.ABORTED
        with pytest.raises(Conflict, match="aborted"):
            await transaction.commit()
        assert await made.read("s/t") == []

    test(tmp_path)


@on_node
async def test_release_during_the_flush_of_a_commit_leaves_it_to_its_lease(made) -> None:
    await made.client.create_stream("s/t")
    writer = made.client.transactional_writer("s/t")
    transaction = await writer.begin()
    with pytest.MonkeyPatch.context() as patch:
        flush = Flush(patch)
        committing = asyncio.create_task(transaction.commit())
        await flush.begun.wait()
        await writer.close()
        flush.go.set()
        with pytest.raises(Conflict, match="released"):
            await committing
    assert await transaction.status() is TransactionStatus.OPEN
    await writer.abort(transaction.id)


@on_node
async def test_two_commits_at_once_commit_once(made) -> None:
    await made.client.create_stream("s/t")
    transaction = await made.client.transactional_writer("s/t").begin()
    transaction.write("x")
    await asyncio.gather(transaction.commit(), transaction.commit())
    assert await made.read("s/t") == [b"x"]
    with pytest.raises(Conflict, match="committed"):
        await transaction.abort()
