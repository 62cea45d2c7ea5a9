"""An index of a batch of documents in memory, which says of a query which of them match.  Pure.

A set of documents is an integer with one bit a document: the lowest one is the first document's.  Bits of a token, and
the sorted values of a field, are made when a query first asks for them, and kept.  Building takes the tokens of the
batch once; a query of a few words costs a few operations on such integers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sarit.search.query import And, Equals, Everything, Exists, Not, Or, Phrase, Prefix, Range, Term

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sarit.search.documents import Document
    from sarit.search.query import Query

_FEW: Final = 8


class BatchIndex:
    """The documents of a batch, indexed."""

    def __init__(self, documents: Sequence[Document], wanted: Mapping[str, AbstractSet[str]] | None = None) -> None:
        """`wanted`: of each text the tokens that queries will ask for (`wanted_tokens`), so that no others are kept;
        queries for others, and for prefixes, have the right answer, too, and cost more."""
        self._documents = documents
        self._wanted = wanted
        self._everything = (1 << len(documents)) - 1
        # By field: token -> places of documents, ascending; and (field, token) -> bits.
        self._postings: dict[str, dict[str, list[int]]] = {}
        self._complete: dict[str, dict[str, list[int]]] = {}
        self._sorted_tokens: dict[str, list[str]] = {}
        self._bits: dict[tuple[str, str], int] = {}
        self._prefixes: dict[tuple[str, str], int] = {}
        self._existing: dict[str, int] = {}
        self._equals: dict[tuple[str, Any], int] = {}
        self._keywords: dict[str, dict[str, list[int]]] = {}
        self._values: dict[str, tuple[list[Any], list[int]]] = {}

    def __repr__(self) -> str:
        return f"<BatchIndex of {len(self._documents)} documents>"

    def match(self, query: Query) -> int:
        """Return the documents that match, as bits."""
        return self._match(query, self._everything)

    def tokens(self, field: str) -> Iterable[str]:
        """Return the tokens that a text has in the batch: of the wanted ones, if some were."""
        return self._postings_of(field).keys()

    def keywords(self, field: str) -> Iterable[str]:
        """Return the values that a keyword has in the batch."""
        return self._keywords_of(field).keys()

    def _match(self, query: Query, within: int) -> int:
        """Return which documents of some match."""
        kind = type(query)
        if kind is Term:
            return self._term(query.field, query.token) & within  # type: ignore[union-attr]
        if kind is And:
            for part in query.parts:  # type: ignore[union-attr]
                within = self._match(part, within)
                if not within:
                    return 0
            return within
        if isinstance(query, Or):
            found = 0
            for part in query.parts:
                found |= self._match(part, within & ~found)
            return found
        if isinstance(query, Not):
            return within & ~self._match(query.part, within)
        if isinstance(query, Phrase):
            return self._phrase(query, within)
        return within & self._leaf(query)

    def _leaf(self, query: Query) -> int:
        if isinstance(query, Prefix):
            return self._prefix(query.field, query.beginning)
        if isinstance(query, Equals):
            return self._equal(query.field, query.value)
        if isinstance(query, Range):
            return self._range(query.field, query.low, query.high, query.with_low, query.with_high)
        if isinstance(query, Exists):
            return self._exists(query.field)
        assert isinstance(query, Everything), query
        return self._everything

    def _equal(self, field: str, value: Any) -> int:
        key = (field, value)
        found = self._equals.get(key)
        if found is None:
            if isinstance(value, str):
                found = self._set(self._keywords_of(field).get(value, ()))
            else:
                found = self._range(field, value, value, True, True)
            self._equals[key] = found
        return found

    def _term(self, field: str, token: str) -> int:
        key = (field, token)
        found = self._bits.get(key)
        if found is None:
            places = self._postings_of(field).get(token)
            if places is None and self._wanted is not None and token not in self._wanted.get(field, ()):
                places = self._complete_of(field).get(token)
            found = self._bits[key] = 0 if places is None else self._set(places)
        return found

    def _phrase(self, query: Phrase, within: int) -> int:
        field = query.field
        for token in query.tokens:
            within &= self._term(field, token)
            if not within:
                return 0
        # The search for a substring takes linear time, whatever is repeated in the text and in the phrase.
        phrase = f" {' '.join(query.tokens)} "
        return self._set(
            [
                place
                for place in places(within)
                if any(phrase in f" {' '.join(value)} " for value in self._documents[place].texts[field])
            ]
        )

    def _prefix(self, field: str, beginning: str) -> int:
        key = (field, beginning)
        found = self._prefixes.get(key)
        if found is None:
            postings = self._complete_of(field)
            if field not in self._sorted_tokens:
                self._sorted_tokens[field] = sorted(postings)
            ordered = self._sorted_tokens[field]
            matching: list[int] = []
            for token in islice(ordered, bisect_left(ordered, beginning), None):
                if not token.startswith(beginning):
                    break
                matching += postings[token]
            values, owners = self._values_of(field)
            if values and isinstance(values[0], str):
                for at in range(bisect_left(values, beginning), len(values)):
                    if not values[at].startswith(beginning):
                        break
                    matching.append(owners[at])
            found = self._prefixes[key] = self._set(matching)
        return found

    def _range(self, field: str, low: Any, high: Any, with_low: bool, with_high: bool) -> int:
        values, owners = self._values_of(field)
        begin, end = 0, len(values)
        if low is not None:
            begin = (bisect_left if with_low else bisect_right)(values, low)
        if high is not None:
            end = (bisect_right if with_high else bisect_left)(values, high)
        return self._set(owners[begin:end])

    def _exists(self, field: str) -> int:
        found = self._existing.get(field)
        if found is None:
            with_text = [at for at, document in enumerate(self._documents) if any(document.texts.get(field, ()))]
            found = self._existing[field] = self._set(self._values_of(field)[1]) | self._set(with_text)
        return found

    def _set(self, places: Sequence[int]) -> int:
        """Return places as bits."""
        if len(places) <= _FEW:
            found = 0
            for place in places:
                found |= 1 << place
            return found
        bits = bytearray(len(self._documents) // 8 + 1)
        for place in places:
            bits[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(bits, "little")

    def _postings_of(self, field: str) -> dict[str, list[int]]:
        if self._wanted is None:
            return self._complete_of(field)
        found = self._postings.get(field)
        if found is None:
            wanted = frozenset(self._wanted.get(field, ()))
            found = self._postings[field] = self._build(field, wanted) if wanted else {}
        return found

    def _complete_of(self, field: str) -> dict[str, list[int]]:
        found = self._complete.get(field)
        if found is None:
            found = self._complete[field] = self._build(field, None)
        return found

    def _keywords_of(self, field: str) -> dict[str, list[int]]:
        found = self._keywords.get(field)
        if found is None:
            found = self._keywords[field] = {}
            for place, document in enumerate(self._documents):
                for value in document.keywords.get(field, ()):
                    found.setdefault(value, []).append(place)
        return found

    def _build(self, field: str, wanted: frozenset[str] | None) -> dict[str, list[int]]:
        made: dict[str, list[int]] = {}
        for place, document in enumerate(self._documents):
            values = document.texts.get(field)
            if not values:
                continue
            found = set(values[0]) if len(values) == 1 else set().union(*values)
            for token in found if wanted is None else wanted & found:
                if token in made:
                    made[token].append(place)
                else:
                    made[token] = [place]
        return made

    def _values_of(self, field: str) -> tuple[list[Any], list[int]]:
        """Return the values of a field that is no text, sorted, and the document of each."""
        found = self._values.get(field)
        if found is None:
            pairs = sorted(self._pairs(field))
            found = self._values[field] = [value for value, _ in pairs], [place for _, place in pairs]
        return found

    def _pairs(self, field: str) -> Iterator[tuple[Any, int]]:
        for place, document in enumerate(self._documents):
            for values in (document.keywords, document.numbers, document.times, document.booleans):
                for value in values.get(field, ()):
                    yield value, place


def places(bits: int) -> list[int]:
    """Return the places of the documents that a set of bits has, ascending."""
    if bits.bit_count() <= _FEW:
        found = []
        while bits:
            lowest = bits & -bits
            found.append(lowest.bit_length() - 1)
            bits ^= lowest
        return found
    digits = bin(bits)[:1:-1]
    return [at for at, digit in enumerate(digits) if digit == "1"]


def wanted_tokens(queries: Iterable[Query]) -> dict[str, set[str]]:
    """Return of each text the tokens that queries ask for."""
    found: dict[str, set[str]] = {}
    stack: list[Query] = list(queries)
    while stack:
        query = stack.pop()
        if isinstance(query, Term):
            found.setdefault(query.field, set()).add(query.token)
        elif isinstance(query, Phrase):
            found.setdefault(query.field, set()).update(query.tokens)
        elif isinstance(query, And | Or):
            stack.extend(query.parts)
        elif isinstance(query, Not):
            stack.append(query.part)
    return found


__all__ = ["BatchIndex", "places", "wanted_tokens"]
