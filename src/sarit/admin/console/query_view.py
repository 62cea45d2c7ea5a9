"""What runs the queries of the console: values, and the port that a process fills.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sarit.client.aio import Client
    from sarit.security.permissions import Caller

# A name and a document: "columns", "rows" (bytes: a JSON array of rows), "csv" (text), "step" (how far it is), "done".
QueryStep = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query of a page.  `form`: "page" or "csv".  `limit_bytes`: how much of streams it may read.

    `values`: how values become columns: "auto", "json", "schema" or "binary" (`serializers/column_choice.py`)."""

    sql: str
    form: str
    limit_bytes: int
    values: str = "auto"


class QueryTooLarge(Exception):
    """A query would read `planned_bytes` of streams, which is more than it may without being asked for."""

    def __init__(self, planned_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"it would read {planned_bytes:,} bytes, and may read {limit_bytes:,}")
        self.planned_bytes = planned_bytes
        self.limit_bytes = limit_bytes


class Queries(Protocol):
    """Runs queries, each with the rights of one caller.  Calls raise the kinds of `core.errors`."""

    def missing(self) -> str:
        """Return how to install what queries need; "" if it is there."""

    def run(self, client: Client, caller: Caller | None, request: QueryRequest) -> AsyncGenerator[QueryStep, None]:
        """Yield the steps of a query; to close the generator ends the query.

        Raises Invalid (wrong SQL), NotFound, Forbidden, QueryTooLarge, TimedOut, Unavailable (too many run)."""
