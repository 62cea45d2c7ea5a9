"""Texts of queries: parsed, and bound to the fields of a mapping.  Pure.

    error timeout             both words                    level:ERROR            a field has a value, or a word
    error OR timeout          one of them                   took:>=5  took:[1 TO 5}   bounds: [ ] with it, { } without
    -debug   NOT debug        events without the word       time:<2026-01-31       a time; a day stands for all of it
    "connection refused"      words that follow another     user:*                 the field has any value
    conn*                     a beginning of a word         level:(WARN OR ERROR)  several values of a field
    (a OR b) c                groups                        *                      every event

NOT binds closest, then AND, which is left out, then OR.  A word that has signs inside (`foo-bar`, `10.0.0.1`) is the
phrase of its parts.  A backslash takes a sign's meaning away, and so do double quotes.  Signs that stand alone are
ignored, so that a line of a log can be pasted.

`parse` knows no fields; `bind` makes of its result a query for the fields of one mapping.  In a query that `bind`
returns each `Not` is a part of an `And` that has a part which is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.nearest_names import nearest
from sarit.core.texts import cut_text
from sarit.search.analyzer import tokens
from sarit.search.field_values import keyword, number, time_of, time_span
from sarit.search.limits import MAX_QUERY_CHARACTERS, MAX_QUERY_DEPTH, MAX_QUERY_PARTS, MIN_PREFIX_CHARACTERS
from sarit.search.mapping import NO_FIELDS, Kind
from sarit.search.query import ALL_TEXT, And, Equals, Everything, Exists, Not, Or, Phrase, Prefix, Range, Term

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from sarit.search.mapping import Mapping
    from sarit.search.query import Query

_SHOWN_CHARACTERS: Final = 60
_NAMED_CHARACTERS: Final = 200
_NUMBER: Final = re.compile(r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,4})?", re.ASCII)
_WHOLE: Final = re.compile(r"\d{1,15}", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_WORD_ENDS: Final = frozenset('()"')
_BOUND_ENDS: Final = frozenset("]}")
NOTHING: Final = And((Everything(), Not(Everything())))


class Unknown(StrEnum):
    """Choices of what a field is that the mapping does not have: an error, or one that no event has."""

    REFUSE = "refuse"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class _Words:
    field: str
    place: int
    text: str


@dataclass(frozen=True, slots=True)
class _Beginning:
    field: str
    place: int
    text: str


@dataclass(frozen=True, slots=True)
class _Any:
    field: str
    place: int


@dataclass(frozen=True, slots=True)
class _Between:
    field: str
    place: int
    low: str | None
    high: str | None
    with_low: bool
    with_high: bool


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _OneOf:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Without:
    part: _Node


_Leaf: TypeAlias = _Words | _Beginning | _Any | _Between
_Node: TypeAlias = _Leaf | _All | _OneOf | _Without


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query whose fields are names.  `fields`: the names."""

    root: _Node
    fields: frozenset[str]


def parse(text: str) -> ParsedQuery:
    """Return the query that a text says.  Raises Invalid, with the place of the mistake."""
    if len(text) > MAX_QUERY_CHARACTERS:
        raise Invalid(f"the query has {len(text):,} characters, of at most {MAX_QUERY_CHARACTERS:,}: make it shorter")
    parser = _Parser(text)
    found = ParsedQuery(parser.query(), frozenset(parser.fields))
    # What is wrong whatever the fields are is an error already.
    _bound(found.root, {}, Unknown.NOTHING)
    return found


def fields_of(parsed: ParsedQuery) -> frozenset[str]:
    """Return the names of the fields in a query."""
    return parsed.fields


def bind(parsed: ParsedQuery, mapping: Mapping, *, unknown: Unknown | str = Unknown.REFUSE) -> Query:
    """Return a query for the fields of a mapping.  `unknown`: what is made of fields that the mapping does not have.

    Raises Invalid: a field is unknown, or a value is not of its kind."""
    found = _bound(parsed.root, {field.path: field.kind for field in mapping.fields}, Unknown(unknown))
    return And((Everything(), found)) if isinstance(found, Not) else found


