"""Avro schemas as graphs of types, parsed from texts of others with their references.

A schema may use named types that other texts define: its references.  All texts share one table of names.  The
references are parsed first; a use of a name that no text before has defined is resolved when all are parsed, and so are
the checks that need whole types: of unions, of defaults, and of circles of references.

A named type within itself makes the graph cyclic, and named types may use each other in a chain of any length: only
what follows the JSON of one text may recurse, since its levels are bounded.

As Apache's Java library, and beyond the specification, a name without dots that its namespace lacks may be one
outside of all namespaces: Java prints such names so.  Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.schemas.avro_defaults import DefaultChecker
from sarit.schemas.avro_types import NAMED, PRIMITIVES, AvroField, AvroSchema, AvroType, is_integer
from sarit.schemas.limits import MAX_FIXED_BYTES, MAX_SCHEMA_NAMES, MAX_SCHEMA_REFERENCES
from sarit.schemas.schema_text import check_sizes, parse_schema_json, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_ORDERS: Final = ("ascending", "descending", "ignore")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
# Attributes that a type or a field has a place for; all others are its properties.
_TYPE_ATTRIBUTES: Final = frozenset(
    ("type", "name", "namespace", "aliases", "fields", "symbols", "items", "values", "size")
)
_FIELD_ATTRIBUTES: Final = frozenset(("name", "type", "aliases"))


def parse_avro(text: str, references: Mapping[str, str] | None = None) -> AvroSchema:
    """Return the schema of a text.  `references`: name -> text of each schema that defines types which others use.

    Raises Invalid for what the specification does not allow, for circles of references, and beyond the bounds."""
    given = references or {}
    if len(given) > MAX_SCHEMA_REFERENCES:
        raise Invalid(f"a schema has at most {MAX_SCHEMA_REFERENCES} references")
    check_sizes([text, *given.values()])
    parser = _Parser()
    for number, (name, one) in enumerate(given.items(), 1):
        parser.add(one, f"reference {number}, {shown(name)}")
    parser.resolve()
    referred = frozenset(parser.names)
    root = parser.add(text, "the Avro schema")
    parser.resolve()
    parser.check()
    for name in given:
        if name not in referred:
            raise Invalid(f"no reference defines {shown(name)}: a reference has the full name of the type it defines")
    return AvroSchema(root, referred)


class _Parser:
    """The types of several texts, while they are parsed.  Internal."""

    def __init__(self) -> None:
        self.names: dict[str, AvroType] = {}
        self._defined_by: dict[str, str] = {}
        self._what = ""
        self._uses: dict[str, set[str]] = {}  # of a text: those whose names it uses
        self._later: list[tuple[list[AvroType], int, tuple[str, ...], str, str]] = []
        self._unions: list[tuple[AvroType, str]] = []
        self._defaults: list[tuple[AvroType, int, str]] = []

    def add(self, text: str, what: str) -> AvroType:
        """Parse one more text, which may use names of all before."""
        self._what = what
        self._uses[what] = set()
        top: list[AvroType] = []
        self._child(top, parse_schema_json(text, what), "", "")
        return top[0]

    def resolve(self) -> None:
        """Find the types of names that were used before the texts that define them were parsed."""
        for children, index, names, what, where in self._later:
            found = next((name for name in names if name in self.names), None)
            if found is None:
                self._what = what
                raise self._wrong(where, f"no type has the name {shown(names[0])}")
            if self._defined_by[found] == what:
                self._what = what
                raise self._wrong(where, f"{shown(found)} is used before it is defined")
            children[index] = self.names[found]
            self._uses[what].add(self._defined_by[found])
        self._later = []

    def check(self) -> None:
        """Check what needs whole types."""
        self._check_circles()
        for union, where in self._unions:
            _check_union(union, where)
        defaults = DefaultChecker()
        for record, index, where in self._defaults:
            one = record.fields[index]
            if not defaults.fits(one.properties["default"], record.children[index]):
                shape = record.children[index].name or record.children[index].kind
                raise Invalid(f"{where}: the default {shown(one.properties['default'])} is no {shown(shape)}")

    def _check_circles(self) -> None:
        left = {what: set(uses) for what, uses in self._uses.items()}
        users: dict[str, list[str]] = {}
        for what, uses in left.items():
            for used in uses:
                users.setdefault(used, []).append(what)
        ready = [what for what, uses in left.items() if not uses]
        while ready:
            done = ready.pop()
            del left[done]
            for user in users.get(done, ()):
                left[user].discard(done)
                if not left[user]:
                    ready.append(user)
        if left:
            raise Invalid(f"{', '.join(sorted(left)[:10])}: these schemas refer to each other in a circle")

    def _wrong(self, where: str, why: str) -> Invalid:
        return Invalid(f"{self._what}, {shown(where or '/')}: {why}")

    def _child(self, children: list[AvroType], given: Any, namespace: str, where: str) -> None:
        """Append the type that the JSON `given` defines or names."""
        if isinstance(given, str):
            self._use(children, given, namespace, where)
        elif isinstance(given, list):
            union = AvroType("union")
            children.append(union)
            for index, one in enumerate(given):
                self._child(union.children, one, namespace, f"{where}/{index}")
            self._unions.append((union, f"{self._what}, {shown(where or '/')}"))
        elif isinstance(given, dict):
            self._object(children, given, namespace, where)
        else:
            raise self._wrong(where, f"{shown(given)} is no type: write a name, an object or a union of types")

    def _use(self, children: list[AvroType], name: str, namespace: str, where: str) -> None:
        if name in PRIMITIVES:
            children.append(AvroType(name))
            return
        if not _FULL_NAME.fullmatch(name):
            raise self._wrong(where, f"{shown(name)} is no name of a type")
        names = (f"{namespace}.{name}", name) if namespace and "." not in name else (name,)
        for one in names:
            if one in self.names:
                children.append(self.names[one])
                if self._defined_by[one] != self._what:
                    self._uses[self._what].add(self._defined_by[one])
                return
        self._later.append((children, len(children), names, self._what, where))
        children.append(AvroType("null"))

    def _object(self, children: list[AvroType], given: dict[str, Any], namespace: str, where: str) -> None:
        kind = given.get("type")
        if kind is None:
            raise self._wrong(where, "an object that defines a type has an attribute `type`")
        if not isinstance(kind, str) or kind not in PRIMITIVES | NAMED | {"array", "map"}:
            # A type in an object of its own, which has nothing to add to a type that is defined elsewhere.
            if len(given) > 1:
                raise self._wrong(where, f"a type of the kind {shown(kind)} has no attributes beside `type`")
            self._child(children, kind, namespace, f"{where}/type")
            return
        properties = {name: value for name, value in given.items() if name not in _TYPE_ATTRIBUTES}
        made = AvroType(kind, properties)
        children.append(made)
        if kind in NAMED:
            namespace = self._define(made, given, namespace, where)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            if inner not in given:
                raise self._wrong(where, f"{kind} has no attribute `{inner}`")
            self._child(made.children, given[inner], namespace, f"{where}/{inner}")
        elif kind == "record":
            self._fields(made, given.get("fields"), namespace, where)
        elif kind == "enum":
            self._symbols(made, given.get("symbols"), where)
        elif kind == "fixed":
            size = given.get("size")
            if not is_integer(size) or not 0 <= size <= MAX_FIXED_BYTES:
                raise self._wrong(where, f"the size of a fixed type is 0 to {MAX_FIXED_BYTES:,} bytes")
            made.size = size

    def _define(self, made: AvroType, given: dict[str, Any], namespace: str, where: str) -> str:
        """Name a type, and return the namespace of what is inside."""
        name, own = given.get("name"), given.get("namespace", namespace)
        if not isinstance(name, str) or not _FULL_NAME.fullmatch(name):
            raise self._wrong(where, f"{shown(name)} is no name: letters, digits and _, with dots between")
        if "." not in name:
            if not isinstance(own, str) or not (own == "" or _FULL_NAME.fullmatch(own)):
                raise self._wrong(where, f"{shown(own)} is no namespace: letters, digits and _, with dots between")
            name = f"{own}.{name}" if own else name
        if name.rpartition(".")[2] in PRIMITIVES:
            raise self._wrong(where, f"{shown(name)}: no type has the name of a primitive type")
        if name in self.names:
            raise self._wrong(where, f"{shown(name)} is defined twice")
        if len(self.names) >= MAX_SCHEMA_NAMES:
            raise self._wrong(where, f"a schema and its references have at most {MAX_SCHEMA_NAMES:,} named types")
        made.name = name
        inside = name.rpartition(".")[0]
        aliases = self._names(given.get("aliases", []), _FULL_NAME, where)
        made.aliases = dict.fromkeys(f"{inside}.{one}" if inside and "." not in one else one for one in aliases)
        self.names[name] = made
        self._defined_by[name] = self._what
        return inside

    def _names(self, given: Any, pattern: re.Pattern[str], where: str) -> tuple[str, ...]:
        if not isinstance(given, list) or not all(isinstance(one, str) and pattern.fullmatch(one) for one in given):
            raise self._wrong(where, f"{shown(given)} is no array of names: letters, digits and _")
        return tuple(given)

    def _symbols(self, made: AvroType, given: Any, where: str) -> None:
        made.symbols = dict.fromkeys(self._names(given, _NAME, where))
        if len(made.symbols) < len(given):
            raise self._wrong(where, "an enum has one of its symbols twice")
        default = made.properties.get("default", next(iter(made.symbols), None))
        if default is not None and not (isinstance(default, str) and default in made.symbols):
            raise self._wrong(where, f"the default {shown(default)} is no symbol of the enum")

    def _fields(self, made: AvroType, given: Any, namespace: str, where: str) -> None:
        if not isinstance(given, list):
            raise self._wrong(where, "a record has an array `fields`")
        names = set()
        for index, one in enumerate(given):
            place = f"{where}/fields/{index}"
            if not isinstance(one, dict) or "type" not in one:
                raise self._wrong(place, "a field is an object with `name` and `type`")
            (name,) = self._names([one.get("name")], _NAME, place)
            if name in names:
                raise self._wrong(place, f"a record has the field {shown(name)} twice")
            names.add(name)
            if "order" in one and one["order"] not in _ORDERS:
                raise self._wrong(place, f"the order of a field is one of {', '.join(_ORDERS)}")
            properties = {key: value for key, value in one.items() if key not in _FIELD_ATTRIBUTES}
            made.fields.append(AvroField(name, self._names(one.get("aliases", []), _NAME, place), properties))
            self._child(made.children, one["type"], namespace, f"{place}/type")
            if "default" in one:
                self._defaults.append((made, index, f"{self._what}, {shown(place)}"))


def _check_union(union: AvroType, where: str) -> None:
    seen = set()
    for branch in union.children:
        if branch.kind == "union":
            raise Invalid(f"{where}: a union stands directly in a union")
        key = branch.name or branch.kind
        if key in seen:
            raise Invalid(f"{where}: a union has {shown(key)} twice")
        seen.add(key)
