"""The OpenAPI document, the routes and the checks say the same."""

from __future__ import annotations

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from sarit.admin.callers import Callers, Gate
from sarit.admin.rest.api import OPERATIONS
from sarit.admin.rest.handlers import HANDLERS
from sarit.admin.rest.health import handlers
from sarit.admin.rest.models import MODELS
from sarit.admin.rest.openapi import document
from sarit.admin.rest.routes import health_routes, routes
from sarit.admin.rest.schema import check
from sarit.core.errors import Invalid
from tests.limits import examples
from tests.unit.admin.rest.served import FakeHealth, on_rest

BODIES = sorted({operation.body for operation in OPERATIONS if operation.body})


@on_rest
async def test_every_route_is_in_the_document_and_the_other_way_round(made, rest) -> None:
    described = (await rest.get("/openapi.json")).json()
    every = [*routes(Callers(Gate(), made.client)), *health_routes(FakeHealth())]
    served = {route.path for route in every if isinstance(route, Route)}
    assert served == {*described["paths"], "/openapi.json", "/v1/{rest:path}"}
    for path, methods in described["paths"].items():
        refused = await rest.request("TRACE", path.replace("{", "").replace("}", ""))
        assert refused.status_code == 405
        allowed = {method.lower() for method in refused.headers["allow"].split(", ")} - {"head"}
        assert allowed == set(methods), path


def test_every_operation_has_one_handler_and_a_success() -> None:
    assert sorted([*HANDLERS, *handlers(FakeHealth())]) == sorted(operation.name for operation in OPERATIONS)
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)
    for operation in OPERATIONS:
        assert sum(status < 300 for status in operation.answers) == 1, operation.name


def test_document_is_openapi_and_each_model_in_it_is_used() -> None:
    described = document(OPERATIONS, "1")
    assert described["openapi"].startswith("3.")
    text = str(described)
    for name in MODELS:
        assert f"'#/components/schemas/{name}'" in text, name


@pytest.mark.parametrize("name", BODIES)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_our_check_agrees_with_a_json_schema_validator(name, data) -> None:
    validator = jsonschema_rs.validator_for({**MODELS[name], "components": {"schemas": MODELS}})
    value = data.draw(bodies(MODELS[name]))
    try:
        check(MODELS[name], value, MODELS)
        ours = True
    except Invalid:
        ours = False
    assert ours == validator.is_valid(value), value


def bodies(schema):
    """Values that fit, nearly fit, or do not."""
    odd = st.one_of(st.none(), st.booleans(), st.integers(-2, 300), st.floats(allow_nan=False, allow_infinity=False),
                    st.text("aä_ \0", max_size=3), st.just([]), st.just({}))  # fmt: skip
    if "anyOf" in schema:
        return st.one_of(bodies(schema["anyOf"][0]), st.none())
    if "$ref" in schema:
        return bodies(MODELS[schema["$ref"].rpartition("/")[2]])
    match schema["type"]:
        case "object":
            fields = {name: bodies(found) for name, found in schema["properties"].items()}
            required = {name: fields[name] for name in schema.get("required", ())}
            others = {name: found for name, found in fields.items() if name not in required}
            near = st.fixed_dictionaries({}, optional={**fields, "colour": odd})
            whole = st.fixed_dictionaries(required, optional=others)
            return st.one_of(whole, near, odd)
        case "array":
            return st.one_of(st.lists(bodies(schema["items"]), max_size=3), odd)
        case "integer":
            edges = [schema["minimum"] - 1, schema["minimum"], schema["maximum"], schema["maximum"] + 1]
            return st.one_of(st.sampled_from(edges), st.just(2.0), odd)
    named = st.sampled_from(["a", "a-b.C9", "_a", "a b", "", "ä", "a" * 250, "a" * 257, "a\n", *schema.get("enum", ())])
    return st.one_of(named, odd)
