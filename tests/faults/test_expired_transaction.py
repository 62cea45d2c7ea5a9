"""A client is killed with its transaction open, and the node, too: the lease passes, and the transaction is aborted."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from sarit.client.aio import connect
from sarit.client.core.values import TransactionStatus
from sarit.core.errors import Conflict
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

LEASE_SECONDS = 10  # the shortest there is
CHILD = """
import asyncio, sys
from sarit.client.aio import connect

async def main():
    async with await connect(sys.argv[1]) as client:
        transaction = await client.transactional_writer("s/t", lease_seconds=10).begin()
        transaction.write_many([b"of the dead"] * 100, keys=[str(n) for n in range(100)])
        await transaction.flush()
        print(transaction.id, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


def dies_with_a_transaction(controller: str) -> str:
    """The id of what a client left open that was killed."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, controller], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        return child.stdout.readline().strip()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


async def all_events(client) -> list[bytes]:
    return [bytes(event) async for event in client.reader("s/t", end="tail")]


def test_transaction_of_dead_client_is_aborted_and_others_continue(tmp_path) -> None:
    with RunningNode(tmp_path / "data") as node:

        async def main() -> None:
            async with await connect(node.controller) as client:
                await client.create_scope("s")
                await client.create_stream("s/t", segments=2)
                writer = client.transactional_writer("s/t", lease_seconds=LEASE_SECONDS)
                living = await writer.begin()
                living.write(b"of the living", key="k")
                dead = await asyncio.to_thread(dies_with_a_transaction, node.controller)
                assert await writer.status(dead) is TransactionStatus.OPEN
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
                while (status := await writer.status(dead)) is not TransactionStatus.ABORTED:
                    assert status in (TransactionStatus.OPEN, TransactionStatus.ABORTING)
                    await asyncio.sleep(0.2)
                assert await living.status() is TransactionStatus.OPEN, "its client renews the lease"
                with pytest.raises(Conflict):
                    await writer.commit(dead)
                assert await all_events(client) == []
                await living.commit()
                assert await all_events(client) == [b"of the living"]
                await writer.close()

        asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
