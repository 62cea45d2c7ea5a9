"""The OpenAPI document, from the table of operations.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.admin.rest.api import answers_of
from sarit.admin.rest.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.admin.rest.api import Operation

_JSON: Final = "application/json"


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Return the OpenAPI description of these operations.  `version`: the version of Sarit."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sarit",
            "version": version,
            "description": "Scopes, streams, reader groups and health, under the paths of Pravega's REST API.",
        },
        "paths": paths,
        "components": {
            "schemas": MODELS,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        # Where there are no users, nobody logs in.
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _described(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.group],
        "summary": operation.summary,
        "responses": {str(status): _answer(*answer) for status, answer in answers_of(operation).items()},
    }
    parameters = [
        *(
            {"in": "path", "name": name, "required": True, "schema": schema}
            for name, schema in operation.path_parameters.items()
        ),
        *(
            {"in": "query", "name": p.name, "required": p.required, "description": p.description, "schema": p.schema}
            for p in operation.query
        ),
    ]
    if parameters:
        found["parameters"] = parameters
    if operation.body:
        found["requestBody"] = {"required": True, "content": _content(operation.body)}
    return found


def _answer(description: str, model: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"description": description}
    return found if model is None else {**found, "content": _content(model)}


def _content(model: str) -> dict[str, Any]:
    return {_JSON: {"schema": {"$ref": f"#/components/schemas/{model}"}}}
