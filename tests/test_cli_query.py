"""`sarit query` and `client.sql` on a real node: what is printed, what is refused, and how a query ends."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sarit as client_library
from sarit import aio
from sarit.client.queries.follow import follow
from sarit.client.queries.query import QueryOptions, table_of
from sarit.client.queries.values import ValueOptions
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid, NotFound, TimedOut
from sarit.sql.meter import ScanMeter, TooMuch
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.test_cli import sarit
from tests.unit.serializers.memory_schemas import MemorySchemas

EVENTS = 500
TIME_US = 1_700_000_000_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        with client_library.connect(node.controller) as client:
            client.create_scope("shop")
            client.create_stream("shop/orders", segments=3)
            client.create_stream("shop/plain.x")
            client.create_stream("shop/empty")
            with client.writer("shop/orders") as writer:
                for at in range(EVENTS):
                    key, headers = f"k{at % 5}", {"a": b"\xff"}
                    writer.write(Envelope(b"%d" % at, key=key, event_time=TIME_US + at, headers=headers), key=key)
            with client.writer("shop/plain.x") as writer:
                writer.write_many([b"one", b"two", b"\xff\x00"])
        yield node


@pytest.fixture
def client(node):
    with client_library.connect(node.controller) as client:
        yield client


def query(node, sql, *options, **given):
    return sarit(node, "query", sql, *options, **given)


def test_table_is_printed(node):
    sql = "SELECT sarit.key AS key, count(*) AS events FROM shop.orders GROUP BY ALL ORDER BY ALL"
    lines = query(node, sql)[0].splitlines()
    assert lines == ["key  events", "---  ------", *(f"k{at}   100" for at in range(5))]


def test_formats(node, tmp_path):
    sql = 'SELECT sarit.offset AS at, value, sarit.headers AS headers FROM shop."plain.x" ORDER BY ALL'
    assert query(node, sql, "--format", "csv")[0] == "at,value,headers\n0,one,\n11,two,\n22,\\xff00,\n"
    documents = [json.loads(line) for line in query(node, sql, "--format", "json")[0].splitlines()]
    assert documents[1:] == [
        {"at": 11, "value": "two", "headers": None},
        {"at": 22, "value": {"base64": "/wA="}, "headers": None},
    ]
    for name in ("x.parquet", "x.arrow"):
        query(node, sql, "--output-file", str(tmp_path / name))
    rows = [{"at": 0, "value": b"one"}, {"at": 11, "value": b"two"}, {"at": 22, "value": b"\xff\x00"}]
    assert pq.read_table(tmp_path / "x.parquet").select(["at", "value"]).to_pylist() == rows
    with pa.ipc.open_stream((tmp_path / "x.arrow").read_bytes()) as reader:
        assert reader.read_all().select(["at", "value"]).to_pylist() == rows


def test_files_are_joined(node, tmp_path):
    pq.write_table(pa.table({"key": ["k1", "k2"], "name": ["anna", "ben"]}), tmp_path / "names.parquet")
    sql = (
        f"SELECT name, count(*) AS n FROM shop.orders JOIN '{tmp_path}/names.parquet' names ON names.key = sarit.key "
        "GROUP BY ALL ORDER BY ALL"
    )
    assert query(node, sql, "--format", "csv")[0] == "name,n\nanna,100\nben,100\n"


def test_query_from_standard_input_and_between_positions(node):
    assert query(node, "-", "--format", "csv", stdin="SELECT count(*) n FROM shop.orders")[0] == f"n\n{EVENTS}\n"
    for options, count in (
        (("--from", "tail"), 0),
        (("--to", "-1 hour"), EVENTS),  # no cut was recorded since then
    ):
        assert query(node, "SELECT count(*) n FROM shop.orders", "--format", "csv", *options)[0] == f"n\n{count}\n"


@pytest.mark.parametrize(
    ("sql", "options", "code", "message"),
    [
        ("selec 1", (), 1, 'syntax error at or near "selec" (line 1, column 1: selec 1)'),
        ("SELECT * FROM shop.oders", (), 1, "there is no stream or table shop.oders; near it: shop.orders"),
        ("SELECT * FROM shop.orders", ("--limit-bytes", "1K"), 2, "of streams.  Go on?  There is no terminal"),
        ("SELECT 1", ("--output-file", "result.what"), 2, "the name does not say the format"),
        ("SELECT union_value(a := 1) AS u", ("--format", "parquet"), 1, "the column u of the result is of type"),
    ],
)  # fmt: skip
def test_wrong_queries_end_with_the_reason(node, sql, options, code, message):
    assert message in query(node, sql, *options, code=code)[1]


def test_failed_query_leaves_no_file(node, tmp_path):
    for sql in ("selec 1", 'SELECT value::INTEGER FROM shop."plain.x"'):
        query(node, sql, "--output-file", str(tmp_path / "x.csv"), code=1)
    assert list(tmp_path.iterdir()) == []


def test_control_characters_of_events_are_shown_and_not_obeyed(node):
    assert "\\x1b[2J" in query(node, "SELECT chr(27) || '[2J' AS x")[0]


def test_client_returns_arrow(client):
    found = client.sql("SELECT * FROM shop.orders WHERE sarit.key = 'k3' ORDER BY sarit.time LIMIT 1")
    (row,) = found.to_pylist()
    assert row["value"] == b"3"
    assert row["sarit"]["headers"] == [{"key": "a", "value": b"\xff"}]
    assert int(row["sarit"]["time"].timestamp() * 1e6) == TIME_US + 3
    assert client.sql("SELECT count(*) AS n FROM shop.empty").to_pylist() == [{"n": 0}]
    assert client.sql("SELECT * FROM shop.empty").column_names == ["sarit", "value"]


def test_client_joins_tables_of_its_caller_and_bounds_what_is_read(client):
    prices = pa.table({"key": ["k1"], "price": [7]})
    sql = "SELECT sum(price) AS total FROM shop.orders JOIN prices ON prices.key = sarit.key"
    assert client.sql(sql, tables={"prices": prices}).to_pylist() == [{"total": 700}]
    with pytest.raises(TooMuch):
        client.sql("SELECT * FROM shop.orders", limit_bytes=100)
    with pytest.raises(TimedOut, match="1 seconds"):
        client.sql("SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7", timeout=1)
    with pytest.raises(NotFound, match=r"near it: shop\.orders"):
        client.sql("SELECT * FROM shop.order")
    with pytest.raises(NotFound, match=r'near it: shop\."plain\.x"'):
        client.sql("SELECT * FROM shop.plain")
    with pytest.raises(Invalid, match="limit_bytes"):
        client.sql("SELECT 1", limit_bytes=-1)


def test_values_are_columns_of_json_or_of_the_schema_of_the_stream(node, client):
    client.create_stream("shop/json")
    with client.writer("shop/json") as writer:
        writer.write_many([*(json.dumps({"id": at, "to": {"name": f"n{at}"}}) for at in range(9)), "no json"])
    sql = 'SELECT max(id) AS id, max("to".name) AS name, count(*) AS rows, count(id) AS whole FROM shop.json'
    found = [{"id": 8, "name": "n8", "rows": 10, "whole": 9}]
    assert client.sql(sql, values="json").to_pylist() == found
    printed, said = query(node, sql, "--values", "json", "--format", "json")
    assert json.loads(printed) == found[0]
    assert "1 event did not fit the schema" in said
    assert client.sql("SELECT * FROM shop.json LIMIT 1").column_names == ["sarit", "value"]
    with pytest.raises(Invalid, match="need a schema registry"):
        client.sql(sql, values="schema")

    client.stream("shop/json").set_properties({"schema-header": "none"})
    schemas = MemorySchemas()
    schemas.add("shop.json", json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}), "JSON")

    async def by_schema():
        async with aio.connect(node.controller) as client:
            options = QueryOptions(values=ValueOptions("auto", lambda header: schemas))
            return await table_of(client.session, "SELECT sum(id)::BIGINT AS n FROM shop.json", options)

    assert asyncio.run(by_schema()).to_pylist() == [{"n": 36}]


def test_key_value_tables_are_tables(client):
    client.tables.create("shop/prices", primary_key_bytes=2, secondary_key_bytes=1)
    client.table("shop/prices").put_many([((f"k{at}", "x"), f"{at}") for at in range(3)])
    sql = (
        "SELECT sum(prices.value::VARCHAR::INTEGER)::BIGINT AS total, count(*) AS events FROM shop.orders "
        "JOIN shop.prices ON prices.key::VARCHAR = sarit.key AND secondary_key = 'x'::BLOB"
    )
    assert client.sql(sql).to_pylist() == [{"total": 300, "events": 300}]
    assert client.sql("SELECT count(version) AS n FROM shop.prices").to_pylist() == [{"n": 3}]
    with pytest.raises(TooMuch):
        client.sql("SELECT * FROM shop.prices", limit_bytes=3)


def test_query_follows_the_tail_until_the_stream_is_sealed(client, node):
    client.create_stream("shop/followed", segments=2)

    async def run():
        async with aio.connect(node.controller) as client:
            sql = "SELECT value::VARCHAR AS v FROM shop.followed WHERE contains(value::VARCHAR, '7')"
            rows, written = [], []

            async def write():
                for turn in range(3):
                    async with client.writer("shop/followed") as writer:
                        for at in range(40):
                            written.append(f"{turn}-{at}")
                            writer.write(written[-1], key=str(at))
                    if turn == 1:
                        await client.stream("shop/followed").scale(3)
                await client.seal_stream("shop/followed")

            task = asyncio.create_task(write())
            async for batch in follow(client.session, sql, QueryOptions(), ScanMeter(None)):
                rows += batch.column("v").to_pylist()
            await task
            assert sorted(rows) == sorted(event for event in written if "7" in event)

    asyncio.run(run())
    printed, _ = query(node, "SELECT value FROM shop.followed WHERE value = '1-7'::BLOB", "--follow", "--format", "csv")
    assert printed == "value\n1-7\n"


@pytest.fixture
def interrupts():
    """SIGINT as processes have it at a terminal: one that runs in the background of a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_interrupt_ends_a_query_that_follows(client, node):
    client.create_stream("shop/endless")
    command = [SARIT, "query", "SELECT value FROM shop.endless", "--follow", "--format", "csv"]
    environment = {"SARIT_CONTROLLER": node.controller, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    with (
        client.writer("shop/endless") as writer,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as asked,
    ):
        assert asked.stdout is not None
        assert asked.stderr is not None
        writer.write("one")
        writer.flush()
        assert [asked.stdout.readline(), asked.stdout.readline()] == ["value\n", "one\n"]
        writer.write("two")
        writer.flush()
        assert asked.stdout.readline() == "two\n"
        asked.send_signal(signal.SIGINT)
        assert asked.wait(HANG_SECONDS) == 130
        assert asked.stderr.read() == ""


def test_one_query_sees_one_tail_of_a_stream(client):
    sql = "SELECT (SELECT count(*) FROM shop.orders) - (SELECT count(*) FROM shop.orders) AS difference"
    with client.writer("shop/orders") as writer:
        for at in range(20):
            writer.write(b"later %d" % at)
            assert client.sql(sql).to_pylist() == [{"difference": 0}]


def test_cancelled_query_ends_and_leaves_the_client_usable(node):
    async def cancel():
        async with aio.connect(node.controller) as client:
            endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.sql(endless), 0.5)
            return (await client.sql("SELECT count(*) AS n FROM shop.orders WHERE sarit.key = 'k1'")).to_pylist()

    assert asyncio.run(cancel()) == [{"n": 100}]
