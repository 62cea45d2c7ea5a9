"""What a node leaves behind is freed by reference counts: a busy node collects no garbage that survived its youth."""

import asyncio
import gc

import pytest

from sarit.client import aio
from sarit.core.errors import NotFound
from sarit.store.server import read_handler
from sarit.store.server.append_handler import AppendHandler
from sarit.store.server.connection import StoreConnection
from sarit.store.server.read_handler import ReadHandler
from tests.unit.client.nodes import on_node

ROUNDS = 5
MOST_PASSES = 10
KINDS = (StoreConnection, AppendHandler, ReadHandler)
SERVER = (
    "sarit.store",
    "sarit.controller",
    "sarit.process",
    "sarit.cluster",
    "sarit.log",
    "sarit.index",
    "sarit.storage",
    "uvloop",
)


def alive(kind: type) -> int:
    return sum(isinstance(one, kind) for one in gc.get_objects())


def of_server(objects: list[object]) -> list[object]:
    # Of a class made in C, `__module__` may be a descriptor.
    return [one for one in objects if str(type(one).__module__).startswith(SERVER)]


async def _one_client(address: str, number: int) -> None:
    """It writes, reads, commits, is refused, and leaves."""
    client = await aio.connect(address)
    async with client.writer("s/a") as writer:
        writer.write(b"one")
    async with client.transactional_writer("s/a") as writer:
        async with await writer.begin() as transaction:
            transaction.write(b"two")
        aborted = await writer.begin()
        await aborted.abort()
    async with client.reader("s/a") as reader:
        async for _event in reader:
            break
    with pytest.raises(NotFound):
        await client.stream_info("s/missing")
    await client.create_stream(f"s/n{number}")
    await client.delete_stream(f"s/n{number}", seal=True)
    table = client.table("s/t")
    await table.put("key", b"value")
    await table.get("key")
    await client.close()


@pytest.fixture(autouse=True)
def parked_reads_end_soon(monkeypatch):
    """A read that waits at the tail keeps its connection until it expires."""
    monkeypatch.setattr(read_handler, "PARKED_READ_SECONDS", 0.05)


@on_node
async def test_clients_that_come_and_go_leave_no_cycles(made):
    await made.client.create_stream("s/a")
    await made.client.tables.create("s/t", primary_key_bytes=3)
    await _one_client(made.address, ROUNDS)
    # Other tests of this process may have left cycles, of which one pass frees only those that no finalizer refers to;
    # and objects to which the traceback of a failure refers.
    for _ in range(MOST_PASSES):
        if not gc.collect():
            break
    before = {kind: alive(kind) for kind in KINDS}
    # Those of other tests, which may become garbage at any moment: when a thread of theirs ends.
    others = set(map(id, of_server(gc.get_objects())))
    gc.freeze()
    gc.disable()
    try:
        for number in range(ROUNDS):
            await _one_client(made.address, number)
        gc.unfreeze()
        # Before any collection: what is in a cycle stays, and this does not end.
        while any(alive(kind) > before[kind] for kind in KINDS):
            await asyncio.sleep(0.05)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = [type(one) for one in of_server(gc.garbage) if id(one) not in others]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()
    assert found == []
