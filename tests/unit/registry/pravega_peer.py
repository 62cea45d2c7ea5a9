"""Pravega's registry API over a registry on tables in memory, as a client of it sees it."""

from __future__ import annotations

import base64
import json
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from sarit.registry.access import Guard
from sarit.registry.pravega.routes import routes
from sarit.registry.statistics import Statistics
from tests.unit.registry.world import registry


def record(name: str, *fields: str, **defaults: Any) -> str:
    """The text of an Avro record of fields that are texts."""
    made: list[dict[str, Any]] = [{"name": field, "type": "string"} for field in fields]
    made += [{"name": field, "type": "string", "default": value} for field, value in defaults.items()]
    return json.dumps({"type": "record", "name": name, "fields": made})


def info(type_name: str, text: str | bytes, format_name: str = "Avro", **properties: str) -> dict[str, Any]:
    """A SchemaInfo."""
    data = text.encode() if isinstance(text, str) else text
    return {
        "type": type_name,
        "serializationFormat": {"serializationFormat": format_name},
        "schemaData": base64.b64encode(data).decode(),
        "properties": properties,
    }


class Peer:
    """A registry with the API over it, and a client.  Use it as a context manager."""

    def __init__(self, guard: Guard | None = None, identify: Any = None) -> None:
        self.registry = registry()
        self.statistics = Statistics(lambda: 0.0)
        made = routes(self.registry, guard or Guard(), identify or _nobody, self.statistics)
        self._http = TestClient(Starlette(routes=made))

    def __enter__(self) -> Peer:
        self._http.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self.registry.close)
        self._http.__exit__()

    def do(self, call: Any, *given: Any, **named: Any) -> Any:
        """Call the registry itself, as the other API does."""

        async def made() -> Any:
            return await call(*given, **named)

        return self._http.portal.call(made)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send a request; its response."""
        given = {} if body is None else {"json": body}
        return self._http.request(method, f"/v1{path}", **given, **more)

    def get(self, path: str, status: int = 200) -> Any:
        """Get a document; the status must be this one."""
        found = self.ask("GET", path)
        assert found.status_code == status, found.text
        return found.json()

    def send(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """Send a body; the status must be this one.  Returns the document of the answer, None if it has none."""
        found = self.ask(method, path, body)
        assert found.status_code == status, found.text
        return found.json() if found.content else None

    def create(self, group: str, format_name: str = "Avro", policy: str = "Backward", *, many: bool = True) -> None:
        """Create a group."""
        self.send("POST", "/groups", group_request(group, format_name, policy, many=many), 201)

    def add(self, group: str, schema: dict[str, Any], status: int = 201) -> Any:
        """Add a schema to a group."""
        return self.send("POST", f"/groups/{group}/schemas", schema, status)


def group_request(
    group: str, format_name: str = "Avro", policy: Any = "Backward", *, many: bool = True
) -> dict[str, Any]:
    """The request that creates a group."""
    properties = {
        "serializationFormat": {"serializationFormat": format_name},
        "compatibility": {"policy": policy} if isinstance(policy, str) else policy,
        "allowMultipleTypes": many,
        "properties": {"owner": "me"},
    }
    return {"groupName": group, "groupProperties": properties}


async def _nobody(_: Any) -> None:
    return None
