"""What is searched for: a query, bound to the fields of a mapping.  Pure values.

A query is evaluated in two ways which have to agree: on the documents of a batch (`batch_index.py`: scans and
continuous queries), and on the shards of an index (`tantivy_shards.py`).  `query_parser.py` makes them from text.

`field`: the path of a field of the mapping; ALL_TEXT: every text of an event.  Tokens and values are already in the
form in which documents have them (`analyzer.py`, `mapping.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

ALL_TEXT: Final = ""

# A value of a keyword (str), a number (float), a time (int, milliseconds since 1970), or a boolean.
Value: TypeAlias = str | float | int | bool


@dataclass(frozen=True, slots=True)
class Everything:
    """Every event."""


@dataclass(frozen=True, slots=True)
class Term:
    """Events with a token in a text."""

    field: str
    token: str


@dataclass(frozen=True, slots=True)
class Phrase:
    """Events with tokens that follow one another in one text.  At least two."""

    field: str
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """Events with a token in a text, or a keyword, that begins with some letters."""

    field: str
    beginning: str


@dataclass(frozen=True, slots=True)
class Equals:
    """Events with a value in a field that is no text."""

    field: str
    value: Value


@dataclass(frozen=True, slots=True)
class Range:
    """Events with a value between two bounds in a field of numbers, times or keywords.  None: without a bound."""

    field: str
    low: Value | None
    high: Value | None
    with_low: bool = True
    with_high: bool = True


@dataclass(frozen=True, slots=True)
class Exists:
    """Events that have a value, or a token, in a field."""

    field: str


@dataclass(frozen=True, slots=True)
class And:
    """Events that match all parts.  At least two."""

    parts: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Events that match one part at least.  At least two."""

    parts: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Events that do not match a part."""

    part: Query


Query: TypeAlias = Everything | Term | Phrase | Prefix | Equals | Range | Exists | And | Or | Not
