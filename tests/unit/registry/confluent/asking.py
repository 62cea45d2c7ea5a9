"""Confluent's API over a registry in memory: requests through the routes themselves, without a port."""

from __future__ import annotations

import asyncio
import inspect
import json
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any

import httpx
from starlette.applications import Starlette

from sarit.env.real import real_env
from sarit.registry.access import Guard
from sarit.registry.confluent.routes import routes
from sarit.registry.registry import Registry
from sarit.registry.statistics import Statistics
from sarit.security.permissions import Caller, Permission
from tests.unit.controller.fakes import FakeTables

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

V1 = "application/vnd.schemaregistry.v1+json"
STRING, INT = '"string"', '"int"'


@dataclass
class Asking:
    """A registry with its API.  `rights`: of the caller whom `user` names, by resource; None: there are no users."""

    http: httpx.AsyncClient
    registry: Registry
    statistics: Statistics
    rights: dict[str, Permission] | None
    user: list[str] = field(default_factory=lambda: ["ann"])

    async def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """The status of an answer, and its value."""
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": V1}
        answer = await self.http.request(method, path, content=content, headers=headers, **more)
        assert answer.headers["content-type"] == V1
        return answer.status_code, answer.json()

    async def get(self, path: str, **more: Any) -> Any:
        """The value of an answer that is 200."""
        return await self.ok("GET", path, **more)

    async def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The value of an answer that is 200."""
        status, value = await self(method, path, body, **more)
        assert status == 200, value
        return value

    async def error(self, method: str, path: str, body: Any = None, **more: Any) -> int:
        """The code of an answer that is an error."""
        status, value = await self(method, path, body, **more)
        assert set(value) == {"error_code", "message"}, value
        assert status == int(str(value["error_code"])[:3]), value
        assert value["message"]
        assert len(value["message"]) < 1000
        return value["error_code"]

    async def register(self, subject: str, schema: str = STRING, **more: Any) -> int:
        """The id of a schema that is registered."""
        return (await self.ok("POST", f"/subjects/{subject}/versions", {"schema": schema, **more}))["id"]


def asking(test: Callable[..., Awaitable[None]] | None = None, *, rights: dict[str, Permission] | None = None) -> Any:
    """Run an async test with a registry in memory."""
    if test is None:
        return lambda decorated: asking(decorated, rights=rights)
    given = test

    async def run(*args: Any, **named: Any) -> None:
        registry = Registry(FakeTables(), real_env())
        statistics = Statistics(lambda: 0.0)
        user = ["ann"]
        own = None if rights is None else dict(rights)

        async def identify(_: object) -> Caller | None:
            return None if own is None else Caller(user[0])

        def permission(caller: Caller, resource: str) -> Permission:
            return (own or {}).get(resource, Permission.NONE) if caller.name == "ann" else Permission.READ_UPDATE

        guard = Guard(None if own is None else permission)
        app = Starlette(routes=routes(registry, guard, identify, statistics))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://node") as http:
            try:
                await given(Asking(http, registry, statistics, own, user), *args, **named)
            finally:
                await registry.close()

    @wraps(given)
    def sync(*args: Any, **named: Any) -> None:
        asyncio.run(run(*args, **named))

    # pytest must not take the first parameter for a fixture.
    parameters = list(inspect.signature(given).parameters.values())[1:]
    sync.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return sync
