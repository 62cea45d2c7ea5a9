"""Many queries, compiled to be asked together about batches of events.  Pure.

A query that can match only events with one of some words is tried only on batches that have one of these words: so a
batch of few events costs little, however many queries there are.  A batch of thousands of events has most of the words;
there each query takes a few operations on bitmaps of the whole batch.  Queries that mean the same are asked once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from sarit.search.batch_index import wanted_tokens
from sarit.search.query import And, Equals, Or, Phrase, Query, Term

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    # A token, or the whole value of a keyword (True), of a field.
    Word: TypeAlias = tuple[bool, str, str]


class EventBatch(Protocol):
    """Some events, indexed in memory.  Of bitmaps, bit N stands for event N."""

    def tokens(self, field: str) -> Iterable[str]:
        """Return the tokens that a text has in the batch: of the wanted ones, if some were."""

    def keywords(self, field: str) -> Iterable[str]:
        """Return the values that a keyword has in the batch."""

    def match(self, query: Query) -> int:
        """Return the events that match a query, as a bitmap.  Raises Invalid: the query costs too much."""


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """Some events, indexed in memory, and when each happened, in milliseconds since 1970; None: it does not say."""

    index: EventBatch
    times: Sequence[int | None]


class CompiledQueries:
    """Queries by the keys of their rows; those that mean the same are asked once.  A change costs what it changes."""

    def __init__(self, queries: Iterable[tuple[bytes, Query]] = ()) -> None:
        """`queries`: each with its key."""
        self._queries: dict[bytes, Query] = {}
        self._keys: dict[Query, dict[bytes, None]] = {}
        # By whether they are keywords and by field, the queries that a token or a value makes candidates.
        self._by_word: dict[tuple[bool, str], dict[str, dict[Query, None]]] = {}
        self._always: dict[Query, None] = {}
        self._tokens: dict[str, Counter[str]] = {}  # of each text: how many different queries have a token
        for key, query in queries:
            self.put(key, query)

    def __repr__(self) -> str:
        return f"<CompiledQueries, {len(self._keys)} different ones>"

    def put(self, key: bytes, query: Query) -> None:
        """Add a query, or change it."""
        if self._queries.get(key) == query:
            return
        self.remove(key)
        self._queries[key] = query
        keys = self._keys.setdefault(query, {})
        if not keys:
            self._add(query)
        keys[key] = None

    def remove(self, key: bytes) -> None:
        """Remove a query, if it is there."""
        query = self._queries.pop(key, None)
        if query is None:
            return
        keys = self._keys[query]
        del keys[key]
        if not keys:
            del self._keys[query]
            self._drop(query)

    def _add(self, query: Query) -> None:
        words = required(query)
        if words is None:
            self._always[query] = None
        for keyword, field, word in words or ():
            self._by_word.setdefault((keyword, field), {}).setdefault(word, {})[query] = None
        for field, tokens in wanted_tokens([query]).items():
            self._tokens.setdefault(field, Counter()).update(tokens)

    def _drop(self, query: Query) -> None:
        self._always.pop(query, None)
        for keyword, field, word in required(query) or ():
            by_word = self._by_word[keyword, field]
            del by_word[word][query]
            if not by_word[word]:
                del by_word[word]
            if not by_word:
                del self._by_word[keyword, field]
        for field, tokens in wanted_tokens([query]).items():
            counts = self._tokens[field]
            for token in tokens:
                counts[token] -= 1
                if not counts[token]:
                    del counts[token]
            if not counts:
                del self._tokens[field]

    @property
    def wanted(self) -> dict[str, Set[str]]:
        """The tokens that queries ask for, of each text."""
        return {field: counts.keys() for field, counts in self._tokens.items()}

    def candidates(self, batch: EventBatch) -> Iterable[Query]:
        """Return the queries that may match events of a batch, each once."""
        found = dict(self._always)
        for (keyword, field), by_word in self._by_word.items():
            for word in batch.keywords(field) if keyword else batch.tokens(field):
                if word in by_word:
                    found.update(by_word[word])
        return found

    def match(self, batch: EventBatch) -> list[tuple[bytes, int]]:
        """Return (the key of a query, the events that match it) for those that match any, ascending."""
        found = [
            (key, bitmap)
            for query in self.candidates(batch)
            if (bitmap := batch.match(query))
            for key in self._keys[query]
        ]
        found.sort()
        return found


def required(query: Query) -> Set[Word] | None:
    """Return words of which an event has one at least if it matches; None: nothing is known.

    Of several such sets the smallest, and then the longest words: these are rare."""
    match query:
        case Term(field, token):
            return {(False, field, token)}
        case Phrase(field, tokens):
            return {(False, field, max(tokens, key=len))}
        case Equals(field, str(value)):
            return {(True, field, value)}
        case And(parts):
            known = [words for part in parts if (words := required(part)) is not None]
            return min(known, key=_cost, default=None)
        case Or(parts):
            union: set[Word] = set()
            for part in parts:
                if (words := required(part)) is None:
                    return None
                union |= words
            return union
    return None


def _cost(words: Set[Word]) -> tuple[int, int]:
    return len(words), -min(len(word) for _, _, word in words)
