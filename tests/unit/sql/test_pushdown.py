"""Filters that leave parts out: the answers are those of a scan of everything, whatever the filter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.sql.engine import Engine
from sarit.sql.sandbox import EngineSettings, open_engine
from tests.unit.sql.memory_tables import MINUTE_US, MemoryRelation, MemoryTables, rows_table

CHEAP = ("sarit.segment", "sarit.offset", "sarit.ingested")
ROWS = [(segment, 10 * at, MINUTE_US * at, b"%d" % at) for segment in (0, 1, 1 << 32) for at in range(6)]


def answer(relation, sql):
    engine = Engine(MemoryTables({("shop", "orders"): relation}))
    try:
        return [row for batch in engine.run(sql) for row in batch.to_pylist()]
    finally:
        engine.close()


def own_answer(table, sql):
    """What DuckDB answers where it filters itself, since the table is its own."""
    engine = open_engine(EngineSettings())
    engine.register("given", table)
    engine.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders AS FROM given")
    found = engine.sql(sql).to_arrow_table().to_pylist()
    engine.close()
    return found


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("true", 6),
        ("sarit.segment = 1", 2),
        ("sarit.segment IN (0, 4294967296)", 4),
        ("sarit.segment >= 1", 4),
        ("sarit.offset < 30", 3),
        ("sarit.segment = 1 AND sarit.offset >= 30", 1),
        ("sarit.offset = 30", 3),  # the first row of a part
        ("sarit.offset = 20", 3),  # the last one
        ("sarit.ingested = '1970-01-01 00:03:00'", 3),
        ("sarit.ingested = '1970-01-01 00:02:00'", 3),
        ("sarit.ingested >= '1970-01-01 00:03:00'", 3),
        ("sarit.ingested BETWEEN '1970-01-01 00:03:00' AND '1970-01-01 00:04:00'", 3),
        ("sarit.segment = 1 OR sarit.ingested < '1970-01-01 00:01:00'", 4),
        ("sarit.segment = 1 AND value = '4'::BLOB", 2),
        ("sarit.ingested < '1970-01-01 00:00:00'", 0),
        ("sarit.ingested IS NULL", 0),
        ("sarit.segment % 2 = 1", 6),  # not understood, so nothing is left out
        ("value = '4'::BLOB", 6),
    ],
)
def test_parts_that_no_row_can_be_in_are_not_read(condition, parts):
    relation = MemoryRelation(rows_table(ROWS))
    whole = MemoryRelation(rows_table(ROWS), bounds=False)
    sql = f"SELECT value FROM shop.orders WHERE {condition} ORDER BY ALL"
    assert answer(relation, sql) == answer(whole, sql)
    assert len(relation.read_numbers) == parts
    assert len(whole.read_numbers) == 6


def test_only_columns_that_a_query_needs_are_read():
    for sql, wanted in (
        ("SELECT value FROM shop.orders", ("value",)),
        ("SELECT count(*) FROM shop.orders", ("sarit.segment",)),
        ("SELECT value FROM shop.orders WHERE sarit.offset > 3", (*CHEAP, "value")),
        ("SELECT value FROM shop.orders WHERE sarit.key = 'a'", ("sarit", "value")),
        ("SELECT sarit.offset FROM shop.orders", ("sarit",)),
        ("SELECT * FROM shop.orders", ("sarit", "value")),
    ):  # fmt: skip
        relation = MemoryRelation(rows_table(ROWS))
        answer(relation, sql)
        assert set(relation.read_columns[0]) == set(wanted), sql


def test_parts_without_a_time_are_read_when_times_are_asked_for():
    rows = [(0, 0, None, b"early"), (0, 9, 5 * MINUTE_US, b"late")]
    relation = MemoryRelation(rows_table(rows), part_rows=1)
    assert answer(relation, "SELECT value FROM shop.orders WHERE sarit.ingested IS NULL") == [{"value": b"early"}]
    assert answer(relation, "SELECT value FROM shop.orders WHERE sarit.ingested > '1970-01-01'") == [{"value": b"late"}]


def test_each_place_of_a_query_is_pruned_by_its_own_filter():
    relation = MemoryRelation(rows_table(ROWS))
    sql = (
        "SELECT count(*) AS n FROM shop.orders a JOIN shop.orders b ON a.value = b.value "
        "WHERE a.sarit.segment = 0 AND b.sarit.segment = 1 AND b.sarit.offset >= 30"
    )
    assert answer(relation, sql) == [{"n": 3}]
    assert sorted(relation.read_numbers) == [0, 1, 3]


_FIELDS = st.sampled_from(["sarit.segment", "sarit.offset", "sarit.ingested", "sarit.key", "value"])
_OPERATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM"])
_NUMBERS = st.integers(-1, 6)


def _literal(field, number):
    if field == "value":
        return f"'{number}'::BLOB"
    if field == "sarit.key":
        return f"'key {number}'"
    if field == "sarit.ingested":
        return f"make_timestamptz({number * MINUTE_US}::BIGINT)"
    return str(number * (10 if field == "sarit.offset" else 1))


@st.composite
def conditions(draw, depth=2):
    kind = draw(st.integers(0, 6 if depth else 3))
    field = draw(_FIELDS)
    if kind == 0:
        return f"{field} IS {draw(st.sampled_from(['NULL', 'NOT NULL']))}"
    if kind == 1:
        return f"{field} IN ({', '.join(_literal(field, draw(_NUMBERS)) for _ in range(draw(st.integers(1, 3))))})"
    if kind in (2, 3):
        return f"{field} {draw(_OPERATORS)} {_literal(field, draw(_NUMBERS))}"
    if kind == 4:
        return f"NOT ({draw(conditions(depth=depth - 1))})"
    word = "AND" if kind == 5 else "OR"
    return f"({draw(conditions(depth=depth - 1))} {word} {draw(conditions(depth=depth - 1))})"


_ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 60), st.none() | st.integers(0, 6).map(lambda at: at * MINUTE_US),
              st.integers(0, 6).map(lambda at: b"%d" % at)), max_size=12,
)  # fmt: skip


@settings(max_examples=25)
@given(rows=_ROWS, condition=conditions(), size=st.integers(1, 4))
def test_answers_are_the_same_with_and_without_bounds(rows, condition, size):
    sql = f"SELECT sarit.segment, sarit.offset, value FROM shop.orders WHERE {condition} ORDER BY ALL"
    table = rows_table(rows)
    found = answer(MemoryRelation(table, size), sql)
    assert found == answer(MemoryRelation(table, size, bounds=False), sql)
    assert found == own_answer(table, sql)
