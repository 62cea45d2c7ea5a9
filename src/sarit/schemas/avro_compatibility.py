"""Whether data of one Avro schema can be read with another: the specification's schema resolution (1.12).

A pair of a reader's type and a writer's is compared once, and is a claim (`claims.py`) that the one reads the other: it
rests on the pairs of what is inside, and if the reader has a union, on one of the pairs of its branches.

- Names of records, enums and fixed types match without their namespaces, or by an alias of the reader's type.
- Of logical types, the specification names decimals alone: both precision and scale must be equal where both have them.
  Milliseconds are read as microseconds without an objection, as every reader of Avro does.
- A reader's union reads what one of its branches reads, whichever stands first.

Paths are those of the reader's schema.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.schemas.avro_types import NAMED
from sarit.schemas.claims import Claim, reasons_of, resolve_claims
from sarit.schemas.limits import MAX_SCHEMA_STEPS
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.schemas.avro_types import AvroSchema, AvroType

# The writer's type -> types of readers that read it beside the same.
_PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}
_SYMBOLS_SHOWN: Final = 10
_PAIR_STEPS: Final = 5  # for a pair is kept, in half a kilobyte or more


def incompatibilities(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Return why data of the writer's schema cannot be read with the reader's: a path and a sentence each.

    At most `MAX_INCOMPATIBILITIES`; none if all can be read.  Raises Invalid for schemas that are too large together.
    """
    return reasons_of(_Resolution().resolve(reader.root, writer.root))


class _Resolution:
    """All pairs of types that two schemas lead to.  Internal."""

    def __init__(self) -> None:
        self._claims: dict[tuple[int, int], Claim] = {}
        self._left: list[tuple[Claim, AvroType, AvroType]] = []
        self._steps = 0
        self._branches: dict[int, dict[str, list[tuple[int, AvroType]]]] = {}
        self._fields: dict[int, dict[str, int]] = {}

    def resolve(self, reader: AvroType, writer: AvroType) -> Claim:
        """Return the claim that a reader's type reads a writer's, resolved."""
        first = self._claim(reader, writer)
        while self._left:
            self._compare(*self._left.pop())
        resolve_claims(self._claims.values())
        return first

    def _claim(self, reader: AvroType, writer: AvroType) -> Claim:
        key = id(reader), id(writer)
        found = self._claims.get(key)
        if found is None:
            self._count(_PAIR_STEPS)
            found = self._claims[key] = Claim()
            self._left.append((found, reader, writer))
        return found

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_SCHEMA_STEPS:
            raise Invalid("the schemas are too large to be compared: use fewer types, fields and aliases")

    def _compare(self, claim: Claim, reader: AvroType, writer: AvroType) -> None:
        if writer.kind == "union":
            for branch in writer.children:
                claim.need("", self._claim(reader, branch))
        elif reader.kind == "union":
            for index, branch in self._candidates(reader, writer):
                claim.choose(f"/{index}", self._claim(branch, writer))
            claim.none = f"no branch of the reader's union reads {_shape(writer)}"
            if not claim.any_of:
                claim.reasons.append(("", f"the union of the reader has no branch that reads {_shape(writer)}"))
        elif reader.kind != writer.kind:
            if reader.kind not in _PROMOTED.get(writer.kind, ()):
                claim.reasons.append(("", f"the reader has {_shape(reader)}, which does not read {_shape(writer)}"))
        else:
            self._compare_same(claim, reader, writer)

    def _candidates(self, union: AvroType, writer: AvroType) -> list[tuple[int, AvroType]]:
        """Return those branches that may read a type: by the name of a named type, or by the kind."""
        known = self._branches.get(id(union))
        if known is None:
            known = self._branches[id(union)] = {}
            for index, branch in enumerate(union.children):
                keys = {branch.kind} if branch.kind not in NAMED else {_short(branch.name), *branch.aliases}
                for key in keys:
                    known.setdefault(key, []).append((index, branch))
        keys = {_short(writer.name), writer.name} if writer.name else {writer.kind, *_PROMOTED.get(writer.kind, ())}
        found = {index: branch for key in keys for index, branch in known.get(key, ())}
        self._count(len(found))
        return sorted(found.items(), key=lambda item: item[0])

    def _compare_same(self, claim: Claim, reader: AvroType, writer: AvroType) -> None:
        """Compare two types of one kind, which is no union."""
        if reader.kind in NAMED and _short(reader.name) != _short(writer.name) and writer.name not in reader.aliases:
            why = f"the reader has the name {shown(reader.name)}, and the writer {shown(writer.name)}"
            claim.reasons.append(("/name", f"{why}: give the reader's an alias"))
            return
        if reader.decimal and writer.decimal and reader.decimal != writer.decimal:
            ours, theirs = (f"{digits} digits with {scale} of a fraction" for digits, scale in
                            (reader.decimal, writer.decimal))  # fmt: skip
            claim.reasons.append(("", f"the reader has decimals of {ours}, and the writer of {theirs}"))
        if reader.kind == "record":
            self._compare_fields(claim, reader, writer)
        elif reader.kind == "enum":
            self._count(len(writer.symbols))
            lacking = [one for one in writer.symbols if one not in reader.symbols]
            if lacking and reader.enum_default is None:
                some = ", ".join(map(shown, lacking[:_SYMBOLS_SHOWN])) + (", ..." if lacking[_SYMBOLS_SHOWN:] else "")
                claim.reasons.append(("/symbols", f"the reader's enum has neither {some} nor a default"))
        elif reader.kind == "fixed":
            if reader.size != writer.size:
                why = f"the reader has {reader.size:,} bytes, and the writer {writer.size:,}"
                claim.reasons.append(("/size", why))
        elif reader.kind in ("array", "map"):
            path = "/items" if reader.kind == "array" else "/values"
            claim.need(path, self._claim(reader.children[0], writer.children[0]))

    def _compare_fields(self, claim: Claim, reader: AvroType, writer: AvroType) -> None:
        theirs = self._fields.get(id(writer))
        if theirs is None:
            theirs = self._fields[id(writer)] = {one.name: index for index, one in enumerate(writer.fields)}
        for index, (one, child) in enumerate(zip(reader.fields, reader.children, strict=True)):
            self._count(1 + len(one.aliases))
            found = next((theirs[name] for name in (one.name, *one.aliases) if name in theirs), None)
            if found is not None:
                claim.need(f"/fields/{index}/type", self._claim(child, writer.children[found]))
            elif not one.has_default:
                why = f"the writer has no field {shown(one.name)}, and the reader has no default for it"
                claim.reasons.append((f"/fields/{index}", why))


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _shape(kind: AvroType) -> str:
    return f"{kind.kind} {shown(kind.name)}" if kind.name else kind.kind
