"""What is sure of all values that some JSON Schemas allow together.

Facts are bounds from above: each says that no value beyond it is allowed.  Keywords that say more are left out, so a
value within all facts may still be refused.  Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sarit.schemas.json_definition import JsonSchema

# An integer is a number without a fraction, also if it is written as 1.0.
_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "number": frozenset(("integer", "fraction")),
    **{one: frozenset((one,)) for one in ("null", "boolean", "object", "array", "string", "integer")},
}
_FEW: Final = frozenset(("null", "boolean"))
ALL_TYPES: Final = frozenset().union(*_PARTS.values())
NUMBERS: Final = _PARTS["number"]
# Keyword of a lower bound, of an upper bound, and the type whose values it bounds in size.
SIZES: Final = (
    ("minLength", "maxLength", "string"),
    ("minItems", "maxItems", "array"),
    ("minProperties", "maxProperties", "object"),
)

Bound = tuple[float, bool]  # a number, negative for an upper bound, and whether the number itself is excluded


@dataclass(slots=True, eq=False, repr=False)
class Facts:
    """Bounds of the values that all of some schemas allow.

    `nodes`: the schemas with those that they lead to, without keywords of other drafts.  `given`: the same as they are
    in their texts, by id().  `choices`: for each anyOf and oneOf its schemas, of which one allows the value, if none of
    them is among the given.  `types`: the types of values, with numbers in parts.  `values`: all values, if it is known
    that there are no others.  `steps`: how many parts of schemas were scanned."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    given: dict[int, dict[str, Any]] = field(default_factory=dict)
    choices: list[list[Any]] = field(default_factory=list)
    types: frozenset[str] = ALL_TYPES
    values: list[Any] | None = None
    steps: int = 0

    @property
    def empty(self) -> bool:
        """Whether no value is allowed."""
        return not self.types

    def lower(self) -> Bound | None:
        """Return the highest lower bound of numbers."""
        return self._bound(lower_bounds, min, 1)

    def upper(self) -> Bound | None:
        """Return the lowest upper bound of numbers, negative."""
        return self._bound(upper_bounds, max, -1)

    def _bound(
        self, bounds: Callable[[dict[str, Any]], list[Bound]], extreme: Callable[[Iterable[Any]], Any], sign: int
    ) -> Bound | None:
        found = [one for node in self.nodes for one in bounds(node)]
        numbers = [one for one in self.values or () if types_of(one) <= NUMBERS]
        if numbers:
            found.append((sign * extreme(numbers), False))
        if not found:
            return None
        number, excluded = max(found)
        if self.types & NUMBERS == _PARTS["integer"]:
            return (math.floor(number) + 1 if excluded else math.ceil(number)), False
        return number, excluded

    def least(self, keyword: str, kind: str) -> int:
        """Return the least size of values of a type, which a keyword bounds."""
        found = [node[keyword] for node in self.nodes if keyword in node]
        if keyword == "minProperties":
            found.append(len(self.required()))
        sizes = [len(one) for one in self.values or () if types_of(one) == _PARTS[kind]]
        return math.ceil(max(found + ([min(sizes)] if sizes else []), default=0))

    def most(self, keyword: str, kind: str) -> float:
        """Return the greatest size of values of a type, which a keyword bounds; infinity for any."""
        found = [node[keyword] for node in self.nodes if keyword in node]
        for node in self.nodes:
            if kind == "array" and rest_of(node) is False:
                found.append(len(prefix_of(node)))
            if kind == "object" and node.get("additionalProperties") is False and not node.get("patternProperties"):
                found.append(len(node.get("properties", ())))
        sizes = [len(one) for one in self.values or () if types_of(one) == _PARTS[kind]]
        return min(found + ([max(sizes)] if sizes else []), default=math.inf)

    def required(self) -> set[str]:
        """Return the names of properties that each object has."""
        return {name for node in self.nodes for name in node.get("required", ())}

    def property_names(self) -> set[str]:
        """Return the names that `properties` lists."""
        return {name for node in self.nodes for name in node.get("properties", ())}

    def property(self, name: str) -> list[Any]:
        """Return the schemas that a property's value is allowed by."""
        found = []
        for node in self.nodes:
            if name in node.get("properties", ()):
                found.append(node["properties"][name])
            elif not node.get("patternProperties"):
                found.append(node.get("additionalProperties", True))
        return found

    def others(self, patterns: Iterable[str]) -> list[Any]:
        """Return the schemas of properties that neither `properties` lists nor one of `patterns` matches."""
        known = set(patterns)
        return [
            node["additionalProperties"]
            for node in self.nodes
            if "additionalProperties" in node and known.issuperset(node.get("patternProperties", ()))
        ]

    def matching(self, pattern: str) -> list[Any]:
        """Return the schemas of properties whose names a pattern matches."""
        return [
            node["patternProperties"][pattern] for node in self.nodes if pattern in node.get("patternProperties", ())
        ]

    def closed_names(self) -> set[str] | None:
        """Return all names that a property may have; None for any."""
        for node in self.nodes:
            if node.get("additionalProperties") is False and not node.get("patternProperties"):
                return set(node.get("properties", ()))
        return None

    def item(self, index: int) -> list[Any]:
        """Return the schemas of the item at an index."""
        found = []
        for node in self.nodes:
            prefix = prefix_of(node)
            found.append(prefix[index] if index < len(prefix) else rest_of(node))
        return found

    def longest_prefix(self) -> int:
        """Return the number of items that have schemas of their own."""
        return max((len(prefix_of(node)) for node in self.nodes), default=0)


