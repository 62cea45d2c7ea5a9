"""Checks JSON values against JSON Schema, of which it knows what `models.py` uses.  Pure.

The schemas that clients see in the OpenAPI document are the ones that are checked here, so the two cannot differ.
A keyword that is not known here is a bug, and raises KeyError when the module is tested.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Schema: TypeAlias = "Mapping[str, Any]"

_SHOWN_CHARS: Final = 80
# Keywords that describe a value and are never checked.
_REMARKS: Final = frozenset({"description", "format", "example"})


def check(schema: Schema, value: Any, models: Mapping[str, Schema], at: str = "the body") -> Any:
    """Return the value, with whole numbers as ints.  Raises Invalid, with the place of the first mistake."""
    if "anyOf" in schema:  # of an optional field: something, or null, which is left out before
        return check(schema["anyOf"][0], value, models, at)
    if "$ref" in schema:
        return check(models[schema["$ref"].rpartition("/")[2]], value, models, at)
    keywords = {name: bound for name, bound in schema.items() if name not in _REMARKS}
    kind = keywords.pop("type")
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not _TYPES[kind](value):
        raise Invalid(f"{at} is {_shown(value)}: give {_NAMES[kind]}")
    if kind == "object":
        return _check_object(keywords, value, models, at)
    if kind == "array":
        items = keywords.pop("items")
        _check_bounds(keywords, value, at)
        return [check(items, item, models, f"{at}[{place}]") for place, item in enumerate(value)]
    if kind == "string":
        _check_encodable(value, at)
    _check_bounds(keywords, value, at)
    return value


def _check_object(keywords: dict[str, Any], value: dict[str, Any], models: Mapping[str, Schema], at: str) -> Any:
    properties, required = keywords.pop("properties"), keywords.pop("required", ())
    assert keywords == {"additionalProperties": False}
    prefix = "" if at == "the body" else f"{at}."
    for name in value:
        if name not in properties:
            raise Invalid(f"{at} has no field {_shown(name)}: its fields are {', '.join(properties)}")
    # As in Pravega: what is null is absent.
    value = {name: found for name, found in value.items() if found is not None}
    for name in required:
        if name not in value:
            raise Invalid(f"{prefix}{name} is missing")
    return {name: check(properties[name], found, models, f"{prefix}{name}") for name, found in value.items()}


def _check_bounds(keywords: Mapping[str, Any], value: Any, at: str) -> None:
    for name, bound in keywords.items():
        holds, text = _BOUNDS[name]
        if not holds(value, bound):
            raise Invalid(f"{at} is {_shown(value)}: {text.format(bound)}")


def _check_encodable(value: str, at: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{at} is {_shown(value)}: it has half a surrogate pair, which is no text") from None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


_TYPES: Final = {
    "object": _is(dict),
    "array": _is(list),
    "string": _is(str),
    "integer": _is(int),
    "boolean": _is(bool),
}
_NAMES: Final = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
}
_BOUNDS: Final[dict[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minimum": (lambda value, bound: value >= bound, "give {} or more"),
    "maximum": (lambda value, bound: value <= bound, "give {} or less"),
    "minLength": (lambda value, bound: len(value) >= bound, "give {} or more characters"),
    "maxLength": (lambda value, bound: len(value) <= bound, "give {} or fewer characters"),
    "maxItems": (lambda value, bound: len(value) <= bound, "give {} or fewer"),
    "pattern": (lambda value, bound: re.fullmatch(bound, value) is not None, "it must match {}"),
    "enum": (lambda value, bound: value in bound, "give one of {}"),
}
