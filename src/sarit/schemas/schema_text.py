"""Texts of schemas from outside: parsed within bounds of size and depth, and shown in errors. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_SCHEMA_BYTES, MAX_SCHEMA_LEVELS

_SHOWN: Final = 100
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def shown(value: object) -> str:
    """Return a part of a schema as an error shows it: in printable ASCII, and short."""
    text = value if isinstance(value, str) else json.dumps(value)
    text = text.encode("ascii", "backslashreplace").decode()
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def check_sizes(texts: list[str]) -> None:
    """Raises Invalid for a schema that is too large together with its references."""
    # A character takes one byte or more, so that a text far too large is not encoded.
    total = 0
    for text in texts:
        total += len(text)
        if total <= MAX_SCHEMA_BYTES and not text.isascii():
            total += len(text.encode("utf-8", "surrogatepass")) - len(text)
    if total > MAX_SCHEMA_BYTES:
        raise Invalid(f"a schema has at most {MAX_SCHEMA_BYTES:,} bytes together with its references")


def parse_schema_json(text: str, what: str) -> Any:
    """Return the JSON of a schema.  Raises Invalid, which names the schema as `what`.

    Stricter than a parser of JSON need be: a key that an object has twice would be read in one way here and in another
    elsewhere, and NaN and numbers beyond a double could not be printed again."""
    try:
        found = parse_json(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite_float)
    except ValueError as error:
        raise Invalid(f"{what} is no JSON: {shown(str(error))}") from None
    _check_levels(found, what)
    return found


def plain_json(value: Any) -> str:
    """Return a value as JSON without spaces, with the keys of each object in order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object has one of its keys twice")
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is beyond a double")
    return number


def _check_levels(value: Any, what: str) -> None:
    level = [value]
    for _ in range(MAX_SCHEMA_LEVELS + 1):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise Invalid(f"{what} has more than {MAX_SCHEMA_LEVELS} levels of arrays and objects")
