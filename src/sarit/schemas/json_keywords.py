"""The keywords of JSON Schema: which hold schemas, how they may be malformed, and the drafts that know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.schemas.avro_types import is_integer
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TYPES: Final = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))
# Keywords that no validator heeds, or that only say where a schema is.
ANNOTATIONS: Final = frozenset(
    ("$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions", "title",
     "description", "default", "example", "examples", "format", "readOnly", "writeOnly", "deprecated",
     "contentEncoding", "contentMediaType", "contentSchema")
)  # fmt: skip
_ANNOTATION_PREFIXES: Final = ("x-", "connect.", "confluent:")

_SCHEMA: Final = (
    "additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_SCHEMAS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_ON_THE_SAME_VALUE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_UNEVALUATED: Final = frozenset(("unevaluatedProperties", "unevaluatedItems"))
# Keywords whose schemas are about the same value: the properties and items that they know are evaluated.
_MAY_EVALUATE: Final = frozenset((*_ON_THE_SAME_VALUE, "$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas"))

_SINCE: Final[Mapping[str, int]] = {
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7, "dependentRequired": 2019,
    "dependentSchemas": 2019, "minContains": 2019, "maxContains": 2019, "unevaluatedItems": 2019,
    "unevaluatedProperties": 2019, "$recursiveRef": 2019, "prefixItems": 2020, "$dynamicRef": 2020,
}  # fmt: skip
_UNTIL: Final[Mapping[str, int]] = {"dependencies": 7, "additionalItems": 2019, "$recursiveRef": 2019}
_LAST_WITHOUT_SIBLINGS: Final = 7


def is_annotation(keyword: str) -> bool:
    """Return whether a keyword says nothing about which values are allowed."""
    return keyword in ANNOTATIONS or keyword.startswith(_ANNOTATION_PREFIXES)


def of_draft(node: Any, draft: int) -> Any:
    """Return a schema without keywords that a draft does not know.  `draft`: 0 for any."""
    if not draft or not isinstance(node, dict):
        return node
    if "$ref" in node and draft <= _LAST_WITHOUT_SIBLINGS:
        # `definitions` beside a reference can still be referred to.
        return {name: one for name, one in node.items() if name in ("$ref", "$id", "$defs", "definitions")}
    return {name: one for name, one in node.items() if _SINCE.get(name, 0) <= draft <= _UNTIL.get(name, draft)}


def evaluated(node: Any) -> Any:
    """Return a schema with `additionalProperties` and `items` for its unevaluated ones, where these mean the same."""
    if not isinstance(node, dict) or _UNEVALUATED.isdisjoint(node) or not _MAY_EVALUATE.isdisjoint(node):
        return node
    made = dict(node)
    if "unevaluatedProperties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = made.pop("unevaluatedProperties")
    if "unevaluatedItems" in made and not {"items", "contains"} & made.keys():
        made["items"] = made.pop("unevaluatedItems")
    return made


def inner_schemas(node: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the schemas that the keywords of one hold, with their paths from it."""
    found: list[tuple[str, Any]] = [(name, node[name]) for name in _SCHEMA if name in node]
    for name in _SCHEMAS:
        found += [(f"{name}/{index}", one) for index, one in enumerate(node.get(name, ()))]
    for name in _NAMED_SCHEMAS:
        found += [(f"{name}/{key}", one) for key, one in node.get(name, {}).items()]
    items = node.get("items", [])
    found += [(f"items/{index}", one) for index, one in enumerate(items)] if isinstance(items, list) else []
    found += [] if isinstance(items, list) else [("items", items)]
    dependencies = node.get("dependencies", {}).items()
    return found + [(f"dependencies/{key}", one) for key, one in dependencies if not isinstance(one, list)]


def same_value_schemas(node: dict[str, Any]) -> list[Any]:
    """Return the schemas that one applies to the value that it is applied to itself, without that of `$ref`."""
    found: list[Any] = []
    for name in _ON_THE_SAME_VALUE:
        given = node.get(name, [])
        found += given if isinstance(given, list) else [given]
    found += node.get("dependentSchemas", {}).values()
    return found + [one for one in node.get("dependencies", {}).values() if not isinstance(one, list)]


def fault(node: Any) -> str:
    """Return what is malformed in a schema itself; "" for nothing."""
    if isinstance(node, bool):
        return ""
    if not isinstance(node, dict):
        return f"{shown(node)} is no schema: write an object, true or false"
    for name, check, wanted in _CHECKS:
        if name in node and not check(node[name]):
            return f"{name} is {shown(node[name])}, and must be {wanted}"
    return ""


def _is_type(value: Any) -> bool:
    given = [value] if isinstance(value, str) else value
    return _are_names(given) and bool(given) and set(given) <= TYPES


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_array(value: Any) -> bool:
    return isinstance(value, list)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or is_integer(value)


def _is_count(value: Any) -> bool:
    return (is_integer(value) or (isinstance(value, float) and value.is_integer())) and value >= 0


_CHECKS: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("type", _is_type, f"one or more of {', '.join(sorted(TYPES))}"),
    ("required", _are_names, "an array of names"),
    ("$ref", _is_text, "a text"),
    ("pattern", _is_text, "a text"),
    ("enum", _is_array, "an array"),
    ("uniqueItems", lambda value: isinstance(value, bool), "true or false"),
    ("multipleOf", lambda value: _is_number(value) and value > 0, "a number above 0"),
    *((name, lambda value: isinstance(value, list) and bool(value), "an array of schemas")
      for name in ("allOf", "anyOf", "oneOf")),
    ("prefixItems", _is_array, "an array of schemas"),
    *((name, _is_object, "an object") for name in (*_NAMED_SCHEMAS, "dependencies", "dependentRequired")),
    *((name, _is_number, "a number") for name in ("minimum", "maximum")),
    *((name, lambda value: isinstance(value, bool) or _is_number(value), "a number")
      for name in ("exclusiveMinimum", "exclusiveMaximum")),
    *((name, _is_count, "a count") for name in
      ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")),
)  # fmt: skip
