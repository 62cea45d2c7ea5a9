"""Whether documents of one JSON Schema are all allowed by another, as far as a checked subset of keywords tells.

The subset: `type`, `enum`, `properties`, `required`, `additionalProperties`.  Annotations are ignored.  Any other
keyword is compared by its value: where that changed, the schemas count as incompatible, with the keyword as the reason.
So schemas that count as compatible are, and some that are do not count.

- A writer's schema that does not close its objects allows any value under any name: a property that a reader's schema
  adds must allow all of them, or the writer's must not have it by `additionalProperties: false`.
- A default is an annotation: no reader fills it in, so it makes no required property optional.
- References within the document are not followed, for what they lead to is equal: they must lead into `$defs` or
  `definitions`.  Schemas with any other reference, and those with `unevaluatedProperties`, must be equal as a whole.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_INCOMPATIBILITIES, MAX_SCHEMA_STEPS
from sarit.schemas.schema_text import check_sizes, parse_schema_json, plain_json, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

ANNOTATIONS: Final = frozenset(("$schema", "$id", "$comment", "title", "description", "default", "examples", "format"))
_SUBSET: Final = frozenset(("type", "enum", "properties", "required", "additionalProperties"))
_TYPES: Final = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_WITHIN: Final = ("#/$defs/", "#/definitions/")
_KINDS: Final = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def parse_json_schema(text: str) -> Any:
    """Return the JSON of a schema.  Raises Invalid for one whose keywords of the subset are malformed."""
    check_sizes([text])
    schema = parse_schema_json(text, "the JSON Schema")
    for path, one in _positions(schema):
        why = _fault(one)
        if why:
            raise Invalid(f"the JSON Schema, {shown(path or '/')}: {why}")
    return schema


def incompatibilities(reader: Any, writer: Any) -> list[str]:
    """Return why the reader's schema may not allow documents of the writer's: a path and a sentence each.

    Both schemas are from `parse_json_schema`.  At most `MAX_INCOMPATIBILITIES`; none if all documents are allowed.
    Raises Invalid for schemas that are too large together."""
    if plain_json(reader) == plain_json(writer):
        return []
    if any(_refers_elsewhere(one) for one in (reader, writer)):
        return ["/: a schema with references outside of $defs and definitions is compatible with itself alone"]
    comparison = _Comparison()
    comparison.compare(reader, writer, "")
    return comparison.reasons[:MAX_INCOMPATIBILITIES]


class _Comparison:
    """The reasons that one comparison has found, and the steps it took.  Internal."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self._steps = 0

    def compare(self, reader: Any, writer: Any, path: str) -> None:
        """Compare two schemas at a path of the reader's.  As deep as the schemas, whose levels are bounded."""
        self._count(1)
        if writer is False or len(self.reasons) >= MAX_INCOMPATIBILITIES:
            return
        ours, theirs = ({} if one is True else one for one in (reader, writer))
        if reader is False:
            self._add(path, "the reader's schema allows nothing here, and the writer's something")
        elif not set(ours) <= ANNOTATIONS:
            self._compare_keywords(ours, theirs, path)

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_SCHEMA_STEPS:
            raise Invalid("the schemas are too large to be compared: use fewer properties")

    def _add(self, path: str, why: str) -> None:
        self.reasons.append(f"{shown(path or '/')}: {why}")

    def _compare_keywords(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        if "unevaluatedProperties" in reader and plain_json(reader) != plain_json(writer):
            self._add(path, "a schema with unevaluatedProperties is compatible with itself alone")
            return
        for keyword in sorted((reader.keys() | writer.keys()) - _SUBSET - ANNOTATIONS):
            self._count(1)
            ours, theirs = (plain_json([one[keyword]]) if keyword in one else "" for one in (reader, writer))
            if ours != theirs:
                self._add(f"{path}/{keyword}", "this keyword is compared by its value alone, which changed")
        types = _types(writer)
        lacking = sorted(one for one in types - _types(reader) if one != "integer" or "number" not in _types(reader))
        if lacking:
            self._add(f"{path}/type", f"the writer's schema allows {', '.join(lacking)}, and the reader's does not")
        if "enum" in reader:
            self._compare_enums(reader["enum"], writer.get("enum"), path)
        if "object" in types:
            self._compare_objects(reader, writer, path)

    def _compare_enums(self, reader: list[Any], writer: list[Any] | None, path: str) -> None:
        if writer is None:
            self._add(f"{path}/enum", "the writer's schema has no enum, and allows other values")
            return
        self._count(len(reader) + len(writer))
        known = set(map(plain_json, reader))
        lacking = next((one for one in writer if plain_json(one) not in known), _NONE)
        if lacking is not _NONE:
            self._add(f"{path}/enum", f"the reader's schema does not allow {shown(plain_json(lacking))}")

    def _compare_objects(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        required = set(writer.get("required", ()))
        for name in reader.get("required", ()):
            self._count(1)
            if name not in required:
                self._add(f"{path}/required", f"the writer's schema does not require {shown(name)}")
        ours, theirs = reader.get("properties", {}), writer.get("properties", {})
        others_of_reader = reader.get("additionalProperties", True)
        others_of_writer = writer.get("additionalProperties", True)
        # Its patterns allow names that are no additional ones.
        added = True if "patternProperties" in writer else others_of_writer
        for name, schema in ours.items():
            self.compare(schema, theirs.get(name, added), f"{path}/properties/{name}")
        for name, schema in theirs.items():
            if name not in ours:
                self.compare(others_of_reader, schema, f"{path}/additionalProperties, for {name}")
        self.compare(others_of_reader, others_of_writer, f"{path}/additionalProperties")


_NONE: Final = object()


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """Return the types of values that a schema allows."""
    if "type" in schema:
        given = schema["type"]
        return frozenset([given] if isinstance(given, str) else given)
    if "enum" in schema:
        return frozenset(map(_type_of, schema["enum"]))
    return _TYPES - {"integer"}


def _type_of(value: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")


def _positions(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield each schema that the subset's keywords hold, with its path."""
    left = [("", schema)]
    while left:
        path, one = left.pop()
        yield path, one
        if isinstance(one, dict):
            left += [(f"{path}/properties/{name}", inner) for name, inner in one.get("properties", {}).items()]
            if "additionalProperties" in one:
                left.append((f"{path}/additionalProperties", one["additionalProperties"]))


def _fault(schema: Any) -> str:
    """Return what is malformed in a schema itself; nothing if it is well."""
    if isinstance(schema, bool):
        return ""
    if not isinstance(schema, dict):
        return f"{shown(schema)} is no schema: write an object, true or false"
    types = schema.get("type", "null")
    types = [types] if isinstance(types, str) else types
    if not _are_texts(types) or not types or not set(types) <= _TYPES:
        return f"{shown(schema['type'])} is no type: use one or more of {', '.join(sorted(_TYPES))}"
    if not isinstance(schema.get("enum", []), list):
        return "enum is no array"
    if not isinstance(schema.get("properties", {}), dict):
        return "properties is no object"
    return "" if _are_texts(schema.get("required", [])) else "required is no array of names"


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _refers_elsewhere(schema: Any) -> bool:
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one.values()
            for name in _REFERENCES:
                if name in one and not (isinstance(one[name], str) and one[name].startswith(_WITHIN)):
                    return True
    return False
