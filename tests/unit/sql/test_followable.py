"""Queries that follow a stream: filters and projections of one stream, and nothing that needs more than an event."""

from __future__ import annotations

import pytest

from sarit.sql.followable import NotFollowable
from sarit.sql.sandbox import EngineSettings, open_engine
from sarit.sql.statement import followed_table


@pytest.fixture(scope="module")
def engine():
    engine = open_engine(EngineSettings(locked=True))
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT count(*) FROM shop.orders", "an aggregate (count_star)"),
        ("SELECT 1 + max(value) FROM shop.orders", "an aggregate (max)"),
        ("SELECT sarit.key FROM shop.orders GROUP BY 1", "GROUP BY"),
        ("SELECT 1 FROM shop.orders HAVING true", "HAVING"),
        ("SELECT DISTINCT sarit.key FROM shop.orders", "DISTINCT"),
        ("SELECT * FROM shop.orders ORDER BY 1", "ORDER"),
        ("SELECT * FROM shop.orders LIMIT 1", "LIMIT"),
        ("SELECT * FROM shop.orders a JOIN shop.orders b ON true", "no single stream in FROM"),
        ("SELECT * FROM shop.orders, shop.orders b", "no single stream in FROM"),
        ("SELECT * FROM (SELECT * FROM shop.orders)", "no single stream in FROM"),
        ("SELECT * FROM shop.orders WHERE value IN (SELECT value FROM shop.orders)", "a subquery"),
        ("SELECT row_number() OVER () FROM shop.orders", "a window function"),
        ("WITH a AS (SELECT 1) SELECT * FROM shop.orders", "a WITH"),
        ("SELECT 1 FROM shop.orders UNION SELECT 2", "a UNION"),
        ("SELECT * FROM shop.orders USING SAMPLE 1%", "sample"),
        ("SELECT * FROM shop.orders TABLESAMPLE 1%", "sample"),
        ("SELECT unnest([1]) FROM shop.orders, range(2)", "no single stream in FROM"),
        ("DESCRIBE shop.orders", "no single stream in FROM"),
        ("SELECT 1", "no single stream in FROM"),
    ],
)
def test_queries_that_cannot_follow_are_refused_by_name(engine, sql, reason):
    with pytest.raises(NotFollowable) as raised:
        followed_table(engine, sql)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM shop.orders",
        "SELECT sarit.key, value || 'x'::BLOB AS y FROM shop.orders WHERE sarit.offset % 2 = 1",
        "SELECT CASE WHEN upper(sarit.key) = 'A' THEN 1 END FROM shop.orders o",
    ],
)
def test_filters_and_projections_of_one_stream_follow(engine, sql):
    assert followed_table(engine, sql) == ("shop", "orders")
