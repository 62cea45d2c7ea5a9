"""Whether data of one Avro schema can be read with another: the specification's schema resolution (1.12).

A pair of a reader's type and a writer's is compared once.  It has reasons of its own why the one does not read the
other, pairs that must all be readable, and, if the reader has a union, pairs of which one must be.  Every pair counts
as readable until a reason is found, and each reason is carried to the pairs that need the one it was found for: so
types within themselves need no assumption that may turn out wrong later.  Nothing recurses.

- Names of records, enums and fixed types match without their namespaces, or by an alias of the reader's type.
- Of logical types, the specification names decimals alone: both precision and scale must be equal where both have them.
  Milliseconds are read as microseconds without an objection, as every reader of Avro does.
- A reader's union reads what one of its branches reads, whichever stands first.

Paths are those of the reader's schema.  Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.schemas.avro_types import NAMED
from sarit.schemas.limits import MAX_INCOMPATIBILITIES, MAX_SCHEMA_STEPS
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
_PATH_SHOWN: Final = 400
_PAIR_STEPS: Final = 5  # for a pair is kept, in half a kilobyte or more


@dataclass(slots=True, eq=False, repr=False)
class _Pair:
    """A reader's type with a writer's.  `all_of`, `any_of`: paths from this one, and the pairs there.  Internal."""

    reader: AvroType
    writer: AvroType
    reasons: list[tuple[str, str]] = field(default_factory=list)
    all_of: list[tuple[str, _Pair]] = field(default_factory=list)
    any_of: list[tuple[str, _Pair]] = field(default_factory=list)
    needed_by: list[_Pair] = field(default_factory=list)
    chosen_by: list[_Pair] = field(default_factory=list)
    choices: int = 0  # of `any_of`, that are readable
    readable: bool = True


def incompatibilities(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Return why data of the writer's schema cannot be read with the reader's: a path and a sentence each.

    At most `MAX_INCOMPATIBILITIES`; none if all can be read.  Raises Invalid for schemas that are too large together.
    """
    resolution = _Resolution()
    first = resolution.resolve(reader.root, writer.root)
    return [] if first.readable else _reasons_of(first)


