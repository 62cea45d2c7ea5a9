"""A node with its chunks on a real HDFS."""

from __future__ import annotations

import asyncio

import pytest

from sarit.client.aio import connect
from tests.components.hdfs import hdfs  # noqa: F401
from tests.nodes import RunningNode

pytestmark = pytest.mark.long


async def write(address: str) -> None:
    async with await connect(address) as client:
        await client.create_scope("a")
        await client.create_stream("a/b")
        writer = client.writer("a/b")
        for number in range(500):
            writer.write(f"{number} {'x' * 1000}", key="k")
        await writer.flush()
        await writer.close()


async def read(address: str) -> list[int]:
    async with await connect(address) as client:
        return [int(bytes(event).split()[0]) async for event in client.reader("a/b", end="tail")]


def test_node_flushes_to_hdfs_and_reads_back_after_a_restart(tmp_path, hdfs) -> None:  # noqa: F811
    storage = ("--containers", "1", "--storage", f"{hdfs.url}/node")
    with RunningNode(tmp_path / "data", *storage) as node:
        asyncio.run(write(node.controller))
    assert not (tmp_path / "data" / "chunks").exists()
    with RunningNode(tmp_path / "data", *storage) as node:
        assert asyncio.run(read(node.controller)) == list(range(500))
