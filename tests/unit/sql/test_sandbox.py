"""The locked engine: SQL of strangers reaches nothing but the relations that it is given."""

from __future__ import annotations

import os

import pytest

from sarit.core.errors import SaritError
from sarit.sql.engine import Engine
from sarit.sql.sandbox import EngineSettings, open_engine
from tests.unit.sql.memory_tables import MemoryRelation, MemoryTables, rows_table

SETTINGS = EngineSettings(locked=True)


@pytest.fixture
def tables():
    return MemoryTables({("shop", "orders"): MemoryRelation(rows_table([(0, 0, None, b"one")]))})


def test_relations_are_read(tables):
    (batch,) = Engine(tables, SETTINGS).run("SELECT value FROM shop.orders")
    assert batch.to_pylist() == [{"value": b"one"}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_csv_auto('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_json('{file}')",
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM parquet_metadata('{file}')",
        "SELECT * FROM sniff_csv('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')",
        "SELECT * FROM shop.orders, read_text('{file}')",
        "WITH x AS (SELECT * FROM read_text('{file}')) SELECT * FROM x",
        "SELECT (SELECT content FROM read_text('{file}'))",
        "SELECT getenv('PATH')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "COPY shop.orders FROM '{file}'",
        "EXPORT DATABASE '{folder}/all'",
        "ATTACH '{folder}/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '{file}'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET memory_limit = '100GB'",
        "RESET lock_configuration",
        "PRAGMA enable_external_access",
        "CREATE SECRET s (TYPE s3)",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{folder}/out.csv''')",
        "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
        "SELECT * FROM query_table(['{file}'])",
        "SELECT * FROM SETTINGS",
        "SELECT * FROM tables",
    ],
)
def test_nothing_else_is_reached(tables, tmp_path, sql):
    file = tmp_path / "secret.csv"
    file.write_text("secret\n")
    with pytest.raises(SaritError) as raised:
        list(Engine(tables, SETTINGS).run(sql.format(file=file, folder=tmp_path)))
    assert "Internal" not in str(raised.value)
    assert os.listdir(tmp_path) == ["secret.csv"]


def test_same_queries_read_files_where_the_engine_is_not_locked(tables, tmp_path):
    (tmp_path / "prices.csv").write_text("price\n7\n")
    (batch,) = Engine(tables).run(f"SELECT price, value FROM shop.orders, '{tmp_path}/prices.csv'")
    assert batch.to_pylist() == [{"price": 7, "value": b"one"}]


@pytest.mark.parametrize("locked", [True, False])
def test_variables_of_python_are_no_tables(tables, locked):
    settings = EngineSettings(locked=locked)
    with pytest.raises(SaritError):
        list(Engine(tables, settings).run("SELECT * FROM settings"))


def test_configuration_is_locked_below_the_parser(tables):
    engine = open_engine(SETTINGS)
    for statement in ("SET enable_external_access = true", "SET lock_configuration = false", "SET threads = 9"):
        with pytest.raises(Exception, match="locked|enable_external_access"):
            engine.execute(statement)
    with pytest.raises(Exception, match="disabled"):
        engine.execute("INSTALL httpfs")


def test_memory_of_the_locked_engine_is_bounded(tables):
    settings = EngineSettings(memory_bytes=20 << 20, locked=True)
    with pytest.raises(SaritError, match="needs more memory"):
        list(Engine(tables, settings).run("SELECT list(range) FROM range(10000000)"))
