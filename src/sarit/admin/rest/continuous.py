"""Continuous queries by REST: those of a stream, each by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.core.cuts import to_text
from sarit.core.errors import Invalid, NotFound

if TYPE_CHECKING:
    from sarit.admin.rest.asked import Asked, Handler
    from sarit.client.aio import Client
    from sarit.client.search.continuous import ContinuousQuery


async def list_continuous_queries(client: Client, asked: Asked) -> Any:
    """List the continuous queries of a stream, and how far they are."""
    queries = await client.continuous.list(asked.stream)
    progress = await client.continuous.progress(asked.stream)
    found = {
        "queries": [query_property(query) for query in queries], "events": progress.events,
        "matches": progress.matches,
    }  # fmt: skip
    return found | ({"problem": progress.problem} if progress.problem else {})


async def get_continuous_query(client: Client, asked: Asked) -> Any:
    """Return the document of a continuous query."""
    return query_property(await client.continuous.get(asked.stream, asked.path["queryName"]))


async def put_continuous_query(client: Client, asked: Asked) -> Any:
    """Create a continuous query, or change the text of one, whose output stays.

    Raises Invalid: the query has another output."""
    name, body, continuous = asked.path["queryName"], asked.body, client.continuous
    given: dict[str, Any] = {"with_event": bool(body.get("withEvent"))}
    if "fields" in body:
        given["mapping"] = {"fields": {each["path"]: each["kind"] for each in body["fields"]}}
    try:
        found = await continuous.get(asked.stream, name)
    except NotFound:
        made = await continuous.create(asked.stream, name, body["query"], body["output"], wait=0, **given)
    else:
        if str(found.output) != body["output"]:
            raise Invalid(f"continuous query {name} writes to {found.output}: delete it to have another output")
        made = await continuous.change(asked.stream, name, body["query"], wait=0, **given)
    return query_property(made)


async def delete_continuous_query(client: Client, asked: Asked) -> None:
    """Delete a continuous query."""
    await client.continuous.delete(asked.stream, asked.path["queryName"], wait=0)


def query_property(query: ContinuousQuery) -> dict[str, Any]:
    """Return the document of a continuous query."""
    found = {
        "name": query.name, "query": query.query, "output": str(query.output), "withEvent": query.with_event,
        "id": query.id, "state": query.state, "created": query.created_ms,
    }  # fmt: skip
    cut = None if query.holds_from is None else to_text(query.holds_from)
    rest = {"maker": query.maker, "problem": query.problem, "holdsFrom": cut}
    return found | {name: value for name, value in rest.items() if value}


CONTINUOUS_HANDLERS: Final[dict[str, Handler]] = {
    "listContinuousQueries": list_continuous_queries,
    "getContinuousQuery": get_continuous_query,
    "putContinuousQuery": put_continuous_query,
    "deleteContinuousQuery": delete_continuous_query,
}
