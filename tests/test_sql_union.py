"""The union of a stream's Iceberg table and its tail: each event once, while commits, scales and writes go on."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

import sarit.aio
from sarit.client.queries.query import QueryOptions, table_of
from sarit.client.queries.values import ValueOptions
from sarit.core.errors import Invalid, Truncated
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.lake.catalogs import Catalogs
from sarit.lake.committer import Committer
from sarit.lake.pyiceberg_tables import PyIcebergTables
from sarit.lake.settings import IcebergSettings
from sarit.process.jobs.stream_source import StreamSource
from sarit.serializers.column_choice import open_columns
from sarit.sql.sandbox import EngineSettings
from tests.lake_columns import BinaryChoice
from tests.nodes import RunningNode

STREAM = "shop/orders"
COUNT = "SELECT count(*) AS n, count(DISTINCT value) AS different FROM shop.orders"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def lake(tmp_path):
    return {"lake": {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}}


@asynccontextmanager
async def committing(client, lake, name=STREAM, columns=None, **chosen):
    """A committer of a stream, which the test drives; the settings are where a query finds them."""
    env = real_env()
    worker = env.threads.worker("lake")
    settings = IcebergSettings("lake.shop.orders", **{"interval_seconds": 0, **chosen})
    source = StreamSource(client.session, StreamName.parse(name), env.clock)
    tables = PyIcebergTables(Catalogs(lake), "lake")

    async def save(state, held):
        pass

    try:
        yield Committer(settings, source, tables, columns or BinaryChoice(), save, env, worker, b"")
    finally:
        await worker.close()


@pytest.fixture
def jobs(monkeypatch):
    """The jobs of streams as a node would answer them: this one runs none."""
    found = {}

    async def settings_of(_session, stream):
        return found.get(str(stream), [])

    monkeypatch.setattr("sarit.client.queries.union_view.jobs", settings_of)

    def add(name, **chosen):
        settings = IcebergSettings("lake.shop.orders", **chosen)
        found[name] = [sarit.client.streams.jobs.JobInfo("iceberg", "main", settings.encode(), {}, "", False, "")]

    return add


async def ask(client, sql, lake, **given):
    options = QueryOptions(values=ValueOptions("auto"), catalogs=lake, **given)
    return (await table_of(client.session, sql, options)).to_pylist()


async def write(client, events, name=STREAM):
    async with client.writer(name) as writer:
        for number, event in enumerate(events):
            writer.write(event, key=str(number % 7))


async def fresh(client, segments=2, name=STREAM):
    await client.create_scope("shop")
    await client.delete_stream(name, seal=True) if [s async for s in client.list_streams("shop")] else None
    await client.create_stream(name, segments=segments)


async def until(committer, rows):
    while committer.state.rows < rows:
        await committer.step()


def test_union_is_complete_and_without_doubles_while_commits_go_on(node, lake, jobs):
    jobs(STREAM)

    async def run():
        async with await sarit.aio.connect(node.controller) as client:
            await fresh(client)
            written = [b"%d" % number for number in range(300)]
            await write(client, written)
            assert await ask(client, COUNT, lake) == [{"n": 300, "different": 300}]  # nothing was committed yet
            async with committing(client, lake) as committer:
                await until(committer, 300)
                assert await ask(client, COUNT, lake) == [{"n": 300, "different": 300}]
                task = asyncio.create_task(committer.run())
                for turn in range(6):
                    if turn in (1, 3):
                        await client.stream(STREAM).scale(4 if turn == 1 else 2)
                    more = [b"%d-%d" % (turn, number) for number in range(200)]
                    await write(client, more)
                    written += more
                    count = len(written)
                    assert await ask(client, COUNT, lake) == [{"n": count, "different": count}]
                assert not task.done()
                task.cancel()
                await asyncio.wait([task])
            rows = await ask(client, "SELECT value FROM shop.orders", lake)
            assert sorted(row["value"] for row in rows) == sorted(written)
            places = "SELECT count(DISTINCT (sarit.segment, sarit.offset)) AS n FROM shop.orders"
            assert await ask(client, places, lake) == [{"n": len(written)}]
            stream = await ask(client, "SELECT sarit.segment AS s, count(*) AS n FROM shop.orders GROUP BY 1", {})
            for row in stream:
                one = f"SELECT count(*) AS n FROM shop.orders WHERE sarit.segment = {row['s']}"
                assert await ask(client, one, lake) == [{"n": row["n"]}]

    asyncio.run(run())


def test_events_that_only_the_table_has_are_in_the_union(node, lake, jobs):
    jobs(STREAM)

    async def run():
        async with await sarit.aio.connect(node.controller) as client:
            await fresh(client)
            await write(client, [b"%d" % number for number in range(100)])
            async with committing(client, lake) as committer:
                await until(committer, 100)
            await client.truncate_stream(STREAM, cut="tail")
            await write(client, [b"later %d" % number for number in range(50)])
            assert await ask(client, COUNT, lake) == [{"n": 150, "different": 150}]
            assert await ask(client, COUNT, {}) == [{"n": 50, "different": 50}]

            await client.truncate_stream(STREAM, cut="tail")
            await write(client, [b"last"])
            with pytest.raises(Truncated, match=r"table lake\.shop\.orders and stream shop/orders do not meet"):
                await ask(client, COUNT, lake)

    asyncio.run(run())


def test_table_of_an_earlier_stream_is_refused(node, lake, jobs):
    jobs(STREAM)

    async def run():
        async with await sarit.aio.connect(node.controller) as client:
            await fresh(client)
            await write(client, [b"one"])
            async with committing(client, lake) as committer:
                await until(committer, 1)
            await fresh(client)
            with pytest.raises(Invalid, match="other-stream"):
                await ask(client, COUNT, lake)

    asyncio.run(run())


def test_columns_of_json_in_the_table_and_in_the_tail_are_one(node, lake, jobs):
    jobs(STREAM, value="json", naive_times=True)

    async def run():
        async with await sarit.aio.connect(node.controller) as client:
            await fresh(client)
            await write(client, [json.dumps({"id": at, "name": f"n{at}"}) for at in range(10)])
            async with committing(client, lake, columns=_Json(), value="json", naive_times=True) as committer:
                await until(committer, 10)
            await write(client, [json.dumps({"id": at, "paid": at % 2 == 0}) for at in range(10, 20)] + ["no json"])
            sql = "SELECT count(*) AS n, sum(id)::BIGINT AS ids, count(name) AS names, count(paid) AS paid"
            sql += " FROM shop.orders"
            assert await ask(client, sql, lake) == [{"n": 20, "ids": 190, "names": 10, "paid": 10}]
            some = "SELECT count(*) AS n FROM shop.orders WHERE sarit.ingested >= '1970-01-01' AND id >= 5"
            assert await ask(client, some, lake) == [{"n": 15}]
            none = "SELECT count(*) AS n FROM shop.orders WHERE sarit.ingested > now() + INTERVAL 1 HOUR"
            assert await ask(client, none, lake, settings=EngineSettings(limit_bytes=0)) == [{"n": 0}]

    asyncio.run(run())


class _Json:
    """Values by JSON, with the columns that the job of a node has chosen."""

    wants_sample = True

    async def choose(self, before, sample):
        return json.dumps({"value": "json", "columns": [["id", "long"], ["name", "string"]]})

    async def open(self, chosen):
        return open_columns(chosen, None)
