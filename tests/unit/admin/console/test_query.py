"""The query page's calls: what they take, how they answer, and where an error is in a query."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from sarit.admin.console.limits import CONSOLE_MAX_QUERY_CHARS, CONSOLE_QUERY_BYTES, MAX_CONSOLE_QUERY_BYTES
from sarit.admin.console.query import QueryCalls, place_in, request_of
from sarit.admin.console.query_view import QueryRequest, QueryTooLarge
from sarit.core.errors import Forbidden, Invalid


class Queries:
    """Queries whose steps a test has written down; an error among them is raised."""

    def __init__(self, *steps: Any, missing: str = "") -> None:
        self._steps = steps
        self._missing = missing
        self.asked: list[QueryRequest] = []
        self.ended = False

    def missing(self) -> str:
        return self._missing

    async def run(self, client, caller, request):
        self.asked.append(request)
        try:
            for step in self._steps:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.ended = True


def answer(queries: Queries, body: Any, method: str = "POST") -> tuple[int, Any]:
    """The status of a call, and its document or its documents."""

    async def call() -> tuple[int, Any]:
        routes = QueryCalls(queries, None, None).routes()
        app = Starlette(routes=[Mount("/console/api", routes=routes)])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://node") as http:
            found = await http.request(method, "/console/api/query", json=body)
            lines = found.headers["content-type"] == "application/x-ndjson"
            return found.status_code, [json.loads(line) for line in found.text.splitlines()] if lines else found.json()

    return asyncio.run(call())


def test_steps_are_lines_and_rows_stay_as_they_are():
    columns = {"columns": [{"name": "a", "type": "int64", "number": True}]}
    queries = Queries(("columns", columns), ("rows", b'[[1,"\xc3\xa9"]]'), ("done", {"rows": 1, "complete": True}))
    assert answer(queries, {"sql": " SELECT 1 "}) == (
        200,
        [{"step": {}}, {"columns": columns}, {"rows": [[1, "é"]]}, {"done": {"rows": 1, "complete": True}}],
    )
    assert queries.asked == [QueryRequest(" SELECT 1 ", "page", CONSOLE_QUERY_BYTES)]
    assert queries.ended


def test_errors_are_the_last_line():
    wrong = Invalid('syntax error at or near "x" (line 2, column 3: x)')
    assert answer(Queries(wrong), {"sql": "SELECT\n  x"})[1][-1] == {"failed": {"error": str(wrong), "place": [2, 3]}}
    refused = answer(Queries(("step", {}), Forbidden("ann may not read shop/secret")), {"sql": "x"})
    assert refused[1][-1] == {"failed": {"error": "ann may not read shop/secret", "place": None}}
    large = answer(Queries(QueryTooLarge(5000, 1000)), {"sql": "x"})[1][-1]["failed"]
    assert (large["planned_bytes"], large["limit_bytes"]) == (5000, 1000)


def test_what_is_missing_is_said_before_and_instead():
    queries = Queries(missing='pip install "sarit[sql]"')
    assert answer(queries, None, "GET")[1]["missing"] == 'pip install "sarit[sql]"'
    status, found = answer(queries, {"sql": "SELECT 1"})
    assert status == 503
    assert 'pip install "sarit[sql]"' in found["error"]
    assert queries.asked == []


@pytest.mark.parametrize(
    "body",
    [
        {}, {"sql": 1}, {"sql": " \n "}, {"sql": "x" * (CONSOLE_MAX_QUERY_CHARS + 1)}, {"sql": "x", "form": "parquet"},
        {"sql": "x", "values": "xml"}, {"sql": "x", "values": 1},
        {"sql": "x", "form": ["csv"]}, {"sql": "x", "bytes": 0}, {"sql": "x", "bytes": True},
        {"sql": "x", "bytes": "1"}, {"sql": "x", "bytes": MAX_CONSOLE_QUERY_BYTES + 1},
    ],
)  # fmt: skip
def test_wrong_bodies_are_refused(body):
    with pytest.raises(Invalid):
        request_of(body)
    assert answer(Queries(), body)[0] == 400


@pytest.mark.parametrize(
    ("sql", "error", "place"),
    [
        ("SELECT (1", 'syntax error at or near "1" (line 1, column 9: SELECT (1)', (1, 9)),
        ("SELECT\n  nope", "Binder Error: no nope\n\nLINE 2:   nope\n          ^", (2, 3)),
        (
            "SELECT " + "a, " * 40 + "nope",
            "Binder Error: no nope\nLINE 1: ..., a, a, nope\n                   ^",
            (1, 7 + 3 * 40 + 1),
        ),
        ("SELECT 1", "the query was not done after 60 seconds", None),
        ("SELECT 1", "LINE 9: SELECT 1\n        ^", None),
        ("SELECT 1", "LINE 1: something else\n        ^", None),
        ("SELECT 1", "LINE 1: SELECT 1\n^", None),
        ("SELECT 1", "LINE 99999999: x\n   ^", None),
    ],
)
def test_place_of_an_error_is_found(sql, error, place):
    assert place_in(sql, error) == place
