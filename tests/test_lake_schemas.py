"""Subjects that get new versions while a stream is committed into an Iceberg table: Avro, JSON, Protobuf.

Writers of the old version go on beside those of the new one, so commits have events of both."""

from __future__ import annotations

import asyncio
import json

import pytest

from sarit.lake.settings import IcebergSettings
from sarit.process import worker_role
from sarit.registry.values import NewSchema
from sarit.schemas.column_types import sql_name
from sarit.schemas.definitions import Kind
from sarit.serializers.headers import confluent_header
from sarit.serializers.widening import small_type
from tests.catalogs import write_catalogs
from tests.unit.process.test_schema_evolution import (
    AVRO,
    GROUP,
    JSON,
    PROTOBUF,
    STREAM,
    avro,
    document,
    evolve,
    message,
    on_node,
    record,
    texts,
)

pytest.importorskip("pyiceberg", reason="sarit[lake] is not installed")
TABLE = "lake.shop.orders"


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(worker_role, "JOBS_POLL_SECONDS", 0.05)
    monkeypatch.setattr(worker_role, "JOB_RETRY_SECONDS", 0.05)


class Table:
    """The table of a stream, as PyIceberg reads it."""

    def __init__(self, directory):
        from sarit.lake.catalogs import open_catalog, read_catalogs

        self.catalogs = write_catalogs(directory)
        # Opened before the node does it: both would create the tables of the catalog.
        self._opened = open_catalog(read_catalogs(str(self.catalogs)), "lake")

    async def rows(self, name="orders"):
        """The rows of its newest snapshot; None: there is no table."""
        return await asyncio.to_thread(self._rows, name)

    def _rows(self, name):
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._opened.load_table(("shop", name)).scan().to_arrow()
        except NoSuchTableError:
            return None

    async def count(self, client):
        """How many rows it has.  A problem of the job ends the test."""
        (job,) = await client.stream(STREAM).jobs()
        assert not job.problem
        found = await self.rows()
        return 0 if found is None else len(found)


def job(value="auto"):
    return "iceberg", IcebergSettings(TABLE, value=value, interval_seconds=1).encode()


@pytest.mark.parametrize(
    ("kind", "versions", "encode", "columns"),
    [
        (Kind.AVRO, AVRO, avro, {"id": "bigint", "city": "string", "place": "struct<x:bigint,y:double>"}),
        (Kind.JSON, JSON, document, {"id": "bigint", "city": "string", "place": "struct<x:bigint>"}),
        (Kind.PROTOBUF, PROTOBUF, message, {"id": "bigint", "city": "string", "place": "struct<x:int>"}),
    ],
)
def test_rows_of_all_versions_are_in_one_table(tmp_path, kind, versions, encode, columns):
    table = Table(tmp_path)

    async def work(client, registry):
        expected = await evolve(client, registry, kind, versions, encode, job(), table.count)
        rows = await table.rows()
        assert {one.name: sql_name(small_type(one.type)) for one in rows.schema if one.name != "sarit"} == columns
        assert texts(rows.drop_columns(["sarit"]).to_pylist()) == texts(expected)
        positions = {(one["segment"], one["offset"]) for one in rows["sarit"].to_pylist()}
        assert len(positions) == len(expected)
        assert await table.rows("orders__dlq") is None or not len(await table.rows("orders__dlq"))

    asyncio.run(on_node(tmp_path / "node", work, catalogs=str(table.catalogs)))


def test_version_that_cannot_be_widened_stops_the_job_by_name_and_loses_nothing(tmp_path):
    table = Table(tmp_path)

    async def work(client, registry):
        expected = await evolve(client, registry, Kind.AVRO, AVRO[:2], avro, job(), table.count)
        schema = record(("id", {"type": "string"}))
        number = (await registry.register(GROUP, NewSchema(Kind.AVRO, json.dumps(schema)))).id
        async with client.writer(STREAM) as writer:
            writer.write(confluent_header(number) + avro(schema, {"id": "x"}))
        while not (problem := (await client.stream(STREAM).jobs())[0].problem):
            await asyncio.sleep(0.02)
        assert "column id is bigint, which cannot be widened to string" in problem
        assert texts((await table.rows()).drop_columns(["sarit"]).to_pylist()) == texts(expected)
        # The next version can: the stream goes on, and the events of the version between are dead letters.
        fit = record(("id", {"type": "long"}), ("note", {"type": ["int", "boolean"]}))
        number = (await registry.register(GROUP, NewSchema(Kind.AVRO, json.dumps(fit)))).id
        async with client.writer(STREAM) as writer:
            writer.write(confluent_header(number) + avro(fit, {"id": 7, "note": True}))
        while len(rows := await table.rows()) <= len(expected):
            await asyncio.sleep(0.05)
        assert texts(rows.drop_columns(["sarit"]).to_pylist()) == texts([*expected, {"id": 7, "note": "true"}])
        (letter,) = (await table.rows("orders__dlq")).to_pylist()
        assert (letter["raw"][5:], "no datum" in letter["error"]) == (avro(schema, {"id": "x"}), True)

    asyncio.run(on_node(tmp_path / "node", work, catalogs=str(table.catalogs)))


def test_columns_of_json_grow_while_documents_come(tmp_path):
    table = Table(tmp_path)

    async def work(client, _):
        await client.stream(STREAM).set_properties({"schema-header": ""})
        steps = [
            {"id": 1},
            {"id": 2, "place": {"x": 1}, "Sarit": "s"},
            {"id": 3, "place": {"x": 2**60, "y": [0.5]}, "mixed": [1, "a"], "at": "2026-01-01T00:00:00Z"},
        ]
        assert await client.stream(STREAM).create_job(*job("json"))
        for at, one in enumerate(steps):
            async with client.writer(STREAM) as writer:
                writer.write(json.dumps(one).encode())
            while await table.count(client) <= at:
                await asyncio.sleep(0.05)
        async with client.writer(STREAM) as writer:
            writer.write(b'{"id": "no number"}')
        while (letters := await table.rows("orders__dlq")) is None or not len(letters):
            await asyncio.sleep(0.05)
        rows = (await table.rows()).drop_columns(["sarit"])
        assert rows.column_names == ["id", "place", "Sarit_", "mixed", "at"]
        found = {row["id"]: row for row in rows.to_pylist()}
        assert found[1] == {"id": 1, "place": None, "Sarit_": None, "mixed": None, "at": None}
        assert (found[2]["place"], found[2]["Sarit_"]) == ({"x": 1, "y": None}, "s")
        assert (found[3]["place"], found[3]["mixed"]) == ({"x": 2**60, "y": [0.5]}, ["1", "a"])
        assert found[3]["at"].isoformat() == "2026-01-01T00:00:00+00:00"

    asyncio.run(on_node(tmp_path / "node", work, catalogs=str(table.catalogs)))