class _Resolution:
    """All pairs of types that two schemas lead to.  Internal."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._left: list[_Pair] = []
        self._steps = 0
        self._branches: dict[int, dict[str, list[tuple[int, AvroType]]]] = {}
        self._fields: dict[int, dict[str, int]] = {}

    def resolve(self, reader: AvroType, writer: AvroType) -> _Pair:
        """Return the pair of two types, with `readable` settled for all pairs that it leads to."""
        first = self._pair(reader, writer)
        while self._left:
            self._compare(self._left.pop())
        unreadable = [pair for pair in self._pairs.values() if pair.reasons]
        for pair in unreadable:
            pair.readable = False
        while unreadable:
            pair = unreadable.pop()
            for user in pair.chosen_by:
                user.choices -= 1
            for user in (*pair.needed_by, *(one for one in pair.chosen_by if not one.choices)):
                if user.readable:
                    user.readable = False
                    unreadable.append(user)
        return first

    def _pair(self, reader: AvroType, writer: AvroType) -> _Pair:
        key = id(reader), id(writer)
        found = self._pairs.get(key)
        if found is None:
            self._count(_PAIR_STEPS)
            found = self._pairs[key] = _Pair(reader, writer)
            self._left.append(found)
        return found

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_SCHEMA_STEPS:
            raise Invalid("the schemas are too large to be compared: use fewer types, fields and aliases")

    def _need(self, pair: _Pair, path: str, reader: AvroType, writer: AvroType) -> None:
        inner = self._pair(reader, writer)
        pair.all_of.append((path, inner))
        inner.needed_by.append(pair)

    def _compare(self, pair: _Pair) -> None:
        reader, writer = pair.reader, pair.writer
        if writer.kind == "union":
            for branch in writer.children:
                self._need(pair, "", reader, branch)
        elif reader.kind == "union":
            for index, branch in self._candidates(reader, writer):
                inner = self._pair(branch, writer)
                pair.any_of.append((f"/{index}", inner))
                inner.chosen_by.append(pair)
                pair.choices += 1
            if not pair.any_of:
                pair.reasons.append(("", f"the union of the reader has no branch that reads {_shape(writer)}"))
        elif reader.kind != writer.kind:
            if reader.kind not in _PROMOTED.get(writer.kind, ()):
                pair.reasons.append(("", f"the reader has {_shape(reader)}, which does not read {_shape(writer)}"))
        else:
            self._compare_same(pair)

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

    def _compare_same(self, pair: _Pair) -> None:
        """Compare two types of one kind, which is no union."""
        reader, writer = pair.reader, pair.writer
        if reader.kind in NAMED and _short(reader.name) != _short(writer.name) and writer.name not in reader.aliases:
            why = f"the reader has the name {shown(reader.name)}, and the writer {shown(writer.name)}"
            pair.reasons.append(("/name", f"{why}: give the reader's an alias"))
            return
        if reader.decimal and writer.decimal and reader.decimal != writer.decimal:
            ours, theirs = (f"{digits} digits with {scale} of a fraction" for digits, scale in
                            (reader.decimal, writer.decimal))  # fmt: skip
            pair.reasons.append(("", f"the reader has decimals of {ours}, and the writer of {theirs}"))
        if reader.kind == "record":
            self._compare_fields(pair)
        elif reader.kind == "enum":
            self._count(len(writer.symbols))
            lacking = [one for one in writer.symbols if one not in reader.symbols]
            if lacking and reader.enum_default is None:
                some = ", ".join(map(shown, lacking[:_SYMBOLS_SHOWN])) + (", ..." if lacking[_SYMBOLS_SHOWN:] else "")
                pair.reasons.append(("/symbols", f"the reader's enum has neither {some} nor a default"))
        elif reader.kind == "fixed":
            if reader.size != writer.size:
                why = f"the reader has {reader.size:,} bytes, and the writer {writer.size:,}"
                pair.reasons.append(("/size", why))
        elif reader.kind in ("array", "map"):
            path = "/items" if reader.kind == "array" else "/values"
            self._need(pair, path, reader.children[0], writer.children[0])

    def _compare_fields(self, pair: _Pair) -> None:
        reader, writer = pair.reader, pair.writer
        theirs = self._fields.get(id(writer))
        if theirs is None:
            theirs = self._fields[id(writer)] = {one.name: index for index, one in enumerate(writer.fields)}
        for index, (one, child) in enumerate(zip(reader.fields, reader.children, strict=True)):
            self._count(1 + len(one.aliases))
            found = next((theirs[name] for name in (one.name, *one.aliases) if name in theirs), None)
            if found is not None:
                self._need(pair, f"/fields/{index}/type", child, writer.children[found])
            elif not one.has_default:
                why = f"the writer has no field {shown(one.name)}, and the reader has no default for it"
                pair.reasons.append((f"/fields/{index}", why))


def _reasons_of(first: _Pair) -> list[str]:
    """Return the reasons of all pairs that make the first one unreadable, nearest first, each pair once."""
    found: list[str] = []
    seen = {id(first)}
    left = deque([("", first)])
    while left and len(found) < MAX_INCOMPATIBILITIES:
        path, pair = left.popleft()
        path = path if len(path) <= _PATH_SHOWN else f"...{path[-_PATH_SHOWN:]}"
        found += [f"{(path + place) or '/'}: {why}" for place, why in pair.reasons]
        inner = pair.all_of
        if pair.any_of and not pair.choices:
            # A branch that was reported is a type around this one.
            if any(id(one) not in seen for _, one in pair.any_of):
                found.append(f"{path or '/'}: no branch of the reader's union reads {_shape(pair.writer)}")
            inner = pair.any_of
        for place, one in inner:
            if not one.readable and id(one) not in seen:
                seen.add(id(one))
                left.append((path + place, one))
    assert found, "a pair is unreadable for a reason"
    return found[:MAX_INCOMPATIBILITIES]


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _shape(kind: AvroType) -> str:
    return f"{kind.kind} {shown(kind.name)}" if kind.name else kind.kind
