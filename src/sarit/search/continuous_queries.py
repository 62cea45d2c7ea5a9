"""Many queries, compiled to be asked together about batches of events.  Pure.

A query that can match only events with one of some words is tried only on batches that have one of these words: so a
batch of few events costs little, however many queries there are.  A batch of thousands of events has most of the words;
there each query takes a few operations on bitmaps of the whole batch.  Queries that mean the same are asked once.
"""

from __future__ import annotations

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
    """Queries, each with the numbers of those who asked it.  `wanted`: of each text the tokens that they have."""

    def __init__(self, queries: Iterable[Query]) -> None:
        """`queries`: each is known by its place in this order."""
        self._numbers: dict[Query, list[int]] = {}
        # By whether they are keywords and by field, the queries that a token or a value makes candidates.
        self._by_word: dict[tuple[bool, str], dict[str, list[Query]]] = {}
        self._always: list[Query] = []
        for number, query in enumerate(queries):
            self._numbers.setdefault(query, []).append(number)
        for query in self._numbers:
            words = required(query)
            if words is None:
                self._always.append(query)
            else:
                for keyword, field, word in words:
                    self._by_word.setdefault((keyword, field), {}).setdefault(word, []).append(query)
        self.wanted = wanted_tokens(self._numbers)

    def __repr__(self) -> str:
        return f"<CompiledQueries, {len(self._numbers)} different ones>"

    def candidates(self, batch: EventBatch) -> Iterable[Query]:
        """Return the queries that may match events of a batch, each once."""
        found = dict.fromkeys(self._always)
        for (keyword, field), by_word in self._by_word.items():
            for word in batch.keywords(field) if keyword else batch.tokens(field):
                if word in by_word:
                    found.update(dict.fromkeys(by_word[word]))
        return found

    def match(self, batch: EventBatch) -> list[tuple[int, int]]:
        """Return (the number of a query, the events that match it) for those that match any, ascending."""
        found = [
            (number, bitmap)
            for query in self.candidates(batch)
            if (bitmap := batch.match(query))
            for number in self._numbers[query]
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
