"""JSON Schemas as graphs of schemas, parsed from texts of others with their references.

A schema refers to schemas inside its own text by a JSON pointer (`#/$defs/x`, `#`), and to other texts by the name of a
reference, or by the `$id` of its text, with a pointer into it.  All are resolved here.  What is reached by a reference
may lead back to where it came from, so that only what follows the JSON of one text may recurse.

A keyword that the draft named by `$schema` does not know is no part of a schema, as for every validator: so are the
keywords beside `$ref` before 2019.  A text that names no draft may be read by any.

References by anchors, dynamic ones, and references in a text with a second `$id` are not resolved: `alone` says that
a schema has such.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urljoin

from sarit.core.errors import Invalid
from sarit.schemas.json_keywords import ANNOTATIONS, evaluated, fault, inner_schemas, of_draft, same_value_schemas
from sarit.schemas.limits import MAX_SCHEMA_REFERENCES
from sarit.schemas.schema_text import check_sizes, parse_schema_json, plain_json, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DRAFTS: Final = (("draft-03", 3), ("draft-04", 4), ("draft-06", 6), ("draft-07", 7), ("2019-09", 2019),
                  ("2020-12", 2020))  # fmt: skip
_ANY_DRAFT: Final = 0
_LAST_WITH_ID: Final = 4  # the drafts after it write `$id`
_DIGITS: Final = 10


@dataclass(slots=True, eq=False, repr=False)
class JsonSchema:
    """A schema, which is an object or a boolean of its text's JSON, with all schemas that it leads to.

    `texts`: the normal texts of the schema and its references, by name ("" for the schema itself).  `drafts`: of all
    texts; 0 for a text that names none.  `alone`: whether it has references that are not resolved."""

    root: Any
    texts: dict[str, str] = field(default_factory=dict)
    drafts: set[int] = field(default_factory=set)
    alone: bool = False
    _views: dict[int, dict[str, Any]] = field(default_factory=dict)
    _targets: dict[int, Any] = field(default_factory=dict)
    _doubtful: set[int] = field(default_factory=set)

    def view(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return an object that is a schema without keywords that its draft does not know."""
        return self._views.get(id(node), node)

    def target(self, node: dict[str, Any]) -> Any:
        """Return the schema that the `$ref` of one leads to; None for an object without one."""
        return self._targets.get(id(node))

    def siblings_count(self, node: dict[str, Any]) -> bool:
        """Return whether every validator heeds the keywords beside `$ref`."""
        return id(node) not in self._doubtful


def parse_json_schema(text: str, references: Mapping[str, str] | None = None) -> JsonSchema:
    """Return the schema of a text.  `references`: name -> text of each schema that `$ref` names, here or in another.

    Raises Invalid for malformed keywords, a reference to nothing or to itself, and beyond the bounds."""
    given = references or {}
    if len(given) > MAX_SCHEMA_REFERENCES:
        raise Invalid(f"a schema has at most {MAX_SCHEMA_REFERENCES} references")
    check_sizes([text, *given.values()])
    parser = _Parser()
    for number, (name, one) in enumerate(given.items(), 1):
        if not name:
            raise Invalid(f"reference {number} has no name: give it the text that $ref names it by")
        parser.add(name, one, f"reference {number}, {shown(name)}")
    return parser.parse(text)


def normal_json_text(schema: JsonSchema) -> str:
    """Return the schema without spaces, with the keys of each object in order."""
    return schema.texts[""]


@dataclass(slots=True, eq=False, repr=False)
class _Text:
    """The JSON of a text.  `what`: its name in errors.  `base`: its `$id`.  Internal."""

    what: str
    root: Any
    base: str
    draft: int


