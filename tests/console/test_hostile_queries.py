"""Hostile SQL in the process of a query: it reads nothing, changes nothing, and takes no more than it may.

Each starts a process, so `make console-browser` runs them, and tests/unit/sql/test_child.py a few of their kind.
"""

from __future__ import annotations

import pytest

from sarit.core.limits import MIB
from tests.unit.sql.driver import Answer, answer

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

REFUSED = (
    # Files and addresses.
    "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/proc/self/environ')",
    "SELECT * FROM read_blob('/etc/*')", "SELECT * FROM read_json('/etc/passwd')", "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM 'x.parquet'", "SELECT * FROM \"/etc/passwd\"", "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')", "SELECT * FROM parquet_metadata('/etc/passwd')",
    "SELECT * FROM read_parquet('http://127.0.0.1:9091/')", "SELECT * FROM read_duckdb('/tmp/x')",
    "SELECT * FROM query('COPY (SELECT 1) TO ''/tmp/x''')", "SELECT * FROM query_table('/etc/passwd')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "COPY (SELECT 1) TO '/tmp/x'", "COPY (SELECT 1) TO '/dev/stdout'", "COPY t FROM '/etc/passwd'",
    "ATTACH '/tmp/x.db'", "ATTACH 'https://example.com/x.db'", "EXPORT DATABASE '/tmp/x'", "IMPORT DATABASE '/tmp/x'",
    "CREATE TABLE t AS FROM read_csv('/etc/passwd')", "CREATE SECRET s (TYPE s3)",
    # Extensions.
    "INSTALL httpfs", "LOAD httpfs", "LOAD '/tmp/x.duckdb_extension'", "SELECT * FROM sqlite_scan('/tmp/x', 't')",
    "SELECT * FROM duckdb_extensions()", "UPDATE EXTENSIONS",
    # Settings, logs, profiles.
    "SET enable_external_access = true", "RESET lock_configuration", "SET memory_limit = '100GB'",
    "SET threads = 64", "PRAGMA threads = 64", "PRAGMA enable_profiling", "PRAGMA profile_output = '/tmp/x'",
    "CALL enable_logging()", "FROM enable_logging()", "SET python_enable_replacements = true", "SET VARIABLE x = 1",
    # This program: its environment and its variables.
    "SELECT getenv('HOME')", "SELECT * FROM link", "SELECT * FROM query", "SELECT * FROM engine", "FROM self",
    "SELECT * FROM pandas_scan(0)", "SELECT * FROM arrow_scan(1, 2, 3)", "FROM python_map_function((SELECT 1))",
    # Statements that are no question, or more than one.
    "SELECT 1; SELECT 2", "SELECT 1; COPY (SELECT 1) TO '/tmp/x'", "CREATE MACRO f(x) AS x",
    "CREATE VIEW v AS SELECT 1", "INSERT INTO shop.orders VALUES (1)", "DELETE FROM shop.orders",
    "DROP VIEW shop.orders",
    "BEGIN", "CHECKPOINT",
    "PREPARE p AS SELECT 1", "VACUUM", "USE memory", "",
    "WITH t AS (DELETE FROM shop.orders RETURNING *) SELECT * FROM t",
    # Tables that there are not, or that somebody may not read.
    "SELECT * FROM shop.secret", "SELECT * FROM other.orders", "SELECT * FROM memory.shop.nothing",
)  # fmt: skip
LARGE = (
    "SELECT list(a) FROM range(1000000000) AS t(a)",
    "SELECT length(repeat('x', 2000000000))",
    "SELECT repeat('x', 1000000) FROM range(1000000)",
    "SELECT a FROM range(100000000) AS t(a) ORDER BY hash(a)",
    "SELECT array_agg(a ORDER BY a) FROM range(50000000) AS t(a)",
    "SELECT range(300000000)",
    "SELECT list_transform(range(10000000), lambda x: repeat('y', 100))",
    "SELECT unnest(generate_series(1, 100000000))",
    "SELECT string_agg(repeat('x', 1000), '') FROM range(10000000)",
    "SELECT * FROM range(1000000000) AS a, range(1000000000) AS b",
    f"SELECT {'(' * 20_000}1{')' * 20_000}",
    f"SELECT {'+'.join(['1'] * 50_000)}",
    f"SELECT {','.join(f'{place} AS c{place}' for place in range(5000))}",
    f"SELECT {'[' * 2000}{']' * 2000}",
)
FOR_EVER = (
    "SELECT count(*) FROM range(1000000) AS a, range(1000000) AS b",
    "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT count(*) FROM t",
    "SELECT max(md5(repeat('a', 100000) || range::VARCHAR)) FROM range(10000000)",
)
HARMLESS = (
    ("VALUES (1), (2)", 2),
    ("FROM test_all_types()", 3),
    ("DESCRIBE shop.orders", 3),
    ("SUMMARIZE shop.orders", 3),
    ("SELECT regexp_matches(repeat('a', 100000), '(a*)*b')", 1),
    ("SELECT json_array_length(repeat('[', 100000) || repeat(']', 100000))", 1),
    ("SELECT timestamptz '2026-01-01 00:00:00+00' AT TIME ZONE 'America/New_York', now(), uuid(), random()", 1),
    ("SELECT 'ä' COLLATE de, strftime(today(), '%A'), format('{:,}', 1000), list_sort([2, 1])", 1),
    ("SELECT 'a'::ENUM('a', 'b'), union_value(n := 1), map {'a': 1}, 1.5::DECIMAL(38, 10), 'x'::BLOB", 1),
    ("SELECT histogram(price), quantile_cont(price, 0.5), approx_count_distinct(price) FROM shop.orders", 1),
    ("SELECT price, lag(price) OVER (ORDER BY price) FROM shop.orders QUALIFY price < 5", 15),
    ("SELECT * FROM shop.orders USING SAMPLE 5 ROWS", 5),
)


def bounded(sql: str, cpu_seconds: int = 10) -> Answer:
    return answer(
        sql, memory_bytes=128 * MIB, address_bytes=384 * MIB, cpu_seconds=cpu_seconds, limit_bytes=1_000_000
    )  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_no_question_about_tables_is_refused(sql):
    found = bounded(sql)
    assert (found.error is not None, found.done, found.rows, found.code) == (True, None, [], 0), found
    assert found.guard == ""


@pytest.mark.parametrize("sql", LARGE)
def test_what_needs_too_much_memory_is_refused(sql):
    found = bounded(sql)
    ended = found.code is not None and found.code < 0  # the process has ended by itself
    assert ended or found.error is not None or found.done == {"rows": 1000, "complete": False}, found


@pytest.mark.parametrize("sql", FOR_EVER)
def test_what_takes_too_long_ends(sql):
    found = bounded(sql, cpu_seconds=2)
    assert found.done is None
    assert found.code != 0 or found.error is not None


@pytest.mark.parametrize(("sql", "rows"), HARMLESS)
def test_what_harms_nobody_works_in_a_confined_process(sql, rows):
    found = bounded(sql)
    assert (found.error, len(found.rows)) == (None, rows)
