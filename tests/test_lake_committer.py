"""A stream of a real node becomes a table of a real catalog: SQLite in a directory, by PyIceberg."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.types import IntegerType

import sarit.aio
from sarit.core.errors import Exists, NotFound, Unavailable
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.lake import cuts
from sarit.lake.catalogs import Catalogs
from sarit.lake.committer import Committer
from sarit.lake.problems import TableProblem
from sarit.lake.pyiceberg_tables import PyIcebergTables
from sarit.lake.settings import IcebergSettings
from sarit.process.jobs.stream_source import StreamSource
from tests.lake_columns import BinaryChoice
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
    catalog = load_catalog("lake", **catalogs(directory)["lake"])
    return catalog.load_table("shop.orders").scan().to_arrow()


async def write(client: Any, events: list[bytes]) -> None:
    async with client.writer(STREAM) as writer:
        for number, event in enumerate(events):
            writer.write(event, key=str(number % 7))


def test_every_event_of_a_stream_is_in_its_table(node: RunningNode, tmp_path: Path) -> None:
    async def run() -> None:
        async with await sarit.aio.connect(node.controller) as client:
            await _recreated(client, segments=3)
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


async def _recreated(client: Any, segments: int = 2) -> None:
    """A stream of the name of an earlier one, without events."""
    with suppress(NotFound):
        await client.seal_stream(STREAM)
        await client.delete_stream(STREAM)
    with suppress(Exists):
        await client.create_scope("shop")
    await client.create_stream(STREAM, segments=segments)


async def commit_all(committing: Committer) -> None:
    """Commit everything that is there."""
    source = committing._source
    while committing.state.cut is None or committing.state.intent is not None:
        await committing.step()
    while await source.bytes_behind(committing.state.cut):
        await committing.step()
        while committing.state.intent is not None:
            await committing.step()


def summaries(directory: Path) -> list[dict[str, str]]:
    view = PyIcebergTables(catalogs(directory), "lake").load(("shop", "orders"))
    assert view is not None
    return [dict(snapshot.summary) for snapshot in view.snapshots]


def test_what_retention_truncated_is_counted_as_a_gap(node: RunningNode, tmp_path: Path) -> None:
    async def run() -> None:
        row = Row()
        async with await sarit.aio.connect(node.controller) as client:
            await _recreated(client)
            await write(client, [b"%d" % number for number in range(100)])
            async with committer(node, tmp_path, row) as committing:
                await commit_all(committing)
                assert committing.state.rows == 100
                assert row.held == committing.state.cut
                await write(client, [b"lost %d" % number for number in range(50)])
                lost = await client.stream(STREAM).batch(committing.state.cut)
                await client.stream(STREAM).scale(5)
                await client.truncate_stream(STREAM, cut="tail")
                await write(client, [b"kept %d" % number for number in range(30)])
                await commit_all(committing)
                await client.stream(STREAM).scale(4)
                await write(client, [b"more %d" % number for number in range(20)])
                await commit_all(committing)
        table = read_back(tmp_path)
        assert table.num_rows == 150
        assert not [value for value in table["value"].to_pylist() if value.startswith(b"lost")]
        assert lost.total_bytes > 0
        # The segments were deleted unseen: at least something of each of the two is missing.
        assert 2 <= committing.state.lost_bytes <= lost.total_bytes
        assert [int(each[cuts.GAP]) for each in summaries(tmp_path) if cuts.GAP in each] == [
            committing.state.lost_bytes
        ]

    asyncio.run(run())


def test_table_of_a_stream_that_was_created_again_is_refused_until_resumed(node: RunningNode, tmp_path: Path) -> None:
    async def run() -> None:
        async with await sarit.aio.connect(node.controller) as client:
            await _recreated(client)
            await write(client, [b"old"])
            row = Row()
            async with committer(node, tmp_path, row) as committing:
                await commit_all(committing)
            await _recreated(client)
            await write(client, [b"new"])
            async with committer(node, tmp_path, row) as committing:
                with pytest.raises(TableProblem, match="other-stream"):
                    await committing.step()
            # The rows of a job go with its stream.
            async with committer(node, tmp_path, Row()) as committing:
                with pytest.raises(TableProblem, match="other-stream"):
                    await committing.step()
            assert read_back(tmp_path)["value"].to_pylist() == [b"old"]
            async with committer(node, tmp_path, Row(), resume_from="head") as committing:
                await commit_all(committing)
            assert sorted(read_back(tmp_path)["value"].to_pylist()) == [b"new", b"old"]

    asyncio.run(run())


def test_many_segments_and_a_backfill_make_few_commits(node: RunningNode, tmp_path: Path) -> None:
    async def run() -> None:
        async with await sarit.aio.connect(node.controller) as client:
            await _recreated(client, segments=40)
            big = [bytes(8) + b"%d" % number + bytes(60_000) for number in range(64)]
            async with client.writer(STREAM) as writer:
                for event in big:
                    writer.write(event, key="one")  # all in one of 40 segments
            async with committer(node, tmp_path, Row(), target_bytes=1_000_000) as committing:
                await commit_all(committing)
                assert 2 <= committing.state.commits <= 5
        assert read_back(tmp_path).num_rows == 64

    asyncio.run(run())


def test_catalog_that_is_away_leaves_the_stream_alone(tmp_path: Path) -> None:
    away = Catalogs(
        {"lake": {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/secret-word.db", "warehouse": "file:///x"}}
    )
    with pytest.raises(Unavailable):
        PyIcebergTables(away, "lake").load(("shop", "orders"))


def test_changed_partition_spec_and_a_column_of_another_type_are_refused(node: RunningNode, tmp_path: Path) -> None:
    async def run() -> None:
        async with await sarit.aio.connect(node.controller) as client:
            await _recreated(client)
            await write(client, [b"1"])
            row = Row()
            async with committer(node, tmp_path, row) as committing:
                await commit_all(committing)
            raw = load_catalog("lake", **catalogs(tmp_path)["lake"]).load_table("shop.orders")
            with raw.update_schema(allow_incompatible_changes=True) as update:
                update.delete_column("value")
            with raw.update_schema() as update:
                update.add_column("value", IntegerType())
            await write(client, [b"2"])
            async with committer(node, tmp_path, row) as committing:
                with pytest.raises(TableProblem, match="schema: column value"):
                    await commit_all(committing)
            with raw.update_spec() as spec:
                spec.remove_field("ingested_hour")
            async with committer(node, tmp_path, row) as committing:
                with pytest.raises(TableProblem, match="partition-spec"):
                    await committing.step()

    asyncio.run(run())
