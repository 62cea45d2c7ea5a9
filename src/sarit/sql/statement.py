"""A query as DuckDB's parser sees it: one SELECT, and the tables that it names."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sarit.core.errors import Invalid
from sarit.sql.followable import check_followable
from sarit.sql.limits import MAX_QUERY_CHARS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

_EXPLAIN = re.compile(r"\s*EXPLAIN\s+", re.IGNORECASE)
_NO_SELECT = (
    "only a SELECT is answered, or what is short for one (WITH, FROM, VALUES, TABLE, DESCRIBE, SUMMARIZE), or its "
    "EXPLAIN: streams are written by writers, and results by --format and --output-file"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A query that was parsed, and not planned yet.

    `tables`: the names in it, as paths, each once; those of common table expressions and of files are among them.
    `ends_early`: a LIMIT may end it before it has read everything."""

    tables: tuple[tuple[str, ...], ...]
    ends_early: bool


def parse_query(engine: duckdb.DuckDBPyConnection, sql: str) -> Statement:
    """Parse a query.  Raises Invalid: it is wrong, and where; it is no SELECT."""
    found = _parsed(engine, sql)
    modifiers = [one["type"] for one in found["node"].get("modifiers", ())]
    return Statement(tuple(dict.fromkeys(_base_tables(found))), modifiers == ["LIMIT_MODIFIER"])


def followed_table(engine: duckdb.DuckDBPyConnection, sql: str) -> tuple[str, ...]:
    """Return the name of the one stream that a query filters and projects.  Raises NotFollowable, Invalid."""
    found = _parsed(engine, sql)
    rows = engine.sql(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
    ).fetchall()
    check_followable(found, {name.lower() for (name,) in rows})
    (path,) = _base_tables(found)
    return path


def _parsed(engine: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    if len(sql) > MAX_QUERY_CHARS:
        raise Invalid(f"the query has {len(sql):,} characters, of at most {MAX_QUERY_CHARS:,}")
    ((text,),) = engine.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    found = json.loads(text)
    if found["error"]:
        raise Invalid(_refusal(sql, found))
    statements = found["statements"]
    if not statements:
        raise Invalid("there is no query: give a SELECT")
    if len(statements) > 1:
        raise Invalid(f"{len(statements)} queries at once: give one")
    parsed: dict[str, Any] = statements[0]
    return parsed


def _refusal(sql: str, found: dict[str, Any]) -> str:
    if found.get("error_type") != "parser":
        return _NO_SELECT if found.get("error_type") == "not implemented" else str(found.get("error_message"))
    return f"{found['error_message']}{place_of(sql, found.get('position'))}"


def place_of(sql: str, position: str | None) -> str:
    """Return where a position is in a query: line, column and the text there; "" when it is not known."""
    if position is None or not position.isascii() or not position.isdigit():
        return ""
    before = sql.encode()[: int(position)].decode(errors="replace")
    line = before.count("\n")
    start = before.rfind("\n") + 1
    column = len(before) - start + 1
    text = sql.split("\n")[line][max(0, column - 30) : column + 30] if sql else ""
    return f" (line {line + 1}, column {column}: {text.strip()})"


def _base_tables(node: Any) -> Iterator[tuple[str, ...]]:
    # Not by recursion: a query may be nested deeper than Python's stack.
    left = [node]
    while left:
        found = left.pop()
        if isinstance(found, list):
            left.extend(found)
        elif isinstance(found, dict):
            if found.get("type") == "BASE_TABLE" and "table_name" in found:
                path = (found.get("catalog_name"), found.get("schema_name"), found["table_name"])
                yield tuple(part for part in path if part)
            left.extend(found.values())


def explained(sql: str) -> str:
    """Return the query whose plan EXPLAIN asks for, at its place in the text; any other text as it is."""
    found = _EXPLAIN.match(sql)
    return sql if found is None else " " * found.end() + sql[found.end() :]
