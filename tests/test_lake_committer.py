"""A stream of a real node becomes a table of a real catalog: SQLite in a directory, by PyIceberg."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sarit.aio
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.lake.catalogs import Catalogs
from sarit.lake.columns import BinaryChoice
from sarit.lake.committer import Committer
from sarit.lake.pyiceberg_tables import PyIcebergTables
from sarit.lake.settings import IcebergSettings
from sarit.process.jobs.stream_source import StreamSource
from tests.nodes import RunningNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from sarit.core.cuts import StreamCut

STREAM = "shop/orders"


class Row:
    """The row of a job: the state that was saved last."""

    def __init__(self) -> None:
        self.state = b""
        self.held: StreamCut | None = None

    async def save(self, state: bytes, held: StreamCut | None) -> None:
        self.state, self.held = state, held


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("node")) as running:
        yield running


def catalogs(directory: Path) -> Catalogs:
    return Catalogs({"lake": {"type": "sql", "uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}"}})


@asynccontextmanager
async def committer(node: RunningNode, directory: Path, row: Row, **chosen: Any) -> AsyncIterator[Committer]:
    env = real_env()
    worker = env.threads.worker("lake")
    settings = IcebergSettings("lake.shop.orders", **{"interval_seconds": 0, **chosen})
    async with await sarit.aio.connect(node.controller) as client:
        source = StreamSource(client.session, StreamName.parse(STREAM), env.clock)
        tables = PyIcebergTables(catalogs(directory), "lake")
        yield Committer(settings, source, tables, BinaryChoice(), row.save, env, worker, row.state)
    await worker.close()


def read_back(directory: Path) -> pa.Table:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", **catalogs(directory)["lake"])
    return catalog.load_table("shop.orders").scan().to_arrow()


async def write(client: Any, events: list[bytes]) -> None:
    async with client.writer(STREAM) as writer:
        for number, event in enumerate(events):
            writer.write(event, key=str(number % 7))


async def _fresh_stream(client: Any, segments: int = 3) -> None:
    await client.create_scope("shop")
    await client.create_stream(STREAM, segments=segments)


def test_every_event_of_a_stream_is_in_its_table(node: RunningNode, tmp_path: Path) -> None:
    async def run() -> None:
        async with await sarit.aio.connect(node.controller) as client:
            await _fresh_stream(client)
            first = [b"%d" % number for number in range(1000)]
            await write(client, first)
            row = Row()
            async with committer(node, tmp_path, row) as committing:
                while committing.state.rows < 1000:
                    await committing.step()
                await client.stream(STREAM).scale(5)
                more = [b"more %d" % number for number in range(500)]
                await write(client, more)
                while committing.state.rows < 1500:
                    await committing.step()
            await client.seal_stream(STREAM)
            async with committer(node, tmp_path, row) as committing:
                await committing.run()
        table = read_back(tmp_path)
        assert sorted(table["value"].to_pylist()) == sorted(first + more)
        assert (
            len(set(zip(*(pc.struct_field(table["sarit"], n).to_pylist() for n in ("segment", "offset")), strict=True)))
            == 1500
        )

    asyncio.run(run())
