"""SQL over streams: the query page.  A query runs in a process of its own (`query_view.py`), with the caller's rights.

The answer to a query is a document a line (NDJSON), each with one name: `columns` once, `rows` as they are computed,
`step` meanwhile, and at the end `done` or `failed`.  So a page shows how far a query is, and a query whose page is left
ends: then nobody reads the answer any more.
"""

from __future__ import annotations

import json
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import StreamingResponse

from sarit.admin.console.calls import body_of, call
from sarit.admin.console.documents import text_of
from sarit.admin.console.limits import (
    CONSOLE_MAX_QUERY_CHARS,
    CONSOLE_QUERY_BYTES,
    MAX_CONSOLE_QUERY_BYTES,
)
from sarit.admin.console.query_view import QueryRequest, QueryTooLarge
from sarit.core.errors import Invalid, SaritError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.query_view import Queries, QueryStep
    from sarit.client.aio import Client
    from sarit.security.permissions import Caller

QUERY_PATH: Final = "/console/api/query"
_FORMS: Final = ("page", "csv")
_VALUES: Final = ("auto", "json", "schema", "binary")
# Where a wrong query is wrong: as the parser of this program says it, and as the engine shows it.
_PLACE: Final = re.compile(r"\(line (\d{1,6}), column (\d{1,6}): ")
_SHOWN_PLACE: Final = re.compile(r"^LINE (\d{1,6}): (.*)\n( *)\^", re.MULTILINE)


class QueryCalls:
    """The calls of the query page, for one caller."""

    def __init__(self, queries: Queries, client: Client, caller: Caller | None) -> None:
        self._queries = queries
        self._client = client
        self._caller = caller

    def __repr__(self) -> str:
        return f"<QueryCalls of {self._caller}>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        return [call("/query", self.about), call("/query", self.query, "POST")]

    async def about(self, request: Request) -> Any:
        """Return what a query may use, and how to install what is missing for it ("": nothing is)."""
        return {"missing": self._queries.missing(), "bytes": CONSOLE_QUERY_BYTES, "most_bytes": MAX_CONSOLE_QUERY_BYTES}

    async def query(self, request: Request) -> Any:
        """Answer a query.  Body: {"sql", "form": "page" or "csv", "bytes": how much of streams it may read,
        "values": how values become columns}.

        Raises Invalid, Unavailable (not installed)."""
        wanted = request_of(await body_of(request))
        if missing := self._queries.missing():
            raise Unavailable(f"queries need what is not installed on the node: {missing}")
        steps = self._queries.run(self._client, self._caller, wanted)
        return StreamingResponse(_lines(steps, wanted.sql), media_type="application/x-ndjson")


def request_of(body: dict[str, Any]) -> QueryRequest:
    """Return the query in a body.  Raises Invalid."""
    sql = text_of(body, "sql")
    if len(sql) > CONSOLE_MAX_QUERY_CHARS:
        raise Invalid(f"the query has {len(sql):,} characters, of at most {CONSOLE_MAX_QUERY_CHARS:,}")
    if not sql.strip():
        raise Invalid("there is no query: write a SELECT")
    form = body.get("form", "page")
    if form not in _FORMS:
        raise Invalid("form: give page or csv")
    limit = body.get("bytes", CONSOLE_QUERY_BYTES)
    if type(limit) is not int or not 1 <= limit <= MAX_CONSOLE_QUERY_BYTES:
        raise Invalid(f"bytes: give a number from 1 to {MAX_CONSOLE_QUERY_BYTES}")
    values = body.get("values", "auto")
    if values not in _VALUES:
        raise Invalid(f"values: give one of {', '.join(_VALUES)}")
    return QueryRequest(sql, form, limit, values)


async def _lines(steps: AsyncGenerator[QueryStep, None], sql: str) -> AsyncIterator[bytes]:
    # A line at once, so that the browser knows that it is connected.
    yield b'{"step":{}}\n'
    try:
        async with aclosing(steps):
            async for name, document in steps:
                # Rows are JSON already, as the process of the query made them.
                value = document if isinstance(document, bytes) else json.dumps(document).encode()
                yield b'{"%s":%s}\n' % (name.encode(), value)
    except QueryTooLarge as error:
        yield _failed(
            {"error": str(error), "planned_bytes": error.planned_bytes, "limit_bytes": error.limit_bytes}
        )  # fmt: skip
    except SaritError as error:
        text = str(error)
        yield _failed({"error": text, "place": place_in(sql, text)})


def _failed(document: dict[str, Any]) -> bytes:
    return b'{"failed":%s}\n' % json.dumps(document).encode()


def place_in(sql: str, error: str) -> tuple[int, int] | None:
    """Return line and column (from 1) in a query that an error names; None: it names none.  Pure."""
    if (found := _PLACE.search(error)) is not None:
        return int(found[1]), int(found[2])
    if (found := _SHOWN_PLACE.search(error)) is None:
        return None
    lines, line = sql.split("\n"), int(found[1])
    if not 1 <= line <= len(lines):
        return None
    # The engine shows a part of a long line, between dots.
    part, at = found[2], len(found[3]) - len(f"LINE {line}: ")
    if part.startswith("..."):
        part, at = part[3:], at - 3
    start = lines[line - 1].find(part.removesuffix("...").rstrip())
    return None if start < 0 or at < 0 else (line, start + at + 1)
