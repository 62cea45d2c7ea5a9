"""The REST API on a local node: requests through the routes themselves, without a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
from starlette.applications import Starlette

from sarit.admin.callers import Callers, Gate
from sarit.admin.reasons import Reason
from sarit.admin.rest.routes import health_routes, routes
from tests.unit.client.nodes import on_node

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.client.aio import Client
    from tests.unit.client.nodes import LocalNode


class FakeHealth:
    """A process with two containers; `states`: of it and of them."""

    def __init__(self, *states: str) -> None:
        self._state, *self._containers = states or ("ready", "serving", "serving")

    def state(self) -> str:
        return self._state

    def reasons(self) -> list[Reason]:
        found = [Reason("damaged", f"container {n}", "rot") for n, s in enumerate(self._containers) if s == "failed"]
        return [*found, Reason("slow", "disk", "it is slow", ready=True)]

    def details(self):
        containers = [{"container": n, "state": s, "reason": "", "attempts": 0} for n, s in enumerate(self._containers)]
        return {"name": "node", "version": "1", "up_seconds": 1.5, "containers": containers}


def rest_on(client: Client) -> httpx.AsyncClient:
    """An HTTP client of the routes."""
    transport = httpx.ASGITransport(Starlette(routes=[*health_routes(FakeHealth()), *routes(Callers(Gate(), client))]))
    return httpx.AsyncClient(transport=transport, base_url="http://node")


def on_rest(test: Callable[[LocalNode, httpx.AsyncClient], Awaitable[None]]):
    """Run an async test with a local node, in which the scope `s` exists, and an HTTP client of its routes."""

    async def with_rest(made: LocalNode) -> None:
        async with rest_on(made.client) as rest:
            await test(made, rest)

    with_rest.__name__, with_rest.__doc__ = test.__name__, test.__doc__
    return on_node(with_rest)


def error_of(response: httpx.Response, status: int) -> str:
    """The message of a refusal."""
    assert response.status_code == status, (response.status_code, response.text)
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    return response.json()["error"]