def text_of_value(field: str, value: str) -> str:
    """Return the text of a query for the events whose field has a value, whatever signs are in either."""
    return f"{_in_quotes(field)}:{_in_quotes(value)}"


def parse_query(text: str, mapping: Mapping) -> Query:
    """Return the query that a text says, for the fields of a mapping.  Raises Invalid."""
    return bind(parse(text), mapping)


class _Parser:
    """A text that is parsed from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.fields: set[str] = set()
        self._text = text
        self._at = 0
        self._parts = 0

    def __repr__(self) -> str:
        return f"<_Parser at {self._at} of {len(self._text)}>"

    def query(self) -> _Node:
        """Return what the text says.  Raises Invalid."""
        self._skip_spaces()
        if self._at == len(self._text):
            raise Invalid("the query is empty: give words, or * for every event")
        found = self._one_of(ALL_TEXT, 0)
        if self._at < len(self._text):
            raise self._wrong(self._at, "there is a ) without its (: put it in double quotes if it is meant as text")
        if found is None:
            raise Invalid("the query has no word to search for, only signs: give a word")
        return found

    def _one_of(self, field: str, depth: int) -> _Node | None:
        parts = [self._all(field, depth)]
        while self._takes("OR"):
            parts.append(self._all(field, depth))
        left = tuple(part for part in parts if part is not None)
        return _OneOf(left) if len(left) > 1 else left[0] if left else None

    def _all(self, field: str, depth: int) -> _Node | None:
        parts = [self._without(field, depth)]
        while self._is_more():
            self._takes("AND")
            parts.append(self._without(field, depth))
        left = tuple(part for part in parts if part is not None)
        return _All(left) if len(left) > 1 else left[0] if left else None

    def _is_more(self) -> bool:
        self._skip_spaces()
        return self._at < len(self._text) and self._text[self._at] != ")" and not self._is_at("OR")

    def _without(self, field: str, depth: int) -> _Node | None:
        negative = False
        while True:
            if self._takes("NOT") or self._is_minus():
                negative = not negative
                continue
            part = self._primary(field, depth)
            return part if part is None or not negative else _Without(part)

    def _is_minus(self) -> bool:
        """Go past a minus that stands before something; return whether there was one."""
        rest = self._text[self._at : self._at + 2]
        if len(rest) == 2 and rest[0] == "-" and not rest[1].isspace() and rest[1] != ")":
            self._at += 1
            return True
        return False

    def _primary(self, field: str, depth: int) -> _Node | None:
        self._skip_spaces()
        begin = self._at
        if begin == len(self._text) or self._text[begin] == ")":
            raise self._wrong(begin, "a word is missing: after OR, AND or NOT, or at the begin of a group")
        for operator in ("OR", "AND"):
            if self._is_at(operator):
                raise self._wrong(begin, f'a word is missing before {operator}: put "{operator}" in quotes as a text')
        sign = self._text[begin]
        if sign == "(":
            return self._group(field, depth)
        if field:
            return self._value(field)
        if sign == '"':
            text = self._quoted()
            if not self._is_sign(":"):
                return self._words(ALL_TEXT, begin, text)
            self._at += 1
            return self._field(text, begin, depth)
        text, star = self._bare(stops_at_colon=True)
        if self._is_sign(":") and text and not star:
            self._at += 1
            return self._field(text, begin, depth)
        return self._word(ALL_TEXT, begin, text, star)

    def _group(self, field: str, depth: int) -> _Node | None:
        begin = self._at
        self._at += 1
        self._skip_spaces()
        found = None
        if not self._is_sign(")"):
            found = self._one_of(field, self._deeper(depth))
        if not self._is_sign(")"):
            raise self._wrong(begin, "the ( has no ): close it, or put the text in double quotes")
        self._at += 1
        return found

    def _field(self, name: str, begin: int, depth: int) -> _Node | None:
        if not name:
            raise self._wrong(begin, "the name of a field is missing before the colon")
        self.fields.add(name)
        if self._at == len(self._text) or self._text[self._at].isspace() or self._text[self._at] == ")":
            raise self._wrong(begin, f"a value is missing right after {_shown(name)}: (a text with a colon needs "
                              "double quotes)")  # fmt: skip
        if self._text[self._at] == "(":
            return self._group(name, depth)
        return self._value(name)

    def _value(self, field: str) -> _Node | None:
        """Return what is said of a field right here."""
        begin, sign = self._at, self._text[self._at]
        if sign in "[{":
            return self._range(field)
        if sign in "<>":
            return self._comparison(field)
        if sign == '"':
            return self._words(field, begin, self._quoted())
        return self._word(field, begin, *self._bare())

    def _range(self, field: str) -> _Node:
        begin = self._at
        with_low = self._text[begin] == "["
        self._at += 1
        low = self._bound()
        if not self._takes("TO"):
            raise self._wrong(
                begin, "a range has the form [1 TO 5], with * for no bound and } for one that is left out"
            )
        high = self._bound()
        self._skip_spaces()
        if self._at == len(self._text) or self._text[self._at] not in "]}":
            raise self._wrong(begin, "a range has no end: close it with ] or }")
        with_high = self._text[self._at] == "]"
        self._at += 1
        self._count(1)
        return _Between(field, begin, low, high, with_low, with_high)

    def _bound(self) -> str | None:
        self._skip_spaces()
        if self._is_sign('"'):
            return self._quoted()
        begin = self._at
        while self._at < len(self._text) and not self._ends(_BOUND_ENDS):
            self._at += 1
        found = self._text[begin : self._at]
        if not found:
            raise self._wrong(begin, "a bound of a range is missing: give a value, or * for none")
        return None if found == "*" else found

    def _comparison(self, field: str) -> _Node:
        begin, sign = self._at, self._text[self._at]
        self._at += 1
        equal = self._is_sign("=")
        self._at += equal
        text = self._quoted() if self._is_sign('"') else self._bare()[0]
        if not text:
            raise self._wrong(begin, f"a value is missing right after {sign}{'=' if equal else ''}")
        self._count(1)
        if sign == ">":
            return _Between(field, begin, text, None, equal, True)
        return _Between(field, begin, None, text, True, equal)

    def _quoted(self) -> str:
        begin = self._at
        self._at += 1
        found = []
        while self._at < len(self._text) and self._text[self._at] != '"':
            self._at += self._text[self._at] == "\\" and self._at + 1 < len(self._text)
            found.append(self._text[self._at])
            self._at += 1
        if self._at == len(self._text):
            raise self._wrong(begin, 'the " has no end: close it, or write \\" for the sign itself')
        self._at += 1
        return "".join(found)

    def _bare(self, *, stops_at_colon: bool = False) -> tuple[str, bool]:
        """Return a word as it stands here, and whether a star ends it.  Raises Invalid: a star is inside of it."""
        found: list[str] = []
        star = -1
        while self._at < len(self._text) and not self._ends(_WORD_ENDS):
            sign = self._text[self._at]
            if sign == ":" and stops_at_colon and found:
                break
            if sign == "\\" and self._at + 1 < len(self._text):
                self._at += 1
                sign = self._text[self._at]
            elif sign == "*":
                star = self._at if star < 0 else star
            found.append(sign)
            self._at += 1
        if star < 0:
            return "".join(found), False
        if star != self._at - 1:
            raise self._wrong(
                star, "a star stands at the end of a word only: `begin*`; as a text it needs double quotes"
            )
        return "".join(found[:-1]), True

    def _word(self, field: str, begin: int, text: str, star: bool) -> _Node | None:
        if not star:
            return self._words(field, begin, text)
        self._count(1)
        return _Beginning(field, begin, text) if text else _Any(field, begin)

    def _words(self, field: str, begin: int, text: str) -> _Node | None:
        found = len(tokens(text))
        self._count(max(found, 1))
        return None if not found and not field else _Words(field, begin, text)

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MAX_QUERY_PARTS:
            raise Invalid(f"the query has more than {MAX_QUERY_PARTS} words and ranges: make it smaller")

    def _deeper(self, depth: int) -> int:
        if depth == MAX_QUERY_DEPTH:
            raise self._wrong(self._at, f"more than {MAX_QUERY_DEPTH} groups are inside of one another")
        return depth + 1

    def _skip_spaces(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _ends(self, signs: frozenset[str]) -> bool:
        sign = self._text[self._at]
        return sign in signs or sign.isspace()

    def _is_sign(self, sign: str) -> bool:
        return self._text.startswith(sign, self._at)

    def _is_at(self, operator: str) -> bool:
        end = self._at + len(operator)
        return self._text.startswith(operator, self._at) and (
            end == len(self._text) or self._text[end] in _WORD_ENDS or self._text[end].isspace()
        )

    def _takes(self, operator: str) -> bool:
        """Go past an operator if there is one here; return whether there was."""
        self._skip_spaces()
        if not self._is_at(operator):
            return False
        self._at += len(operator)
        return True

    def _wrong(self, at: int, why: str) -> Invalid:
        return Invalid(f"the query, at character {at + 1}: {why}")


# -- binding --------------------------------------------------------------------------------------


def _bound(node: _Node, kinds: dict[str, Kind], unknown: Unknown) -> Query:
    if isinstance(node, _All):
        return _and(_bound(part, kinds, unknown) for part in node.parts)
    if isinstance(node, _OneOf):
        return _or(_bound(part, kinds, unknown) for part in node.parts)
    if isinstance(node, _Without):
        return _not(_bound(node.part, kinds, unknown))
    kind = Kind.TEXT
    if node.field != ALL_TEXT:
        if node.field not in kinds:
            if unknown is Unknown.NOTHING:
                return NOTHING
            raise _unknown_field(node.field, kinds)
        kind = kinds[node.field]
    if isinstance(node, _Any):
        return Everything() if node.field == ALL_TEXT else Exists(node.field)
    if isinstance(node, _Beginning):
        return _prefix(node, kind)
    return _equal(node, kind) if isinstance(node, _Words) else _range(node, kind)


def _and(parts: Iterable[Query]) -> Query:
    found: dict[Query, None] = {}
    for part in parts:
        if part == NOTHING:
            return NOTHING
        found.update(dict.fromkeys(part.parts if isinstance(part, And) else (part,)))
    found.pop(Everything(), None)
    if not found:
        return Everything()
    if all(isinstance(part, Not) for part in found):
        return And((Everything(), *found))
    return And(tuple(found)) if len(found) > 1 else next(iter(found))


def _or(parts: Iterable[Query]) -> Query:
    found: dict[Query, None] = {}
    for part in parts:
        if part == Everything():
            return part
        if isinstance(part, Not):
            part = And((Everything(), part))
        found.update(dict.fromkeys(part.parts if isinstance(part, Or) else (part,)))
    found.pop(NOTHING, None)
    if not found:
        return NOTHING
    return Or(tuple(found)) if len(found) > 1 else next(iter(found))


def _not(part: Query) -> Query:
    if part == NOTHING:
        return Everything()
    if part == Everything():
        return NOTHING
    return part.part if isinstance(part, Not) else Not(part)


def _equal(node: _Words, kind: Kind) -> Query:
    if kind is Kind.TEXT:
        words = tokens(node.text)
        if not words:
            raise _wrong_value(node, node.text, "has no word to search for")
        return Term(node.field, words[0]) if len(words) == 1 else Phrase(node.field, tuple(words))
    if kind is Kind.KEYWORD:
        return Equals(node.field, keyword(node.text))
    if kind is Kind.NUMBER:
        return Equals(node.field, _number(node, node.text))
    if kind is Kind.TIME:
        begin, end = _time(node, node.text)
        return Equals(node.field, begin) if end == begin + 1 else Range(node.field, begin, end, True, False)
    found = _BOOLEANS.get(node.text.lower())
    if found is None:
        raise _wrong_value(node, node.text, "is neither true nor false")
    return Equals(node.field, found)


def _prefix(node: _Beginning, kind: Kind) -> Query:
    beginning = node.text
    if kind is Kind.TEXT:
        words = tokens(node.text)
        if len(words) != 1:
            raise _wrong_value(node, node.text, "and a star: it has to be one word of letters and digits")
        beginning = words[0]
    elif kind is Kind.KEYWORD:
        beginning = keyword(node.text)
    else:
        raise _wrong_value(node, node.text, f"and a star: the field is a {kind}, which has no beginnings")
    if len(beginning) < MIN_PREFIX_CHARACTERS:
        raise _wrong_value(node, node.text, f"and a star: give at least {MIN_PREFIX_CHARACTERS} characters before it")
    return Prefix(node.field, beginning)


def _range(node: _Between, kind: Kind) -> Query:
    if node.low is None and node.high is None:
        return Exists(node.field)
    if kind is Kind.NUMBER:
        low = None if node.low is None else _number(node, node.low)
        high = None if node.high is None else _number(node, node.high)
        return Range(node.field, low, high, node.with_low, node.with_high)
    if kind is Kind.TIME:
        # A time that stands for a day, a minute or a second is before, in, or after all of it.
        begin = None if node.low is None else _time(node, node.low)[0 if node.with_low else 1]
        end = None if node.high is None else _time(node, node.high)[1 if node.with_high else 0]
        return Range(node.field, begin, end, True, False)
    if kind is Kind.KEYWORD:
        words = [None if bound is None else keyword(bound) for bound in (node.low, node.high)]
        return Range(node.field, words[0], words[1], node.with_low, node.with_high)
    raise Invalid(f"the query, at character {node.place + 1}: the field {_shown(node.field)} is a {kind}, which has no "
                  "ranges")  # fmt: skip


def _number(node: _Leaf, text: str) -> float:
    found = number(float(text)) if _NUMBER.fullmatch(text) else None
    if found is None:
        raise _wrong_value(node, text, "is no number")
    return found


def _time(node: _Leaf, text: str) -> tuple[int, int]:
    span = time_span(text)
    if span is None and _WHOLE.fullmatch(text) and (found := time_of(int(text))) is not None:
        span = found, found + 1
    if span is None:
        raise _wrong_value(
            node, text, "is no time: give ISO 8601 (2026-01-31, 2026-01-31T12:00:00Z) or milliseconds since 1970"
        )
    return span


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _wrong_value(node: _Leaf, text: str, why: str) -> Invalid:
    of_field = f" of the field {_shown(node.field)}" if node.field else ""
    return Invalid(f'the query, at character {node.place + 1}: "{_shown(text)}"{of_field} {why}')


def _unknown_field(name: str, kinds: dict[str, Kind]) -> Invalid:
    there = nearest(name, kinds) if kinds else NO_FIELDS
    return Invalid(
        f"the query: there is no field {_shown(name)}: {_shown(there, _NAMED_CHARACTERS)}; a text with a colon needs "
        "double quotes"
    )


def _shown(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    cut = cut_text(text, most)
    return "".join(sign if sign.isprintable() else "?" for sign in cut)


__all__ = ["NOTHING", "ParsedQuery", "Unknown", "bind", "fields_of", "parse", "parse_query", "text_of_value"]
