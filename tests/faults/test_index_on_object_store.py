"""A node whose indexes are on an object store: nothing but its log has to survive the machine."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

from sarit.client.aio import connect
from tests.contract.s3 import s3_server
from tests.nodes import RunningNode


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


def options(server, name: str) -> tuple[str, ...]:
    return (
        "--containers", "1",
        "--storage", f"s3://{server.bucket}/{name}", "--index-storage", f"s3://{server.bucket}/{name}-index",
    )  # fmt: skip


async def write(address: str, first: int, count: int, *, new: bool) -> None:
    async with await connect(address) as client:
        if new:
            await client.create_scope("a")
            await client.create_stream("a/b", segments=2)
        writer = client.writer("a/b")
        for number in range(first, first + count):
            writer.write(str(number), key=str(number % 5))
        await writer.flush()
        await writer.close()


async def read(address: str) -> list[int]:
    async with await connect(address) as client:
        return sorted([int(event) async for event in client.reader("a/b", end="tail")])


@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.long)])
def test_node_is_killed_and_starts_elsewhere_with_its_log_and_no_index_file(tmp_path, server, stopped):
    environ = {**os.environ, **server.environ}
    node = RunningNode(tmp_path / "one", *options(server, "moved"), env=environ).start()
    asyncio.run(write(node.controller, 0, 500, new=True))
    if stopped:  # the first half is in the index and in chunks
        node.stop()
        node.start()
    asyncio.run(write(node.controller, 500, 500, new=False))
    node.kill()
    assert not (tmp_path / "one" / "index").exists()
    shutil.move(tmp_path / "one", tmp_path / "elsewhere")
    with RunningNode(tmp_path / "elsewhere", *options(server, "moved"), env=environ) as node:
        assert asyncio.run(read(node.controller)) == list(range(1000))
        assert not list((tmp_path / "elsewhere").rglob("*.db"))
