"""The engine: which queries it takes, what it says of wrong ones, what bounds it keeps."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from sarit.core.errors import Forbidden, Invalid, NotFound, Truncated
from sarit.sql.engine import Engine, Interrupted
from sarit.sql.limits import MAX_QUERY_CHARS
from sarit.sql.meter import ScanMeter, TooMuch
from sarit.sql.sandbox import EngineSettings
from tests.limits import HANG_SECONDS
from tests.unit.sql.memory_tables import MemoryRelation, MemoryTables, rows_table

ROWS = [(0, at, None, b"%d" % at) for at in range(6)]


@pytest.fixture
def tables():
    return MemoryTables(
        {
            ("shop", "orders"): MemoryRelation(rows_table(ROWS)),
            ("my-shop", "a.b"): MemoryRelation(rows_table(ROWS[:2])),
        },
        near=["shop.orders"],
    )


def run(tables, sql, settings=None, **others):
    engine = Engine(tables, settings, others)
    try:
        return pa.Table.from_batches(list(engine.run(sql)))
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT * FROM shop.orders", 6),
        ("FROM shop.orders", 6),
        ("TABLE shop.orders", 6),
        ('SELECT * FROM "shop"."orders"', 6),
        ('SELECT * FROM "shop/orders"', 6),
        ('SELECT * FROM "my-shop"."a.b"', 2),
        ("WITH orders AS (SELECT value FROM shop.orders) SELECT * FROM orders a, orders b", 36),
        ("SELECT (SELECT max(value) FROM shop.orders) FROM shop.orders LIMIT 2", 2),
        ("DESCRIBE shop.orders", 2),
        ("VALUES (1), (2)", 2),
        ("SELECT * FROM shop.orders JOIN prices ON prices.at = sarit.offset", 1),
    ],
)
def test_names_are_tables(tables, sql, rows):
    assert run(tables, sql, prices=pa.table({"at": [3]})).num_rows == rows


def test_table_is_found_once_however_often_a_query_names_it(tables):
    run(tables, "SELECT * FROM shop.orders a, shop.orders b, (SELECT * FROM shop.orders) c LIMIT 1")
    assert tables.asked == [("shop", "orders")]


@pytest.mark.parametrize(
    ("sql", "kind", "text"),
    [
        ("", Invalid, "there is no query"),
        ("selec 1", Invalid, '"selec" (line 1, column 1: selec 1)'),
        ("SELECT 1,\n  FROM FROM x", Invalid, "(line 2, column"),
        ("SELECT 'a", Invalid, "unterminated string literal (line 1, column 8"),
        ("SELECT 1; SELECT 2", Invalid, "2 queries at once"),
        ("INSERT INTO shop.orders VALUES (1)", Invalid, "only a SELECT is answered"),
        ("COPY (SELECT 1) TO 'x.csv'", Invalid, "only a SELECT is answered"),
        ("CREATE TABLE x AS SELECT 1", Invalid, "only a SELECT is answered"),
        ("PRAGMA database_list", Invalid, "only a SELECT is answered"),
        ("SELECT x FROM shop.orders", Invalid, 'column "x" not found'),
        ("SELECT 'a'::INTEGER FROM shop.orders", Invalid, "Could not convert string 'a'"),
        ("SELECT * FROM shop.order", NotFound, "no stream or table shop.order; near it: shop.orders"),
        ("SELECT * FROM orders", NotFound, "a stream is named scope.stream"),
        ("SELECT * FROM shop.orders, SHOP.Orders", NotFound, "no stream or table SHOP.Orders"),
        (f"SELECT {'1' * MAX_QUERY_CHARS}", Invalid, "characters, of at most"),
    ],
)
def test_wrong_queries_are_refused_with_the_reason(tables, sql, kind, text):
    with pytest.raises(kind) as raised:
        run(tables, sql)
    assert text in str(raised.value)


def test_table_that_is_none_is_refused(tables):
    with pytest.raises(Invalid, match="the table prices cannot be used in SQL"):
        run(tables, "SELECT * FROM prices", prices=7)


def test_names_that_differ_in_case_alone_are_not_mixed_up():
    one, other = MemoryRelation(rows_table(ROWS)), MemoryRelation(rows_table(ROWS[:2]))
    tables = MemoryTables({("shop", "orders"): one, ("shop", "Orders"): other})
    with pytest.raises(Invalid, match="differ in case alone"):
        run(tables, "SELECT * FROM shop.orders, shop.Orders")
    assert run(tables, "SELECT * FROM shop.Orders").num_rows == 2


@pytest.mark.parametrize("error", [Truncated("gone", 7), Forbidden("no"), Invalid("bad")])
def test_failure_of_a_scan_is_raised_as_it_is(error):
    tables = MemoryTables({("shop", "orders"): MemoryRelation(rows_table(ROWS), failure=error)})
    with pytest.raises(type(error)) as raised:
        run(tables, "SELECT count(*) FROM shop.orders")
    assert raised.value is error


def test_query_that_reads_too_much_is_refused_before_it_reads(tables):
    few = EngineSettings(limit_bytes=5)
    relation = tables.find(("shop", "orders"))
    with pytest.raises(TooMuch, match="reads 6 bytes of streams, and 5 are allowed") as raised:
        run(tables, "SELECT * FROM shop.orders", few)
    assert (raised.value.planned_bytes, raised.value.limit_bytes) == (6, 5)
    assert relation.read_numbers == []
    assert run(tables, "SELECT * FROM shop.orders WHERE sarit.offset < 3", few).num_rows == 3
    assert run(tables, "SELECT * FROM shop.orders LIMIT 6", few).num_rows == 6  # what it reads is counted then
    with pytest.raises(TooMuch):
        run(tables, "SELECT * FROM shop.orders ORDER BY value LIMIT 1", few)
    with pytest.raises(TooMuch):
        run(tables, "SELECT * FROM shop.orders a, shop.orders b WHERE a.sarit.offset < 3 AND b.sarit.offset < 3", few)


def test_given_meter_counts_what_a_query_plans():
    meter = ScanMeter(None)
    engine = Engine(MemoryTables({("shop", "orders"): MemoryRelation(rows_table(ROWS))}), EngineSettings(limit_bytes=1))
    assert sum(batch.num_rows for batch in engine.run("SELECT value FROM shop.orders", meter)) == 6
    assert meter.planned_bytes == 6
    engine.close()


def test_query_that_needs_too_much_memory_is_refused():
    with pytest.raises(Invalid, match="needs more memory"):
        run(MemoryTables({}), "SELECT list(range) FROM range(10000000)", EngineSettings(memory_bytes=20 << 20))


def test_what_exceeds_the_memory_is_spilled(tmp_path):
    settings = EngineSettings(memory_bytes=40 << 20, threads=1, spill_directory=str(tmp_path))
    sql = "SELECT count(*) AS n FROM (SELECT DISTINCT md5(range::VARCHAR) FROM range(1000000))"
    assert run(MemoryTables({}), sql, settings).to_pylist() == [{"n": 1_000_000}]
    with pytest.raises(Invalid, match="needs more memory"):
        run(MemoryTables({}), sql, EngineSettings(memory_bytes=40 << 20, threads=1))


def test_query_is_interrupted_by_another_thread():
    for sql in (
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7",  # before its first row
        "SELECT a.range FROM range(1000000) a, range(1000000) b",  # between rows
    ):
        engine = Engine(MemoryTables({}))
        timer = threading.Timer(0.2, engine.interrupt)
        timer.start()
        with pytest.raises(Interrupted):
            for _ in engine.run(sql):
                pass
        timer.join(HANG_SECONDS)
        engine.close()
