"""Whether documents of one JSON Schema are all allowed by another, as far as a checked subset of keywords tells.

A reader's schema with schemas of the writer, which all allow a value, is a claim (`claims.py`) that the reader's allows
it, too.  It rests on the claims about properties and items, and on those about the schemas that the reader's refers to
or is made of.  Of the writer's only what is sure is used (`json_facts.py`).

The subset: `type`, `enum`, `const`, `$ref`, `allOf`, `anyOf`, `oneOf`, `not`, bounds of numbers and sizes, `required`,
`properties`, `patternProperties`, `additionalProperties`, `propertyNames`, `items`, `prefixItems`, `additionalItems`,
`uniqueItems`, `multipleOf`.  Annotations are ignored.  Any other keyword of the reader's is compared by its value, with
what its references lead to: where the writer's does not have the same, the schemas count as incompatible, with the
keyword as the reason.  So schemas that count as compatible are, and some that are do not count:

- A schema of several alternatives is split: each of the writer's must be allowed.  Of `oneOf`, all alternatives but one
  must be impossible: by their types, or by different constants in a property that is required.
- A pattern is compared as a text: whether it matches a name is not asked.
- A schema with `unevaluatedProperties` or `unevaluatedItems` beside schemas for the same value, or with references that
  are not resolved, is compatible with itself alone.

Two kinds of answers differ from those of Confluent's registry on purpose: it accepts schemas although a validator then
refuses documents, and refuses some that allow the same:

- A writer's schema that does not close its objects allows any value under any name.  So a property that a reader's
  schema adds must allow all of them, or the writer's must not have it, as by `additionalProperties: false`: as there.
  But one that allows everything (`{}`) may be added, and one that is required may be added nowhere: a default is an
  annotation, for no reader fills it in.
- Bounds are compared by what they allow: an integer above 0 is one of 1 or more, and constants are within bounds.

Pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.schemas.claims import Claim, reasons_of, resolve_claims
from sarit.schemas.json_facts import (
    ALL_TYPES,
    NUMBERS,
    SIZES,
    Facts,
    facts_of,
    lower_bounds,
    may_be_equal,
    prefix_of,
    rest_of,
    shown_types,
    types_allowed,
    upper_bounds,
)
from sarit.schemas.json_keywords import is_annotation
from sarit.schemas.json_likeness import Likeness
from sarit.schemas.limits import MAX_SCHEMA_ALTERNATIVES, MAX_SCHEMA_STEPS, MAX_TELLING_LEVELS
from sarit.schemas.schema_text import plain_json, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sarit.schemas.json_definition import JsonSchema

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_SUBSET: Final = frozenset(
    ("type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "not", "minimum", "maximum", "exclusiveMinimum",
     "exclusiveMaximum", "required", "properties", "patternProperties", "additionalProperties", "propertyNames",
     "items", "prefixItems", "additionalItems", "uniqueItems", "multipleOf",
     *(name for one in SIZES for name in one[:2]))
)  # fmt: skip
# A keyword, and others that mean something beside it alone.
_LEADS: Final[Mapping[str, tuple[str, ...]]] = {
    "if": ("if", "then", "else"),
    "contains": ("contains", "minContains", "maxContains"),
}
_LED: Final = frozenset(("then", "else", "minContains", "maxContains"))
_UNEVALUATED: Final[Mapping[str, str]] = {"unevaluatedProperties": "object", "unevaluatedItems": "array"}
_DEPENDENCIES: Final = ("dependencies", "dependentRequired", "dependentSchemas")
# Of keywords outside the subset, those that are about values of one type.
_ABOUT: Final[Mapping[str, frozenset[str]]] = {
    "pattern": frozenset(("string",)), "contains": frozenset(("array",)),
    **dict.fromkeys(_DEPENDENCIES, frozenset(("object",))),
}  # fmt: skip
# Keywords that every draft reads alike.
_OF_ALL_DRAFTS: Final = frozenset(("pattern",))
_CLAIM_STEPS: Final = 5  # for a claim is kept, in half a kilobyte or more


def incompatibilities(reader: JsonSchema, writer: JsonSchema) -> list[str]:
    """Return why the reader's schema may not allow documents of the writer's: a path and a sentence each.

    At most `MAX_INCOMPATIBILITIES`; none if all documents are allowed.  Raises Invalid for schemas that are too large
    together."""
    if reader.texts == writer.texts:
        return []
    if reader.alone or writer.alone:
        return ["/: a schema with anchors, dynamic references or an $id inside is compatible with itself alone"]
    return reasons_of(_Comparison(reader, writer).compare())


class _Comparison:
    """All claims that two schemas lead to.  Internal."""

    def __init__(self, reader: JsonSchema, writer: JsonSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._same_draft = reader.drafts == writer.drafts and len(reader.drafts) == 1
        self._claims: dict[tuple[int, ...], Claim] = {}
        self._left: list[tuple[Claim, Any, tuple[Any, ...]]] = []
        self._choices: list[Claim] = []
        self._schemas: dict[tuple[str, str], dict[str, Any]] = {}
        self._likeness = Likeness(reader, writer, self._count)
        self._steps = 0

    def compare(self) -> Claim:
        """Return the claim that the reader's schema allows what the writer's does, resolved."""
        top = Claim()
        self._need(top, "", self._reader.root, (self._writer.root,))
        while self._left:
            self._work(*self._left.pop())
        resolve_claims((top, *self._claims.values(), *self._choices))
        return top

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_SCHEMA_STEPS:
            raise Invalid("the schemas are too large to be compared: use fewer properties and alternatives")

    def _claim(self, reader: Any, writer: Iterable[Any]) -> Claim | None:
        """Return the claim that a schema allows what all schemas of the writer do; None if it is true."""
        nodes = {id(one): one for one in writer if one is not True}
        self._count(_CLAIM_STEPS + len(nodes))
        if reader is True or any(one is False for one in nodes.values()):
            return None
        key = (id(reader), *sorted(nodes))
        found = self._claims.get(key)
        if found is None:
            found = self._claims[key] = Claim()
            self._left.append((found, reader, tuple(nodes.values())))
        return found

    def _need(self, claim: Claim, path: str, reader: Any, writer: Iterable[Any]) -> None:
        inner = self._claim(reader, writer)
        if inner is not None:
            claim.need(path, inner)

    def _work(self, claim: Claim, reader: Any, writer: tuple[Any, ...]) -> None:
        """Find what a claim rests on."""
        facts = facts_of(self._writer, writer)
        self._count(facts.steps)
        if facts.empty:
            return
        if reader is False:
            claim.reasons.append(("", "the reader's schema allows nothing here, and the writer's something"))
            return
        if self._same_draft and any(self._likeness.alike(reader, one) for one in facts.given.values()):
            return
        view = self._reader.view(reader)
        if any(name in view and kind in facts.types for name, kind in _UNEVALUATED.items()):
            why = "a schema with unevaluatedProperties or unevaluatedItems is compatible with itself alone"
            claim.reasons.append(("", why))
            return
        parts = self._parts(view, facts)
        if parts:
            for one in parts:
                self._need(claim, "", reader, (*writer, one))
            return
        self._compare_made_of(claim, reader, view, writer, facts)
        self._compare_values(claim, view, facts)
        if "object" in facts.types:
            self._compare_objects(claim, view, facts)
        if "array" in facts.types:
            self._compare_items(claim, view, facts)
        for keyword in sorted(view.keys() - _SUBSET - _LED - _UNEVALUATED.keys()):
            about = not facts.types.isdisjoint(_ABOUT.get(keyword, ALL_TYPES))
            if about and not is_annotation(keyword) and not self._is_kept(keyword, view, facts):
                why = "this keyword is compared by its value alone, and the writer's schema does not have the same"
                claim.reasons.append((f"/{keyword}", why))

    # -- alternatives -------------------------------------------------------------------------

    def _parts(self, view: dict[str, Any], facts: Facts) -> list[Any]:
        """Return alternatives of which each value of the writer's is allowed by one; [] for nothing to split."""
        if facts.choices and math.prod(map(len, facts.choices)) <= MAX_SCHEMA_ALTERNATIVES:
            return facts.choices[0]
        if any(name in view and not self._is_kept(name, view, facts) for name in _ALTERNATIVES):
            if facts.values is not None:
                self._count(len(facts.values))
                return [self._made("const", one) for one in facts.values] if len(facts.values) > 1 else []
            types = facts.types - NUMBERS | ({"number"} if facts.types & NUMBERS else set())
            return [self._made("type", one) for one in sorted(types)] if len(types) > 1 else []
        return []

    def _made(self, keyword: str, value: Any) -> dict[str, Any]:
        """Return a schema that no text has, the same object for the same keyword and value."""
        return self._schemas.setdefault((keyword, plain_json(value)), {keyword: value})

    def _compare_made_of(
        self, claim: Claim, reader: dict[str, Any], view: dict[str, Any], writer: tuple[Any, ...], facts: Facts
    ) -> None:
        """Compare the schemas that one refers to or is made of, which are about the same value."""
        target = self._reader.target(reader)
        if target is not None:
            self._need(claim, "", target, writer)
        for index, one in enumerate(view.get("allOf", ())):
            self._need(claim, f"/allOf/{index}", one, writer)
        for name in _ALTERNATIVES:
            if name in view and not self._is_kept(name, view, facts):
                self._choose(claim, name, view[name], writer, facts)
        if "not" in view and not self._is_kept("not", view, facts) and not self._apart([view["not"]], facts):
            claim.reasons.append(("/not", "the writer's schema may allow what the reader's does not"))

    def _choose(self, claim: Claim, name: str, those: list[Any], writer: tuple[Any, ...], facts: Facts) -> None:
        possible = list(enumerate(those))
        if name == "oneOf":
            possible = [(index, one) for index, one in possible if not self._apart([one], facts)]
            if len(possible) > 1:
                why = "more than one alternative of the reader's schema may allow what the writer's does"
                claim.reasons.append(("/oneOf", why))
                return
        choice = Claim(none="no alternative of the reader's schema allows all that the writer's does")
        for index, one in possible:
            inner = self._claim(one, writer)
            if inner is None:
                return
            choice.choose(f"/{index}", inner)
        if not choice.any_of:
            choice.reasons.append(("", choice.none))
        self._choices.append(choice)
        claim.need(f"/{name}", choice)

    def _apart(self, reader: list[Any], facts: Facts, levels: int = MAX_TELLING_LEVELS) -> bool:
        """Return whether it is sure that no value of the writer's is allowed by all of some schemas of the reader's."""
        ours = facts_of(self._reader, reader)
        self._count(_CLAIM_STEPS + ours.steps + facts.steps)
        types = ours.types & facts.types
        if not types:
            return True
        if ours.values is not None and facts.values is not None:
            self._count(len(ours.values) * len(facts.values))
            if not any(may_be_equal(one, other) for one in ours.values for other in facts.values):
                return True
        if not levels:
            return False
        for one in ours.choices:
            if all(self._apart([*reader, inner], facts, levels - 1) for inner in one):
                return True
        if types != {"object"}:
            return False
        return any(
            self._apart(ours.property(name), facts_of(self._writer, facts.property(name)), levels - 1)
            for name in ours.required() | facts.required()
        )

    # -- keywords -----------------------------------------------------------------------------

    def _is_kept(self, keyword: str, view: dict[str, Any], facts: Facts) -> bool:
        """Return whether a schema of the writer's has a keyword with the same value."""
        if not self._same_draft and keyword not in _OF_ALL_DRAFTS:
            return False
        if keyword in _DEPENDENCIES:
            known = [node.get(keyword, {}) for node in facts.nodes]
            ours = view[keyword].items()
            return all(any(self._likeness.alike(one, there.get(name)) for there in known) for name, one in ours)
        names = _LEADS.get(keyword, (keyword,))
        return any(all(self._likeness.alike(view.get(name), node.get(name)) for name in names) for node in facts.nodes)

    def _compare_values(self, claim: Claim, view: dict[str, Any], facts: Facts) -> None:
        """Compare types, constants, and bounds of numbers and sizes."""
        lacking = facts.types - types_allowed(view)
        if lacking:
            why = f"the writer's schema allows {shown_types(lacking)}, and the reader's does not"
            claim.reasons.append(("/type", why))
        for name in ("enum", "const"):
            if name in view:
                self._compare_constants(claim, name, view["enum"] if name == "enum" else [view["const"]], facts)
        if facts.types & NUMBERS:
            lower, upper = facts.lower(), facts.upper()
            if any(lower is None or lower < one for one in lower_bounds(view)):
                name = "minimum" if "minimum" in view else "exclusiveMinimum"
                claim.reasons.append(
                    (f"/{name}", f"the writer's schema allows numbers below {shown(plain_json(view[name]))}")
                )
            if any(upper is None or upper < one for one in upper_bounds(view)):
                name = "maximum" if "maximum" in view else "exclusiveMaximum"
                claim.reasons.append(
                    (f"/{name}", f"the writer's schema allows numbers above {shown(plain_json(view[name]))}")
                )
            step = view.get("multipleOf", 1)
            if "multipleOf" in view and not any(_divides(step, node.get("multipleOf")) for node in facts.nodes):
                claim.reasons.append(
                    (
                        "/multipleOf",
                        f"the writer's schema allows numbers that are no multiples of {shown(plain_json(step))}",
                    )
                )
        for least, most, kind in SIZES:
            if kind in facts.types:
                if least in view and facts.least(least, kind) < view[least]:
                    claim.reasons.append(
                        (f"/{least}", f"the writer's schema allows less than {shown(plain_json(view[least]))}")
                    )
                if most in view and facts.most(most, kind) > view[most]:
                    claim.reasons.append(
                        (f"/{most}", f"the writer's schema allows more than {shown(plain_json(view[most]))}")
                    )

    def _compare_constants(self, claim: Claim, name: str, ours: list[Any], facts: Facts) -> None:
        if facts.values is None:
            why = f"the writer's schema has no {name}, and allows other values"
            claim.reasons.append((f"/{name}", why))
            return
        self._count(len(ours) + len(facts.values))
        known = set(map(plain_json, ours))
        lacking = [one for one in facts.values if plain_json(one) not in known]
        if lacking:
            claim.reasons.append((f"/{name}", f"the reader's schema does not allow {shown(plain_json(lacking[0]))}"))

    def _compare_objects(self, claim: Claim, view: dict[str, Any], facts: Facts) -> None:
        required = facts.required()
        for name in view.get("required", ()):
            self._count(1)
            if name not in required:
                claim.reasons.append(("/required", f"the writer's schema does not require {shown(name)}"))
        properties, patterns = view.get("properties", {}), view.get("patternProperties", {})
        for name, one in properties.items():
            self._count(len(facts.nodes))
            self._need(claim, f"/properties/{name}", one, facts.property(name))
        names = facts.closed_names()
        for pattern, one in patterns.items():
            self._count(len(facts.nodes))
            if names is None:
                self._need(claim, f"/patternProperties/{pattern}", one, facts.matching(pattern))
            else:  # any of the names may be one that the pattern matches
                for name in names:
                    path = f"/patternProperties/{pattern}, for {name}"
                    self._need(claim, path, one, facts.property(name))
        others = view.get("additionalProperties", True)
        if others is not True:
            for name in facts.property_names() - properties.keys():
                self._need(claim, f"/additionalProperties, for {name}", others, facts.property(name))
            self._need(claim, "/additionalProperties", others, facts.others(patterns))
        if "propertyNames" in view:
            known = [node["propertyNames"] for node in facts.nodes if "propertyNames" in node]
            known += [] if names is None else [self._made("enum", sorted(names))]
            self._need(claim, "/propertyNames", view["propertyNames"], [self._made("type", "string"), *known])

    def _compare_items(self, claim: Claim, view: dict[str, Any], facts: Facts) -> None:
        prefix, rest = prefix_of(view), rest_of(view)
        most = facts.most("maxItems", "array")
        described = max(len(prefix), facts.longest_prefix() if rest is not True else 0)
        for index in range(min(described, math.ceil(min(most, described)))):
            self._count(len(facts.nodes))
            path, one = (
                (f"/prefixItems/{index}", prefix[index]) if index < len(prefix) else (f"/items, for {index}", rest)
            )
            self._need(claim, path, one, facts.item(index))
        if rest is not True and most > described:
            self._need(claim, "/items", rest, facts.item(described + facts.longest_prefix()))
        if view.get("uniqueItems") and most > 1 and not any(node.get("uniqueItems") for node in facts.nodes):
            claim.reasons.append(("/uniqueItems", "the writer's schema allows an item twice"))


def _divides(step: float, other: float | None) -> bool:
    """Return whether all multiples of a number are multiples of a step: sure of integers, and of the same number."""
    if other is None:
        return False
    return step == other or (isinstance(step, int) and isinstance(other, int) and other % step == 0)


__all__ = ["incompatibilities"]