class _Parser:
    """The texts of a schema, and the schemas that it leads to so far.  Internal."""

    def __init__(self) -> None:
        self._texts: dict[str, _Text] = {}
        self._made = JsonSchema(None)
        self._left: list[tuple[str, Any, _Text]] = []
        self._seen: set[int] = set()
        self._nested_ids: set[int] = set()  # texts with an `$id` inside, by id()
        self._missing: list[tuple[int, str]] = []  # by id() of the text: references that lead to nothing

    def add(self, name: str, text: str, what: str) -> _Text:
        """Parse the JSON of one more text."""
        root = parse_schema_json(text, what)
        self._made.texts[name] = plain_json(root)
        draft = _draft_of(root)
        base = _base_of(root, draft)
        made = self._texts[name] = _Text(what, root, base, draft)
        if base:
            self._texts.setdefault(base, made)
        self._made.drafts.add(made.draft)
        return made

    def parse(self, text: str) -> JsonSchema:
        """Return the schema of a text, whose references were added before."""
        main = self.add("", text, "the JSON Schema")
        self._made.root = main.root
        self._left.append(("", main.root, main))
        referring = set()
        while self._left:
            path, node, source = self._left.pop()
            if isinstance(node, bool) or id(node) in self._seen:
                continue
            view = evaluated(of_draft(node, source.draft))
            why = fault(view)
            if why:
                raise Invalid(f"{source.what}, {shown(path or '/')}: {why}")
            self._seen.add(id(node))
            self._take(path, node, view, source)
            if any(one in node for one in ("$ref", "$dynamicRef", "$recursiveRef")):
                referring.add(id(source))
        for source_id, why in self._missing:
            if source_id not in self._nested_ids:
                raise Invalid(why)
        self._made.alone = self._made.alone or not referring.isdisjoint(self._nested_ids)
        self._check_circles()
        return self._made

    def _take(self, path: str, node: dict[str, Any], view: dict[str, Any], source: _Text) -> None:
        """Note what is to be known of one schema, and find those inside and those that it refers to."""
        if view != node:
            self._made._views[id(node)] = view
        if path and _base_of(node, source.draft):
            self._nested_ids.add(id(source))
        self._left += [(f"{path}/{place}", inner, source) for place, inner in inner_schemas(view)]
        if "$dynamicRef" in view or "$recursiveRef" in view:
            self._made.alone = True
        if "$ref" in view:
            self._refer(path, node, source)
            if source.draft == _ANY_DRAFT and not set(view) - {"$ref"} <= ANNOTATIONS:
                self._made._doubtful.add(id(node))

    def _refer(self, path: str, node: dict[str, Any], source: _Text) -> None:
        name, _, pointer = node["$ref"].partition("#")
        text = self._text_of(name, source)
        where = f"{source.what}, {shown(path or '/')}"
        if text is None:
            why = f"{where}: no reference has the name {shown(name)}, which $ref gives"
            self._missing.append((id(source), why))
            return
        if pointer and not pointer.startswith("/"):
            self._made.alone = True  # an anchor
            return
        target = _at(text.root, unquote(pointer))
        if target is None:
            self._missing.append((id(source), f"{where}: $ref leads to nothing: {shown(node['$ref'])}"))
            return
        self._made._targets[id(node)] = target
        self._left.append((unquote(pointer), target, text))

    def _text_of(self, name: str, source: _Text) -> _Text | None:
        if not name:
            return source
        try:
            whole = urljoin(source.base, name)
        except ValueError:
            whole = name
        return self._texts.get(name) or self._texts.get(whole)

    def _check_circles(self) -> None:
        """Raises Invalid for a schema that applies itself to the same value, so that no validator would end."""
        done: set[int] = set()
        on_path: set[int] = set()
        left: list[tuple[dict[str, Any], Iterator[Any]]] = []
        start = [self._made.root, *self._made._targets.values()]
        for first in start:
            if isinstance(first, bool) or id(first) in done:
                continue
            left.append((first, self._applied(first)))
            on_path.add(id(first))
            while left:
                node, rest = left[-1]
                following = next((one for one in rest if id(one) not in done), None)
                if following is None:
                    left.pop()
                    on_path.discard(id(node))
                    done.add(id(node))
                elif id(following) in on_path:
                    raise Invalid("the JSON Schema: a $ref leads to itself with no property or item between")
                else:
                    on_path.add(id(following))
                    left.append((following, self._applied(following)))

    def _applied(self, node: dict[str, Any]) -> Iterator[Any]:
        """Yield the schemas that one applies to the same value."""
        target = self._made.target(node)
        inner = [] if target is None else [target]
        inner += same_value_schemas(self._made.view(node))
        return (one for one in inner if isinstance(one, dict))


def _draft_of(root: Any) -> int:
    given = root.get("$schema") if isinstance(root, dict) else None
    return next((draft for part, draft in _DRAFTS if isinstance(given, str) and part in given), _ANY_DRAFT)


def _base_of(node: Any, draft: int) -> str:
    """Return the `$id` of a schema without a fragment; "" for none."""
    given = node.get("id" if 0 < draft <= _LAST_WITH_ID else "$id") if isinstance(node, dict) else None
    return given.partition("#")[0] if isinstance(given, str) else ""


def _at(root: Any, pointer: str) -> Any:
    """Return the value that a JSON pointer leads to; None for nothing."""
    found = root
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < _DIGITS:
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found