def facts_of(schema: JsonSchema, nodes: Iterable[Any], also: Iterable[dict[str, Any]] = ()) -> Facts:
    """Return what is sure of the values that all of `nodes` allow.

    `nodes`: schemas that `schema` leads to.  `also`: others, without references."""
    made = Facts()
    choices: list[list[Any]] = []
    left = list(nodes)
    while left:
        node = left.pop()
        if node is False:
            made.types = frozenset()
        if isinstance(node, bool) or id(node) in made.given:
            continue
        made.given[id(node)] = node
        target = schema.target(node)
        if target is not None:
            left.append(target)
            if not schema.siblings_count(node):
                continue
        view = schema.view(node)
        made.nodes.append(view)
        left += view.get("allOf", ())
        choices += [view[name] for name in ("anyOf", "oneOf") if name in view]
    for node in also:
        made.given[id(node)] = node
        made.nodes.append(node)
    made.steps = sum(map(_steps_of, made.nodes)) + len(made.given)
    made.choices = [one for one in choices if True not in one and not any(id(node) in made.given for node in one)]
    _limit(made)
    return made


def _steps_of(node: dict[str, Any]) -> int:
    return 1 + sum(len(one) for one in node.values() if isinstance(one, list | dict))


def _limit(made: Facts) -> None:
    lists = []
    for node in made.nodes:
        made.types &= types_allowed(node)
        lists += [node["enum"]] if "enum" in node else []
        lists += [[node["const"]]] if "const" in node else []
    if lists:
        made.values = [one for one in min(lists, key=len) if types_of(one) & made.types]
        made.types &= frozenset().union(*map(types_of, made.values))
    elif made.types and made.types <= _FEW:
        made.values = [one for one in (None, False, True) if types_of(one) <= made.types]


def types_of(value: Any) -> frozenset[str]:
    """Return the types of a value: of 1.0, which drafts call an integer or not, both parts of numbers."""
    if isinstance(value, bool):
        return _PARTS["boolean"]
    if isinstance(value, int):
        return _PARTS["integer"]
    if isinstance(value, float):
        return NUMBERS if value.is_integer() else NUMBERS - _PARTS["integer"]
    return next((_PARTS[name] for kind, name in _KINDS if isinstance(value, kind)), _PARTS["null"])


_KINDS: Final = ((str, "string"), (list, "array"), (dict, "object"))


def types_allowed(node: dict[str, Any]) -> frozenset[str]:
    """Return the types that the keyword `type` of a schema allows, with numbers in parts."""
    given = node.get("type", ())
    if not given:
        return ALL_TYPES
    return _PARTS[given] if isinstance(given, str) else frozenset().union(*(_PARTS[one] for one in given))


def shown_types(types: frozenset[str]) -> str:
    """Return the names of types as a schema writes them."""
    names = types - NUMBERS if "fraction" in types else types
    return ", ".join(sorted(names | ({"number"} if "fraction" in types else set())))


def lower_bounds(node: dict[str, Any]) -> list[Bound]:
    """Return the lower bounds of numbers that a schema sets."""
    return [(number, excluded) for number, excluded in _bounds(node, "minimum", "exclusiveMinimum")]


def upper_bounds(node: dict[str, Any]) -> list[Bound]:
    """Return the upper bounds of numbers that a schema sets, negative."""
    return [(-number, excluded) for number, excluded in _bounds(node, "maximum", "exclusiveMaximum")]


def _bounds(node: dict[str, Any], name: str, exclusive: str) -> list[Bound]:
    limit, excluded = node.get(name), node.get(exclusive)
    found = [] if limit is None else [(limit, excluded is True)]
    return found if excluded is None or isinstance(excluded, bool) else [*found, (excluded, True)]


def prefix_of(node: dict[str, Any]) -> list[Any]:
    """Return the schemas of the first items of an array, one each."""
    items = node.get("items")
    return items if isinstance(items, list) else node.get("prefixItems", [])


def rest_of(node: dict[str, Any]) -> Any:
    """Return the schema of an array's further items."""
    items = node.get("items", True)
    return node.get("additionalItems", True) if isinstance(items, list) else items


def may_be_equal(ours: Any, theirs: Any) -> bool:
    """Return whether two values may be equal: 1 and 1.0 are, and of arrays and objects not all is compared."""
    if types_of(ours).isdisjoint(types_of(theirs)):
        return False
    if isinstance(ours, list | dict):
        return len(ours) == len(theirs)
    return bool(ours == theirs)
